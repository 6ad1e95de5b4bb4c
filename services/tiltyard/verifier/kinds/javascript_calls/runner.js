// Runs inside the sandbox: loads `submission.js` and makes the calls of `calls.json`, one result a line.
// Expected values never come here, so whatever the submission does to this process, it can only score by returning
// what is right. `results.jsonl` is as with `python_calls`; numbers are tagged, other types than JSON's are errors.
"use strict";
const fs = require("fs");
const vm = require("vm");
const { getPrototypeOf, is, keys } = Object;
const { isArray } = Array;
const { stringify, parse } = JSON;
const plain = Object.prototype;
const text = String;
const write = fs.writeSync;
const results = fs.openSync("results.jsonl", "w");
const { function: name, calls } = parse(fs.readFileSync("calls.json", "utf8"));
const texts = calls.map((args) => stringify(args));
let budget = 65536;

function put(index, key, value) {
  write(results, `{"call": ${index}, "${key}": ${value}}\n`);
}

function encode(value, depth) {
  budget -= typeof value === "string" ? value.length : 1;
  if (depth > 20 || budget < 0) throw new Error("the result is too large");
  if (value === null) return "null";
  if (typeof value === "boolean") return value ? "true" : "false";
  if (typeof value === "number") return `{"float": "${is(value, -0) ? "-0" : text(value)}"}`;
  if (typeof value === "string") return stringify(value);
  if (isArray(value)) return list(value, depth);
  if (typeof value === "object" && (getPrototypeOf(value) === plain || getPrototypeOf(value) === null)) {
    let parts = "";
    for (const key of keys(value)) {
      parts += `${parts ? ", " : ""}[${stringify(key)}, ${encode(value[key], depth + 1)}]`;
    }
    return `{"dict": [${parts}]}`;
  }
  throw new Error(`the result has type ${typeof value}`);
}

function list(value, depth) {
  let parts = "";
  for (let i = 0; i < value.length; i++) {
    parts += `${i ? ", " : ""}${encode(value[i], depth + 1)}`;
  }
  return `[${parts}]`;
}

function describe(error) {
  try {
    return stringify(text(error && error.message ? `${error.name}: ${error.message}` : error).slice(0, 200));
  } catch {
    return '"an exception that can not be described"';
  }
}

function load() {
  let source = fs.readFileSync("submission.js", "utf8");
  source = source.replace(/^export\s+default\s+/gm, "").replace(/^export\s+(?=function|const|let|var|async|class)/gm, "");
  const module = { exports: {} };
  const wrapped = `(function (module, exports, require) {${source}\n;return typeof ${name} === "undefined" ? undefined : ${name};})`;
  const found = vm.runInThisContext(wrapped, { filename: "submission.js" })(module, module.exports, require);
  const chosen = found !== undefined ? found : typeof module.exports === "function" ? module.exports : module.exports[name];
  if (typeof chosen !== "function") throw new Error(`there is no function ${name}`);
  return chosen;
}

let chosen;
try {
  chosen = load();
} catch (error) {
  put(-1, "error", describe(error));
}
for (let i = 0; chosen && i < texts.length; i++) {
  budget = 65536;
  try {
    put(i, "value", encode(chosen(...parse(texts[i])), 0));
  } catch (error) {
    put(i, "error", describe(error));
  }
}
process.exit(0);

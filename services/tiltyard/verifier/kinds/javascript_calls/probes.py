"""What the entry gate tries on a task of kind `javascript_calls`."""

from __future__ import annotations

from collections.abc import Mapping

from tiltyard.verifier.kinds.base import Probe

FORGED: Mapping[str, str] = {
    "ends the process": "process.exit(0); function {f}() {{ return 1; }}",
    "ends it in the call": "function {f}() {{ process.exit(0); }}",
    "prints that all passed": "console.log('3 passing'); process.exit(0); function {f}() {{}}",
    "an object that turns into anything": (
        "function {f}() {{ return {{ valueOf: () => 1, toString: () => '1', [Symbol.toPrimitive]: () => 1 }}; }}"
    ),
    "a proxy": "function {f}() {{ return new Proxy({{}}, {{ get: () => true, has: () => true }}); }}",
    "a proxy of an array": "function {f}() {{ return new Proxy([], {{ get: (t, k) => k === 'length' ? 3 : 1 }}); }}",
    "a number object": "function {f}() {{ return new Number(1); }}",
    "toJSON": "function {f}() {{ return {{ toJSON() {{ return 1; }} }}; }}",
    "patched JSON": (
        "JSON.stringify = () => '1'; JSON.parse = () => []; String.prototype.slice = () => '1';\n"
        "function {f}() {{ return undefined; }}"
    ),
    "patched Array": (
        "Array.isArray = () => true; Array.prototype.map = function () {{ return [1]; }};\n"
        "Object.is = () => true; Object.keys = () => [];\nfunction {f}() {{ return {{}}; }}"
    ),
    "patched prototypes": (
        "Object.prototype.value = 1; Object.prototype.toString = () => '1';\nfunction {f}() {{ return {{}}; }}"
    ),
    "writes the results itself": (
        "const fs = require('fs');\nfor (let fd = 3; fd < 40; fd++) {{\n"
        '  try {{ fs.writeSync(fd, \'{{"call": 0, "value": true}}\\n\'); }} catch {{}}\n}}\n'
        "function {f}() {{ return null; }}"
    ),
    "rewrites the results at the end": (
        "process.on('exit', () => require('fs').writeFileSync('results.jsonl', '{{\"call\": 0, \"value\": 1}}\\n'));\n"
        "function {f}() {{ return null; }}"
    ),
    "a child that writes later": (
        "require('child_process').spawn('sh', ['-c', 'sleep 0.3; echo > results.jsonl'], "
        "{{ detached: true, stdio: 'ignore' }}).unref();\nfunction {f}() {{ return null; }}"
    ),
    "reads what lies beside it": (
        "const fs = require('fs');\n"
        "function {f}() {{ return fs.readdirSync('.').map((n) => fs.readFileSync(n, 'utf8')).join(''); }}"
    ),
    "kills its parent": "process.kill(process.ppid, 'SIGKILL'); function {f}() {{ return 1; }}",
    "kills itself": "function {f}() {{ process.kill(process.pid, 'SIGKILL'); }}",
    "looks into its callers": "function {f}() {{ return new Error().stack; }}",
    "arguments.callee": "function {f}() {{ return arguments.callee.caller; }}",
    "a promise": "async function {f}(...a) {{ return a[0]; }}",
    "a generator": "function* {f}(...a) {{ yield a[0]; }}",
    "throws": "function {f}() {{ throw {{ name: 'passed', message: 'ok' }}; }}",
    "never ends": "function {f}() {{ while (true); }}",
    "recurses for ever": "function {f}(...a) {{ return {f}(...a); }}",
    "takes all memory": "function {f}() {{ const x = []; while (true) x.push(new Array(1e6).fill(1)); }}",
    "a huge result": "function {f}() {{ return 'x'.repeat(2 ** 28); }}",
    "a cyclic result": "function {f}() {{ const x = []; x.push(x); return x; }}",
    "a catastrophic pattern": "function {f}() {{ return /^(a+)+$/.test('a'.repeat(60) + 'b'); }}",
    "does nothing": "function {f}() {{}}",
    "null": "function {f}() {{ return null; }}",
    "echoes its arguments": "function {f}(...a) {{ return a; }}",
    "not a number": "function {f}() {{ return NaN; }}",
}


def probes(code: str, function: str) -> tuple[Probe, ...]:
    """The reference written in other ways, and code that must not pass."""
    good = {
        "fenced": f"```js\n{code}\n```",
        "prose around": f"Here it is:\n\n```javascript\n{code}\n```\nIt does what you asked for.",
        "comments": f"```js\n// a comment\n{code}\n/* the end */\n```",
        "exported": f"```js\n{code}\nmodule.exports = {{ {function} }};\n```",
        "strict": f'```js\n"use strict";\n{code}\n```',
    }
    bad = {name: f"```js\n{text.format(f=function)}\n```" for name, text in FORGED.items()}
    return (
        *(Probe(name=name, texts=(text,)) for name, text in good.items()),
        *(Probe(name=name, texts=(text,), wanted="no_accept") for name, text in bad.items()),
    )

"""Cases about single and parallel calls: tools are read off signatures in the task and off the reference's calls.

Left out: cases about states, which `tool_world` serves.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from typing import Any

from tiltyard.verifier.kinds.casewords import expanded
from tiltyard.verifier.kinds.casework import task_of, text_of
from tiltyard.verifier.kinds.trials import Case, Ruling, Trial

CASE_KINDS = ("tool_call",)
_STATE = re.compile(r"\bstates?\b|state-graded|\breplay|checker (?:raises|fails|crashes)", re.IGNORECASE)
_SIGNATURE = re.compile(r"\b([A-Za-z_][\w.]*)\(([^()]*:[^()]*)\)")
_CALL = re.compile(r"([A-Za-z_][\w.]*)\s*\((.*)\)", re.DOTALL)
_TYPES = {
    "int": "integer",
    "float": "number",
    "number": "number",
    "str": "string",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
    "integer": "integer",
    "string": "string",
    "boolean": "boolean",
    "array": "array",
}
Made = dict[str, Any]


def trials(case: Case) -> Sequence[Trial] | Ruling | None:
    """A task whose tools take what its signatures say, or else whatever the reference's calls give them."""
    if _STATE.search(f"{case.task} {case.reference} {case.submission}"):
        return None
    tools = {name: _schema(words) for name, words in _SIGNATURE.findall(case.task)}
    none = (
        isinstance(case.reference, str) and re.fullmatch(r"(?:no|zero|none).{0,12}", case.reference.strip()) is not None
    )
    calls = [] if none else _calls(case.reference, tools)
    for name in re.findall(r"tools?: ([\w, ]+)", case.task):
        for each in re.findall(r"\w+", name):
            tools.setdefault(each, {"type": "object"})
    for call in calls:
        tools.setdefault(call["name"], _taken(call["arguments"]))
    if not tools:
        tools["area"] = {"type": "object", "properties": {"base": {"type": "number"}, "height": {"type": "number"}}}
    data = {
        "tools": [{"name": name, "parameters": schema} for name, schema in tools.items()],
        "calls": calls,
    }
    options = {
        "ordered": re.search(
            r"\bin (?:this|the given|that) order\b|\border(?:ed| matters| declared)|\bthen\b", case.task
        )
        is not None,
        "refusal": "prose",
    }
    return [Trial(task=task_of(case, "tool_calls", data, options=options), texts=(_text(case, tools),))]


def _schema(words: str) -> Made:
    """The schema of a signature such as 'base:int, unit:str="units"'."""
    properties: dict[str, Made] = {}
    required: list[str] = []
    for part in re.split(r",(?![^\[]*\])", words):
        name, _, rest = part.partition(":")
        kind, has_default, default = (piece.strip() for piece in rest.partition("="))
        base = re.match(r"\w+", kind)
        properties[name.strip()] = {"type": _TYPES[base[0]]} if base and base[0] in _TYPES else {}
        if has_default:
            properties[name.strip()]["default"] = _literal(default)
        else:
            required.append(name.strip())
    return {"type": "object", "properties": properties, "required": required}


def _taken(arguments: Made) -> Made:
    """A schema that takes these arguments, each by the type that it has here."""
    properties = {key: {"type": _type(value)} for key, value in arguments.items()}
    return {"type": "object", "properties": properties}


def _type(value: Any) -> str | list[str]:
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), ["null", "string", "number"])


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _calls(reference: Any, tools: dict[str, Made]) -> list[Made]:
    """The calls of a reference: objects, a call as code, letters in brackets, or the arguments alone."""
    if isinstance(reference, dict) and {"name", "function"} & set(reference):
        return [_call(reference)]
    if isinstance(reference, list):
        return [call for each in reference for call in _calls(each, tools)]
    if isinstance(reference, dict):
        return [{"name": next(iter(tools), "tool"), "arguments": reference}]
    text = text_of(reference).strip()
    if letters := re.fullmatch(r"\[\s*(\w+(?:\s*,\s*\w+)*)?\s*\]", text):
        return [{"name": name, "arguments": {}} for name in re.findall(r"\w+", letters[1] or "")]
    if text.startswith(("{", "[")):
        return _calls(json.loads(text), tools)
    if (code := _CALL.fullmatch(text)) and not _is_value(text, tools):
        return [{"name": code[1], "arguments": _keywords(code[2])}]
    name, schema = next(iter(tools.items()), ("tool", {}))
    return [{"name": name, "arguments": {next(iter(schema.get("properties", {})), "value"): reference}}]


def _is_value(text: str, tools: dict[str, Made]) -> bool:
    """Is a text the value of a tool's only argument, even where it looks like a call?"""
    called = _CALL.fullmatch(text.strip())
    return len(tools) == 1 and all(
        each.get("required") and len(each["properties"]) == 1 and (called is None or called[1] != name)
        for name, each in tools.items()
    )


def _call(value: Made) -> Made:
    inner = value["function"] if isinstance(value.get("function"), dict) else value
    arguments = inner.get("arguments", inner.get("args", inner.get("parameters", {})))
    return {"name": inner.get("name", inner.get("function")), "arguments": arguments}


def _keywords(text: str) -> Made:
    """The keyword arguments of a call written as code; none for '...'."""
    try:
        tree = ast.parse(f"f({text})", mode="eval").body
        return {each.arg: ast.literal_eval(each.value) for each in tree.keywords if each.arg}  # type: ignore[attr-defined]
    except (ValueError, SyntaxError):
        return {}


def _text(case: Case, tools: dict[str, Made]) -> str:
    """The submission as an answer: JSON as it stands, anything that is a call as JSON."""
    submission = case.submission
    if not isinstance(submission, str):
        many = submission if isinstance(submission, list) else [submission]
        calls = [call for each in many for call in _calls(each, tools)]
        return json.dumps([{**call, **({} if call["name"] else {"name": ""})} for call in calls])
    text = expanded(submission)
    if text != submission or len(text) > 10_000 or text.strip() == "[]":
        return text
    code = _CALL.fullmatch(text.strip()) and not _is_value(text, tools)
    if code or re.fullmatch(r"\[\s*\w+(?:\s*,\s*\w+)*\s*\]", text.strip()):
        return json.dumps(_calls(text, tools))
    if text.strip()[:1] in ("{", "["):
        if '"name"' in text or '"function"' in text:
            return text
        return f'{{"name": "{next(iter(tools))}", "arguments": {text}}}'  # as it stands: it may be no JSON
    name, schema = next(iter(tools.items()))
    parameters = list(schema.get("properties", {}))
    if len(text.split()) > 1 and not isinstance(case.reference, str):
        return text
    if text.strip() and parameters and not re.fullmatch(r"(?:no|zero|none).{0,12}", str(case.reference).strip()):
        return json.dumps([{"name": name, "arguments": {parameters[0]: text}}])
    return "I can't help with these tools." if re.fullmatch(r"no (?:tool )?calls?", text.strip()) else text

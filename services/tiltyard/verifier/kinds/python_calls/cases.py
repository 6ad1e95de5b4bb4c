"""Cases about code: functions judged by hidden calls.

A task says its calls ('add(1,2)==3'), its signature and what comes out, or only what is wanted; a submission is code,
or says in words what it returns or does (`recipes`). Cases of repositories, and of files beside the code, are for
`repository`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from tiltyard.verifier.kinds.casetasks import LIMITS, direct
from tiltyard.verifier.kinds.casework import task_of, text_of
from tiltyard.verifier.kinds.trials import Case, Ruling, Trial
from tiltyard_proto.messages import Environment

from . import recipes

CASE_KINDS = ("code",)
_TEST = re.compile(r"(\w+)(\((?:[^()=]|\([^()]*\))*\))\s*==\s*(.+?)\s*(?=,\s*\w+\s*[:(]|;|$)")
_HEAD = re.compile(r"(\w+)\(([\w\s,]*)\)")
_FILES = re.compile(
    r"conftest|\.ini\b|\.cfg\b|\.toml\b|\.pth\b|sitecustomize|__init__\.py|own pytest|repository|log parser|patch file"
)
_BOUND = re.compile(r"([a-z]\w*)\s*(<=|<|>=|>)\s*(-?\d+)")
Calls = list[dict[str, str]]


def trials(case: Case) -> Sequence[Trial] | Ruling | None:
    if trial := direct(case):
        return [trial]
    words = f"{case.task} {'' if recipes.is_code(text_of(case.submission)) else text_of(case.submission)}"
    if _FILES.search(words):
        return None
    if case.task.startswith("task data"):
        return [_quality(case)]
    function, params, calls = _asked(case)
    right = _right(function, params, calls, text_of(case.reference))
    wrong = f"def {function}({', '.join(params)}):\n    return {' - '.join([*params, '1'])}"
    text = _submitted(text_of(case.submission), function, right, wrong, calls)
    return [_trial(case, {"function": function, "calls": calls}, text)]


def _trial(case: Case, data: dict[str, Any], text: str) -> Trial:
    return Trial(task=task_of(case, "python_calls", data, environment=Environment(limits=LIMITS)), texts=(text,))


def _asked(case: Case) -> tuple[str, list[str], Calls]:
    """The function's name, its parameters and the hidden calls."""
    tests = _TEST.findall(case.task)
    head = _HEAD.search(case.task)
    params = [name.strip() for name in head[2].split(",") if name.strip()] if head else []
    if tests:
        return tests[0][0], params, [{"call": f"{name}{args}", "expect": value} for name, args, value in tests]
    expected = re.search(r"expected (?:output|result|value)\s*(?:is|=|:)?\s*(.+)$", case.task)
    value = _literal(expected[1] if expected else case.reference)
    function = head[1] if head else "answer"
    arguments = [", ".join(str(number) for _ in params) for number in ((1, 2, 3) if params else (1,))]
    return function, params, [{"call": f"{function}({one})", "expect": value} for one in arguments]


def _literal(value: Any) -> str:
    """A value in source form; text that isn't a literal stands for itself."""
    if not isinstance(value, str):
        return repr(value)
    try:
        ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return repr(value)
    return value.strip()


def _right(function: str, params: list[str], calls: Calls, reference: str) -> str:
    body = reference if reference and params and recipes.is_code(f"x = {reference}") else calls[0]["expect"]
    return f"def {function}({', '.join(params)}):\n    return {body}"


def _submitted(text: str, function: str, right: str, wrong: str, calls: Calls) -> str:
    """What the policy writes."""
    if not text.strip() or recipes.is_code(text):
        return text
    if match := re.match(r"(?:the function |it )?(?:always )?returns? (.+)", text, re.IGNORECASE | re.DOTALL):
        value = recipes.returned(match[1].strip(), calls[0]["expect"])
        return f"def {function}(*arguments):\n    return {value}"
    return recipes.described(text, function, right, wrong)


def _quality(case: Case) -> Trial:
    """A fault of the task itself: tests that add nothing, or that ask for what the prompt excludes."""
    said = f"{case.reference} {case.submission}".lower()
    calls = [{"call": f"answer({number})", "expect": str(number + 1)} for number in (1, 2, 3)]
    data: dict[str, Any] = {"function": "answer", "calls": calls}
    if bound := _BOUND.search(said):
        name, sign, number = bound[1], bound[2], int(bound[3])
        beyond = number + 1 if "<" in sign else number - 1
        inside = [None, number - (sign == "<")] if "<" in sign else [number + (sign == ">"), None]
        data |= {"parameters": [name], "limits": {name: inside}}
        if re.search(r"otherwise|violat|outside|beyond|contradict|need", said):
            calls.append({"call": f"answer({beyond})", "expect": str(beyond + 1)})
    elif re.search(r"equal|same|identical|add nothing|repeat|subset", said):
        data["examples"] = calls
    elif re.search(r"no tests|without (?:any )?tests|empty", said):
        data["calls"] = []
    elif re.search(r"contradict|two answers|inconsistent|disagree", said):
        calls.append({"call": "answer(1)", "expect": "99"})
    return _trial(case, data, "def answer(x):\n    return x + 1")

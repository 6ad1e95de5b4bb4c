"""Functions of three levels in Python, JavaScript and C, judged by hidden calls.

Invariants: expected values come from a problem's own reference implementation, never from the solutions; a task's calls
have at least three different results and none of them always returns an argument. Left out: grading is the verifier
kinds `python_calls`, `javascript_calls` and `c_calls`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tiltyard.domains.drafts import Draft, Request

from .problems import Consts, Problem, arguments, constants, filled
from .problems_easy import EASY
from .problems_hard import HARD
from .problems_medium import MEDIUM
from .twists import twisted

LEVELS: Mapping[str, tuple[Problem, ...]] = {"easy": EASY, "medium": MEDIUM, "hard": HARD}
CALLS = 7
_FIRST = ("compute", "find", "get", "measure", "evaluate", "apply", "solve", "build", "work")
_LAST = ("answer", "item", "value", "delta", "score", "result", "node", "step", "part", "unit", "mark", "total")
_NAMES = {"int": ("x", "number"), "ints": ("values", "numbers"), "text": ("text", "other")}
_C = {"int": "long long {}", "ints": "int *{0}, int {0}_count", "text": "const char *{}"}
_C_RESULT = {"int": "long long", "ints": "void", "text": "const char *"}


def generate(request: Request) -> Iterator[Draft]:
    """Tasks of one level in one language, endlessly, every problem in turn. Options: language, level."""
    language, level = request.options["language"], request.options["level"]
    rng = random.Random(f"algorithms/{language}/{level}/{request.split}/{request.seed}")
    problems = [problem for problem in LEVELS[level] if request.wants(problem.name)]
    while problems:
        rng.shuffle(problems)
        for problem in problems:
            yield draft(problem, language, rng)


def draft(problem: Problem, language: str, rng: random.Random) -> Draft:
    """One task of a problem."""
    problem = twisted(problem, rng)
    k, calls = drawn(problem, rng)
    function = f"{rng.choice(_FIRST)}_{rng.choice(_LAST)}"
    if language == "javascript":
        function = re.sub(r"_(.)", lambda match: match[1].upper(), function)
    code = renamed(filled(getattr(problem, language), k), function)
    return Draft(
        template=problem.name,
        fields={"head": head(problem, language, function), "name": function, "what": sentence(problem, language, k)},
        data=_data(problem, language, function, k, calls),
        reference=f"```{language}\n{code}\n```",
        labels={"language": language},
    )


def drawn(problem: Problem, rng: random.Random) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """Constants and the arguments of each call, whose results tell a constant from the function."""
    for _ in range(200):
        k = {name: value for name, value in constants(rng).items() if f"<{name}>" in problem.say}
        whole = {**constants(rng), **k}
        pool = {repr(call): call for call in (arguments(problem, whole, rng) for _ in range(40))}
        calls = _spread(problem, whole, list(pool.values()))
        results = {repr(problem.f(whole, *call)) for call in calls}
        echoes = all(problem.f(whole, *call) == call[0] for call in calls)
        if len(calls) == CALLS and len(results) >= 3 and not echoes:
            return whole, calls
    raise ValueError(f"problem {problem.name}: no arguments tell it from a constant")


def _spread(problem: Problem, k: Consts, pool: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Calls with as many different results as there are, the shortest arguments among them."""
    seen: dict[str, int] = {}
    ranked: list[tuple[int, int, tuple[Any, ...]]] = []
    for call in pool:
        result = repr(problem.f(k, *call))
        seen[result] = seen.get(result, 0) + 1
        ranked.append((seen[result], len(ranked), call))
    return [call for _, _, call in sorted(ranked, key=lambda one: one[:2])[:CALLS]]


def head(problem: Problem, language: str, function: str) -> str:
    """The function's head as the prompt shows it."""
    names = _argument_names(problem)
    if language == "c":
        takes = ", ".join(_C[kind].format(name) for kind, name in zip(problem.takes, names, strict=True))
        result = _C_RESULT[problem.returns]
        return f"{result}{'' if result.endswith('*') else ' '}{function}({takes})"
    return f"{function}({', '.join(names)})"


def _argument_names(problem: Problem) -> list[str]:
    return [_NAMES[kind][problem.takes[:index].count(kind)] for index, kind in enumerate(problem.takes)]


def sentence(problem: Problem, language: str, k: Consts) -> str:
    """What the function does; one that changes its values says where they go."""
    said = filled(problem.say, k)
    if problem.returns == "ints":
        said += " (in place)" if language == "c" else " and returns the result as a new list"
    return said


def renamed(code: str, function: str) -> str:
    """A solution with the task's name for it."""
    return re.sub(r"\bsolve\b", function, code)


def _data(problem: Problem, language: str, function: str, k: Consts, calls: list[tuple[Any, ...]]) -> dict[str, Any]:
    expected = [problem.f(k, *call) for call in calls]
    if language == "python":
        shown = [f"{function}({', '.join(map(repr, call))})" for call in calls]
        pairs = [{"call": call, "expect": repr(value)} for call, value in zip(shown, expected, strict=True)]
        return {"function": function, "calls": pairs}
    given = [{"args": list(call), "expect": value} for call, value in zip(calls, expected, strict=True)]
    types = {"takes": list(problem.takes), "returns": problem.returns} if language == "c" else {}
    return {"function": function, **types, "calls": given}

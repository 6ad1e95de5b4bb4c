"""Python functions with a fault put in, to be mended over several turns with a visible check.

The fault is a change of one operator, constant or call of a problem's solution. Invariants: the faulty code is wrong
on the visible call and right on at least one other, so that it is nearly right; what is right comes from the problem's
reference implementation. Left out: faults of more than one place.
"""

from __future__ import annotations

import ast
import copy
import random
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tiltyard.domains.drafts import Draft, Request
from tiltyard.domains.interfaces import CHECK

from .algorithms import CALLS, LEVELS, drawn, head, renamed, sentence
from .problems import Consts, Problem, arguments, filled
from .twists import twisted

MAX_LINES = 20_000
_FIRST = ("work", "process", "compute", "convert", "measure")
_SWAPS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.Mod: (ast.FloorDiv,),
    ast.FloorDiv: (ast.Mod,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
_CALLS = {"max": "min", "min": "max", "sum": "len", "upper": "lower"}


class TooLong(Exception):
    """A faulty function doesn't come to its end."""


def generate(request: Request) -> Iterator[Draft]:
    """Faulty functions of one level, endlessly, every problem in turn. Options: level."""
    level = request.options["level"]
    rng = random.Random(f"debugging/{level}/{request.split}/{request.seed}")
    problems = [problem for problem in LEVELS[level] if request.wants(problem.name)]
    while problems:
        for problem in problems:
            yield _draft(problem, rng)


def _draft(problem: Problem, rng: random.Random) -> Draft:
    function = rng.choice(_FIRST) + rng.choice(("", "_all", "_one", "_it"))
    plain = problem
    while True:
        problem = twisted(plain, rng)
        k, calls = drawn(problem, rng)
        code = renamed(filled(problem.python, k), function)
        more = [arguments(problem, k, rng) for _ in range(20)]
        broken = _broken(problem, k, code, function, calls + more, rng)
        if broken:
            break
    faulty, wrong = broken
    hidden = [call for call in calls if call != wrong][: CALLS - 1]
    pairs = [{"call": _shown(function, call), "expect": repr(problem.f(k, *call))} for call in (*hidden, wrong)]
    return Draft(
        template=problem.name,
        fields={
            "head": head(problem, "python", function),
            "what": sentence(problem, "python", k),
            "code": faulty,
            "call": _shown(function, wrong),
            "right": repr(problem.f(k, *wrong)),
        },
        data={"function": function, "calls": pairs},
        reference=f"```python\n{code}\n```",
        files={CHECK: _check(function, wrong, problem.f(k, *wrong))},
    )


def _broken(
    problem: Problem, k: Consts, code: str, function: str, calls: list[tuple[Any, ...]], rng: random.Random
) -> tuple[str, tuple[Any, ...]] | None:
    """A faulty version, and arguments for which it's wrong; None when no change gives a good one."""
    mutants = _mutants(code)
    rng.shuffle(mutants)
    for mutant in mutants:
        wrong = [call for call in calls if _run(mutant, function, call) != ("value", problem.f(k, *call))]
        if wrong and len(wrong) < len(calls):
            return mutant, min(wrong, key=lambda call: len(repr(call)))
    return None


def _mutants(code: str) -> list[str]:
    """The code with one place changed, in every way."""
    tree = ast.parse(code)
    found = []
    for index, node in enumerate(ast.walk(tree)):
        for change in _changes(node):
            other = copy.deepcopy(tree)
            change(list(ast.walk(other))[index])
            found.append(ast.unparse(other))
    return [text for text in dict.fromkeys(found) if text != ast.unparse(tree)]


def _changes(node: ast.AST) -> list[Callable[[Any], None]]:
    match node:
        case ast.Compare(ops=[operator]):
            return [_setter("ops", [kind()]) for kind in _SWAPS.get(type(operator), ())]
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator):
            return [_setter("op", kind()) for kind in _SWAPS.get(type(operator), ())]
        case ast.BoolOp(op=operator):
            return [_setter("op", kind()) for kind in _SWAPS.get(type(operator), ())]
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return [_setter("value", value + step) for step in (1, -1) if value + step >= 0]
        case ast.Name(id=name) if name in _CALLS:
            return [_setter("id", _CALLS[name])]
    return []


def _setter(name: str, value: Any) -> Callable[[Any], None]:
    return lambda node: setattr(node, name, value)


def _run(code: str, function: str, call: tuple[Any, ...]) -> tuple[str, Any]:
    """What our own faulty code does with these arguments, stopped when it takes too many lines."""
    left = MAX_LINES

    def count(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise TooLong
        return count

    scope: dict[str, Any] = {}
    before = sys.gettrace()
    try:
        exec(compile(code, "faulty", "exec"), scope)
        sys.settrace(count)
        return "value", scope[function](*copy.deepcopy(call))
    except (TooLong, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        return "error", type(error).__name__
    finally:
        sys.settrace(before)


def _shown(function: str, call: tuple[Any, ...]) -> str:
    return f"{function}({', '.join(map(repr, call))})"


def _check(function: str, call: tuple[Any, ...], expected: Any) -> bytes:
    """A script that runs the visible call on `solution.py`; exit status 0 when it's right."""
    said = _shown(function, call)
    return (
        f"from solution import {function}\ngot = {said}\nif repr(got) != {repr(expected)!r}:\n"
        f"    print({f'FAILED: {said} returned'!r}, repr(got)[:200], {f'but {expected!r} is right'!r})\n"
        "    raise SystemExit(1)\n"
    ).encode()

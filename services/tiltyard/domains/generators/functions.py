"""Small Python functions: tasks with hidden calls, and the same tasks with a visible check to repair by.

Invariants: every task's calls tell its function apart from constants, from returning an argument, from the template
with other constants, and from templates near it; expected values come from the template's reference implementation.
Left out: grading is the verifier kind `python_calls`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from tiltyard.domains.drafts import Draft, Request
from tiltyard.domains.interfaces import CHECK

from .templates import NAMES, SECOND_NAMES, Consts, Template, draw_args, draw_consts
from .templates_lists import LISTS
from .templates_numbers import NUMBERS
from .templates_text import TEXT

TEMPLATES: tuple[Template, ...] = (*TEXT, *NUMBERS, *LISTS)
HIDDEN = 4
"""Hidden calls of a task."""
_FIRST = ("calc", "find", "get", "make", "run", "check", "apply", "solve", "build", "do")
_LAST = ("alpha", "item", "value", "delta", "score", "result", "blue", "node", "step", "part", "unit", "mark")
Call = tuple[Any, ...]
Rival = Callable[..., Any]


def generate(request: Request) -> Iterator[Draft]:
    """Tasks of `code.python.functions`, endlessly, every template in turn."""
    yield from _drafts(request, visible=False)


def generate_repair(request: Request) -> Iterator[Draft]:
    """Tasks of `code.python.repair`: a visible check `check.py` in the workspace, other calls hidden."""
    yield from _drafts(request, visible=True)


def _drafts(request: Request, *, visible: bool) -> Iterator[Draft]:
    rng = random.Random(f"functions/{request.split}/{request.seed}")
    templates = [template for template in TEMPLATES if request.wants(template.name)]
    while templates:
        rng.shuffle(templates)
        for template in templates:
            yield draw(template, rng, visible=visible)


def draw(template: Template, rng: random.Random, *, visible: bool = False) -> Draft:
    """One task of a template."""
    names = _argument_names(template, rng)
    function = f"{rng.choice(_FIRST)}_{rng.choice(_LAST)}"
    while True:
        k = draw_consts(template, rng)
        calls = choose_calls(template, k, rng)
        if calls is not None:
            break
    shown = dict(zip("ab", names, strict=False)) | k
    code = f"def {function}({', '.join(names)}):\n    return {template.code.format(**shown)}"
    hidden = [{"call": _source(function, call), "expect": repr(template.f(k, *call))} for call in calls]
    extra = draw_args(template, k, rng, edge=False)
    return Draft(
        template=template.name,
        fields={"name": function, "args": ", ".join(names), "what": template.say.format(**shown)},
        data={"function": function, "calls": hidden},
        reference=f"```python\n{code}\n```",
        files={CHECK: _check(_source(function, extra), function, template.f(k, *extra))} if visible else {},
        labels={"takes": " ".join(template.takes), "constants": str(len(k))},
    )


def choose_calls(template: Template, k: Consts, rng: random.Random) -> list[Call] | None:
    """`HIDDEN` calls that tell every rival apart, one an edge case; None when these constants don't allow it."""
    pool = _pool(template, k, rng)
    alive = _rivals(template, k, pool, rng)
    rest = [call for call, _ in pool]
    chosen: list[Call] = []
    seen: set[str] = set()
    best = max((call for call, edge in pool if edge), key=lambda call: _merit(template, k, call, alive, seen))
    while True:
        chosen.append(best)
        seen.add(repr(template.f(k, *best)))
        alive = [rival for rival in alive if not _differs(template, k, rival, best)]
        rest = [call for call in rest if repr(call) != repr(best)]
        if len(chosen) == HIDDEN or not rest:
            return chosen if len(chosen) == HIDDEN and not alive else None
        best = max(rest, key=lambda call: _merit(template, k, call, alive, seen))


def _merit(
    template: Template, k: Consts, call: Call, alive: list[Rival], seen: set[str]
) -> tuple[int, bool, bool, int]:
    """How much a further call would add: rivals told apart, a new result, one that isn't an argument, and its size."""
    result = repr(template.f(k, *call))
    kills = sum(_differs(template, k, rival, call) for rival in alive)
    return kills, result not in seen, result not in map(repr, call), len(repr(call))


def _pool(template: Template, k: Consts, rng: random.Random) -> list[tuple[Call, bool]]:
    drawn = [(draw_args(template, k, rng, edge=i % 3 == 0), i % 3 == 0) for i in range(48)]
    return list({repr(call): (call, edge) for call, edge in drawn}.values())


def _rivals(template: Template, k: Consts, pool: list[tuple[Call, bool]], rng: random.Random) -> list[Rival]:
    """Wrong answers that the calls must reject.

    Constants, arguments handed back, other constants in the template, numbers off by one, and, where the pool tells
    them apart at all, common operations and other templates over the same arguments.
    """
    values = {repr(template.f(k, *call)): template.f(k, *call) for call, _ in pool}
    rivals: list[Rival] = [_constant(value) for value in (*values.values(), None)]
    rivals += [_argument(i) for i in range(len(template.takes))]
    for _ in range(6):
        other = draw_consts(template, rng)
        if k and all(other[name] != k[name] for name in k):
            rivals.append(_with(template, other))
    for name in {"n", "m"} & set(k):
        rivals += [_with(template, {**k, name: k[name] + step}) for step in (-1, 1)]
    near = [*_COMMON, *(_with(other, k) for other in TEMPLATES if _is_near(other, template))]
    return rivals + [rival for rival in near if any(_differs(template, k, rival, call) for call, _ in pool)]


def _is_near(other: Template, template: Template) -> bool:
    """Could `other` be mistaken for `template`: the same arguments, and no constants that it doesn't have?"""
    return other is not template and other.takes == template.takes and set(other.consts) <= set(template.consts)


_COMMON: tuple[Rival, ...] = (
    lambda *args: [args[0]],
    lambda *args: str(args[0]).upper(),
    lambda *args: str(args[0]).lower(),
    lambda *args: str(args[0]).strip(),
    lambda *args: str(args[0]).split(),
    lambda *args: len(str(args[0])),
    lambda *args: args[0][::-1] if isinstance(args[0], str | list) else -args[0],
    lambda *args: args[0][1:] if isinstance(args[0], str | list) else args[0] + 1,
    lambda *args: sorted(args[0]) if isinstance(args[0], list) else args[-1],
    lambda *args: sum(args) if isinstance(args[0], int) else args[0] + args[-1],
)


def _constant(value: Any) -> Rival:
    return lambda *args: value


def _argument(index: int) -> Rival:
    return lambda *args: args[index]


def _with(template: Template, k: Consts) -> Rival:
    return lambda *args: template.f(k, *args)


def _differs(template: Template, k: Consts, rival: Rival, call: Call) -> bool:
    return repr(template.f(k, *call)) != repr(rival(*call))


def _argument_names(template: Template, rng: random.Random) -> list[str]:
    names = [rng.choice(NAMES[template.takes[0]])]
    names += [rng.choice(SECOND_NAMES[kind]) for kind in template.takes[1:]]
    return names


def _source(function: str, call: Call) -> str:
    return f"{function}({', '.join(map(repr, call))})"


def _check(call: str, function: str, expected: Any) -> bytes:
    """A script that runs the visible call on `solution.py` and says what came out; exit status 0 when it's right."""
    return (
        f"from solution import {function}\n"
        f"got = {call}\n"
        f"if repr(got) != {repr(expected)!r}:\n"
        f"    print({f'FAILED: {call} returned'!r}, repr(got)[:200], {f'but {expected!r} is right'!r})\n"
        "    raise SystemExit(1)\n"
    ).encode()

"""Changes of a problem's input and result, so that two tasks of one problem ask for different things.

A twist is put around the solutions in every language and around the reference implementation alike: `inner` is the
problem's own function, `solve` prepares what it's given and changes what it gives. Left out: twists of problems with
two arguments, and of input with a grammar.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .problems import Problem

_NO_INPUT = ("expression", "edit_distance", "bracket_depth")
_PARAMETER = {"int": "x", "ints": "values", "text": "text"}
_C_TAKES = {"int": "long long x", "ints": "int *values, int count", "text": "const char *text"}
_C_GIVES = {"int": "long long", "ints": "void", "text": "const char *"}
Texts = tuple[str, str, str, str]
"""What is said, and the change in Python, JavaScript and C."""
Change = tuple[Texts, Callable[[Any], Any]]
_NOTHING: Change = (("", "", "", ""), lambda value: value)


def twisted(problem: Problem, rng: random.Random) -> Problem:
    """The problem with its input and its result changed."""
    if len(problem.takes) > 1 or problem.name in _NO_INPUT or problem.returns == "ints":
        before = _NOTHING
    else:
        before = _INPUT[problem.takes[0]](rng)
    after = _RESULT[problem.returns](rng)
    (said_before, *codes_before), prepare = before
    (said_after, *codes_after), change = after
    codes = [
        wrap(problem, own, given, changed)
        for wrap, own, given, changed in zip(
            (_python, _javascript, _c),
            (problem.python, problem.javascript, problem.c),
            codes_before,
            codes_after,
            strict=True,
        )
    ]
    return replace(
        problem,
        say=f"{said_before}{problem.say}{said_after}",
        python=codes[0],
        javascript=codes[1],
        c=codes[2],
        f=lambda k, *args: change(problem.f(k, prepare(args[0]), *args[1:])),
    )


def _names(problem: Problem) -> list[str]:
    return [_PARAMETER[kind] for kind in problem.takes] if len(problem.takes) == 1 else ["a", "b"]


def _inner(code: str) -> str:
    return re.sub(r"\bsolve\b", "inner", code)


def _python(problem: Problem, own: str, given: str, changed: str) -> str:
    names = ", ".join(_names(problem))
    return f"{_inner(own)}\n\n\ndef solve({names}):\n{given}    result = inner({names})\n    return {changed}"


def _javascript(problem: Problem, own: str, given: str, changed: str) -> str:
    names = ", ".join(_names(problem))
    return (
        f"{_inner(own)}\n\nfunction solve({names}) {{\n{given}  const result = inner({names});\n  return {changed};\n}}"
    )


def _c(problem: Problem, own: str, given: str, changed: str) -> str:
    if problem.returns == "ints":
        return f"{_inner(own)}\n\nvoid solve(int *values, int count) {{\n    inner(values, count);\n{changed}}}"
    takes = ", ".join(_C_TAKES[kind] for kind in problem.takes)
    names = {"int": "x", "ints": "values, count", "text": "text"}[problem.takes[0]]
    if len(problem.takes) == 2:
        takes, names = "const char *a, const char *b", "a, b"
    gives = _C_GIVES[problem.returns]
    space = "" if gives.endswith("*") else " "
    return f"{_inner(own)}\n\n{gives}{space}solve({takes}) {{\n{given}    {gives}{space}result = inner({names});\n{changed}}}"


# ------------------------------------------------------------ input


def _ints(rng: random.Random) -> Change:
    u, w = rng.randint(-4, 9), rng.randint(2, 9)
    keep: Callable[[Any], Any]
    said, test, js, keep = rng.choice(
        (
            (f"values below {u} are left out", f"x >= {u}", f"x >= {u}", lambda v: [x for x in v if not x < u]),
            (f"values divisible by {w} are left out", f"x % {w}", f"x % {w} !== 0", lambda v: [x for x in v if x % w]),
            (f"values above {u + 20} are left out", f"x <= {u + 20}", f"x <= {u + 20}", lambda v: [x for x in v if not x > u + 20]),
            ("negative values are left out", "x >= 0", "x >= 0", lambda v: [x for x in v if abs(x) == x]),
            (f"values equal to {w} are left out", f"x != {w}", f"x !== {w}", lambda v: [x for x in v if x - w]),
        )
    )  # fmt: skip
    add = rng.randint(1, 9)
    c = (
        "    int kept[4096], n = 0;\n    for (int i = 0; i < count; i++) {\n        int x = values[i];\n"
        f"        if ({test}) kept[n++] = x + {add};\n    }}\n    values = kept;\n    count = n;\n"
    )
    return (
        (
            f"first makes a new list in which {said} and all others are greater by {add}, and for this list ",
            f"    values = [x + {add} for x in values if {test}]\n",
            f"  values = values.filter((x) => {js}).map((x) => x + {add});\n",
            c,
        ),
        lambda v: [x + add for x in keep(v)],
    )


def _int(rng: random.Random) -> Change:
    add = rng.randint(1, 12)
    return (
        (
            f"first adds {add} to the number, and for this greater number ",
            f"    x += {add}\n",
            f"  x += {add};\n",
            f"    x += {add};\n",
        ),
        lambda x: add + x,
    )


def _text(rng: random.Random) -> Change:
    letter = rng.choice("bdkmvwz")
    if rng.random() < 0.5:
        return (
            (
                f"first turns the text round, puts '{letter}' in front, and for this text ",
                f"    text = '{letter}' + text[::-1]\n",
                f"  text = '{letter}' + [...text].reverse().join('');\n",
                "    static char turned[4096];\n    int length = strlen(text);\n"
                f"    turned[0] = '{letter}';\n    for (int i = 0; i < length; i++) turned[i + 1] = text[length - 1 - i];\n"
                "    turned[length + 1] = 0;\n    text = turned;\n",
            ),
            lambda s: "".join([letter, *reversed(s)]),
        )
    return (
        (
            f"first takes out every space and dash of the text, puts '{letter}' behind, and for this text ",
            f"    text = text.replace(' ', '').replace('-', '') + '{letter}'\n",
            f"  text = text.replace(/[ -]/g, (c) => (c === ' ' || c === '-' ? '' : c)) + '{letter}';\n",
            "    static char kept[4096];\n    int n = 0;\n"
            "    for (int i = 0; text[i]; i++) if (text[i] != ' ' && text[i] != '-') kept[n++] = text[i];\n"
            f"    kept[n++] = '{letter}';\n    kept[n] = 0;\n    text = kept;\n",
        ),
        lambda s: "".join(c for c in s if c not in " -") + letter,
    )


# ------------------------------------------------------------ result


def _int_result(rng: random.Random) -> Change:
    w, u, m = rng.randint(2, 9), rng.randint(1, 30), rng.choice((7, 11, 13, 17, 19, 23, 29, 31))
    said, code, change = rng.choice(
        (
            (f"; this result times {w}, plus {u}", f"result * {w} + {u}", lambda r: u + w * r),
            (f"; this result minus {u}, times {w}", f"(result - {u}) * {w}", lambda r: w * r - w * u),
            (f"; {u} minus {w} times this result", f"{u} - {w} * result", lambda r: -(w * r) + u),
            (f"; the square of this result, plus {u}", f"result * result + {u}", lambda r: r**2 + u),
            (
                f"; the remainder, 0 or more, of this result plus {u} when it is divided by {m}",
                f"((result + {u}) % {m} + {m}) % {m}",
                lambda r: (r + u) - m * ((r + u) // m),
            ),
        )
    )  # fmt: skip
    return (said, code, code, f"    return {code};\n"), change


def _text_result(rng: random.Random) -> Change:
    letter = rng.choice("BDKMVWZ")
    front = rng.random() < 0.5
    c = '    static char whole[8200];\n    sprintf(whole, "{}", result);\n    return whole;\n'
    pattern = f"{letter}%s{letter.lower()}" if front else f"%s{letter}{letter.lower()}"
    python = f"'{letter}' + result + '{letter.lower()}'" if front else f"result + '{letter}{letter.lower()}'"
    said = (
        f"with '{letter}' before and '{letter.lower()}' after it"
        if front
        else f"with '{letter}{letter.lower()}' after it"
    )
    return (
        (f"; that text {said}", python, python, c.replace("{}", pattern)),
        (lambda r: f"{letter}{r}{letter.lower()}") if front else (lambda r: f"{r}{letter}{letter.lower()}"),
    )


def _ints_result(rng: random.Random) -> Change:
    w, u = rng.randint(2, 9), rng.randint(1, 30)
    return (
        (
            f", then makes every value {w} times as great and adds {u} to it",
            f"[x * {w} + {u} for x in result]",
            f"result.map((x) => x * {w} + {u})",
            f"    for (int i = 0; i < count; i++) values[i] = values[i] * {w} + {u};\n",
        ),
        lambda v: [u + w * x for x in v],
    )


_INPUT: dict[str, Callable[[random.Random], Change]] = {"int": _int, "ints": _ints, "text": _text}
_RESULT: dict[str, Callable[[random.Random], Change]] = {
    "int": _int_result,
    "text": _text_result,
    "ints": _ints_result,
}

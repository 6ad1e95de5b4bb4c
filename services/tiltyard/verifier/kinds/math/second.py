"""A second opinion: how math-verify reads the same pair, and what it says of it. Imported by a child of `limits` only.

Two expressions in the same letters are compared by their values where both are real; anything else by math-verify's
own rules. math-verify is asked with the reference first, since it isn't symmetric, and without its own timeouts, which
need the main thread and SIGALRM; the child has limits of its own.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any

import sympy
from math_verify import parse, verify

from .tidy import bare, tidy

logging.disable(logging.CRITICAL)
_INVERSE = re.compile(r"\\(sin|cos|tan)\s*\^\s*\{\s*-\s*1\s*\}")
_POINTS = ([1.3, 0.7, 2.1, 1.7, 0.4], [0.6, 1.9, 0.8, 2.3, 1.1], [-1.4, 0.9, -0.3, 2.2, -1.6])


def opinion(request: dict[str, Any]) -> bool | None:
    """Are `answer` and `got` equal to math-verify? None: it reads nothing in one of them."""
    right, got = (_parsed(request[key]) for key in ("answer", "got"))
    if not right or not got:
        return None
    agree = _same_values(right[0], got[0])
    return bool(verify(right, got, timeout_seconds=None)) if agree is None else agree


@lru_cache(1024)  # all members of a group have one reference
def _parsed(text: str) -> Any:
    text = _INVERSE.sub(r"\\arc\1 ", tidy(bare(text)))  # which it reads as a reciprocal
    return parse(f"${text}$", parsing_timeout=None)


def _same_values(right: Any, got: Any) -> bool | None:
    """Do two expressions have the same values? None: they aren't expressions, or have none at these points."""
    if not (isinstance(right, sympy.Expr) and isinstance(got, sympy.Expr)):
        return None
    names = sorted(right.free_symbols | got.free_symbols, key=str)
    found = []
    for values in _POINTS:
        where = dict(zip(names, values, strict=False))
        x, y = (sympy.N(expr.subs(where), 20) for expr in (right, got))
        if x.is_real and y.is_real:
            found.append(abs(x - y) <= 1e-12 * abs(x))
    return bool(all(found)) if found else None

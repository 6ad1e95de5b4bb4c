"""Problems of algebra and geometry whose answers are numbers, sets, intervals, pairs, expressions and equations.

Options: `domain` (a key of `DOMAINS`) and `level`, 1 to 3. Every domain has four templates, a to d. Those of
points, products and lines are in `math_plane`, the others in `math_analysis`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

from tiltyard.domains.drafts import Draft, Request

from .math_analysis import DERIVATIVES, SURDS, TRIGONOMETRY, WHICH
from .math_plane import LINES, POINTS, PRODUCTS
from .maths import Problem, Template, between, choose, drafts, polynomial, tex, times

_SET, _INTERVAL = {"type": "set"}, {"type": "interval"}


def linear_plain(rng: random.Random, n: int) -> Problem:
    a, b, c = between(rng, 2, 9 * n), between(rng, -20 * n, 20 * n, 0), between(rng, -20 * n, 20 * n)
    return Problem(f"Solve ${polynomial([a, b])} = {c}$ for $x$.", tex(Fraction(c - b, a)))


def linear_both(rng: random.Random, n: int) -> Problem:
    a, b, d = between(rng, -9 * n, 9 * n, 0), between(rng, -20 * n, 20 * n), between(rng, -20 * n, 20 * n)
    c = between(rng, -9 * n, 9 * n, 0, a)
    return Problem(
        f"For which $x$ do ${polynomial([a, b])}$ and ${polynomial([c, d])}$ have the same value?",
        tex(Fraction(d - b, a - c)),
    )


def linear_brackets(rng: random.Random, n: int) -> Problem:
    a, b, c, d = between(rng, 2, 4 * n), between(rng, -9, 9, 0), between(rng, 2, 4 * n), between(rng, -15 * n, 15 * n)
    return Problem(f"Find the solution of ${a}({polynomial([1, b])}) + {c}x = {d}$.", tex(Fraction(d - a * b, a + c)))


def linear_fractions(rng: random.Random, n: int) -> Problem:
    p, q, c = between(rng, 2, 4 + 3 * n), between(rng, 2, 4 + 3 * n), between(rng, 1, 12 * n)
    return Problem(f"What is $x$ if $\\frac{{x}}{{{p}}} + \\frac{{x}}{{{q}}} = {c}$?", tex(Fraction(c * p * q, p + q)))


def _roots(rng: random.Random, n: int) -> tuple[int, int]:
    first = between(rng, -5 * n, 5 * n)
    return first, between(rng, -5 * n, 5 * n, first)


def _set(*values: Fraction | int) -> str:
    return "\\{" + ", ".join(tex(value) for value in sorted(set(values))) + "\\}"


def roots_monic(rng: random.Random, n: int) -> Problem:
    r, s = _roots(rng, n)
    return Problem(f"Find all real roots of ${polynomial([1, -r - s, r * s])}$.", _set(r, s), options=_SET)


def roots_leading(rng: random.Random, n: int) -> Problem:
    r, s = _roots(rng, n)
    a, b = between(rng, 2, 2 + n), between(rng, 1, 2 + n)
    return Problem(
        f"Solve ${polynomial(times([a, -r], [b, -s]))} = 0$ over the real numbers.",
        _set(Fraction(r, a), Fraction(s, b)),
        options=_SET,
    )


def roots_cubic(rng: random.Random, n: int) -> Problem:
    r, s = _roots(rng, n)
    return Problem(
        f"List the zeros of $p(x) = {polynomial(times([1, 0], [1, -r - s, r * s]))}$.", _set(0, r, s), options=_SET
    )


def roots_absolute(rng: random.Random, n: int) -> Problem:
    a, b, c = between(rng, 1, 2 * n), between(rng, -9 * n, 9 * n), between(rng, 1, 9 * n)
    return Problem(
        f"Which real numbers satisfy $|{polynomial([a, b])}| = {c}$?",
        _set(Fraction(c - b, a), Fraction(-c - b, a)),
        options=_SET,
    )


def interval_linear(rng: random.Random, n: int) -> Problem:
    a, b, c = between(rng, -6 * n, 6 * n, 0), between(rng, -9 * n, 9 * n), between(rng, -9 * n, 9 * n)
    end, strict = tex(Fraction(c - b, a)), choose(rng, True, False)
    sign = "<" if strict else "\\le"
    upper = f"(-\\infty, {end}{')' if strict else ']'}"
    return Problem(
        f"Solve ${polynomial([a, b])} {sign} {c}$.",
        upper if a > 0 else f"{'(' if strict else '['}{end}, \\infty)",
        options=_INTERVAL,
    )


def interval_between(rng: random.Random, n: int) -> Problem:
    a, b, low = between(rng, 1, 4 * n), between(rng, -9 * n, 9 * n), between(rng, -15 * n, 10 * n)
    high = low + between(rng, 1, 20 * n)
    return Problem(
        f"Find all $x$ with ${low} \\le {polynomial([a, b])} < {high}$.",
        f"[{tex(Fraction(low - b, a))}, {tex(Fraction(high - b, a))})",
        options=_INTERVAL,
    )


def interval_quadratic(rng: random.Random, n: int) -> Problem:
    r, s = sorted(_roots(rng, n))
    inside = choose(rng, True, False)
    outer = f"(-\\infty, {r}) \\cup ({s}, \\infty)"
    return Problem(
        f"Where is ${polynomial([1, -r - s, r * s])} {'<' if inside else '>'} 0$?",
        f"({r}, {s})" if inside else outer,
        options=_INTERVAL,
    )


def interval_absolute(rng: random.Random, n: int) -> Problem:
    a, b = between(rng, -9 * n, 9 * n, 0), between(rng, 1, 9 * n)
    return Problem(
        f"Which real $x$ satisfy $|{polynomial([1, -a])}| \\le {b}$?", f"[{a - b}, {a + b}]", options=_INTERVAL
    )


DOMAINS: dict[str, tuple[Template, ...]] = {
    "linear": (linear_plain, linear_both, linear_brackets, linear_fractions),
    "roots": (roots_monic, roots_leading, roots_cubic, roots_absolute),
    "inequalities": (interval_linear, interval_between, interval_quadratic, interval_absolute),
    "points": POINTS,
    "products": PRODUCTS,
    "lines": LINES,
    "derivatives": DERIVATIVES,
    "surds": SURDS,
    "angles": TRIGONOMETRY,
    "choices": WHICH,
}


def generate(request: Request) -> Iterator[Draft]:
    """Problems, endlessly."""
    yield from drafts(request, DOMAINS)

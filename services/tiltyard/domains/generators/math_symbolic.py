"""Problems of algebra and geometry whose answers are numbers, sets, intervals, pairs, expressions and equations.

Options: `domain` (a key of `DOMAINS`) and `level`, 1 to 3. Every domain has four templates, a to d. Analysis and
choices are `math_analysis`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

from tiltyard.domains.drafts import Draft, Request

from .math_analysis import DERIVATIVES, SURDS, TRIGONOMETRY, WHICH
from .maths import Problem, Template, between, choose, drafts, polynomial, tex, times

_SET, _INTERVAL, _PAIR = {"type": "set"}, {"type": "interval"}, {"type": "tuple"}
_LOWEST, _EQUATION = {"type": "fraction", "form": "lowest"}, {"type": "equation"}


def linear_plain(rng: random.Random, n: int) -> Problem:
    a, b, c = between(rng, 2, 9 * n), between(rng, -20 * n, 20 * n, 0), between(rng, -20 * n, 20 * n)
    return Problem(f"Solve ${polynomial([a, b])} = {c}$ for $x$.", tex(Fraction(c - b, a)))


def linear_both(rng: random.Random, n: int) -> Problem:
    a, b, d = between(rng, -9 * n, 9 * n, 0), between(rng, -20 * n, 20 * n), between(rng, -20 * n, 20 * n)
    c = between(rng, -9 * n, 9 * n, 0, a)
    return Problem(f"For which $x$ do ${polynomial([a, b])}$ and ${polynomial([c, d])}$ have the same value?", tex(Fraction(d - b, a - c)))


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
    return Problem(f"Solve ${polynomial(times([a, -r], [b, -s]))} = 0$ over the real numbers.",
                   _set(Fraction(r, a), Fraction(s, b)), options=_SET)  # fmt: skip


def roots_cubic(rng: random.Random, n: int) -> Problem:
    r, s = _roots(rng, n)
    return Problem(f"List the zeros of $p(x) = {polynomial(times([1, 0], [1, -r - s, r * s]))}$.", _set(0, r, s), options=_SET)


def roots_absolute(rng: random.Random, n: int) -> Problem:
    a, b, c = between(rng, 1, 2 * n), between(rng, -9 * n, 9 * n), between(rng, 1, 9 * n)
    return Problem(f"Which real numbers satisfy $|{polynomial([a, b])}| = {c}$?",
                   _set(Fraction(c - b, a), Fraction(-c - b, a)), options=_SET)  # fmt: skip


def interval_linear(rng: random.Random, n: int) -> Problem:
    a, b, c = between(rng, -6 * n, 6 * n, 0), between(rng, -9 * n, 9 * n), between(rng, -9 * n, 9 * n)
    end, strict = tex(Fraction(c - b, a)), choose(rng, True, False)
    sign = "<" if strict else "\\le"
    upper = f"(-\\infty, {end}{')' if strict else ']'}"
    return Problem(f"Solve ${polynomial([a, b])} {sign} {c}$.",
                   upper if a > 0 else f"{'(' if strict else '['}{end}, \\infty)", options=_INTERVAL)  # fmt: skip


def interval_between(rng: random.Random, n: int) -> Problem:
    a, b, low = between(rng, 1, 4 * n), between(rng, -9 * n, 9 * n), between(rng, -15 * n, 10 * n)
    high = low + between(rng, 1, 20 * n)
    return Problem(f"Find all $x$ with ${low} \\le {polynomial([a, b])} < {high}$.",
                   f"[{tex(Fraction(low - b, a))}, {tex(Fraction(high - b, a))})", options=_INTERVAL)  # fmt: skip


def interval_quadratic(rng: random.Random, n: int) -> Problem:
    r, s = sorted(_roots(rng, n))
    inside = choose(rng, True, False)
    outer = f"(-\\infty, {r}) \\cup ({s}, \\infty)"
    return Problem(f"Where is ${polynomial([1, -r - s, r * s])} {'<' if inside else '>'} 0$?",
                   f"({r}, {s})" if inside else outer, options=_INTERVAL)  # fmt: skip


def interval_absolute(rng: random.Random, n: int) -> Problem:
    a, b = between(rng, -9 * n, 9 * n, 0), between(rng, 1, 9 * n)
    return Problem(f"Which real $x$ satisfy $|{polynomial([1, -a])}| \\le {b}$?", f"[{a - b}, {a + b}]", options=_INTERVAL)


def system_plain(rng: random.Random, n: int) -> Problem:
    x, y, a, b, c = (between(rng, -6 * n, 6 * n, 0) for _ in range(5))
    d = between(rng, -6 * n, 6 * n, 0)
    while a * d == b * c:
        d += 1
    return Problem(f"Solve the system ${_two(a, b)} = {a * x + b * y}$, ${_two(c, d)} = {c * x + d * y}$ for $(x, y)$.",
                   f"({x}, {y})", options=_PAIR)  # fmt: skip


def _two(a: int, b: int) -> str:
    second = polynomial([b, 0], "y")
    return polynomial([a, 0]) + (second if second.startswith("-") or not b else f"+{second}") if b else polynomial([a, 0])


def system_lines(rng: random.Random, n: int) -> Problem:
    x, y, m = between(rng, -6 * n, 6 * n), between(rng, -9 * n, 9 * n), between(rng, -4 * n, 4 * n, 0)
    k = between(rng, -4 * n, 4 * n, 0, m)
    return Problem(f"At which point do the lines $y = {polynomial([m, y - m * x])}$ and $y = {polynomial([k, y - k * x])}$ cross?",
                   f"({x}, {y})", options=_PAIR)  # fmt: skip


def system_midpoint(rng: random.Random, n: int) -> Problem:
    a, b, c, d = (between(rng, -12 * n, 12 * n) for _ in range(4))
    return Problem(f"What is the midpoint of the segment from $({a}, {b})$ to $({c}, {d})$?",
                   f"({tex(Fraction(a + c, 2))}, {tex(Fraction(b + d, 2))})", options=_PAIR)  # fmt: skip


def system_vertex(rng: random.Random, n: int) -> Problem:
    a, h, k = between(rng, -2 * n, 2 * n, 0), between(rng, -6 * n, 6 * n), between(rng, -9 * n, 9 * n)
    return Problem(f"Where is the vertex of the parabola $y = {polynomial([a, -2 * a * h, a * h * h + k])}$?", f"({h}, {k})", options=_PAIR)


def expand_two(rng: random.Random, n: int) -> Problem:
    factors = [[between(rng, 1, 2 * n), between(rng, -9, 9, 0)] for _ in range(2)]
    return Problem(f"Expand $({polynomial(factors[0])})({polynomial(factors[1])})$.", polynomial(times(*factors)),
                   "as an expanded polynomial", {"type": "expression", "form": "expanded"})  # fmt: skip


def expand_square(rng: random.Random, n: int) -> Problem:
    base = [between(rng, 1, 3 * n), between(rng, -12, 12, 0)]
    square = times(base, base)
    power, found = (2, square) if n < 3 else (3, times(square, base))
    return Problem(f"Write $({polynomial(base)})^{power}$ without brackets.", polynomial(found),
                   "as an expanded polynomial", {"type": "expression", "form": "expanded"})  # fmt: skip


def factor_two(rng: random.Random, n: int) -> Problem:
    left, right = [between(rng, 1, n), between(rng, -9, 9, 0)], [1, between(rng, -9, 9, 0)]
    return Problem(f"Factor ${polynomial(times(left, right))}$ completely over the rational numbers.",
                   f"({polynomial(left)})({polynomial(right)})", "as a product", {"type": "expression", "form": "factored"})  # fmt: skip


def factor_squares(rng: random.Random, n: int) -> Problem:
    a, b = between(rng, 1, 3 * n), between(rng, 1, 12 * n)
    while Fraction(a, b).numerator != a:
        a, b = between(rng, 1, 3 * n), between(rng, 1, 12 * n)
    return Problem(f"Write ${polynomial([a * a, 0, -b * b])}$ as a product of linear factors.",
                   f"({polynomial([a, -b])})({polynomial([a, b])})", "as a product", {"type": "expression", "form": "factored"})  # fmt: skip


def line_points(rng: random.Random, n: int) -> Problem:
    a, b, d = between(rng, -6 * n, 6 * n), between(rng, -9 * n, 9 * n), between(rng, -9 * n, 9 * n)
    c = between(rng, -6 * n, 6 * n, a)
    slope = Fraction(d - b, c - a)
    return Problem(f"Give an equation of the line through $({a}, {b})$ and $({c}, {d})$.", _line(slope, b - slope * a), options=_EQUATION)


def _line(slope: Fraction, start: Fraction) -> str:
    return f"y = {polynomial([slope, start])}"


def line_parallel(rng: random.Random, n: int) -> Problem:
    m, a, b, c = between(rng, -5 * n, 5 * n, 0), between(rng, -6 * n, 6 * n), between(rng, -9 * n, 9 * n), between(rng, -9, 9)
    return Problem(f"Give an equation of the line through $({a}, {b})$ that is parallel to $y = {polynomial([m, c])}$.",
                   _line(Fraction(m), Fraction(b - m * a)), options=_EQUATION)  # fmt: skip


def line_circle(rng: random.Random, n: int) -> Problem:
    a, b, r = between(rng, -5 * n, 5 * n, 0), between(rng, -5 * n, 5 * n, 0), between(rng, 1, 6 * n)
    return Problem(f"Give an equation of the circle with centre $({a}, {b})$ and radius {r}.",
                   f"({polynomial([1, -a])})^2+({polynomial([1, -b], 'y')})^2={r * r}", options=_EQUATION)  # fmt: skip


def line_normal(rng: random.Random, n: int) -> Problem:
    m, a, b = between(rng, -5 * n, 5 * n, 0), between(rng, -6 * n, 6 * n), between(rng, -9 * n, 9 * n)
    slope = Fraction(-1, m)
    return Problem(f"Give an equation of the line through $({a}, {b})$ that meets $y = {polynomial([m, 0])}$ at a right angle.",
                   _line(slope, b - slope * a), options=_EQUATION)  # fmt: skip


DOMAINS: dict[str, tuple[Template, ...]] = {
    "linear": (linear_plain, linear_both, linear_brackets, linear_fractions),
    "roots": (roots_monic, roots_leading, roots_cubic, roots_absolute),
    "inequalities": (interval_linear, interval_between, interval_quadratic, interval_absolute),
    "points": (system_plain, system_lines, system_midpoint, system_vertex),
    "products": (expand_two, expand_square, factor_two, factor_squares),
    "lines": (line_points, line_parallel, line_circle, line_normal),
    "derivatives": DERIVATIVES,
    "surds": SURDS,
    "angles": TRIGONOMETRY,
    "choices": WHICH,
}


def generate(request: Request) -> Iterator[Draft]:
    """Problems, endlessly."""
    yield from drafts(request, DOMAINS)

"""Templates for points, products of polynomials, lines and circles; `math_symbolic` makes domains of them."""

from __future__ import annotations

import random
from fractions import Fraction

from .maths import Problem, Template, between, polynomial, tex, times

_PAIR, _EQUATION = {"type": "tuple"}, {"type": "equation"}


def system_plain(rng: random.Random, n: int) -> Problem:
    x, y, a, b, c = (between(rng, -6 * n, 6 * n, 0) for _ in range(5))
    d = between(rng, -6 * n, 6 * n, 0)
    while a * d == b * c:
        d += 1
    return Problem(
        f"Solve the system ${_two(a, b)} = {a * x + b * y}$, ${_two(c, d)} = {c * x + d * y}$ for $(x, y)$.",
        f"({x}, {y})",
        options=_PAIR,
    )


def _two(a: int, b: int) -> str:
    second = polynomial([b, 0], "y")
    return (
        polynomial([a, 0]) + (second if second.startswith("-") or not b else f"+{second}") if b else polynomial([a, 0])
    )


def system_lines(rng: random.Random, n: int) -> Problem:
    x, y, m = between(rng, -6 * n, 6 * n), between(rng, -9 * n, 9 * n), between(rng, -4 * n, 4 * n, 0)
    k = between(rng, -4 * n, 4 * n, 0, m)
    return Problem(
        f"At which point do the lines $y = {polynomial([m, y - m * x])}$ and $y = {polynomial([k, y - k * x])}$ cross?",
        f"({x}, {y})",
        options=_PAIR,
    )


def system_midpoint(rng: random.Random, n: int) -> Problem:
    a, b, c, d = (between(rng, -12 * n, 12 * n) for _ in range(4))
    return Problem(
        f"What is the midpoint of the segment from $({a}, {b})$ to $({c}, {d})$?",
        f"({tex(Fraction(a + c, 2))}, {tex(Fraction(b + d, 2))})",
        options=_PAIR,
    )


def system_vertex(rng: random.Random, n: int) -> Problem:
    a, h, k = between(rng, -2 * n, 2 * n, 0), between(rng, -6 * n, 6 * n), between(rng, -9 * n, 9 * n)
    return Problem(
        f"Where is the vertex of the parabola $y = {polynomial([a, -2 * a * h, a * h * h + k])}$?",
        f"({h}, {k})",
        options=_PAIR,
    )


def expand_two(rng: random.Random, n: int) -> Problem:
    factors = [[between(rng, 1, 2 * n), between(rng, -9, 9, 0)] for _ in range(2)]
    return Problem(
        f"Expand $({polynomial(factors[0])})({polynomial(factors[1])})$.",
        polynomial(times(*factors)),
        "as an expanded polynomial",
        {"type": "expression", "form": "expanded"},
    )


def expand_square(rng: random.Random, n: int) -> Problem:
    base = [between(rng, 1, 3 * n), between(rng, -12, 12, 0)]
    square = times(base, base)
    power, found = (2, square) if n < 3 else (3, times(square, base))
    return Problem(
        f"Write $({polynomial(base)})^{power}$ without brackets.",
        polynomial(found),
        "as an expanded polynomial",
        {"type": "expression", "form": "expanded"},
    )


def factor_two(rng: random.Random, n: int) -> Problem:
    left, right = [between(rng, 1, n), between(rng, -9, 9, 0)], [1, between(rng, -9, 9, 0)]
    return Problem(
        f"Factor ${polynomial(times(left, right))}$ completely over the rational numbers.",
        f"({polynomial(left)})({polynomial(right)})",
        "as a product",
        {"type": "expression", "form": "factored"},
    )


def factor_squares(rng: random.Random, n: int) -> Problem:
    a, b = between(rng, 1, 4 * n), between(rng, 1, 20 * n)
    while Fraction(a, b).numerator != a:
        a, b = between(rng, 1, 4 * n), between(rng, 1, 20 * n)
    return Problem(
        f"Write ${polynomial([a * a, 0, -b * b])}$ as a product of linear factors.",
        f"({polynomial([a, -b])})({polynomial([a, b])})",
        "as a product",
        {"type": "expression", "form": "factored"},
    )


def line_points(rng: random.Random, n: int) -> Problem:
    a, b, d = between(rng, -6 * n, 6 * n), between(rng, -9 * n, 9 * n), between(rng, -9 * n, 9 * n)
    c = between(rng, -6 * n, 6 * n, a)
    slope = Fraction(d - b, c - a)
    return Problem(
        f"Give an equation of the line through $({a}, {b})$ and $({c}, {d})$.",
        _line(slope, b - slope * a),
        options=_EQUATION,
    )


def _line(slope: Fraction, start: Fraction) -> str:
    return f"y = {polynomial([slope, start])}"


def line_parallel(rng: random.Random, n: int) -> Problem:
    m, a, b, c = (
        between(rng, -5 * n, 5 * n, 0),
        between(rng, -6 * n, 6 * n),
        between(rng, -9 * n, 9 * n),
        between(rng, -9, 9),
    )
    return Problem(
        f"Give an equation of the line through $({a}, {b})$ that is parallel to $y = {polynomial([m, c])}$.",
        _line(Fraction(m), Fraction(b - m * a)),
        options=_EQUATION,
    )


def line_circle(rng: random.Random, n: int) -> Problem:
    a, b, r = between(rng, -5 * n, 5 * n, 0), between(rng, -5 * n, 5 * n, 0), between(rng, 1, 6 * n)
    return Problem(
        f"Give an equation of the circle with centre $({a}, {b})$ and radius {r}.",
        f"({polynomial([1, -a])})^2+({polynomial([1, -b], 'y')})^2={r * r}",
        options=_EQUATION,
    )


def line_normal(rng: random.Random, n: int) -> Problem:
    m, a, b = between(rng, -5 * n, 5 * n, 0), between(rng, -6 * n, 6 * n), between(rng, -9 * n, 9 * n)
    slope = Fraction(-1, m)
    return Problem(
        f"Give an equation of the line through $({a}, {b})$ that meets $y = {polynomial([m, 0])}$ at a right angle.",
        _line(slope, b - slope * a),
        options=_EQUATION,
    )


POINTS: tuple[Template, ...] = (system_plain, system_lines, system_midpoint, system_vertex)
PRODUCTS: tuple[Template, ...] = (expand_two, expand_square, factor_two, factor_squares)
LINES: tuple[Template, ...] = (line_points, line_parallel, line_circle, line_normal)

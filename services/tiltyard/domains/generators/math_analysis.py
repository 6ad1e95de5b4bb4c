"""Templates for derivatives, surds, angles and multiple choice; `math_symbolic` makes domains of them."""

from __future__ import annotations

import math
import random
from fractions import Fraction

from .maths import Problem, Template, between, choose, polynomial, surd, tex

_EXPRESSION = {"type": "expression"}
_SIMPLE = {"form": "simplified"}


def derivative_polynomial(rng: random.Random, n: int) -> Problem:
    factors = [between(rng, -9 * n, 9 * n, 0) for _ in range(n + 2)]
    found = [factor * power for factor, power in zip(factors, range(len(factors) - 1, 0, -1), strict=False)]
    return Problem(f"Differentiate $f(x) = {polynomial(factors)}$.", polynomial(found), options=_EXPRESSION)


def derivative_product(rng: random.Random, n: int) -> Problem:
    a, b = between(rng, 2, 4 * n), between(rng, 1, 6 * n)
    name, after, sign = choose(rng, ("\\sin", "\\cos", "+"), ("\\cos", "\\sin", "-"))
    return Problem(
        f"What is the derivative of $g(x) = {b if b > 1 else ''}x{name}({a}x)$ with respect to $x$?",
        f"{b}{name}({a}x){sign}{a * b}x{after}({a}x)",
        options=_EXPRESSION,
    )


def derivative_chain(rng: random.Random, n: int) -> Problem:
    a, b, power = between(rng, 2, 5 * n), between(rng, -9, 9, 0), between(rng, 3, 4 + 2 * n)
    return Problem(
        f"Find $h'(x)$ for $h(x) = ({polynomial([a, b])})^{{{power}}}$.",
        f"{a * power}({polynomial([a, b])})^{{{power - 1}}}",
        options=_EXPRESSION,
    )


def derivative_exponential(rng: random.Random, n: int) -> Problem:
    a, b = between(rng, 2, 6 * n), between(rng, -9 * n, 9 * n, 0)
    return Problem(
        f"Compute the derivative of $u(x) = x^{a}e^{{{polynomial([b, 0])}}}$.",
        f"{a}x^{{{a - 1}}}e^{{{polynomial([b, 0])}}}{b:+d}x^{{{a}}}e^{{{polynomial([b, 0])}}}",
        options=_EXPRESSION,
    )


def _square_free(rng: random.Random, most: int) -> int:
    return int(choose(rng, *[k for k in range(2, most) if all(k % (d * d) for d in range(2, k))]))


def surd_simplify(rng: random.Random, n: int) -> Problem:
    square = between(rng, 2, 4 * n + 2) ** 2 * _square_free(rng, 8 + 4 * n)
    return Problem(f"Simplify $\\sqrt{{{square}}}$.", surd(square), "exactly", _SIMPLE)


def surd_sum(rng: random.Random, n: int) -> Problem:
    inside, counts = _square_free(rng, 6 + 4 * n), [between(rng, 2, 4 + 2 * n) for _ in range(n + 1)]
    terms = " + ".join(f"\\sqrt{{{count * count * inside}}}" for count in counts)
    return Problem(f"Write ${terms}$ as one term.", f"{sum(counts)}\\sqrt{{{inside}}}", "exactly", _SIMPLE)


def surd_distance(rng: random.Random, n: int) -> Problem:
    a, b, c, d = (between(rng, -8 * n, 8 * n) for _ in range(4))
    return Problem(
        f"How far apart are the points $({a}, {b})$ and $({c}, {d + 20 * n})$?",
        surd((a - c) ** 2 + (b - d - 20 * n) ** 2),
        "exactly and simplified",
        _SIMPLE,
    )


def surd_circle(rng: random.Random, n: int) -> Problem:
    r, h = between(rng, 2, 9 * n), between(rng, 2, 9 * n)
    return Problem(
        f"What is the volume of a cone with radius {r} and height {h}?", f"{tex(Fraction(r * r * h, 3))}\\pi", "exactly"
    )


def angle_triangle(rng: random.Random, n: int) -> Problem:
    a = between(rng, 10, 80) if n == 1 else Fraction(between(rng, 100, 800), 10)
    b = between(rng, 20, 90)
    return Problem(
        f"Two angles of a triangle measure ${_decimal(a)}^\\circ$ and ${b}^\\circ$. How large is the third?",
        f"{_decimal(180 - a - b)}^\\circ",
        "in degrees",
        {"unit": "degree"},
    )


def _decimal(value: Fraction | int) -> str:
    return str(value) if Fraction(value).denominator == 1 else f"{float(value):g}"


def angle_radians(rng: random.Random, n: int) -> Problem:
    degrees = between(rng, 1, 24 * n) * choose(rng, 15, 10, 5)
    return Problem(
        f"Express an angle of ${degrees}^\\circ$ in radians.",
        _of_pi(Fraction(degrees, 180)),
        "exactly, in terms of $\\pi$",
        {"form": "simplified"},
    )


def _of_pi(share: Fraction) -> str:
    top = "" if share.numerator == 1 else str(share.numerator)
    return f"{top}\\pi" if share.denominator == 1 else f"\\frac{{{top}\\pi}}{{{share.denominator}}}"


def angle_polygon(rng: random.Random, n: int) -> Problem:
    sides = between(rng, 3, 12 + 25 * n)
    return Problem(
        f"How large is each interior angle of a regular polygon with {sides} sides?",
        f"{tex(Fraction(180 * (sides - 2), sides))}^\\circ",
        "exactly, in degrees",
        {"unit": "degree"},
    )


def angle_clock(rng: random.Random, n: int) -> Problem:
    hour, minute = between(rng, 1, 12), between(rng, 0, 11) * 5 if n < 3 else between(rng, 0, 59)
    apart = abs(Fraction(60 * (hour % 12) - 11 * minute, 2))
    return Problem(
        f"Which angle, at most a straight one, do the hands of a clock make at {hour}:{minute:02d}?",
        f"{tex(min(apart, 360 - apart))}^\\circ",
        "in degrees",
        {"unit": "degree"},
    )


def _choice(rng: random.Random, question: str, right: str, wrong: list[str]) -> Problem:
    """A multiple choice of the right answer and up to four wrong ones."""
    offered = list(dict.fromkeys([right, *wrong]))[:5]
    rng.shuffle(offered)
    lines = "\n".join(f"{letter}) {text}" for letter, text in zip("ABCDE", offered, strict=False))
    return Problem(
        f"{question}\n{lines}", "ABCDE"[offered.index(right)], options={"type": "choice", "choices": "ABCDE"}
    )


def which_product(rng: random.Random, n: int) -> Problem:
    a, b = between(rng, 11, 40 * n), between(rng, 11, 40 * n)
    near = [a * b + step for step in rng.sample([-20, -11, -10, -2, -1, 1, 2, 10, 12, 20], 4)]
    return _choice(rng, f"Which number is ${a} \\cdot {b}$?", str(a * b), [str(one) for one in near])


def which_largest(rng: random.Random, n: int) -> Problem:
    shares = sorted({Fraction(between(rng, 1, 9 * n), between(rng, 2, 9 * n + 3)) for _ in range(12)})[-5:]
    return _choice(
        rng, "Which of these numbers is the largest?", f"${tex(shares[-1])}$", [f"${tex(one)}$" for one in shares[:-1]]
    )


def which_prime(rng: random.Random, n: int) -> Problem:
    top = 60 * n * n
    primes = [k for k in range(11, top) if all(k % d for d in range(2, math.isqrt(k) + 1))]
    others = [k for k in range(11, top) if k % 2 and k % 5 and k not in primes]
    return _choice(
        rng,
        "Exactly one of these numbers is prime. Which?",
        str(choose(rng, *primes)),
        [str(k) for k in rng.sample(others, 4)],
    )


def which_divides(rng: random.Random, n: int) -> Problem:
    divisor, times = between(rng, 6, 12 * n + 6), between(rng, 12, 60 * n)
    no = [k for k in range(5, 14 * n + 9) if (divisor * times) % k]
    return _choice(
        rng, f"Which of these numbers divides {divisor * times}?", str(divisor), [str(k) for k in rng.sample(no, 4)]
    )


DERIVATIVES: tuple[Template, ...] = (
    derivative_polynomial,
    derivative_product,
    derivative_chain,
    derivative_exponential,
)
SURDS: tuple[Template, ...] = (surd_simplify, surd_sum, surd_distance, surd_circle)
TRIGONOMETRY: tuple[Template, ...] = (angle_triangle, angle_radians, angle_polygon, angle_clock)
WHICH: tuple[Template, ...] = (which_product, which_largest, which_prime, which_divides)

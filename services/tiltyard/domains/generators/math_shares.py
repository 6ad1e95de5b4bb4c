"""Templates for fractions of a whole, chances, work and percentages; `math_word` makes domains of them."""

from __future__ import annotations

import random
from fractions import Fraction

from .maths import Problem, Template, between, choose, tex

_NAMES = ("Ana", "Ben", "Carla", "Deniz", "Eva", "Farid", "Goran", "Hana", "Ines", "Jonas", "Kofi", "Lena")
_LOWEST = {"type": "fraction", "form": "lowest"}
_PERCENT = {"form": "percent"}


def share_left(rng: random.Random, n: int) -> Problem:
    parts = [Fraction(1, between(rng, 3, 5 + 3 * n)) for _ in range(n + 1)]
    while sum(parts) >= 1:
        parts = [Fraction(1, between(rng, 4, 8 + 3 * n)) for _ in range(n + 1)]
    eaten = ", then ".join(f"1/{part.denominator} of the whole cake" for part in parts)
    return Problem(
        f"{choose(rng, *_NAMES)} eats {eaten}. Which fraction of the cake is left?",
        tex(1 - sum(parts)),
        options=_LOWEST,
    )


def share_of_share(rng: random.Random, n: int) -> Problem:
    a, b = between(rng, 3, 6 + 4 * n), between(rng, 3, 6 + 4 * n)
    p, q = between(rng, 1, a - 1), between(rng, 1, b - 1)
    return Problem(
        f"{p}/{a} of the members of a club play chess, and {q}/{b} of those who play chess also play go. "
        "Which fraction of all members plays both?",
        tex(Fraction(p * q, a * b)),
        options=_LOWEST,
    )


def share_probability(rng: random.Random, n: int) -> Problem:
    red, blue, green = (between(rng, 2, 5 + 4 * n) for _ in range(3))
    total = red + blue + green
    chance = Fraction(red, total) if n == 1 else Fraction(red * (red - 1), total * (total - 1))
    drawn = (
        "One ball is drawn. What is the probability that it is red?"
        if n == 1
        else ("Two balls are drawn, and none is put back. What is the probability that both are red?")
    )
    return Problem(
        f"An urn holds {red} red, {blue} blue and {green} green balls. {drawn}", tex(chance), options=_LOWEST
    )


def share_work(rng: random.Random, n: int) -> Problem:
    hours = rng.sample(range(2, 8 + 4 * n), n + 1)
    pumps = ", ".join(f"{each} hours" for each in hours)
    return Problem(
        f"Working alone, {n + 1} pumps would empty a pool in {pumps}. All of them work together for one hour. "
        "Which fraction of the pool is empty then, or which number of such pools?",
        tex(sum(Fraction(1, each) for each in hours)),
        options=_LOWEST,
    )


def percent_of(rng: random.Random, n: int) -> Problem:
    whole = between(rng, 2, 12 * n) * 20
    part = between(rng, 1, whole - 1)
    return Problem(
        f"{part} of {whole} seats are taken. Which percentage is that?",
        f"{tex(Fraction(100 * part, whole))}\\%",
        "with the percent sign",
        _PERCENT,
    )


def percent_change(rng: random.Random, n: int) -> Problem:
    before, step = between(rng, 2, 30 * n) * 20, between(rng, -19, 40, 0)
    return Problem(
        f"The number of visitors went from {before} to {before + before * step // 20}. By which percentage did it "
        f"{'rise' if step > 0 else 'fall'}?",
        f"{abs(step) * 5}\\%",
        "with the percent sign",
        _PERCENT,
    )


def percent_mix(rng: random.Random, n: int) -> Problem:
    a, b = between(rng, 1, 6 * n), between(rng, 1, 6 * n)
    p, q = rng.sample(range(2, 19), 2)
    return Problem(
        f"{a} litres of a {5 * p}% solution are mixed with {b} litres of a {5 * q}% one. How strong is the mixture?",
        f"{tex(Fraction(5 * (p * a + q * b), a + b))}\\%",
        "exactly, with the percent sign",
        _PERCENT,
    )


def percent_twice(rng: random.Random, n: int) -> Problem:
    steps = [between(rng, -8, 12, 0) * 5 for _ in range(n + 1)]
    factor = Fraction(1)
    for step in steps:
        factor *= Fraction(100 + step, 100)
    said = ", then ".join(f"{'rises' if step > 0 else 'falls'} by {abs(step)}%" for step in steps)
    return Problem(
        f"A price {said}. Which percentage of the first price is the last one?",
        f"{tex(100 * factor)}\\%",
        "exactly, with the percent sign",
        _PERCENT,
    )


SHARES: tuple[Template, ...] = (share_left, share_of_share, share_probability, share_work)
PERCENT: tuple[Template, ...] = (percent_of, percent_change, percent_mix, percent_twice)

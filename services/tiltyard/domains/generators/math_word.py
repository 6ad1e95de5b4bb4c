"""Word problems whose answers are numbers, amounts with units, fractions and percentages.

Options: `domain` (a key of `DOMAINS`) and `level`, 1 to 3. Every domain has four templates, a to d.
Those of fractions and percentages are in `math_shares`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

from tiltyard.domains.drafts import Draft, Request

from .math_shares import PERCENT, SHARES
from .maths import Problem, Template, between, choose, drafts, tex

_NAMES = (
    "Ana",
    "Ben",
    "Carla",
    "Deniz",
    "Eva",
    "Farid",
    "Goran",
    "Hana",
    "Ines",
    "Jonas",
    "Kofi",
    "Lena",
    "Mina",
    "Noor",
)
_THINGS = (
    "pencils",
    "notebooks",
    "apples",
    "stickers",
    "candles",
    "batteries",
    "cups",
    "postcards",
    "buttons",
    "lemons",
)
_INTEGER = {"type": "integer"}


def _money(cents: int) -> str:
    return f"\\${cents // 100}.{cents % 100:02d}"


def _price(rng: random.Random, n: int) -> int:
    return between(rng, 2, 9 * n) * int(choose(rng, 100, 50, 25 if n > 1 else 50, 5 if n > 2 else 100))


def shopping_total(rng: random.Random, n: int) -> Problem:
    names = rng.sample(_THINGS, n + 1)
    counts, prices = [between(rng, 2, 6 * n) for _ in names], [_price(rng, n) for _ in names]
    what = ", ".join(f"{c} {name} at {_money(p)} each" for c, name, p in zip(counts, names, prices, strict=True))
    return Problem(
        f"{choose(rng, *_NAMES)} buys {what}. How many dollars does everything cost?",
        tex(Fraction(sum(c * p for c, p in zip(counts, prices, strict=True)), 100)),
        options={"unit": "dollar"},
    )


def shopping_change(rng: random.Random, n: int) -> Problem:
    count, price = between(rng, 2, 5 * n), _price(rng, n)
    paid = (count * price // 1000 + between(rng, 1, 3)) * 1000
    return Problem(
        f"{choose(rng, *_NAMES)} pays for {count} {choose(rng, *_THINGS)} at {_money(price)} apiece with "
        f"{_money(paid)}. How much change, in dollars, comes back?",
        tex(Fraction(paid - count * price, 100)),
        options={"unit": "dollar"},
    )


def shopping_discount(rng: random.Random, n: int) -> Problem:
    price, off = between(rng, 2, 40 * n) * 2000, choose(rng, 5, 10, 15, 20, 25, 30, 40)
    more = between(rng, 1, 9) * 100 * n
    return Problem(
        f"A shop takes {off}% off a coat that costs {_money(price)}. Delivery adds {_money(more)}. "
        "What is paid in the end, in dollars?",
        tex(Fraction(price * (100 - off), 10_000) + Fraction(more, 100)),
        options={"unit": "dollar"},
    )


def shopping_each(rng: random.Random, n: int) -> Problem:
    people, each, extra = between(rng, 3, 5 + 3 * n), _price(rng, n), between(rng, 1, 20 * n) * 100
    return Problem(
        f"{people} friends share two bills evenly, one of {_money(extra)} and one of {_money(people * each)}. "
        "What does each pay, in dollars and exactly?",
        tex(Fraction(people * each + extra, 100 * people)),
        options={"unit": "dollar"},
    )


def travel_distance(rng: random.Random, n: int) -> Problem:
    speed, minutes = between(rng, 4, 30 * n) * 3, between(rng, 2, 12 * n) * choose(rng, 5, 10, 20)
    return Problem(
        f"A {choose(rng, 'train', 'bus', 'cyclist', 'boat')} moves at {speed} km/h for {minutes} minutes. "
        "How far does it get? Give the distance with its unit.",
        f"{tex(Fraction(speed * minutes, 60))}\\text{{ km}}",
    )


def travel_time(rng: random.Random, n: int) -> Problem:
    speed, quarters = between(rng, 2, 20 * n) * 4, between(rng, 1, 12 * n)
    return Problem(
        f"How long does a journey of {speed * quarters // 4} km take at {speed} km/h? Give the time with its unit.",
        f"{tex(Fraction(quarters, 4))}\\text{{ hours}}",
    )


def travel_speed(rng: random.Random, n: int) -> Problem:
    seconds, metres = between(rng, 4, 30 * n), between(rng, 5, 60 * n) * 5
    return Problem(
        f"A runner covers {metres} m in {seconds} s. What is the average speed? Give it with its unit.",
        f"{tex(Fraction(metres, seconds))}\\text{{ m/s}}",
    )


def travel_meeting(rng: random.Random, n: int) -> Problem:
    a, b, half = between(rng, 2, 20 * n) * 2, between(rng, 2, 20 * n) * 2, between(rng, 1, 6 * n)
    return Problem(
        f"Two towns lie {(a + b) * half // 2} km apart. One car starts in each, towards the other, at {a} km/h and "
        f"at {b} km/h. After how long do they meet? Give the time with its unit.",
        f"{tex(Fraction(half, 2))}\\text{{ hours}}",
    )


def ages_sum(rng: random.Random, n: int) -> Problem:
    one, two = rng.sample(_NAMES, 2)
    young, gap = between(rng, 3, 15 * n), between(rng, 2, 12 * n)
    return Problem(
        f"{one} is {gap} years older than {two}. Together they are {2 * young + gap}. How old is {one}?",
        str(young + gap),
        options=_INTEGER,
    )


def ages_multiple(rng: random.Random, n: int) -> Problem:
    one, two = rng.sample(_NAMES, 2)
    young, factor, years = between(rng, 3, 8 * n), between(rng, 2, 4), between(rng, 2, 9 * n)
    total = young + factor * young + 2 * years
    return Problem(
        f"{one} is {factor} times as old as {two}. In {years} years their ages will add up to {total}. "
        f"How old is {two} today?",
        str(young),
        options=_INTEGER,
    )


def ages_three(rng: random.Random, n: int) -> Problem:
    a, b, c = rng.sample(_NAMES, 3)
    age, less, more = between(rng, 10, 20 * n + 5), between(rng, 1, 9), between(rng, 1, 12 * n)
    return Problem(
        f"{a} is {less} years younger than {b}, and {c} is {more} years older than {b}. The sum of the three ages "
        f"is {3 * age - less + more}. How old is {c}?",
        str(age + more),
        options=_INTEGER,
    )


def ages_ago(rng: random.Random, n: int) -> Problem:
    one, two = rng.sample(_NAMES, 2)
    then, factor, years = between(rng, 3, 8 * n), between(rng, 2, 5), between(rng, 2, 10 * n)
    return Problem(
        f"{years} years ago {one} was {factor} times as old as {two} was then. Today their ages add up to "
        f"{then + factor * then + 2 * years}. How old is {one} today?",
        str(factor * then + years),
        options=_INTEGER,
    )


DOMAINS: dict[str, tuple[Template, ...]] = {
    "shopping": (shopping_total, shopping_change, shopping_discount, shopping_each),
    "travel": (travel_distance, travel_time, travel_speed, travel_meeting),
    "ages": (ages_sum, ages_multiple, ages_three, ages_ago),
    "shares": SHARES,
    "percent": PERCENT,
}


def generate(request: Request) -> Iterator[Draft]:
    """Word problems, endlessly."""
    yield from drafts(request, DOMAINS)

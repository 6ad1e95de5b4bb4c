"""Word problems whose answers are numbers, amounts with units, fractions and percentages.

Options: `domain` (a key of `DOMAINS`) and `level`, 1 to 3. Every domain has four templates, a to d.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

from tiltyard.domains.drafts import Draft, Request

from .maths import Problem, Template, between, choose, drafts, tex

_NAMES = ("Ana", "Ben", "Carla", "Deniz", "Eva", "Farid", "Goran", "Hana", "Ines", "Jonas", "Kofi", "Lena", "Mina", "Noor")
_THINGS = ("pencils", "notebooks", "apples", "stickers", "candles", "batteries", "cups", "postcards", "buttons", "lemons")
_INTEGER = {"type": "integer"}
_PERCENT = {"form": "percent"}
_LOWEST = {"type": "fraction", "form": "lowest"}


def _money(cents: int) -> str:
    return f"\\${cents // 100}.{cents % 100:02d}"


def _price(rng: random.Random, n: int) -> int:
    return between(rng, 2, 9 * n) * choose(rng, 100, 50, 25 if n > 1 else 50, 5 if n > 2 else 100)


def shopping_total(rng: random.Random, n: int) -> Problem:
    names = rng.sample(_THINGS, n + 1)
    counts, prices = [between(rng, 2, 6 * n) for _ in names], [_price(rng, n) for _ in names]
    what = ", ".join(f"{c} {name} at {_money(p)} each" for c, name, p in zip(counts, names, prices, strict=True))
    return Problem(f"{choose(rng, *_NAMES)} buys {what}. How many dollars does everything cost?",
                   tex(Fraction(sum(c * p for c, p in zip(counts, prices, strict=True)), 100)), options={"unit": "dollar"})  # fmt: skip


def shopping_change(rng: random.Random, n: int) -> Problem:
    count, price = between(rng, 2, 5 * n), _price(rng, n)
    paid = (count * price // 1000 + between(rng, 1, 3)) * 1000
    return Problem(f"{choose(rng, *_NAMES)} pays for {count} {choose(rng, *_THINGS)} at {_money(price)} apiece with "
                   f"{_money(paid)}. How much change, in dollars, comes back?",
                   tex(Fraction(paid - count * price, 100)), options={"unit": "dollar"})  # fmt: skip


def shopping_discount(rng: random.Random, n: int) -> Problem:
    price, off = between(rng, 2, 40 * n) * 2000, choose(rng, 5, 10, 15, 20, 25, 30, 40)
    more = between(rng, 1, 9) * 100 * n
    return Problem(f"A shop takes {off}% off a coat that costs {_money(price)}. Delivery adds {_money(more)}. "
                   "What is paid in the end, in dollars?",
                   tex(Fraction(price * (100 - off), 10_000) + Fraction(more, 100)), options={"unit": "dollar"})  # fmt: skip


def shopping_each(rng: random.Random, n: int) -> Problem:
    people, each, extra = between(rng, 3, 5 + 3 * n), _price(rng, n), between(rng, 1, 20 * n) * 100
    return Problem(f"{people} friends share two bills evenly, one of {_money(extra)} and one of {_money(people * each)}. "
                   "What does each pay, in dollars and exactly?",
                   tex(Fraction(people * each + extra, 100 * people)), options={"unit": "dollar"})  # fmt: skip


def travel_distance(rng: random.Random, n: int) -> Problem:
    speed, minutes = between(rng, 4, 30 * n) * 3, between(rng, 2, 12 * n) * choose(rng, 5, 10, 20)
    return Problem(f"A {choose(rng, 'train', 'bus', 'cyclist', 'boat')} moves at {speed} km/h for {minutes} minutes. "
                   "How far does it get? Give the distance with its unit.", f"{tex(Fraction(speed * minutes, 60))}\\text{{ km}}")  # fmt: skip


def travel_time(rng: random.Random, n: int) -> Problem:
    speed, quarters = between(rng, 2, 20 * n) * 4, between(rng, 1, 12 * n)
    return Problem(f"How long does a journey of {speed * quarters // 4} km take at {speed} km/h? Give the time with its unit.",
                   f"{tex(Fraction(quarters, 4))}\\text{{ hours}}")  # fmt: skip


def travel_speed(rng: random.Random, n: int) -> Problem:
    seconds, metres = between(rng, 4, 30 * n), between(rng, 5, 60 * n) * 5
    return Problem(f"A runner covers {metres} m in {seconds} s. What is the average speed? Give it with its unit.",
                   f"{tex(Fraction(metres, seconds))}\\text{{ m/s}}")  # fmt: skip


def travel_meeting(rng: random.Random, n: int) -> Problem:
    a, b, half = between(rng, 2, 20 * n) * 2, between(rng, 2, 20 * n) * 2, between(rng, 1, 6 * n)
    return Problem(f"Two towns lie {(a + b) * half // 2} km apart. One car starts in each, towards the other, at {a} km/h and "
                   f"at {b} km/h. After how long do they meet? Give the time with its unit.", f"{tex(Fraction(half, 2))}\\text{{ hours}}")  # fmt: skip


def ages_sum(rng: random.Random, n: int) -> Problem:
    one, two = rng.sample(_NAMES, 2)
    young, gap = between(rng, 3, 15 * n), between(rng, 2, 12 * n)
    return Problem(f"{one} is {gap} years older than {two}. Together they are {2 * young + gap}. How old is {one}?",
                   str(young + gap), options=_INTEGER)  # fmt: skip


def ages_multiple(rng: random.Random, n: int) -> Problem:
    one, two = rng.sample(_NAMES, 2)
    young, factor, years = between(rng, 3, 8 * n), between(rng, 2, 4), between(rng, 2, 9 * n)
    total = young + factor * young + 2 * years
    return Problem(f"{one} is {factor} times as old as {two}. In {years} years their ages will add up to {total}. "
                   f"How old is {two} today?", str(young), options=_INTEGER)  # fmt: skip


def ages_three(rng: random.Random, n: int) -> Problem:
    a, b, c = rng.sample(_NAMES, 3)
    age, less, more = between(rng, 10, 20 * n + 5), between(rng, 1, 9), between(rng, 1, 12 * n)
    return Problem(f"{a} is {less} years younger than {b}, and {c} is {more} years older than {b}. The sum of the three ages "
                   f"is {3 * age - less + more}. How old is {c}?", str(age + more), options=_INTEGER)  # fmt: skip


def ages_ago(rng: random.Random, n: int) -> Problem:
    one, two = rng.sample(_NAMES, 2)
    then, factor, years = between(rng, 3, 8 * n), between(rng, 2, 5), between(rng, 2, 10 * n)
    return Problem(f"{years} years ago {one} was {factor} times as old as {two} was then. Today their ages add up to "
                   f"{then + factor * then + 2 * years}. How old is {one} today?", str(factor * then + years), options=_INTEGER)  # fmt: skip


def share_left(rng: random.Random, n: int) -> Problem:
    parts = [Fraction(1, between(rng, 3, 5 + 3 * n)) for _ in range(n + 1)]
    while sum(parts) >= 1:
        parts = [Fraction(1, between(rng, 4, 8 + 3 * n)) for _ in range(n + 1)]
    eaten = ", then ".join(f"1/{part.denominator} of the whole cake" for part in parts)
    return Problem(f"{choose(rng, *_NAMES)} eats {eaten}. Which fraction of the cake is left?", tex(1 - sum(parts)), options=_LOWEST)


def share_of_share(rng: random.Random, n: int) -> Problem:
    a, b = between(rng, 3, 6 + 4 * n), between(rng, 3, 6 + 4 * n)
    p, q = between(rng, 1, a - 1), between(rng, 1, b - 1)
    return Problem(f"{p}/{a} of the members of a club play chess, and {q}/{b} of those who play chess also play go. "
                   "Which fraction of all members plays both?", tex(Fraction(p * q, a * b)), options=_LOWEST)  # fmt: skip


def share_probability(rng: random.Random, n: int) -> Problem:
    red, blue, green = (between(rng, 2, 5 + 4 * n) for _ in range(3))
    total = red + blue + green
    chance = Fraction(red, total) if n == 1 else Fraction(red * (red - 1), total * (total - 1))
    drawn = "One ball is drawn. What is the probability that it is red?" if n == 1 else (
        "Two balls are drawn, and none is put back. What is the probability that both are red?")  # fmt: skip
    return Problem(f"An urn holds {red} red, {blue} blue and {green} green balls. {drawn}", tex(chance), options=_LOWEST)


def share_work(rng: random.Random, n: int) -> Problem:
    hours = rng.sample(range(2, 8 + 4 * n), n + 1)
    pumps = ", ".join(f"{each} hours" for each in hours)
    return Problem(f"Working alone, {n + 1} pumps would empty a pool in {pumps}. All of them work together for one hour. "
                   "Which fraction of the pool is empty then, or which number of such pools?",
                   tex(sum(Fraction(1, each) for each in hours)), options=_LOWEST)  # fmt: skip


def percent_of(rng: random.Random, n: int) -> Problem:
    whole = between(rng, 2, 12 * n) * 20
    part = between(rng, 1, whole - 1)
    return Problem(f"{part} of {whole} seats are taken. Which percentage is that?", f"{tex(Fraction(100 * part, whole))}\\%",
                   "with the percent sign", _PERCENT)  # fmt: skip


def percent_change(rng: random.Random, n: int) -> Problem:
    before, step = between(rng, 2, 30 * n) * 20, between(rng, -19, 40, 0)
    return Problem(f"The number of visitors went from {before} to {before + before * step // 20}. By which percentage did it "
                   f"{'rise' if step > 0 else 'fall'}?", f"{abs(step) * 5}\\%", "with the percent sign", _PERCENT)  # fmt: skip


def percent_mix(rng: random.Random, n: int) -> Problem:
    a, b = between(rng, 1, 6 * n), between(rng, 1, 6 * n)
    p, q = rng.sample(range(2, 19), 2)
    return Problem(f"{a} litres of a {5 * p}% solution are mixed with {b} litres of a {5 * q}% solution. How strong is the mixture?",
                   f"{tex(Fraction(5 * (p * a + q * b), a + b))}\\%", "exactly, with the percent sign", _PERCENT)  # fmt: skip


def percent_twice(rng: random.Random, n: int) -> Problem:
    steps = [between(rng, -8, 12, 0) * 5 for _ in range(n + 1)]
    factor = Fraction(1)
    for step in steps:
        factor *= Fraction(100 + step, 100)
    said = ", then ".join(f"{'rises' if step > 0 else 'falls'} by {abs(step)}%" for step in steps)
    return Problem(f"A price {said}. Which percentage of the first price is the last one?", f"{tex(100 * factor)}\\%",
                   "exactly, with the percent sign", _PERCENT)  # fmt: skip


DOMAINS: dict[str, tuple[Template, ...]] = {
    "shopping": (shopping_total, shopping_change, shopping_discount, shopping_each),
    "travel": (travel_distance, travel_time, travel_speed, travel_meeting),
    "ages": (ages_sum, ages_multiple, ages_three, ages_ago),
    "shares": (share_left, share_of_share, share_probability, share_work),
    "percent": (percent_of, percent_change, percent_mix, percent_twice),
}


def generate(request: Request) -> Iterator[Draft]:
    """Word problems, endlessly."""
    yield from drafts(request, DOMAINS)

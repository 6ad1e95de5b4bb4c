"""What the generators of mathematical problems share: a problem, and drafts made of the templates of one domain.

A template is a function of a random generator and a level from 1 to 3; those of a domain are named a, b, c, d in order.
Invariant: an answer is computed beside its question, by exact arithmetic, and is one that the verifier kind `math` can
read as a reference.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from tiltyard.domains.drafts import Draft, Request


class Problem(NamedTuple):
    """A question with its answer."""

    question: str
    answer: str
    form: str = ""
    """What the prompt says about how to write the answer."""
    options: dict[str, Any] = {}  # noqa: RUF012
    """Options of the verifier kind `math`."""


Template = Callable[[random.Random, int], Problem]
_FORMS = {
    "set": "as a set, like $\\{1, 2\\}$",
    "interval": "in interval notation, like $[0, 1)$",
    "tuple": "as an ordered pair, like $(1, 2)$",
    "fraction": "as a fraction in lowest terms or a whole number",
    "equation": "as an equation",
    "choice": "as one letter",
}


def drafts(request: Request, domains: Mapping[str, Sequence[Template]]) -> Iterator[Draft]:
    """Problems of the domain that the options name, at their level, every template in turn."""
    domain, level = str(request.options["domain"]), int(request.options["level"])
    rng = random.Random(f"maths/{domain}/{level}/{request.split}/{request.seed}")
    named = [(chr(ord("a") + place), one) for place, one in enumerate(domains[domain])]
    wanted = [(name, one) for name, one in named if request.wants(name)]
    while wanted:
        rng.shuffle(wanted)
        for name, template in wanted:
            problem = template(rng, level)
            if f"${problem.answer}$" not in problem.question:  # by chance the answer may be a part of the question
                yield _draft(name, problem, level)


def _draft(template: str, problem: Problem, level: int) -> Draft:
    form = problem.form or _FORMS.get(problem.options.get("type", ""), "")
    return Draft(
        template=template,
        fields={"question": problem.question, "form": f" {form}" if form else ""},
        data={"answer": problem.answer},
        options=problem.options,
        reference=f"\\boxed{{{problem.answer}}}",
        labels={"type": problem.options.get("type", "number"), "difficulty": str(level)},
    )


def choose(rng: random.Random, *values: Any) -> Any:
    return values[rng.randrange(len(values))]


def between(rng: random.Random, low: int, high: int, *never: int) -> int:
    """A whole number from `low` to `high` that is none of `never`."""
    while True:
        found = rng.randint(low, high)
        if found not in never:
            return found


def tex(value: Fraction | int) -> str:
    """A rational number as LaTeX, in lowest terms."""
    value = Fraction(value)
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def polynomial(coefficients: Sequence[int | Fraction], letter: str = "x") -> str:
    """A polynomial as LaTeX; the first coefficient belongs to the highest power."""
    found = ""
    for power, factor in zip(range(len(coefficients) - 1, -1, -1), coefficients, strict=True):
        if not factor:
            continue
        sign = "-" if factor < 0 else "+" if found else ""
        size = "" if abs(factor) == 1 and power else tex(abs(Fraction(factor)))
        found += sign + size + (letter if power == 1 else f"{letter}^{{{power}}}" if power else "")
    return found or "0"


def times(left: Sequence[int], right: Sequence[int]) -> list[int]:
    """The product of two polynomials."""
    found = [0] * (len(left) + len(right) - 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            found[i + j] += a * b
    return found


def surd(square: int) -> str:
    """The square root of a whole number, simplified, as LaTeX."""
    outside = max(d for d in range(1, math.isqrt(square) + 1) if square % (d * d) == 0)
    inside = square // (outside * outside)
    if inside == 1:
        return str(outside)
    return f"{outside if outside > 1 else ''}\\sqrt{{{inside}}}"

"""How long a simulated engine takes for an answer, as a setting: constant, log-normal, long tail, exponential.

`constant:0.02`, `exponential:0.02` (mean), `lognormal:0.5,0.8` (median, sigma), `longtail:0.2,1.2,60` (least, alpha of
a Pareto distribution, most). Times are seconds. Left out: a share of the time that depends on the length of the answer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

FORMS = {
    "constant": "SECONDS",
    "exponential": "MEAN",
    "lognormal": "MEDIAN,SIGMA",
    "longtail": "LEAST,ALPHA,MOST",
}


@dataclass(frozen=True)
class Latency:
    """One distribution of waits."""

    kind: str
    numbers: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.kind}:{','.join(f'{number:g}' for number in self.numbers)}"

    def draw(self, chance: random.Random) -> float:
        """Seconds of one answer."""
        return _DRAWS[self.kind](chance, self.numbers)

    def mean(self) -> float:
        """Seconds of an answer in the long run."""
        first, *rest = self.numbers
        if self.kind == "lognormal":
            return first * math.exp(rest[0] ** 2 / 2)
        if self.kind == "longtail":
            return _pareto_mean(first, *rest)
        return first


def parse(text: str) -> Latency:
    """The distribution that `text` names; ValueError says which there are."""
    kind, _, rest = text.partition(":")
    try:
        numbers = tuple(float(number) for number in rest.split(","))
    except ValueError:
        numbers = ()
    if kind not in FORMS or len(numbers) != len(FORMS[kind].split(",")) or not all(0 <= n < math.inf for n in numbers):
        known = ", ".join(f"{name}:{form}" for name, form in FORMS.items())
        raise ValueError(f"latency {text!r}: expected one of {known}")
    if kind == "longtail" and (numbers[0] <= 0 or numbers[1] <= 0 or numbers[2] <= numbers[0]):
        raise ValueError(f"latency {text!r}: expected LEAST above 0, ALPHA above 0 and MOST above LEAST")
    return Latency(kind, numbers)


def _longtail(chance: random.Random, numbers: Sequence[float]) -> float:
    least, alpha, most = numbers
    return min(most, least * chance.paretovariate(alpha))


def _pareto_mean(least: float, alpha: float, most: float) -> float:
    """Of a Pareto distribution whose values above `most` count as `most`."""
    beyond = (least / most) ** alpha * most
    if alpha == 1:
        return least * math.log(most / least) + beyond
    return alpha / (alpha - 1) * least * (1 - (least / most) ** (alpha - 1)) + beyond


_DRAWS: dict[str, Callable[[random.Random, Sequence[float]], float]] = {
    "constant": lambda chance, numbers: numbers[0],
    "exponential": lambda chance, numbers: chance.expovariate(1 / numbers[0]) if numbers[0] else 0.0,
    "lognormal": lambda chance, numbers: numbers[0] * chance.lognormvariate(0.0, numbers[1]),
    "longtail": _longtail,
}

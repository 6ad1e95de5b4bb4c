"""What every rule is, and those that count something."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tiltyard.verifier.kinds.base import Part

Natural = Annotated[int, Meta(ge=0, le=100_000)]
Some = Annotated[str, Meta(min_length=1, max_length=2000)]


class Check(Part, frozen=True):
    """One rule: what it says to the policy, and whether a text keeps it."""

    def holds(self, text: str) -> bool:
        """Does the text, which isn't empty, keep the rule?"""
        raise NotImplementedError

    def say(self) -> str:
        """The rule as a sentence of a prompt; every number and quoted text of it is there."""
        raise NotImplementedError

    def numbers(self) -> tuple[int, ...]:
        """What a prompt must say in figures or words for the rule to be a fair one."""
        return ()


class Count(Check, frozen=True):
    """A rule that bounds how many of something there are; no bound at all is refused."""

    at_least: Natural | None = None
    at_most: Natural | None = None
    exactly: Natural | None = None

    def __post_init__(self) -> None:
        if self.bounds() == (0, None):
            raise ValueError("give at_least, at_most or exactly")

    def measure(self, text: str) -> int:
        raise NotImplementedError

    def unit(self) -> str:
        """What is counted, in the plural."""
        raise NotImplementedError

    def bounds(self) -> tuple[int, int | None]:
        low = max(self.at_least or 0, self.exactly or 0)
        highs = [bound for bound in (self.at_most, self.exactly) if bound is not None]
        return low, min(highs) if highs else None

    def holds(self, text: str) -> bool:
        low, high = self.bounds()
        return low <= (got := self.measure(text)) and (high is None or got <= high)

    def say(self) -> str:
        named = (("at least", self.at_least), ("at most", self.at_most), ("exactly", self.exactly))
        bounds = [f"{name} {bound}" for name, bound in named if bound is not None]
        if self.bounds() == (0, 0):
            return f"Use no {self.unit()} at all."
        return f"Use {' and '.join(bounds)} {self.unit()}."

    def numbers(self) -> tuple[int, ...]:
        return tuple(bound for bound in (self.at_least, self.at_most, self.exactly) if bound)

    def measured(self) -> str:
        """Rules that measure the same thing must leave some value that keeps all of them."""
        return f"{type(self).__name__} {self.unit()}".casefold()

"""Judge an answer by the last number in it.

Read: thousands separators, decimals, exponents of up to three digits, fractions of two numbers, percent, ASCII and
Unicode minus. A last number that is part of a power or a factorial is no literal and fails, so does any answer
without a number or with thinking that never ends. Numbers are exact (fractions), nothing is evaluated.
Left out: units, words for numbers, and decimal commas.
"""

from __future__ import annotations

import re
from fractions import Fraction

from tiltyard.verifier.kinds.base import BrokenTask, Finding, Probe, Rule
from tiltyard_proto.messages import Task

from .data import Data, Options

MAX_TEXT = 8192
"""Characters from the end that are read."""
_MINUS = str.maketrans({"−": "-", "﹣": "-", "－": "-"})
_PLAIN = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]{1,400})(?:\.[0-9]{1,400})?|\.[0-9]{1,400}"
_NUMBER = re.compile(
    rf"(?P<sign>(?<![\w.)\]}}])-)?(?<![\w.])(?P<top>{_PLAIN})(?:[eE](?P<exp>[+-]?[0-9]{{1,3}})(?![0-9]))?"
    rf"(?:\s?/\s?(?P<bottom>{_PLAIN}))?(?P<percent>\s?%)?",
    re.ASCII,
)
_NO_LITERAL = re.compile(r"\s?(?:\^|!(?=\s*$)|[²³]|\*\*[0-9(])|[eE][+-]?[0-9]|\.?[0-9]")


class LastNumber(Rule[Data, Options]):
    """The kind."""

    name = "last_number"
    version = "1"
    data = Data
    options = Options

    def refuse(self, data: Data) -> None:
        if last_number(data.answer) is None:
            raise BrokenTask(f"the reference answer {data.answer[:100]!r} holds no number")

    def check(self, data: Data, options: Options, text: str) -> Finding:
        right, got = last_number(data.answer), last_number(text)
        assert right is not None
        if got is None:
            return Finding(score=0.0, reasons=("the answer holds no number to read",))
        passed = abs(got - right) <= Fraction(options.tolerance) * abs(right)
        reasons = () if passed else (f"the last number is {_show(got)}, right is {data.answer}",)
        return Finding(score=float(passed), passed=passed, reasons=reasons)

    def probes(self, task: Task) -> tuple[Probe, ...]:
        answer = self.data_of(task).answer
        right = last_number(answer)
        assert right is not None
        return (
            Probe(name="prose before", texts=(f"The result is {answer}",)),
            Probe(name="a closing stop", texts=(f"{answer}.",)),
            Probe(name="fenced", texts=(f"```\n{answer}\n```",)),
            Probe(name="one more", texts=(_show(right + 1),), wanted="reject"),
            Probe(name="the other sign", texts=(_show(-right) if right else "1",), wanted="reject"),
        )


def last_number(text: str) -> Fraction | None:
    """The last number of `text`; None when there is none, or when it isn't a plain literal."""
    text = text[-MAX_TEXT:].translate(_MINUS)
    last = None
    for last in _NUMBER.finditer(text):  # noqa: B007
        pass
    if last is None or _NO_LITERAL.match(text, last.end()) or text[: last.start()].rstrip("({ ").endswith("^"):
        return None
    value = _fraction(last["top"])
    if last["exp"]:
        value *= Fraction(10) ** int(last["exp"])
    if last["bottom"]:
        bottom = _fraction(last["bottom"])
        if not bottom:
            return None
        value /= bottom
    if last["percent"]:
        value /= 100
    return -value if last["sign"] else value


def _fraction(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))


def _show(value: Fraction) -> str:
    if value.denominator == 1 and value.numerator.bit_length() < 200:
        return str(value.numerator)
    try:
        return f"about {float(value):.10g}"
    except OverflowError:
        return "huge"


KIND = LastNumber()

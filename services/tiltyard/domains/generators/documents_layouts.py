"""How the documents of `documents` look: country's way of writing, and where things stand.

Invariant: a foreign document says its country, so that its dates and amounts have one reading.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import msgspec

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
Pairs = Sequence[tuple[str, Any]]
Items = Sequence[dict[str, Any]]


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """A country's way to write dates and amounts."""

    name: str
    mark: Literal["", ".", ","]
    order: Literal["", "dmy", "mdy"]

    def show(self, value: Any) -> str:
        """A value as a document of the country has it."""
        if isinstance(value, date):
            return self._day(value)
        if not isinstance(value, Decimal):
            return str(value)
        text = f"{value:,.2f}"
        return text.translate(str.maketrans(",.", ".,")) if self.mark == "," else text

    def _day(self, day: date) -> str:
        if self.name == "plain":
            return day.isoformat()
        if self.name == "words":
            return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"
        return (
            f"{day.day:02}.{day.month:02}.{day.year}"
            if self.order == "dmy"
            else f"{day.month:02}/{day.day:02}/{day.year}"
        )


_PLAIN = (Style(name="plain", mark=".", order=""), Style(name="words", mark=".", order=""))
_FOREIGN = (Style(name="Germany", mark=",", order="dmy"), Style(name="USA", mark=".", order="mdy"))


def style_of(rng: random.Random, foreign: float) -> Style:
    """A style; with the given share one of another country."""
    return rng.choice(_FOREIGN if rng.random() < foreign else _PLAIN)


def _head(title: str, style: Style) -> str:
    return f"{title} ({style.name})" if style in _FOREIGN else title


def _mixed(rng: random.Random, facts: Pairs, noise: Pairs) -> list[tuple[str, Any]]:
    """Facts in their order, with the noise between them."""
    lines = list(facts)
    for line in noise:
        lines.insert(rng.randint(0, len(lines)), line)
    return lines


def _table(items: Items, style: Style, separator: str) -> str:
    if not items:
        return ""
    rows = [list(items[0]), *([style.show(value) for value in item.values()] for item in items)]
    return "\n".join(separator.join(row) for row in rows) + "\n"


def _form(rng: random.Random, title: str, facts: Pairs, noise: Pairs, items: Items, style: Style) -> str:
    lines = "\n".join(f"{caption}: {style.show(value)}" for caption, value in _mixed(rng, facts, noise))
    return f"{_head(title, style)}\n\n{lines}\n\n{_table(items, style, ' | ')}"


def _grid(rng: random.Random, title: str, facts: Pairs, noise: Pairs, items: Items, style: Style) -> str:
    lines = "\n".join(f"{caption:<30}{style.show(value):>26}" for caption, value in _mixed(rng, facts, noise))
    return f"{'=' * 56}\n{_head(title, style).upper()}\n{'=' * 56}\n{_table(items, style, '   ')}{'-' * 56}\n{lines}"


def _letter(rng: random.Random, title: str, facts: Pairs, noise: Pairs, items: Items, style: Style) -> str:
    said = ". ".join(f"{caption} is {style.show(value)}" for caption, value in _mixed(rng, facts, noise))
    body = f"\nThe entries are:\n{_table(items, style, ', ' if style.mark != ',' else '; ')}" if items else ""
    return f"Dear reader,\n\nplease find below: {_head(title, style)}. {said}.\n{body}\nKind regards"


def _columns(rng: random.Random, title: str, facts: Pairs, noise: Pairs, items: Items, style: Style) -> str:
    lines = _mixed(rng, facts, noise)
    pairs = [lines[at : at + 2] for at in range(0, len(lines), 2)]
    text = "\n".join("    ".join(f"[{caption}] {style.show(value)}" for caption, value in pair) for pair in pairs)
    return f"{text}\n\n{_table(items, style, '    ')}\n-- {_head(title, style)} --"


def _reversed(rng: random.Random, title: str, facts: Pairs, noise: Pairs, items: Items, style: Style) -> str:
    lines = "\n".join(f"{style.show(value)}  <- {caption.lower()}" for caption, value in _mixed(rng, facts, noise))
    return f"{_table(items, style, ' / ')}\n{lines}\n\n{_head(title, style)}"


LAYOUTS: dict[str, Callable[[random.Random, str, Pairs, Pairs, Items, Style], str]] = {
    "form": _form,
    "grid": _grid,
    "letter": _letter,
    "columns": _columns,
    "reversed": _reversed,
}

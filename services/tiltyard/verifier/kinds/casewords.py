"""Recipes that cases use in place of long texts: '[ repeated 100000 times', '5 MB of text'."""

from __future__ import annotations

import re

_REPEATED = re.compile(r"\s*(.+?) (?:repeated|times) (\d[\d,]*)(?: times)?\s*", re.DOTALL)
_SIZED = re.compile(r"\s*(?:about )?(\d+) ?(kB|KB|MB|MiB|KiB) of (?:text|prose|junk|spaces|digits)\s*")


def expanded(text: str) -> str:
    """The text that a recipe describes; any other text as it is."""
    if found := _REPEATED.fullmatch(text):
        return found[1] * int(found[2].replace(",", ""))
    if found := _SIZED.fullmatch(text):
        return "lorem ipsum " * (int(found[1]) * (1_000_000 if found[2][0] == "M" else 1000) // 12)
    return text

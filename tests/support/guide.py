"""Commands of docs/operations.md, by the word that marks their block."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARKS = ("run", "cluster", "make", "up")


def blocks(path: Path) -> list[tuple[str, list[str]]]:
    """Mark and lines of each fenced block with a language, comments and empty lines left out."""
    found = []
    for language, body in re.findall(r"^```([a-z ]*)\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL):
        lines = [re.sub(r"\s+#\s.*$", "", line) for line in body.splitlines()]
        found.append((language, [line for line in lines if line.strip()]))
    return found


def commands(mark: str, path: Path = ROOT / "docs/operations.md") -> list[str]:
    """Every command under a mark, in order."""
    return [line for language, lines in blocks(path) if language == f"sh {mark}" for line in lines]

"""What a set-up installs: every extra of the project, so that no test and no command misses a package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = {"embedded"}
"""A server for the bus, which is installed only where there is none."""


def test_the_set_up_installs_every_extra() -> None:
    """An extra that holds a package is in the list that `make setup` installs."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    said = re.search(r"-e '\.\[([a-z,]+)\]'", (ROOT / "infra/setup/python.sh").read_text())
    assert said is not None
    assert {name for name, packages in extras.items() if packages} - LEFT_OUT == set(said[1].split(","))

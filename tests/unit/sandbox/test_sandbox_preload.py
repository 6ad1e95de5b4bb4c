"""Modules imported ahead of need, and their random numbers."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np

from tiltyard.sandbox.guest import preload


def test_generators_of_modules_are_seeded_anew() -> None:
    """After a reseed neither `random` nor numpy repeats what a copy of its state would give."""
    random.seed(1)
    np.random.seed(1)
    first = (random.random(), np.random.rand())
    random.seed(1)
    np.random.seed(1)
    preload.reseed()
    second = (random.random(), np.random.rand())
    assert first[0] != second[0]
    assert first[1] != second[1]


def test_a_scripts_own_module_goes_before(tmp_path: Path) -> None:
    """A file beside the script with the name of a preloaded module is noticed; one of another name is not."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from guest import preload; preload.load(('statistics',)); "
        "print(preload.shadowed(sys.argv[2]), preload.shadowed(sys.argv[3]), preload.shadowed(sys.argv[2] + '/no'))"
    )
    (tmp_path / "with").mkdir()
    (tmp_path / "with" / "statistics.py").touch()
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "mine.py").touch()
    guest = Path(preload.__file__).parent.parent
    command = [sys.executable, "-c", program, str(guest), str(tmp_path / "with"), str(tmp_path / "without")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True False False\n"

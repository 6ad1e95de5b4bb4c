"""The trainer under torchrun."""

from __future__ import annotations

import pytest

from tiltyard.kit.settings import SettingsError
from tiltyard.trainer.app import _check_world


def test_a_world_of_one_is_taken() -> None:
    """Without torchrun, and under one that starts one process, the trainer begins."""
    _check_world({})
    _check_world({"WORLD_SIZE": "1", "RANK": "0"})


def test_a_larger_world_is_refused() -> None:
    """Two processes would each train the run by itself, so that is a mistake with a mend."""
    with pytest.raises(SettingsError, match=r"WORLD_SIZE is 2: .*--nproc-per-node=1"):
        _check_world({"WORLD_SIZE": "2", "RANK": "1"})

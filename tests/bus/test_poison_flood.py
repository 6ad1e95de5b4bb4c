"""Poison among good messages, at a tenth of the full size; `make poison` runs the whole."""

from __future__ import annotations

import pytest
from support.flood import flood

from tiltyard.kit.bus import Bus

pytestmark = pytest.mark.anyio


@pytest.mark.timeout(180)
async def test_poison_has_no_effect_on_its_neighbours(bus: Bus) -> None:
    """100 poison messages of over 20 kinds among 1,000 good ones: 100 letters of the right class, 1,000 handled."""
    found = await flood(bus, good=1000, poisoned=100, seed=1)
    assert found.kinds >= 20
    assert found.wrong == []
    assert (found.letters, found.handled, found.handled_twice) == (100, 1000, 0)
    assert found.groups_told == found.groups_to_tell > 0

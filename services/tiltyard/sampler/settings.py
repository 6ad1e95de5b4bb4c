"""Settings of the sampler, `[sampler]`."""

from __future__ import annotations

import msgspec


class SamplerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[sampler]`: which tasks are tried next."""

    settle_s: float = 5.0
    """A domain starts with fewer tasks than the run names when none has come for this many seconds."""
    forget: float = 0.8
    """Weight of what is known about a template when new results come, so that estimates follow the policy."""
    explore: float = 0.05
    """Added to every template's preference, so that none is given up for good."""
    tick_s: float = 1.0
    """Seconds between looks when nothing happens."""

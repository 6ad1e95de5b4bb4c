"""Settings of the sampler, `[sampler]`."""

from __future__ import annotations

import msgspec

from tiltyard.kit.ranges import Above0, Amount, Share


class SamplerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[sampler]`: which tasks are tried next."""

    settle_s: Amount = 5.0
    """A domain starts with fewer tasks than the run names when none has come for this many seconds."""
    forget: Share = 0.8
    """Weight of what is known about a template when new results come, so that estimates follow the policy."""
    explore: Above0 = 0.05
    """Added to every template's preference, so that none is given up for good."""
    tick_s: Above0 = 1.0
    """Seconds between looks when nothing happens."""
    probe_first_s: Above0 = 1.0
    """Where nobody answers, groups are opened one at a time, the first this many seconds after the last one closed."""
    probe_cap_s: Above0 = 60.0
    """The pause doubles with every group that nobody answers for, up to this many seconds."""

"""Settings of the aggregator, `[aggregator]`."""

from __future__ import annotations

from typing import Literal

import msgspec

from tiltyard.kit.ranges import Above0, Amount, Positive, Share


class AggregatorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[aggregator]`: how verdicts become rewards, and where the archive goes."""

    slots: Positive = 64
    """Verdicts handled at a time."""
    advantage: Literal["mean", "mean_std"] = "mean"
    """Reward minus the group's mean; 'mean_std' also divides by the deviation, which lifts near-equal rewards."""
    min_members: Positive = 2
    """Fewer trainable members than this and the group does not train."""
    min_spread: Amount = 1e-6
    """Rewards that vary less than this carry no signal (zero variance)."""
    max_unverified: Share = 0.25
    """A group does not train when the verifier failed on a larger share of its members than this."""
    deadline_check_s: Above0 = 1.0
    """Seconds between looks for groups past their deadline."""
    archive_every_s: Above0 = 5.0
    """Seconds between Parquet parts while there is something to write."""
    archive_groups: Positive = 512
    """Groups of one Parquet part at most."""
    keep_bytes: Amount = 128e6
    """Verdicts of open groups that are kept in memory; what is over is read from the bus when its group closes."""

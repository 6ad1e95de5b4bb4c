"""Weights of domains that share a stage: one entry of a bucket for each stage, read live by whoever serves it.

Invariants: a weight is a finite number above zero; a domain that is not named has weight 1; an entry is written by
compare-and-set, so two people who set weights at a time both win. Left out: what a weight means (`fair`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from tiltyard_proto import topology
from tiltyard_proto.keys import check_domain

from .bus import Bus
from .fair import LEAST_WEIGHT

SHARED = tuple(stage.name for stage in topology.STAGES if stage.shared)
"""Stages whose domains share a scarce resource."""
DEFAULT = 1.0
TRIES = 20


class WeightsUnreadable(ValueError):
    """An entry of the bucket holds no weights."""


class WeightsContended(RuntimeError):
    """Others kept writing the same entry."""


def check_weight(domain: str, weight: float) -> None:
    """ValueError unless `domain` may have this weight."""
    check_domain(domain)
    if not (math.isfinite(weight) and weight >= LEAST_WEIGHT):
        raise ValueError(f"weight of {domain}: expected a number of at least {LEAST_WEIGHT:g}, got {weight:g}")


def decode(stage: str, body: bytes) -> dict[str, float]:
    """The weights that an entry holds; WeightsUnreadable when it holds none."""
    try:
        found = msgspec.json.decode(body, type=dict[str, float])
        for domain, weight in found.items():
            check_weight(domain, weight)
    except (msgspec.MsgspecError, ValueError) as error:
        raise WeightsUnreadable(f"the weights of stage {stage} can't be read: {error}") from error
    return found


async def read(bus: Bus, stage: str) -> dict[str, float]:
    """Weights by domain; empty when none were set. WeightsUnreadable when the entry holds none."""
    entry = await bus.kv(topology.WEIGHTS_BUCKET).get(stage)
    return {} if entry is None else decode(stage, entry[0])


async def change(
    bus: Bus, stage: str, weights: Mapping[str, float], drop: Sequence[str] = (), *, anew: bool = False
) -> dict[str, float]:
    """Set `weights` and give `drop` their default back; the weights of the stage afterwards.

    `anew` begins with none, also where the entry can't be read. ValueError for a weight that can't be.
    """
    for domain, weight in weights.items():
        check_weight(domain, weight)
    bucket = bus.kv(topology.WEIGHTS_BUCKET)
    for _ in range(TRIES):
        entry = await bucket.get(stage)
        before = {} if entry is None or anew else decode(stage, entry[0])
        after = {name: each for name, each in {**before, **weights}.items() if name not in drop}
        if await bucket.update(stage, msgspec.json.encode(after, order="sorted"), entry[1] if entry else 0):
            return after
    raise WeightsContended(f"the weights of stage {stage} changed {TRIES} times meanwhile; try again")

"""Settings of the supervisor, `[supervisor]`."""

from __future__ import annotations

import msgspec

from tiltyard.kit.ranges import Above0, Amount, Whole

ALL_SERVICES = {
    "engine": 1,
    "gateway": 1,
    "sandbox": 1,
    "verifier": 1,
    "aggregator": 1,
    "trainer": 1,
    "sampler": 1,
}


class SupervisorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[supervisor]`: what `tiltyard up` starts and how it keeps it running."""

    services: dict[str, int] = msgspec.field(default_factory=lambda: dict(ALL_SERVICES))
    """Processes of each service; one that is not named has 1. `engine = 0` when SGLang serves."""
    restart_first_s: Above0 = 0.1
    """Delay before the first restart of a process; doubles up to restart_most_s."""
    restart_most_s: Above0 = 10.0
    """Longest delay between restarts."""
    steady_s: Amount = 20.0
    """A process that ran this long starts again with the first delay."""
    give_up: Whole = 8
    """Restarts in a row, none of them steady, after which the whole system stops."""
    stop_s: Amount = 15.0
    """Seconds from SIGTERM to SIGKILL when draining."""
    min_free_gib: Amount = 6.0
    """Free disk space that must be there at the start."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "services", {**ALL_SERVICES, **self.services})
        for name, count in self.services.items():
            if name not in ALL_SERVICES:
                raise ValueError(f"services: no service {name!r}; there are {', '.join(ALL_SERVICES)}")
            if count < 0:
                raise ValueError(f"services: {name}: expected 0 or more processes, got {count}")

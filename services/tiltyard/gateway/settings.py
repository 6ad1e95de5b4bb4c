"""Settings of the gateway.

Times are seconds, sizes are tokens or requests. Left out: what is sampled (temperature, lengths, stop strings) comes
with each rollout, and the policy's weights are found through the policy stream.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tiltyard.kit.ranges import Above0, Whole
from tiltyard.kit.settings import check_url

PauseMode = Literal["retract", "abort", "in_place"]


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Table `[gateway]`."""

    engines: tuple[str, ...] = ("http://127.0.0.1:30000",)
    """Base URLs of the engines."""
    api_key: str = ""
    """Sent as bearer token on generation; empty: none."""
    admin_key: str = ""
    """Sent as bearer token on control calls; empty: the api key."""
    slots: int = 256
    """Turns in flight at once in this gateway; batching happens in the engine."""
    fair: bool = True
    """Evaluations first, then domains by fair shares; otherwise in the order of arrival. The same in all gateways."""
    max_in_flight: int = 128
    """Requests in flight per engine."""
    affinity_slack: Whole = 16
    """Requests an engine may carry beyond the fair share before its groups overflow to others."""
    model_dir: str = ""
    """Directory with tokenizer, chat template and config; empty: the first policy's directory."""
    context_length: Whole = 0
    """Tokens of prompt and answer the engine takes; 0: what the model's config says."""
    pause_mode: PauseMode = "retract"
    """What running requests meet at a weight update: their prefix is recomputed with the new weights (retract), they
    end early and are resumed (abort), or they go on with their old KV cache (in_place)."""
    keep_partial: bool = True
    """Tokens of a request the engine cut short are kept and resumed from; otherwise they are sampled again."""
    request_s: float = 600.0
    """Deadline of one generate call; an earlier deadline of the rollout wins."""
    hold_s: float = 600.0
    """How long a turn without a deadline waits for an engine before it counts as failed."""
    control_s: float = 15.0
    """Deadline of one small control call (model info, continue, flush)."""
    pause_s: float = 60.0
    """Deadline of a pause; in mode abort it returns when no request is left."""
    update_s: float = 600.0
    """Deadline of loading weights."""
    tries: int = 4
    """Engine faults one turn survives before the rollout's attempt ends."""
    busy_wait_s: Above0 = 0.5
    """Wait after a full queue; doubles up to eight times this."""
    flush_tries: int = 6
    """Attempts to empty the prefix cache after an update, before the engine is set aside."""
    flush_wait_s: Above0 = 0.25
    """Wait between flush attempts; doubles each time."""
    probe_s: float = 2.0
    """Between two looks at an engine."""
    poll_s: float = 3.0
    """Between two polls of the newest policy, beside following the stream."""
    breaker_faults: int = 3
    """Server faults in a row that set an engine aside until it answers a probe."""
    lost_after: int = 5
    """Failed probes in a row after which an engine counts as lost (it is still probed)."""

    def __post_init__(self) -> None:
        if not self.engines or len(set(self.engines)) != len(self.engines):
            raise ValueError(f"gateway.engines {list(self.engines)}: give one or more different URLs")
        for url in self.engines:
            check_url(url, "gateway.engines", ("http", "https"))
        for name in ("slots", "max_in_flight", "tries", "flush_tries", "breaker_faults", "lost_after"):
            if getattr(self, name) < 1:
                raise ValueError(f"gateway.{name} = {getattr(self, name)}: expected 1 or more")
        for name in ("request_s", "hold_s", "control_s", "pause_s", "update_s", "probe_s", "poll_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"gateway.{name} = {getattr(self, name)}: expected more than 0 seconds")

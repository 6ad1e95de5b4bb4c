"""Settings of the embedded engine.

Invariant: nothing here changes what a token's log-probability is, except `dtype`. Left out: sampling parameters,
which come with each request, and the weights of later versions, which the gateway announces.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Dtype = Literal["auto", "float32", "bfloat16"]


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Table `[engine]`."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 30000
    """TCP port; 0 lets the system choose."""
    model: str = ""
    """A built-in model or the path of a Hugging Face directory; empty: the run's model."""
    served_model_name: str = ""
    """Name in /v1/models until the first weight update renames it; empty: the model's path."""
    dtype: Dtype = "auto"
    """Of weights and arithmetic; auto: the model's own, or float32 where the CPU has no bf16 instructions."""
    threads: int = 0
    """Batches computed side by side, each on one core; 0: two, or one on a single core."""
    lane_rows: int = 64
    """Rows a batch gets before the next core's batch is used: two half batches cost a fifth more CPU time than one."""
    max_running_requests: int = 128
    """Rows decoded at once."""
    max_queued_requests: int = 4096
    """Requests waiting beyond those running, before 503."""
    max_total_tokens: int = 65536
    """Tokens of keys and values that running rows may hold, padding counted."""
    prefix_cache_tokens: int = 16384
    """Tokens of finished prompts kept for reuse, least recently used out first; 0 keeps none."""
    prefill_tokens_per_step: int = 1024
    """Prompt tokens computed between two decode steps, so that long prompts do not stall running rows."""
    context_length: int = 0
    """Tokens of prompt and answer together; 0: what the model's config says."""
    seed: int = 0
    """Of the sampling of requests that bring no seed."""
    api_key: str = ""
    """Bearer token asked of every route but health and metrics; empty: none."""
    admin_api_key: str = ""
    """Bearer token of the control routes alone; empty: the api key."""
    health_timeout_s: float = 20.0
    """A health check that the scheduler has not answered by then is a 503."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ValueError(f"port: expected 0 to 65535, got {self.port}")
        for key in ("threads", "prefix_cache_tokens", "context_length"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key}: expected 0 or more, got {getattr(self, key)}")
        for key in ("lane_rows", "max_running_requests", "max_queued_requests", "max_total_tokens"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key}: expected 1 or more, got {getattr(self, key)}")
        if self.prefill_tokens_per_step < 1 or not self.health_timeout_s > 0:
            raise ValueError("prefill_tokens_per_step and health_timeout_s: expected more than 0")

"""The gateway's Prometheus metrics.

Left out: the engine's own metrics, which it serves itself.
"""

from __future__ import annotations

from functools import cache

from prometheus_client import Counter, Gauge, Histogram

STATES = ("starting", "ready", "paused", "updating", "suspect", "lost")

TURNS = Counter("tiltyard_gateway_turns_total", "Turns by how they ended", ["ending"])
TOKENS = Counter("tiltyard_gateway_tokens_total", "Tokens: prompt, cached (part of prompt), sampled", ["kind"])
RETRIES = Counter("tiltyard_gateway_retries_total", "Generate calls repeated: busy, fault, aborted", ["why"])
SECONDS = Histogram(
    "tiltyard_gateway_generate_seconds",
    "Seconds of one turn, waiting for an engine included",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256),
)
SYNC_SECONDS = Histogram(
    "tiltyard_gateway_sync_seconds",
    "Seconds one engine was out of rotation for new weights",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128),
)
SYNC_FAILED = Counter("tiltyard_gateway_sync_failed_total", "Weight updates that failed", ["engine"])
IN_FLIGHT = Gauge("tiltyard_gateway_engine_in_flight", "Requests in flight", ["engine"])
STATE = Gauge("tiltyard_gateway_engine_state", "1 for the state the engine is in", ["engine", "state"])
VERSION = Gauge("tiltyard_gateway_engine_version", "Policy version of the engine; -1 unknown", ["engine"])
WANTED = Gauge("tiltyard_gateway_wanted_version", "Newest policy version; -1 before the first")
turns = cache(TURNS.labels)
"""The counter of an ending; looking it up by its labels costs more than counting. So for the others."""
tokens = cache(TOKENS.labels)
in_flight = cache(IN_FLIGHT.labels)


def show_engine(url: str, state: str, version: int) -> None:
    """Publish one engine's state and version."""
    for name in STATES:
        STATE.labels(url, name).set(name == state)
    VERSION.labels(url).set(version)

"""The kit's own Prometheus metrics; services define theirs beside what they measure.

`messages_total` by ending counts what was processed ('done'), what failed (the reason of its dead letter), and what
comes again ('retry', 'failed'). Lag and what is unacknowledged are asked of the server when somebody scrapes, and what
is in flight of the process's server of the stage.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from .delivery import Delivery

HANDLED = Counter("tiltyard_messages_total", "Messages by stage and how handling ended", ["stage", "ending"])
SECONDS = Histogram(
    "tiltyard_handle_seconds",
    "Seconds from delivery to acknowledgement",
    ["stage"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300),
)
WAITED = Histogram(
    "tiltyard_wait_seconds",
    "Seconds from storage to first delivery",
    ["stage"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300),
)
REDELIVERED = Counter("tiltyard_redeliveries_total", "Deliveries of a message after its first", ["stage"])
SUSPECTS = Counter("tiltyard_suspects_total", "Messages handled alone, since workers may have died of them", ["stage"])
DEAD_LETTERS = Counter("tiltyard_dead_letters_total", "Dead letters that this process stored", ["stage", "reason"])
DLQ_DEPTH = Gauge("tiltyard_dlq_depth", "Dead letters that wait for a person", ["stage", "reason"])
DLQ_OLDEST = Gauge("tiltyard_dlq_oldest_seconds", "Age of the oldest dead letter that waits for a person", ["stage"])
PAUSED = Gauge(
    "tiltyard_paused", "1 while a stage handles nothing of a domain, since too much died", ["stage", "domain"]
)
IN_FLIGHT = Gauge("tiltyard_in_flight", "Messages in a handler", ["stage"])
LAG = Gauge("tiltyard_lag", "Messages of a stage that nobody has been given yet", ["stage"])
UNACKNOWLEDGED = Gauge("tiltyard_unacknowledged", "Messages of a stage that were delivered and not answered", ["stage"])
BUS_UP = Gauge("tiltyard_bus_up", "1 while the bus answers this process")
RECONNECTS = Gauge("tiltyard_bus_reconnects", "Times this process has connected to the bus again")


handled = cache(HANDLED.labels)
"""The counter of a stage and an ending; looking it up by its labels costs more than counting."""
_waited = cache(WAITED.labels)


def arrived(stage: str, delivery: Delivery) -> None:
    """A delivery was taken in hand."""
    if delivery.deliveries > 1:
        REDELIVERED.labels(stage).inc()
    else:
        _waited(stage).observe(max(0.0, time.time() - delivery.stored))

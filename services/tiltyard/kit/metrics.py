"""The kit's own Prometheus metrics; services define theirs beside what they measure."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

HANDLED = Counter("tiltyard_messages_total", "Messages by stage and how handling ended", ["stage", "ending"])
SECONDS = Histogram(
    "tiltyard_handle_seconds",
    "Seconds from delivery to acknowledgement",
    ["stage"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300),
)
IN_FLIGHT = Gauge("tiltyard_in_flight", "Messages in a handler", ["stage"])

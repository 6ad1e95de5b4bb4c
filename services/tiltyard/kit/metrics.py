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
DEAD_LETTERS = Counter("tiltyard_dead_letters_total", "Dead letters that this process stored", ["stage", "reason"])
DLQ_DEPTH = Gauge("tiltyard_dlq_depth", "Dead letters that wait for a person", ["stage", "reason"])
DLQ_OLDEST = Gauge("tiltyard_dlq_oldest_seconds", "Age of the oldest dead letter that waits for a person", ["stage"])
IN_FLIGHT = Gauge("tiltyard_in_flight", "Messages in a handler", ["stage"])

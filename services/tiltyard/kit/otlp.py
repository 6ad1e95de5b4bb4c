"""Spans to an OTLP collector over HTTP: the one module that imports OpenTelemetry, and only when it is configured.

Invariants: spans are handed to a background thread in batches; a collector that is away, slow or wrong loses spans
and nothing else; closing takes a few seconds at most. Left out: metrics and logs, which have ways of their own.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from tiltyard_proto.messages import Rollout

from .delivery import Delivery

TIMEOUT_S = 3.0
MAX_LINKS = 1024
"""Of one span; a group's span is linked to each of its rollouts."""
RETRIES = frozenset({"retry", "failed", "paused"})
GOOD = frozenset({"done", "already_done"})
_FIXED: ContextVar[tuple[int, int] | None] = ContextVar("tiltyard_fixed_ids", default=None)
"""Trace and span id, both derived, of a span that is about to be made."""


class _Ids(IdGenerator):  # type: ignore[misc]  # the package is optional, so its types are unknown
    """Random ids, except for spans whose ids are derived."""

    def generate_trace_id(self) -> int:
        fixed = _FIXED.get()
        return fixed[0] if fixed is not None else random.getrandbits(128) or 1

    def generate_span_id(self) -> int:
        fixed = _FIXED.get()
        return fixed[1] if fixed is not None else random.getrandbits(64) or 1


def _ids(traceparent: str) -> tuple[int, int]:
    return int(traceparent[3:35], 16), int(traceparent[36:52], 16)


def _remote(traceparent: str) -> SpanContext:
    trace_id, span_id = _ids(traceparent)
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(int(traceparent[53:], 16)))


def _traceparent(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


class Export:
    """The spans of one process."""

    def __init__(self, service: str, endpoint: str) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # a collector that is away is no news each second
        url = endpoint.rstrip("/")
        url = url if url.endswith("/v1/traces") else f"{url}/v1/traces"
        resource = Resource.create({"service.name": service, "service.namespace": "tiltyard"})
        limits = SpanLimits(max_links=MAX_LINKS)
        self._provider = TracerProvider(resource=resource, id_generator=_Ids(), span_limits=limits)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=TIMEOUT_S)))
        self._tracer = self._provider.get_tracer("tiltyard")

    def root(self, traceparent: str, rollout: Rollout) -> None:
        """The root span of a rollout, from its birth to its first message."""
        self.derived(
            "rollout",
            traceparent,
            parent="",
            links=(),
            between=(rollout.created, time.time()),
            attributes=_attributes(rollout.run, rollout.id) | {"tiltyard.domain": rollout.task.domain},
        )

    def derived(
        self,
        name: str,
        traceparent: str,
        *,
        parent: str,
        links: Sequence[str],
        between: tuple[float, float],
        attributes: Mapping[str, str | int],
    ) -> None:
        """A span with the ids of `traceparent`, already ended; below `parent` where there is one.

        `links` are the traceparents of other spans, `between` its start and end in seconds since the epoch.
        """
        above = NonRecordingSpan(_remote(parent)) if parent else trace.INVALID_SPAN
        start, end = (int(at * 1e9) for at in between)
        token = _FIXED.set(_ids(traceparent))
        try:
            span = self._tracer.start_span(
                name,
                context=trace.set_span_in_context(above),
                kind=SpanKind.INTERNAL if parent else SpanKind.PRODUCER,
                links=[Link(_remote(each)) for each in links],
                start_time=start or None,
                attributes=attributes,
            )
        finally:
            _FIXED.reset(token)
        span.end(max(start, end) or None)

    def start(self, stage: str, traceparent: str, delivery: Delivery) -> tuple[str, Any]:
        """A stage's span for a delivery, and its traceparent."""
        context = _remote(traceparent)
        found = delivery.headers
        span = self._tracer.start_span(
            stage,
            context=trace.set_span_in_context(NonRecordingSpan(context)),
            kind=SpanKind.CONSUMER,
            links=[Link(context)],
            attributes={
                **_attributes(found.get("Tilt-Run", ""), found.get("Tilt-Rollout", "")),
                "messaging.system": "nats",
                "messaging.destination.name": delivery.subject,
                "messaging.message.body.size": len(delivery.body),
                "tiltyard.deliveries": delivery.deliveries,
                "tiltyard.sequence": delivery.sequence,
                "tiltyard.waited_s": max(0.0, time.time() - delivery.stored),
            },
        )
        return _traceparent(span.get_span_context()), span

    def end(self, span: Any, ending: str) -> None:
        """Close a stage's span with how its handling ended."""
        span.set_attribute("tiltyard.ending", ending)
        if ending in RETRIES:
            span.add_event("retry", {"tiltyard.ending": ending})
        elif ending not in GOOD:
            span.add_event("dead_letter", {"tiltyard.reason": ending})
        if ending not in (*GOOD, "retry", "paused"):
            span.set_status(Status(StatusCode.ERROR, ending))
        span.end()

    def close(self) -> None:
        """Send what is pending; gives up after a few seconds."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True, name="tiltyard-traces-close")
        closing.start()
        closing.join(TIMEOUT_S + 1.0)


def _attributes(run: str, rollout: str) -> dict[str, str]:
    pairs = {"tiltyard.run": run, "tiltyard.rollout": rollout}
    return {name: value for name, value in pairs.items() if value}

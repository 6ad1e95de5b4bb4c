"""Traces across services: a W3C `traceparent` in every message, a span for each handling where a collector is set.

A trace belongs to a rollout: its id, and the id of its root span, are derived from the rollout's id and birth, so
a sampler that starts again and sends a rollout again says the same. A stage's span has its input's span as parent and
link; what the handler publishes carries the stage's span. Retries and dead letters are events of the span.

Invariants: without `[service] otlp_endpoint` nothing of OpenTelemetry is imported, the traceparent is passed on as it
came, and a message costs two dictionary look-ups and a context variable; a collector that is away costs spans, never
messages. Log lines get run, rollout, stage and trace when they are written, not before.
Left out: spans of those who follow a stream by position (`joins`).
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from tiltyard_proto.messages import DeadLetter, Graded, Group, Job, Message, Policy, Rollout, Task, Verdict

from .settings import SettingsError

if TYPE_CHECKING:
    from .delivery import Delivery
    from .otlp import Export

TRACEPARENT, RUN, ROLLOUT = "traceparent", "Tilt-Run", "Tilt-Rollout"
_FORM = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,128}")


_WITH_ROLLOUT = (Job, Graded, Verdict)


class TracingUnavailable(SettingsError):
    """A collector is configured and OpenTelemetry is not installed."""


class Active(NamedTuple):
    """What is being handled in this task."""

    stage: str
    run: str
    rollout: str
    traceparent: str
    """Of the stage's span, or of the input where no spans are made."""
    span: Any = None


_ACTIVE: ContextVar[Active | None] = ContextVar("tiltyard_active", default=None)
_EXPORT: Any = None
"""The exporter of this process, an `otlp.Export`; None makes no spans."""


def root(key: str) -> str:
    """The traceparent of the root span of whatever `key` names; the same key gives the same."""
    digest = hashlib.blake2b(key.encode(), digest_size=24).hexdigest()
    return f"00-{digest[:32]}-{digest[32:]}-01"


def child(parent: str, key: str) -> str:
    """The traceparent of a span of the parent's trace; the same parent and key give the same."""
    span = hashlib.blake2b(f"{parent} {key}".encode(), digest_size=8).hexdigest()
    return f"{parent[:36]}{span}-01"


def valid(traceparent: str | None) -> str | None:
    """`traceparent` if it is one, else None: what a stranger sent must not stop anything."""
    return traceparent if traceparent is not None and _FORM.fullmatch(traceparent) else None


@functools.lru_cache(maxsize=256)
def _plain(run: str) -> bool:
    """Can the name of a run stand in a header?"""
    return _PLAIN.fullmatch(run) is not None


def _rollout(message: Message) -> Rollout | None:
    if isinstance(message, Rollout):
        return message
    return message.rollout if isinstance(message, _WITH_ROLLOUT) else None


def _key(message: Message) -> tuple[str, str]:
    """What a message without a rollout is traced by, and its run."""
    if isinstance(message, Group):
        return f"group {message.id} {message.opened}", message.run
    if isinstance(message, Policy):
        return f"policy {message.run} {message.version} {message.created}", message.run
    if isinstance(message, Task):
        return f"task {message.id}", ""
    return f"{type(message).__name__} {getattr(message, 'subject', '')}", ""


def headers(message: Message) -> dict[str, str]:
    """Headers of a message that is about to be published: `traceparent`, and run and rollout where it has them."""
    active = _ACTIVE.get()
    rollout = _rollout(message)
    if rollout is None:
        if isinstance(message, DeadLetter):
            return _of_letter(message, active)
        key, run = _key(message)
        found = {TRACEPARENT: root(key)}
        return found | {RUN: run} if _plain(run) else found
    if active is not None and active.rollout == rollout.id:
        traceparent = active.traceparent
    else:
        traceparent = root(f"rollout {rollout.id} {rollout.created}")
        if _EXPORT is not None:
            _EXPORT.root(traceparent, rollout)
    found = {TRACEPARENT: traceparent, ROLLOUT: rollout.id}
    if _plain(rollout.run):
        found[RUN] = rollout.run
    return found


def _of_letter(letter: DeadLetter, active: Active | None) -> dict[str, str]:
    """A dead letter belongs to the trace of what it holds."""
    kept = {name: letter.headers[name] for name in (RUN, ROLLOUT) if name in letter.headers}
    return kept | {TRACEPARENT: active.traceparent if active is not None else _incoming(letter.headers, letter.subject)}


def _incoming(found: Mapping[str, str], subject: str) -> str:
    return valid(found.get(TRACEPARENT)) or root(f"subject {subject}")


# ---------------------------------------------------------------- around a handler


def begin(stage: str, delivery: Delivery) -> None:
    """A delivery is taken in hand: whatever this task logs and publishes from now on belongs to it."""
    found = delivery.headers
    traceparent, span = _incoming(found, delivery.subject), None
    if _EXPORT is not None:
        traceparent, span = _EXPORT.start(stage, traceparent, delivery)
    _ACTIVE.set(Active(stage, found.get(RUN, ""), found.get(ROLLOUT, ""), traceparent, span))


def end(ending: str) -> None:
    """Handling ended: 'done', 'retry', 'failed' (comes again), or the reason of a dead letter."""
    active = _ACTIVE.get()
    if active is not None and active.span is not None:
        _EXPORT.end(active.span, ending)


def add_context(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: run, rollout, stage and trace of what is being handled."""
    active = _ACTIVE.get()
    if active is not None:
        for name, value in (("stage", active.stage), ("run", active.run), ("rollout", active.rollout)):
            if value:
                event.setdefault(name, value)
        event.setdefault("trace", active.traceparent[3:35])
    return event


# ---------------------------------------------------------------- exporting


def exporter() -> Export | None:
    """Where spans go; None when nobody collects them."""
    found: Export | None = _EXPORT
    return found


def setup(service: str, endpoint: str) -> None:
    """Send spans to the collector at `endpoint`; nothing when it is empty. TracingUnavailable without the packages."""
    global _EXPORT
    if endpoint:
        try:
            from .otlp import Export
        except ImportError as error:
            raise TracingUnavailable(
                "[service] otlp_endpoint is set and OpenTelemetry is not installed: pip install 'tiltyard[tracing]'"
            ) from error
        _EXPORT = Export(service, endpoint)


def shutdown() -> None:
    """Send what is pending, within a few seconds; afterwards no spans are made."""
    global _EXPORT
    if _EXPORT is not None:
        _EXPORT.close()
        _EXPORT = None

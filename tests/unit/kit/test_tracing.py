"""Traceparents: derived, passed on, checked; and what log lines say."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import build
from support.examples import EXAMPLES

from tiltyard.kit import tracing
from tiltyard.kit.delivery import Delivery, Told
from tiltyard_proto.messages import Graded, Group, Message, Verdict
from tiltyard_proto.outcomes import Outcome


@pytest.fixture(autouse=True)
def apart() -> Iterator[None]:
    """What one test takes in hand is not in another's hands."""
    token = tracing._ACTIVE.set(None)
    yield
    tracing._ACTIVE.reset(token)


def delivery(headers: dict[str, str], subject: str = "tilt.v1.generate.math__test.key") -> Delivery:
    return Delivery.of(subject, headers, b"x", Told("S", "c", deliveries=1, sequence=1, stored=1.0))


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_message_carries_a_traceparent(name: str) -> None:
    """Headers of any message have a valid traceparent and are plain ASCII."""
    headers = tracing.headers(EXAMPLES[name])
    assert tracing.valid(headers["traceparent"])
    assert all(value.isascii() and value.isprintable() for value in headers.values())


def test_a_restarted_sampler_says_the_same() -> None:
    """The trace of a rollout is derived from its id and birth: sent again it is equal, another rollout's is not."""
    first = tracing.headers(build.rollout(member=0))
    assert tracing.headers(build.rollout(member=0)) == first
    assert tracing.headers(build.rollout(member=1))["traceparent"] != first["traceparent"]
    assert tracing.headers(build.rollout(member=0, created=2.0))["traceparent"] != first["traceparent"]
    assert (first["Tilt-Run"], first["Tilt-Rollout"]) == ("run", "run-t-0-0")


def test_all_messages_of_a_rollout_share_its_trace() -> None:
    """A rollout, its grading result and its verdict are in one trace, also when nothing is being handled."""
    rollout = build.rollout(turns=(build.turn(),), outcome=Outcome.FINISHED)
    messages: list[Message] = [
        rollout,
        Verdict(rollout=rollout, outcome=Outcome.FINISHED, score=1.0),
        Graded(rollout=rollout, execution=build.execution()),
    ]
    assert len({tracing.headers(message)["traceparent"] for message in messages}) == 1


def test_a_stage_passes_on_what_came() -> None:
    """While a message is handled its rollout's messages carry its traceparent, another rollout's their own."""
    rollout, other = build.rollout(member=0), build.rollout(member=1)
    came = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    tracing.begin("generate", delivery({"traceparent": came, "Tilt-Rollout": rollout.id}))
    assert tracing.headers(rollout)["traceparent"] == came
    assert tracing.headers(other)["traceparent"] != came
    group = EXAMPLES["group"]
    assert isinstance(group, Group)
    assert tracing.headers(group)["traceparent"] not in (came, tracing.headers(other)["traceparent"])


def test_a_dead_letter_belongs_to_the_trace_of_what_it_holds() -> None:
    """While it is handled, and also when it is published from elsewhere."""
    came = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    letter = msgspec.structs.replace(EXAMPLES["dead_letter"], headers={"traceparent": came, "Tilt-Rollout": "r-1"})
    assert tracing.headers(letter) == {"traceparent": came, "Tilt-Rollout": "r-1"}
    tracing.begin("generate", delivery({"traceparent": came}))
    assert tracing.headers(EXAMPLES["dead_letter"])["traceparent"] == came


@given(text=st.one_of(st.text(max_size=60), st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")))
def test_a_strangers_header_stops_nothing(text: str) -> None:
    """Whatever stands in `traceparent`, what follows is a valid one."""

    def handle() -> str:
        tracing.begin("generate", delivery({"traceparent": text, "Tilt-Rollout": "run-t-0-0"}))
        return tracing.headers(build.rollout())["traceparent"]

    assert tracing.valid(copy_context().run(handle))


def test_zeros_are_no_traceparent() -> None:
    """The standard's invalid ids, other versions and other lengths are refused."""
    good = tracing.root("x")
    assert tracing.valid(good) == good
    for bad in (None, "", good.upper(), "00-" + "0" * 32 + good[35:], good[:36] + "0" * 16 + "-01", good + "-x"):
        assert tracing.valid(bad) is None


def test_log_lines_say_whose_they_are() -> None:
    """A line written while a message is handled has run, rollout, stage and trace; fields of its own win."""
    assert tracing.add_context(None, "info", {"event": "x"}) == {"event": "x"}
    came = tracing.root("y")
    tracing.begin("verify", delivery({"traceparent": came, "Tilt-Run": "demo", "Tilt-Rollout": "demo-t-1-2"}))
    line = tracing.add_context(None, "info", {"event": "x", "stage": "mine"})
    assert line == {"event": "x", "stage": "mine", "run": "demo", "rollout": "demo-t-1-2", "trace": came[3:35]}


def test_nothing_is_imported_when_off() -> None:
    """A service without an endpoint loads no OpenTelemetry."""
    code = (
        "import sys, tiltyard.kit.serve, tiltyard.kit.service\n"
        "tiltyard.kit.service.tracing.setup('x', '')\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout == "[]\n"


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint without OpenTelemetry says what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "tiltyard.kit.otlp", raising=False)
    with pytest.raises(tracing.TracingUnavailable, match=r"tiltyard\[tracing\]"):
        tracing.setup("x", "http://127.0.0.1:1")


def test_off_costs_nothing_to_speak_of() -> None:
    """Without a collector a message costs under 10 us of CPU time: an eighth of what a hop may cost the client."""
    rollout = build.rollout()
    taken: Any = delivery({**tracing.headers(rollout), "Tilt-Schema": "rollout/1"})
    rounds = []
    for _ in range(7):
        started = time.process_time()
        for _ in range(2000):
            tracing.begin("generate", taken)
            tracing.headers(rollout)
            tracing.end("done")
        rounds.append((time.process_time() - started) / 2000)
    assert sorted(rounds)[3] < 10e-6

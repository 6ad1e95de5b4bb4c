"""Spans as a collector receives them: real handlers, a real server, the real exporter over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from support import build, letters
from support.collector import collecting, exported

from tiltyard.kit import tracing
from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.embedded import free_port
from tiltyard.kit.provision import durable
from tiltyard.kit.pull import Puller
from tiltyard.kit.serve import Reject, Retry, serve
from tiltyard_proto import flow
from tiltyard_proto.messages import Rollout
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import GENERATE, VERDICT, VERIFY

pytestmark = pytest.mark.anyio


def finished(rollout: Rollout) -> Rollout:
    return flow.finish(flow.add_turn(rollout, build.turn()), Outcome.FINISHED)


async def run_stages(bus: Bus, generate: Any, count: int) -> None:
    """Serve generate and verify until `count` verdicts are stored."""
    stop = anyio.Event()

    async def verify(rollout: Rollout) -> Sequence[Out]:
        return [(VERDICT, build.verdict(rollout))]

    async def enough() -> bool:
        return int((await bus.js.api(f"STREAM.INFO.{VERDICT.stream}"))["state"]["messages"]) >= count

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(bus, GENERATE, generate, slots=4, stop=stop, bury=bury))
        tasks.start_soon(lambda: serve(bus, VERIFY, verify, slots=4, stop=stop))
        with anyio.fail_after(20):
            while not await enough():  # noqa: ASYNC110  (nobody announces it)
                await anyio.sleep(0.02)
        stop.set()


def bury(rollout: Rollout, outcome: Outcome, detail: str) -> Sequence[Out]:
    return [(VERDICT, flow.ungraded(rollout, outcome, detail))]


async def test_one_tree_per_rollout(bus: Bus) -> None:
    """root, generate, verify: one trace, each span the child of the one before and linked to its input; a retry is an
    event of its own span."""
    tries: list[str] = []

    async def generate(rollout: Rollout) -> Sequence[Out]:
        tries.append(rollout.id)
        if len(tries) == 1:
            raise Retry(0.05, "busy")
        return [(VERIFY, finished(rollout))]

    async with collecting() as collector:
        tracing.setup("test", collector.url)
        rollout = build.rollout()
        await bus.publish(GENERATE, rollout)
        await run_stages(bus, generate, 1)
        await exported(collector)
    (root,) = collector.named("rollout")
    first, second = sorted(collector.named("generate"), key=lambda span: span.start_time_unix_nano)
    (verify,) = collector.named("verify")
    expected = tracing.root(f"rollout {rollout.id} {rollout.created}")
    assert (root.trace_id.hex(), root.span_id.hex()) == (expected[3:35], expected[36:52])
    assert {span.trace_id for span in (first, second, verify)} == {root.trace_id}
    assert root.parent_span_id == b""
    assert first.parent_span_id == second.parent_span_id == root.span_id
    assert verify.parent_span_id == second.span_id
    assert [link.span_id for link in verify.links] == [second.span_id]
    assert [event.name for event in first.events] == ["retry"]
    assert not second.events
    assert collector.services == {"test"}
    stored = await bus.js.last(VERDICT.stream, f"tilt.v1.verdict.math__test.{rollout.id}")
    assert stored is not None
    assert stored.headers["traceparent"] == f"00-{root.trace_id.hex()}-{verify.span_id.hex()}-01"


async def test_a_dead_letter_is_an_event(bus: Bus) -> None:
    """The span of a rejected message has the event and an error status; letter and verdict are in its trace."""

    async def generate(_: Rollout) -> Sequence[Out]:
        raise Reject("validation", "no such profile")

    async with collecting() as collector:
        tracing.setup("test", collector.url)
        await bus.publish(GENERATE, build.rollout())
        await run_stages(bus, generate, 1)
        await exported(collector)
    (span,) = collector.named("generate")
    assert [event.name for event in span.events] == ["dead_letter"]
    assert span.status.code == 2
    letter = await bus.js.last("TILT_DLQ", "tilt.v1.dlq.generate.validation-TILT_GENERATE-1")
    assert letter is not None
    assert letter.headers["traceparent"][3:52] == f"{span.trace_id.hex()}-{span.span_id.hex()}"


async def test_what_was_done_already_is_no_fault(bus: Bus) -> None:
    """The span of a second delivery whose result is stored has no error and no event."""

    async def generate(_: Rollout) -> Sequence[Out]:
        raise AssertionError("it was done before")

    rollout = build.rollout()
    await bus.publish(GENERATE, rollout)
    await bus.publish(VERIFY, finished(rollout))
    puller = Puller(bus.js, GENERATE.stream, durable(GENERATE))  # a worker whose acknowledgement was lost
    await puller.start()
    while (delivery := await puller.next(1)) is None:
        pass
    bus.say(delivery, b"-NAK")
    await puller.stop()
    async with collecting() as collector:
        tracing.setup("test", collector.url)
        await run_stages(bus, generate, 1)
        await letters.until_idle(bus)
        await exported(collector)
    (span,) = collector.named("generate")
    assert {a.key: a.value.string_value for a in span.attributes}["tiltyard.ending"] == "already_done"
    assert (span.status.code, list(span.events)) == (0, [])


async def test_a_collector_that_is_away_costs_no_message(bus: Bus) -> None:
    """Work goes on, and the end takes a few seconds at most."""

    async def generate(rollout: Rollout) -> Sequence[Out]:
        return [(VERIFY, finished(rollout))]

    tracing.setup("test", f"http://127.0.0.1:{free_port()}")
    for member in range(5):
        await bus.publish(GENERATE, build.rollout(member=member))
    await run_stages(bus, generate, 5)
    with anyio.fail_after(8):
        await anyio.to_thread.run_sync(tracing.shutdown)

"""Answers to reads that somebody has stored on another stage are no messages of that stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import build
from support.examples import EXAMPLES
from support.secured import Secured, bare

from tiltyard.kit import origin
from tiltyard.kit.bus import Out
from tiltyard.kit.provision import provision
from tiltyard.kit.serve import serve
from tiltyard_proto import topology
from tiltyard_proto.messages import DeadLetter, Group
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import DLQ, GROUP, VERIFY

pytestmark = pytest.mark.anyio


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Secured]:
    secured = Secured(tmp_path)
    yield secured
    secured.stop()


async def test_a_reply_subject_feeds_no_follower(server: Secured) -> None:
    """A gateway that is taken over has a forged group read back, and pulled, onto the group stream: the trainer sees
    the honest group only."""
    forged = topology.encode(build.group([1.0, 0.0], index=666))
    async with server.bus("supervisor") as operator:
        await provision(operator)
        async with bare(server, "gateway") as attempts:
            client = attempts.client
            await client.request("tilt.v1.execute.d.forged", forged, headers={"Tilt-Schema": "group/1"})
            await client.request("tilt.v1.generate.d.forged", forged, headers={"Tilt-Schema": "group/1"})
            read = "$JS.API.DIRECT.GET.TILT_EXECUTE.tilt.v1.execute.d.forged"
            pull = "$JS.API.CONSUMER.MSG.NEXT.TILT_GENERATE.generate_work"
            await client.publish(read, b"", reply="tilt.v1.group.d.read")
            await client.publish(pull, b'{"batch": 1, "no_wait": true}', reply="tilt.v1.group.d.pulled")
            await client.publish("tilt.v1.verify.d.x", forged, reply="tilt.v1.group.d.acknowledged")
            await client.flush()
        honest = EXAMPLES["group"]
        assert isinstance(honest, Group)
        with anyio.fail_after(10):
            while (await operator.js.api(f"STREAM.INFO.{GROUP.stream}"))["state"]["messages"] < 3:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        async with server.bus("aggregator") as bus:
            await bus.publish(GROUP, honest)
        async with server.bus("trainer") as bus, aclosing(bus.follow(GROUP)) as groups:  # type: ignore[type-var]
            with anyio.fail_after(10):
                position, group = await anext(groups)
    assert group == honest
    assert position == 4


async def test_a_reply_subject_feeds_no_worker(server: Secured) -> None:
    """A trainer that is taken over has a forged rollout read back onto the verify stream: it is a dead letter, and the
    honest one is worked."""
    seen: list[str] = []
    stop = anyio.Event()

    async def handler(rollout: Any) -> Sequence[Out]:
        seen.append(rollout.id)
        return []

    honest = build.rollout(member=1, turns=(build.turn(),), outcome=Outcome.FINISHED)
    forged = topology.encode(build.rollout(member=0, turns=(build.turn(),), outcome=Outcome.FINISHED))
    async with server.bus("supervisor") as operator:
        await provision(operator)
        async with bare(server, "trainer") as attempts:
            await attempts.client.request("tilt.v1.policy.d.forged", forged)
            read = "$JS.API.DIRECT.GET.TILT_POLICY.tilt.v1.policy.d.forged"
            await attempts.client.publish(read, b"", reply="tilt.v1.verify.math__test.run-t-0-0-a0")
            await attempts.client.flush()
        async with server.bus("sandbox") as bus:
            await bus.publish(VERIFY, honest)
        async with server.bus("verifier") as bus, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: serve(bus, VERIFY, handler, slots=2, stop=stop))
            async with aclosing(operator.follow(DLQ)) as letters:  # type: ignore[type-var]
                with anyio.fail_after(10):
                    _, letter = await anext(letters)
                    while not seen:  # noqa: ASYNC110
                        await anyio.sleep(0.02)
            stop.set()
    assert seen == [honest.id]
    assert isinstance(letter, DeadLetter)
    assert letter.body == forged
    assert "answer to a read of TILT_POLICY" in letter.detail


def test_what_was_published_is_taken() -> None:
    """A subject of the stage, a replay too, without the mark of a read."""
    for subject in ("tilt.v1.group.d.k", "tilt.v1.group.d.k.replay.2"):
        origin.check(GROUP, subject, {"Tilt-Schema": "group/1"})
    for subject, headers in (
        ("tilt.v1.groups.d.k", {}),
        ("tilt.v1.generate.d.k", {}),
        ("tilt.v1.group.d.k", {"Nats-Stream": "X"}),
    ):
        with pytest.raises(origin.Misplaced):
            origin.check(GROUP, subject, headers)

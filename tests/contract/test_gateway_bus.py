"""The whole gateway on a real bus, with fake engines: messages in, messages out."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from support.build import rollout, task, turn
from support.chat import ByteChat
from support.waiting import until

from tiltyard.gateway.app import Gateway
from tiltyard.gateway.backend import HttpEngine
from tiltyard.gateway.fake import Canned, FakeEngine
from tiltyard.gateway.settings import GatewaySettings
from tiltyard.kit.bus import Bus
from tiltyard_proto import topology
from tiltyard_proto.messages import DeadLetter, Environment, Policy, Rollout, Sampling, Verdict
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import DLQ, EXECUTE, GENERATE, POLICY, VERDICT, VERIFY, Stage

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def gateway(bus: Bus, *fakes: FakeEngine, **settings: Any) -> AsyncIterator[Gateway]:
    """A gateway of run 'run' over fake engines, serving; drained afterwards."""
    urls = tuple([await fake.start() for fake in fakes])
    fast = {"probe_s": 0.05, "control_s": 2.0, "flush_wait_s": 0.01, "busy_wait_s": 0.01, "poll_s": 0.2}
    config = GatewaySettings(engines=urls, **(fast | settings))
    stop = anyio.Event()

    def load_chat(_path: Path) -> ByteChat:
        return ByteChat()

    try:
        async with aiohttp.ClientSession() as session, anyio.create_task_group() as tasks:
            clients = [HttpEngine(url, session, config) for url in urls]
            made = Gateway("run", bus, clients, config, load_chat)
            tasks.start_soon(made.serve, stop)
            yield made
            stop.set()
    finally:
        for fake in fakes:
            await fake.stop()


async def arrive(bus: Bus, stage: Stage[Any], count: int) -> list[Any]:
    """The first `count` messages of a stage."""
    found: list[Any] = []
    with anyio.fail_after(30):
        async for _sequence, message in bus.follow(stage):
            found.append(message)
            if len(found) == count:
                break
    return found


def policy(version: int) -> Policy:
    return Policy(run="run", version=version, path=f"/policies/v{version}")


def member(index: int, **fields: object) -> Rollout:
    return rollout(task(), member=index, size=8, deadline=time.time() + 60, **fields)


async def test_turns_go_where_their_action_sends_them(bus: Bus) -> None:
    """An answer goes to be verified, code goes to be executed, an unreadable action is graded as bad format."""
    fake = FakeEngine(stop_after=4)
    runs_code = task(environment=Environment(interface="python"))
    async with gateway(bus, fake):
        await bus.publish(GENERATE, member(0))
        await bus.publish(GENERATE, rollout(runs_code, group="run-t-1", deadline=time.time() + 60))
        await anyio.wait_all_tasks_blocked()
        assert fake.requests == []  # no policy yet, so the turns are held
        await bus.publish(POLICY, policy(0))
        (answered,) = await arrive(bus, VERIFY, 1)
        (execute,) = await arrive(bus, EXECUTE, 1)
        fake.stop_after = 1
        await bus.publish(GENERATE, rollout(runs_code, group="run-t-2", deadline=time.time() + 60))
        silent = (await arrive(bus, VERIFY, 2))[1]
    assert (answered.outcome, answered.turns[0].finish) == (Outcome.FINISHED, "stop")
    assert answered.turns[0].versions[0].version == 0
    assert (execute.outcome, execute.turns[0].command.argv[0]) == (None, "python3")
    assert (silent.outcome, silent.turns[0].command) == (Outcome.BAD_FORMAT, None)


async def test_a_group_in_flight_survives_new_weights(bus: Bus) -> None:
    """Every rollout that runs while a new version is announced arrives once, whole, with the versions it met."""
    fake = FakeEngine(step_s=0.003)
    async with gateway(bus, fake, poll_s=600) as made:
        await bus.publish(POLICY, policy(0))
        for index in range(8):
            await bus.publish(GENERATE, member(index, sampling=Sampling(max_new_tokens=80)))
        await until(lambda: len(fake.running) == 8 and all(run.ids for run in fake.running.values()))
        await bus.publish(POLICY, policy(1))
        done = await arrive(bus, VERIFY, 8)
        assert made.pool.wanted == 1
        assert made.unready() is None
    assert sorted(item.member for item in done) == list(range(8))
    for item in done:
        assert [span.version for span in item.turns[0].versions] == [0, 1]
        assert item.turns[0].versions[-1].end == 80


async def test_a_failed_attempt_starts_again(bus: Bus) -> None:
    """Engine faults end the attempt; the next attempt of the same rollout comes through the bus and is sampled."""
    fake = FakeEngine(stop_after=3)
    fake.script.extend(Canned(status=500, body=b"") for _ in range(2))
    async with gateway(bus, fake, tries=2, breaker_faults=9):
        await bus.publish(POLICY, policy(0))
        await bus.publish(GENERATE, member(0))
        (done,) = await arrive(bus, VERIFY, 1)
    assert (done.attempt, done.outcome, len(done.turns)) == (1, Outcome.FINISHED, 1)


async def test_what_cannot_be_sampled_is_buried_with_a_verdict(bus: Bus) -> None:
    """A rollout that no engine would take is a dead letter, and its group hears that it won't come."""
    async with gateway(bus, FakeEngine()):
        await bus.publish(POLICY, policy(0))
        await bus.publish(GENERATE, member(0, sampling=Sampling(temperature=-1.0)))
        (verdict,) = await arrive(bus, VERDICT, 1)
        (letter,) = await arrive(bus, DLQ, 1)
    assert isinstance(verdict, Verdict)
    assert (verdict.outcome, verdict.score) == (Outcome.POISON, None)
    assert isinstance(letter, DeadLetter)
    assert (letter.reason, "sampling.temperature" in letter.detail) == ("validation", True)
    assert topology.decode(GENERATE, letter.body).id == "run-t-0-0"


async def test_late_and_foreign_rollouts_end_ungraded(bus: Bus) -> None:
    """A rollout whose time passed in the queue, or of another run, is neither sampled nor scored."""
    fake = FakeEngine()
    async with gateway(bus, fake):
        await bus.publish(POLICY, policy(0))
        await bus.publish(GENERATE, msgspec.structs.replace(member(0), deadline=time.time() - 1))
        await bus.publish(GENERATE, msgspec.structs.replace(member(1), run="other"))
        verdicts = await arrive(bus, VERDICT, 2)
    assert {(v.outcome, v.score) for v in verdicts} == {(Outcome.LATE, None), (Outcome.STALE, None)}
    assert fake.requests == []


async def test_a_redelivered_turn_changes_nothing(bus: Bus) -> None:
    """The same turn sampled twice: the first result stays."""
    fake = FakeEngine(stop_after=3)
    async with gateway(bus, fake) as made:
        await bus.publish(POLICY, policy(0))
        await bus.publish(GENERATE, member(0))
        (first,) = await arrive(bus, VERIFY, 1)
        ((stage, again),) = await made.handle(member(0))
        assert await bus.publish(stage, again) is False
        assert (await bus.get(VERIFY, VERIFY.subject(first))) == first


async def test_messages_that_need_no_sampling_pass_through(bus: Bus) -> None:
    """A rollout that already said its last word, or spent its turns, goes on without a request."""
    made = Gateway("run", bus, [], GatewaySettings(), lambda _path: ByteChat())
    ((stage, message),) = await made.handle(member(0, turns=(turn(),)))
    assert (stage.name, message.outcome) == ("verify", Outcome.FINISHED)
    ((stage, message),) = await made.handle(member(0, turns=(turn(observation="again"),)))
    assert (stage.name, message.outcome) == ("verify", Outcome.TURN_LIMIT)
    assert made.unready() == "no policy published yet"


async def test_a_missed_announcement_is_found_by_asking(bus: Bus) -> None:
    """The newest policy of the own run is what a poll takes, whatever other runs publish."""
    made = Gateway("run", bus, [], GatewaySettings(), lambda _path: ByteChat())
    await made.refresh()
    assert made.pool.wanted == -1
    for version in (0, 1, 2):
        await bus.publish(POLICY, policy(version))
    await bus.publish(POLICY, msgspec.structs.replace(policy(9), run="run2"))
    await made.refresh()
    assert made.pool.wanted == 2

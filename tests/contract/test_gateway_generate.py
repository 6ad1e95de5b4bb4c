"""Turns through real HTTP against fake engines that misbehave as SGLang does."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from support.build import rollout, task, turn
from support.chat import ByteChat
from support.waiting import until

from tiltyard.domains.interfaces import parse_action
from tiltyard.gateway.backend import HttpEngine
from tiltyard.gateway.engines import Pool, State
from tiltyard.gateway.fake import Canned, FakeEngine, next_token
from tiltyard.gateway.generate import Generator, Invalid
from tiltyard.gateway.settings import GatewaySettings
from tiltyard_proto.messages import GroupRef, Purpose, Rollout, Sampling
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.tokens import count, pack_ids, unpack_ids

pytestmark = pytest.mark.anyio
FULL = {"object": "error", "message": "The request queue is full.", "type": "503", "param": None, "code": 503}


class Rig:
    """Fake engines behind a generator."""

    def __init__(self, engines: list[FakeEngine], session: aiohttp.ClientSession, settings: GatewaySettings) -> None:
        self.engines = engines
        self.pool = Pool([HttpEngine(engine.url, session, settings) for engine in engines], settings)
        self.pool.wanted = 1
        for engine in self.pool.engines:
            engine.version = 1
            self.pool.move(engine, State.READY)
        self.generator = Generator(self.pool, ByteChat(), parse_action, settings)

    def home(self, of: Rollout) -> FakeEngine:
        """The engine that is first in line for a rollout."""
        best = max(self.pool.engines, key=lambda engine: engine.rank(of.group.id))
        return next(engine for engine in self.engines if engine.url == best.url)


@asynccontextmanager
async def rig(*engines: FakeEngine, **settings: Any) -> AsyncIterator[Rig]:
    """Engines at version 1, listening; stopped afterwards."""
    urls = tuple([await engine.start() for engine in engines])
    fast = {"busy_wait_s": 0.01, "control_s": 2.0, "request_s": 10.0} | settings
    try:
        async with aiohttp.ClientSession() as session:
            yield Rig(list(engines), session, GatewaySettings(engines=urls, **fast))
    finally:
        for engine in engines:
            await engine.stop()


def fake(**fields: Any) -> FakeEngine:
    return FakeEngine(version="1", **fields)


def expected(prompt: list[int], length: int) -> list[int]:
    """What an undisturbed fake engine samples."""
    ids: list[int] = []
    while len(ids) < length:
        ids.append(next_token([*prompt, *ids], 256))
    return ids


def check_in_step(done: Rollout) -> None:
    last = done.turns[-1]
    assert count(last.action_ids) == count(last.logprobs) == last.versions[-1].end
    assert [s.start for s in last.versions] == [0, *[s.end for s in last.versions][:-1]]


async def test_two_turns_share_their_prefix_ids() -> None:
    """The second turn's input is the first turn's ids plus the rendered observation, at the engine that has them."""
    async with rig(fake(stop_after=5), fake(stop_after=5)) as r:
        first = await r.generator.turn(rollout(task(turns=2)))
        assert (first.turns[0].finish, count(first.turns[0].action_ids)) == ("stop", 5)
        seen = msgspec.structs.replace(first.turns[0], observation="wrong")
        second = await r.generator.turn(msgspec.structs.replace(first, turns=(seen,)))
        requests = r.home(first).requests
        assert len(requests) == 2
        before = requests[0]["input_ids"] + unpack_ids(seen.action_ids)
        assert requests[1]["input_ids"][: len(before)] == before
        assert requests[1]["input_ids"][len(before) :] == unpack_ids(second.turns[1].context_ids)
        assert {request["extra_key"] for request in requests} == {"run-v1"}
        assert len({request["rid"] for request in requests}) == 2
        assert {len(request["rid"]) for request in requests} == {32}
        check_in_step(second)


async def test_members_of_a_group_meet_at_one_engine() -> None:
    """Eight rollouts of one task are sampled side by side where their prompt is cached."""
    async with rig(fake(step_s=0.002), fake(step_s=0.002)) as r:
        async with anyio.create_task_group() as tasks:
            for member in range(8):
                tasks.start_soon(r.generator.turn, rollout(member=member, size=8))
        assert sorted(len(engine.requests) for engine in r.engines) == [0, 8]


@pytest.mark.parametrize("mishap", [Canned(drop=True), Canned(status=500, body=b"boom"), Canned(body=b"<html>")])
async def test_a_fault_moves_the_request_to_another_engine(mishap: Canned) -> None:
    """A dropped connection, a 500 or a senseless reply costs a try; the turn is sampled elsewhere under a new id."""
    async with rig(fake(), fake()) as r:
        home = r.home(rollout())
        home.script.append(mishap)
        done = await r.generator.turn(rollout(sampling=Sampling(max_new_tokens=6)))
        assert done.outcome is None
        other = next(engine for engine in r.engines if engine is not home)
        assert len(home.requests) == len(other.requests) == 1
        assert home.requests[0]["rid"] != other.requests[0]["rid"]
        assert home.calls == ["abort"]


async def test_bounded_tries_end_in_engine_failed() -> None:
    """When every try fails the attempt ends as the engine's failure, never as a reward."""
    engine = fake(script=deque(Canned(status=500, body=b"") for _ in range(9)))
    async with rig(engine, tries=3, breaker_faults=99) as r:
        done = await r.generator.turn(rollout())
        assert (done.outcome, done.turns, len(engine.requests)) == (Outcome.ENGINE_FAILED, (), 3)


async def test_a_full_queue_is_waited_for() -> None:
    """Queue-full replies cost no try and don't count against the engine (SGLang issue 25811)."""
    engine = fake()
    shapes = [Canned(status=503, body=FULL), Canned(status=429, body=b"slow down")]
    abort = {"type": "abort", "message": "full", "status_code": 503}
    shapes.append(Canned(body={"output_ids": [], "meta_info": {"finish_reason": abort}}))
    engine.script.extend(shapes * 3)
    async with rig(engine, tries=1, breaker_faults=1) as r:
        done = await r.generator.turn(rollout())
        assert done.outcome is None
        assert len(engine.requests) == 10
        assert r.pool.engines[0].state is State.READY


async def test_refused_requests_never_open_the_breaker() -> None:
    """Twenty over-long prompts end as token limits; the next good request is served at once."""
    engine = fake(context_length=40)
    async with rig(engine, breaker_faults=2) as r:
        for _ in range(20):
            done = await r.generator.turn(rollout(task(text="x" * 100)))
            assert (done.outcome, done.turns) == (Outcome.TOKEN_LIMIT, ())
        assert r.pool.engines[0].state is State.READY
        good = await r.generator.turn(rollout(task(text="hi"), sampling=Sampling(max_new_tokens=4)))
        assert good.outcome is None
        assert len(engine.requests) == 21


@pytest.mark.parametrize(
    "body",
    [{"error": "unknown field 'x'"}, {"object": "error", "message": "bad", "code": 400}, {"error": {"message": "bad"}}],
)
async def test_a_refusal_is_never_repeated(body: dict[str, Any]) -> None:
    """A 400 in any shape is a dead letter after one call."""
    engine = fake()
    engine.script.append(Canned(status=400, body=body))
    async with rig(engine) as r:
        with pytest.raises(Invalid, match="400"):
            await r.generator.turn(rollout())
        assert len(engine.requests) == 1


async def test_wrong_ids_never_reach_an_engine() -> None:
    """Ids outside the vocabulary are refused here; the engine lives."""
    engine = fake()
    async with rig(engine) as r:
        for bad in (256, -1, 10_000_000):
            with pytest.raises(Invalid, match="outside"):
                await r.generator.turn(
                    rollout(task(turns=2), turns=(turn(context_ids=pack_ids([bad]), observation="x"),))
                )
        assert (engine.requests, engine.crashed) == ([], False)


@pytest.mark.parametrize("keep", [True, False])
async def test_an_aborted_request_is_resumed_within_its_budget(keep: bool) -> None:
    """Cut short twice over two updates, the turn is what an undisturbed one would be, each token with its version."""
    engine = fake(step_s=0.003)
    async with rig(engine, keep_partial=keep) as r:
        results: list[Rollout] = []

        async def sample() -> None:
            results.append(await r.generator.turn(rollout(sampling=Sampling(max_new_tokens=40))))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sample)
            for version in ("2", "3"):
                await until(lambda: any(len(run.ids) >= 8 for run in engine.running.values()))
                engine.live_version = version
                await until(lambda v=version: any(v in run.versions for run in engine.running.values()))
                await engine._cut("")
                await until(lambda: not engine.running or not any(run.cut for run in engine.running.values()))
        done = results[0]
        check_in_step(done)
        prompt = engine.requests[0]["input_ids"]
        assert unpack_ids(done.turns[0].action_ids) == expected(prompt, 40)
        assert done.turns[0].finish == "length"
        assert len(engine.requests) == 3
        totals = [len(req["input_ids"]) + req["sampling_params"]["max_new_tokens"] for req in engine.requests]
        assert set(totals) == {len(prompt) + 40}
        if keep:
            assert [span.version for span in done.turns[0].versions] == [1, 2, 3]
        else:
            assert {tuple(req["input_ids"]) for req in engine.requests} == {tuple(prompt)}


async def test_an_abort_in_the_queue_is_sampled_again() -> None:
    """An aborted reply without tokens, logprobs or most meta fields just means: once more."""
    engine = fake()
    bare = {"text": "", "output_ids": [], "meta_info": {"finish_reason": {"type": "abort", "message": "in queue"}}}
    engine.script.extend([Canned(body=bare), Canned(body=bare)])
    async with rig(engine) as r:
        done = await r.generator.turn(rollout(sampling=Sampling(max_new_tokens=7)))
        assert unpack_ids(done.turns[0].action_ids) == expected(engine.requests[0]["input_ids"], 7)


async def test_a_cancelled_turn_is_aborted_at_its_engine_only() -> None:
    """Giving up one of two turns ends that one at the engine and leaves the other alone."""
    engine = fake(step_s=0.005)
    async with rig(engine) as r:
        scope = anyio.CancelScope()
        kept: list[Rollout] = []

        async def give_up() -> None:
            with scope:
                await r.generator.turn(rollout(sampling=Sampling(max_new_tokens=400)))

        async def keep() -> None:
            kept.append(await r.generator.turn(rollout(member=1, sampling=Sampling(max_new_tokens=60))))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(give_up)
            tasks.start_soon(keep)
            await until(lambda: len(engine.running) == 2)
            scope.cancel()
            await until(lambda: len(engine.running) == 1)
        assert (count(kept[0].turns[0].action_ids), len(engine.requests)) == (60, 2)
        assert engine.calls == ["abort"]
        assert engine.running == {}
        assert r.pool.engines[0].in_flight == 0


async def test_a_cancelled_turn_does_not_run_after_a_pause() -> None:
    """An engine loses the abort of a request that it holds during a pause; the closed connection ends it anyway."""
    engine = fake(paused="retract")
    async with rig(engine) as r:
        scope = anyio.CancelScope()

        async def give_up() -> None:
            with scope:
                await r.generator.turn(rollout())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(give_up)
            await until(lambda: len(engine.running) == 1)
            scope.cancel()
        await until(lambda: not engine.running)
        assert engine.calls == ["abort"]


async def test_the_deadline_ends_the_turn_and_frees_the_engine() -> None:
    """A turn that outlives its rollout's deadline ends without an action, and nothing goes on at the engine."""
    engine = fake(step_s=0.02)
    async with rig(engine, breaker_faults=1) as r:
        late = rollout(deadline=time.time() + 0.3, sampling=Sampling(max_new_tokens=400))
        done = await r.generator.turn(late)
        assert (done.outcome, done.turns) == (Outcome.LATE, ())
        await until(lambda: not engine.running)
        assert r.pool.engines[0].state is State.READY


async def test_no_engine_holds_the_request_then_fails() -> None:
    """With every engine out of rotation a turn is held for `hold_s`; then the attempt ends as the engine's failure."""
    async with rig(fake(), hold_s=0.05) as r:
        r.pool.move(r.pool.engines[0], State.LOST, "refused")
        done = await r.generator.turn(rollout())
        assert (done.outcome, "lost v1" in done.detail) == (Outcome.ENGINE_FAILED, True)


async def test_an_evaluation_is_sampled_from_its_version_or_newer() -> None:
    """A rollout that evaluates version 2 is held while engines serve version 1."""
    engine = fake()
    async with rig(engine) as r:
        ref = GroupRef(id="run-e2-0", size=1, deadline=2e9, purpose=Purpose.EVAL, version=2)
        done: list[Rollout] = []

        async def sample() -> None:
            done.append(await r.generator.turn(msgspec.structs.replace(rollout(), group=ref)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sample)
            await anyio.wait_all_tasks_blocked()
            assert engine.requests == []
            engine.version = engine.live_version = "2"
            r.pool.engines[0].version = r.pool.wanted = 2
            r.pool.notify()
        assert {span.version for span in done[0].turns[0].versions} == {2}
        assert engine.requests[0]["extra_key"] == "run-v2"

"""Moving engines to new weights over real HTTP, against fake engines with SGLang's habits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import pytest
from support.build import rollout
from support.chat import ByteChat
from support.waiting import until

from tiltyard.domains.interfaces import parse_action
from tiltyard.gateway.backend import HttpEngine
from tiltyard.gateway.engines import Engine, Pool, State
from tiltyard.gateway.fake import Canned, FakeEngine
from tiltyard.gateway.generate import Generator
from tiltyard.gateway.settings import GatewaySettings
from tiltyard.gateway.weights import Keeper, Wanted
from tiltyard_proto.messages import Policy, Rollout, Sampling
from tiltyard_proto.tokens import count

pytestmark = pytest.mark.anyio


class Fleet:
    """Fake engines, each with its keeper, and a generator over them."""

    def __init__(self, fakes: list[FakeEngine], session: aiohttp.ClientSession, settings: GatewaySettings) -> None:
        self.fakes = fakes
        self.pool = Pool([HttpEngine(fake.url, session, settings) for fake in fakes], settings)
        self.wanted = Wanted(self.pool)
        self.generator = Generator(self.pool, ByteChat(), parse_action, settings)
        self.stream: list[Policy] = []
        """What a poll of the policy stream would find."""

    async def refresh(self) -> None:
        for policy in self.stream:
            self.wanted.offer(policy)

    def publish(self, version: int) -> None:
        self.stream.append(Policy(run="run", version=version, path=f"/policies/v{version}"))
        self.wanted.offer(self.stream[-1])

    def engine(self, index: int = 0) -> Engine:
        return self.pool.engines[index]

    async def ready(self, version: int, index: int = 0) -> None:
        engine = self.engine(index)
        await until(lambda: engine.state is State.READY and engine.version == version)


@asynccontextmanager
async def fleet(*fakes: FakeEngine, **settings: Any) -> AsyncIterator[Fleet]:
    """A running fleet with short waits."""
    urls = tuple([await fake.start() for fake in fakes])
    fast = {"probe_s": 0.02, "control_s": 2.0, "flush_wait_s": 0.01, "busy_wait_s": 0.01, "flush_tries": 3}
    config = GatewaySettings(engines=urls, **(fast | settings))
    try:
        async with aiohttp.ClientSession() as session, anyio.create_task_group() as tasks:
            made = Fleet(list(fakes), session, config)
            for engine in made.pool.engines:
                tasks.start_soon(Keeper(engine, made.pool, made.wanted, made.refresh, config).run)
            yield made
            tasks.cancel_scope.cancel()
    finally:
        for fake in fakes:
            await fake.stop()


async def test_the_safe_order() -> None:
    """Pause, load without flushing, flush, continue; then the engine serves the new version."""
    fake = FakeEngine()
    async with fleet(fake) as f:
        assert f.pool.routable() == []
        f.publish(0)
        await f.ready(0)
        assert fake.calls == ["pause retract", "update 0", "flush", "continue"]
        assert (fake.version, fake.model_path) == ("0", "/policies/v0")


async def test_an_engine_that_holds_the_weights_already_is_left_alone() -> None:
    """A gateway that restarts finds its engines on the wanted weights and serves at once."""
    fake = FakeEngine(version="4", model_path="/policies/v4")
    async with fleet(fake) as f:
        f.publish(4)
        await f.ready(4)
        assert fake.calls == []


async def test_equal_version_of_other_weights_is_moved() -> None:
    """Version 0 of another run is not version 0 of this one."""
    fake = FakeEngine(version="0", model_path="/other/v0")
    async with fleet(fake) as f:
        f.publish(0)
        await f.ready(0)
        assert fake.model_path == "/policies/v0"


async def _sample_over_update(f: Fleet, tokens: int = 60) -> Rollout:
    """One turn during which version 1 replaces version 0."""
    done: list[Rollout] = []

    async def sample() -> None:
        done.append(await f.generator.turn(rollout(sampling=Sampling(max_new_tokens=tokens))))

    f.publish(0)
    await f.ready(0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sample)
        await until(lambda: any(len(run.ids) >= 5 for run in f.fakes[0].running.values()))
        f.publish(1)
        await f.ready(1)
    return done[0]


@pytest.mark.parametrize(("mode", "requests"), [("retract", 1), ("abort", 2), ("in_place", 1)])
async def test_a_running_turn_survives_an_update(mode: str, requests: int) -> None:
    """In every pause mode the turn ends with its full length, its tokens marked with both versions."""
    fake = FakeEngine(step_s=0.004)
    async with fleet(fake, pause_mode=mode) as f:
        done = await _sample_over_update(f)
        assert count(done.turns[0].action_ids) == 60
        assert [span.version for span in done.turns[0].versions] == [0, 1]
        assert len(fake.requests) == requests
        assert ("flush refused" in fake.calls) == (mode == "in_place")
        await f.generator.turn(rollout(sampling=Sampling(max_new_tokens=1)))
        assert fake.requests[-1]["extra_key"] == "run-v1"
        assert fake.requests[0]["extra_key"] == "run-v0"


async def test_updated_but_not_flushed_means_live() -> None:
    """An update whose flush is refused is not repeated: the weights are named and flushed, then the engine serves."""
    fake = FakeEngine(update_flushes=True, flush_refusals=2)
    async with fleet(fake) as f:
        f.publish(3)
        await f.ready(3)
        assert fake.calls == ["pause retract", "update 3", "set_version 3", "flush refused", "flush", "continue"]
        assert fake.calls.count("update 3") == 1


async def test_a_flush_that_keeps_failing_sets_the_engine_aside() -> None:
    """After bounded tries the engine is suspect, the others go on, and only the flush is tried again."""
    bad, good = FakeEngine(flush_refusals=4), FakeEngine()
    async with fleet(bad, good) as f:
        f.publish(0)
        await f.ready(0, index=1)
        await until(lambda: f.engine(0).state is State.SUSPECT)
        assert f.pool.routable() == [f.engine(1)]
        assert (await f.generator.turn(rollout())).outcome is None
        await f.ready(0, index=0)
        assert bad.calls.count("update 0") == 1
        assert bad.calls.count("abort_all") == 1
        assert bad.calls[-2:] == ["flush", "continue"]


async def test_missing_weights_keep_the_engine_out() -> None:
    """An engine that can't load the wanted weights doesn't serve the old ones; a newer version brings it back."""
    fake = FakeEngine(known_paths={"/policies/v0", "/policies/v2"})
    async with fleet(fake) as f:
        f.publish(0)
        await f.ready(0)
        f.publish(1)
        await until(lambda: f.engine().state is State.SUSPECT)
        assert "/policies/v1 does not exist" in f.engine().detail
        assert f.pool.routable() == []
        f.publish(2)
        await f.ready(2)


async def test_a_restarted_engine_is_moved_before_it_serves() -> None:
    """An engine that comes back with its first weights takes no request until it holds the wanted version again."""
    fake = FakeEngine()
    async with fleet(fake, lost_after=2) as f:
        f.publish(5)
        await f.ready(5)
        port = int(fake.url.rsplit(":", 1)[1])
        await fake.stop()
        await until(lambda: f.engine().state is State.LOST)
        again = FakeEngine(version="default", step_s=0.001)
        await again.start(port)
        done = await f.generator.turn(rollout(sampling=Sampling(max_new_tokens=3)))
        assert {span.version for span in done.turns[0].versions} == {5}
        assert again.calls[:2] == ["pause retract", "update 5"]
        await again.stop()


async def test_versions_never_go_back_on_a_shared_engine() -> None:
    """An engine that another gateway moved ahead is not moved back: the stream is asked for the newer policy first."""
    fake = FakeEngine(version="7", model_path="/policies/v7")
    async with fleet(fake) as f:
        f.stream.append(Policy(run="run", version=7, path="/policies/v7"))
        f.wanted.offer(Policy(run="run", version=6, path="/policies/v6"))
        await f.ready(7)
        assert fake.calls == []


async def test_an_engine_left_paused_is_resumed() -> None:
    """A mover that died in its pause doesn't hold an engine for ever; while paused it takes nothing."""
    fake = FakeEngine(version="1", model_path="/policies/v1", paused="retract")
    async with fleet(fake) as f:
        f.publish(1)
        await until(lambda: f.engine().state is State.PAUSED)
        await f.ready(1)
        assert fake.calls == ["flush", "continue"]


async def test_a_tripped_engine_rests_and_returns() -> None:
    """Server faults set an engine aside although it answers probes; after its rest it serves again."""
    fake = FakeEngine()
    async with fleet(fake, breaker_faults=2, probe_s=0.05) as f:
        f.publish(0)
        await f.ready(0)
        fake.script.extend(Canned(status=500, body=b"") for _ in range(2))
        done = await f.generator.turn(rollout())
        assert (done.outcome, len(fake.requests), f.engine().trips) == (None, 3, 0)


async def test_a_probe_doesnt_end_the_rest() -> None:
    """While a tripped engine rests, a good probe leaves it out of rotation; afterwards one brings it back."""
    fake = FakeEngine(version="0", model_path="/policies/v0")
    async with fleet(fake, breaker_faults=1, probe_s=1000) as f:
        f.publish(0)
        await f.ready(0)
        f.pool.failed(f.engine(), "boom")
        keeper = Keeper(f.engine(), f.pool, f.wanted, f.refresh, f.pool.settings)
        await keeper.tick()
        assert f.engine().state is State.SUSPECT
        f.engine().rest_until = 0.0
        await keeper.tick()
        assert f.engine().state is State.READY


async def test_a_move_that_is_cancelled_leaves_no_engine_paused() -> None:
    """A gateway that stops in the middle of a move lets the engine go on."""
    fake = FakeEngine(flush_refusals=10**6, continue_s=0.05)
    async with fleet(fake, flush_wait_s=30.0) as f:
        f.publish(0)
        await until(lambda: "flush refused" in fake.calls)
        assert fake.paused == "retract"
    assert fake.calls[-1] == "continue"


async def test_an_update_renames_the_model_and_nobody_minds() -> None:
    """Engines are known by their URL: after an update changed model path and name, routing goes on (issue 15416)."""
    fakes = FakeEngine(), FakeEngine()
    async with fleet(*fakes) as f:
        for version in range(3):
            f.publish(version)
            await f.ready(version, 0)
            await f.ready(version, 1)
            done = await f.generator.turn(rollout(group=f"run-t-{version}"))
            assert {span.version for span in done.turns[0].versions} == {version}
        assert {fake.model_path for fake in fakes} == {"/policies/v2"}


async def test_weights_that_come_during_a_move_are_moved_to_at_once() -> None:
    """A version that is published while the engine moves to the one before doesn't wait for the next probe."""
    fake = FakeEngine(continue_s=0.2)
    async with fleet(fake, probe_s=1000) as f:
        f.publish(0)
        await until(lambda: "pause retract" in fake.calls)
        f.publish(1)
        await f.ready(1)

"""A rollout of a million tokens goes round the whole loop: every service, a real bus with the usual message limit."""

from __future__ import annotations

from pathlib import Path

import anyio
import psutil
import pytest
from support import build
from support.clusters import answered
from support.marathon import MOST_TOKENS, LongEngine, Loop
from support.services import stored

from tiltyard.kit.bus import INLINE_LIMIT, Bus
from tiltyard.kit.settings import RunSettings, TaskShare
from tiltyard_proto.messages import Environment, Policy, RolloutLimits, Sampling
from tiltyard_proto.topology import DLQ, EXECUTE, GENERATE, GROUP, POLICY, STAGES, TASK, VERDICT, VERIFY

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
DOMAIN = "math.long"
MOST_MEMORY = 1.5e9
"""Bytes that this process, with all six services and the engine in it, may grow by; a rollout has some 9 MB."""


async def version(bus: Bus, wanted: int) -> Policy:
    """A version, once it is published."""
    while True:
        policy = await answered(lambda: bus.latest_policy("run"))  # the loop is busy with large messages
        if policy is not None and policy.version == wanted:
            assert isinstance(policy, Policy)
            return policy
        await anyio.sleep(0.05)


async def watch(peak: list[int]) -> None:
    """Keep the most memory that this process has had."""
    process = psutil.Process()
    while True:
        peak[0] = max(peak[0], process.memory_info().rss)
        await anyio.sleep(0.02)


async def largest(bus: Bus) -> int:
    """Bytes of the largest message that lies on a stage."""
    sizes = [0]
    for stage in STAGES:
        for subject in await stored(bus, stage):
            found = await bus.js.last(stage.stream, subject)
            assert found is not None
            sizes.append(len(found.body))
    return max(sizes)


async def test_a_rollout_of_a_million_tokens_is_trained_on(bus: Bus, tmp_path: Path) -> None:
    """Two turns of half a million tokens, one with a command, pass sampler, gateway, sandbox, verifier, aggregator and
    trainer: every token is in the trainer's batch as it was sampled, by reference on the bus, in bounded memory."""
    run = RunSettings(
        name="run", steps=1, groups_per_step=1, group_size=2, staleness=0, train={DOMAIN: TaskShare(tasks=1)}
    )
    limits = RolloutLimits(turns=3, tokens=MOST_TOKENS, wall_s=600)
    task = build.task(
        DOMAIN,
        environment=Environment(interface="shell"),
        limits=limits,
        sampling=Sampling(max_new_tokens=MOST_TOKENS),
    )
    await bus.publish(TASK, task)
    loop, peak, before = Loop(bus, run, tmp_path), [0], psutil.Process().memory_info().rss
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, peak)
        loop.start(tasks)
        with anyio.fail_after(200):
            policy = await version(bus, 1)
        loop.stop.set()
        tasks.cancel_scope.cancel()
    assert (policy.metrics["members"], policy.metrics["dropped_unusable"]) == (2, 0)
    assert policy.metrics["tokens"] > 2 * LongEngine.half
    (batch,) = loop.learner.seen
    targets = [token for row in batch.rows for token in row.targets]
    long, short = loop.engine.long, loop.engine.short
    assert targets in (long + short, short + long)
    counts = {stage.name: len(await stored(bus, stage)) for stage in (GENERATE, EXECUTE, VERIFY, VERDICT, GROUP, DLQ)}
    assert counts == {"generate": 3, "execute": 1, "verify": 2, "verdict": 2, "group": 1, "dlq": 0}
    assert await largest(bus) <= INLINE_LIMIT
    assert peak[0] - before < MOST_MEMORY
    assert len(await stored(bus, POLICY)) == 2

"""The gauges of dead letters, and tasks that the sampler can't take."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from prometheus_client import REGISTRY
from support import build, letters
from support.services import context, running
from support.waiting import until

from tiltyard.kit import dlq_watch
from tiltyard.kit.bus import Bus
from tiltyard.kit.deadletters import Letters
from tiltyard.kit.dlq_watch import DlqWatch
from tiltyard.kit.replay import Replayer
from tiltyard.kit.settings import RunSettings, TaskShare
from tiltyard.sampler.app import start
from tiltyard.sampler.settings import SamplerSettings
from tiltyard_proto.messages import Policy
from tiltyard_proto.topology import GENERATE, POLICY, TASK

pytestmark = pytest.mark.anyio


def depth(stage: str, reason: str) -> float | None:
    return REGISTRY.get_sample_value("tiltyard_dlq_depth", {"stage": stage, "reason": reason})


def counted(stage: str, reason: str) -> float:
    return REGISTRY.get_sample_value("tiltyard_dead_letters_total", {"stage": stage, "reason": reason}) or 0.0


async def test_depth_and_age(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gauges count open letters by stage and class, tell the age of the oldest, and fall as letters are settled."""
    monkeypatch.setattr(dlq_watch, "PUBLISH_EVERY_S", 0.02)
    before = counted("generate", "validation")
    made = await letters.make_letters(bus, 3)
    assert counted("generate", "validation") == before + 3
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(DlqWatch(bus).run)
        await until(lambda: depth("generate", "validation") == 3)
        age = REGISTRY.get_sample_value("tiltyard_dlq_oldest_seconds", {"stage": "generate"})
        assert age is not None
        assert 0 <= age < 60
        await Letters(bus).discard(made[0])
        await Replayer(Letters(bus)).replay(made[1])
        await until(lambda: depth("generate", "validation") == 1)
        await Letters(bus).discard(made[2])
        await until(lambda: depth("generate", "validation") is None)
        tasks.cancel_scope.cancel()


async def test_the_sampler_starts_over_bad_tasks_and_reports_them(bus: Bus, tmp_path: Path) -> None:
    """Bad bytes as the newest task neither hang a starting sampler nor keep good tasks from being sampled."""
    await bus.publish(TASK, build.task(text="good"))
    await bus.publish(POLICY, Policy(run="run", version=0, path="/w"))
    for subject in ("tilt.v1.task.math__test.zzz", "tilt.v1.policy.policy.run-nonsense", "tilt.v1.group.math__test.x"):
        await bus.js.publish(subject, b"\xff\xff", {})
    run = RunSettings(
        name="run", groups_per_step=1, group_size=2, train={"math.test": TaskShare(tasks=1)}, group_deadline_s=60
    )
    made = context("sampler", bus, run, SamplerSettings(), tmp_path)
    async with running(start, made):
        with anyio.fail_after(20):
            while not (await bus.js.api(f"STREAM.INFO.{GENERATE.stream}"))["state"]["messages"]:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        await until(lambda: depth("task", "decode") == 1)
        await bus.js.publish("tilt.v1.task.math__test.later", b'{"type": "job"}', {})
        await until(lambda: depth("task", "schema") == 1)
    found = await Letters(bus).all()
    assert {(entry.letter.stage, entry.letter.reason, entry.letter.consumer) for entry in found} == {
        ("task", "decode", "sampler"),
        ("task", "schema", "sampler"),
        ("group", "decode", "sampler"),
        ("policy", "decode", "sampler"),
    }
    assert (await bus.latest_policy("run")).version == 0

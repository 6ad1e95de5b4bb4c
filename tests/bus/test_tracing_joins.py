"""A rollout's trace tells its whole life: its group's opening and close and the step that trained on it, as a collector
receives them from a real sampler, aggregator and trainer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import build, training
from support.collector import Collector, collecting, exported
from support.services import context, running

from tiltyard.aggregator import app as aggregator
from tiltyard.aggregator.settings import AggregatorSettings
from tiltyard.kit import joins, tracing
from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.serve import serve
from tiltyard.kit.settings import RunSettings, TaskShare
from tiltyard.sampler import app as sampler
from tiltyard.sampler.backend import BusRegister
from tiltyard.sampler.settings import SamplerSettings
from tiltyard.trainer.app import Trainer
from tiltyard.trainer.backend import BusStreams, FakeLearner
from tiltyard.trainer.settings import TrainerSettings
from tiltyard_proto import flow, topology
from tiltyard_proto.messages import Group, Policy, Rollout
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import GENERATE, GROUP, POLICY, VERDICT

pytestmark = pytest.mark.anyio
RUN = RunSettings(
    name="run", steps=1, groups_per_step=2, group_size=3, staleness=0, train={"math.test": TaskShare(tasks=2)}
)


async def answer(rollout: Rollout) -> Sequence[Out]:
    ended = flow.finish(flow.add_turn(rollout, build.turn()), Outcome.FINISHED)
    return [(VERDICT, build.verdict(ended, float(rollout.member % 2)))]


async def one_run(bus: Bus, tmp_path: Path) -> None:
    """A run of one step, to its end."""
    source = tmp_path / "source"
    source.mkdir()
    for index in range(2):
        await bus.publish(topology.TASK, build.task(text=str(index)))
    stop = anyio.Event()
    trainer = Trainer(
        run=RUN, settings=TrainerSettings(threads=1, dtype="float32"), source=source, data=tmp_path / "data",
        streams=BusStreams(bus), learner=partial(FakeLearner, training.VOCAB), stop=stop,
    )  # fmt: skip
    contexts = (
        context("sampler", bus, RUN, SamplerSettings(settle_s=0.2, tick_s=0.05), tmp_path),
        context("aggregator", bus, RUN, AggregatorSettings(), tmp_path),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trainer.serve)
        tasks.start_soon(lambda: serve(bus, GENERATE, answer, slots=8, stop=stop))
        async with running(sampler.start, contexts[0]), running(aggregator.start, contexts[1]):
            register = BusRegister(bus)
            with anyio.fail_after(30):
                while (status := await register.status("run")) is None or status.state != "finished":  # noqa: ASYNC110
                    await anyio.sleep(0.02)
        stop.set()


def place(span: Any) -> str:
    """Trace and span id, as in a traceparent."""
    return f"{span.trace_id.hex()}-{span.span_id.hex()}"


def links(span: Any) -> set[str]:
    return {place(link) for link in span.links}


def of(root: str) -> str:
    return root[3:52]


async def groups_and_policy(bus: Bus) -> tuple[list[Group], Policy]:
    groups = []
    with anyio.fail_after(10):
        async for _, group in bus.follow(GROUP):
            groups.append(group)
            if len(groups) == 2:
                break
    policy = await bus.get(POLICY, "tilt.v1.policy.policy.run-1")
    assert policy is not None
    return groups, policy


async def test_a_rollouts_trace_has_its_group_and_its_step(bus: Bus, tmp_path: Path) -> None:
    """Every rollout's trace has `group` from opening to close and `train`, children of its root and linked to the
    group's and the step's own root, which are linked back; and the group's trace has the sampler's `open`."""
    began = time.time()
    async with collecting() as collector:
        tracing.setup("test", collector.url)
        await one_run(bus, tmp_path)
        await exported(collector)
    groups, policy = await groups_and_policy(bus)
    whole = {place(span): span for span in (*collector.named("group"), *collector.named("train"))}
    step = whole[of(joins.policy_root(policy))]
    assert links(step) == {of(joins.group_root(group.id, group.opened)) for group in groups}
    for group in groups:
        root = whole[of(joins.group_root(group.id, group.opened))]
        rollouts = [member.verdict.rollout for member in group.members]
        assert links(root) == {of(joins.rollout_root(rollout)) for rollout in rollouts}
        assert began - 1 <= root.start_time_unix_nano / 1e9 <= root.end_time_unix_nano / 1e9 <= time.time()
        check_open(collector, root, links(root))
        for rollout in rollouts:
            check_rollout(collector, rollout, root, step)


def check_open(collector: Collector, root: Any, rollouts: set[str]) -> None:
    (opened,) = [span for span in collector.named("open") if span.trace_id == root.trace_id]
    assert opened.parent_span_id == root.span_id
    assert links(opened) == rollouts


def check_rollout(collector: Collector, rollout: Rollout, group: Any, step: Any) -> None:
    """Its trace: the root, the handling, the group, the step."""
    trace, root = of(joins.rollout_root(rollout)).split("-")
    spans = {span.name: span for span in collector.spans if span.trace_id.hex() == trace}
    assert set(spans) == {"rollout", "generate", "verdict", "group", "train"}
    for name, whole in (("group", group), ("train", step)):
        assert spans[name].parent_span_id.hex() == root
        assert links(spans[name]) == {place(whole)}
        assert spans[name].end_time_unix_nano == whole.end_time_unix_nano


async def test_saying_it_again_says_the_same(tmp_path: Path) -> None:
    """A restarted aggregator that sees a group again makes the same ids; without a collector nothing happens."""
    joins.closed(build.group([0.0, 1.0]))
    async with collecting() as collector:
        tracing.setup("test", collector.url)
        for _ in range(2):
            joins.closed(build.group([0.0, 1.0]))
        await exported(collector)
    assert len(collector.spans) == 6
    assert len({place(span) for span in collector.spans}) == 3

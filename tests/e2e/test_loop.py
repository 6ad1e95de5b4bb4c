"""The whole loop on real parts: nats-server, gVisor, engine, trainer and the other services as processes."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest

from tiltyard.cli.archive import Archive
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.embedded import free_port, start_server, stop_server
from tiltyard.policy.chat import ChatRenderer
from tiltyard_proto import topology
from tiltyard_proto.messages import Group, Purpose
from tiltyard_proto.tokens import count, unpack_ids

SERVICES = ("sampler", "gateway", "sandbox", "verifier", "aggregator", "trainer", "engine")


async def read_bus(root: Path) -> dict[str, list[Any]]:
    """Every message that the run left on the bus, by stage, from its store."""
    port = free_port()
    server = start_server(root / "nats", port=port)
    bus = await Bus.connect(f"nats://127.0.0.1:{port}", BlobStore(root / "blobs"), "test")
    found: dict[str, list[Any]] = {}
    try:
        for stage in topology.STAGES:
            state = (await bus.js.api(f"STREAM.INFO.{stage.stream}"))["state"]
            found[stage.name] = []
            if state["messages"]:
                async for sequence, message in bus.follow(stage):
                    found[stage.name].append(message)
                    if sequence >= state["last_seq"]:
                        break
    finally:
        await bus.close()
        await stop_server(server)
    return found


def check_conservation(messages: dict[str, list[Any]], steps: int) -> None:
    """Every rollout has one verdict, every group closed once, every version came once, nothing is a dead letter."""
    assert messages["dlq"] == []
    started = {rollout.id for rollout in messages["generate"]}
    verdicts = Counter(verdict.rollout.id for verdict in messages["verdict"])
    groups: list[Group] = messages["group"]
    members = Counter(member.verdict.rollout.id for group in groups for member in group.members)
    assert set(verdicts) <= started
    assert set(verdicts.values()) == {1}
    assert set(members.values()) == {1}
    assert len({group.id for group in groups}) == len(groups)
    assert [policy.version for policy in messages["policy"]] == list(range(steps + 1))
    assert [policy.final for policy in messages["policy"]] == [False] * steps + [True]
    for version in (0, steps):
        evaluated = [g for g in groups if g.purpose is Purpose.EVAL and g.version == version]
        assert len(evaluated) == 14
        assert all(group.missing == 0 for group in evaluated)


def check_tokens(groups: list[Group], renderer: ChatRenderer) -> int:
    """Ids, log-probabilities, versions and text of every action agree; the number of second turns seen."""
    second_turns = 0
    for group in groups:
        for member in group.members:
            rollout = member.verdict.rollout
            assert unpack_ids(rollout.turns[0].context_ids) == renderer.render(
                [(message.role, message.content) for message in rollout.task.prompt]
            )
            for before, turn in zip((None, *rollout.turns), rollout.turns, strict=False):
                ids = unpack_ids(turn.action_ids)
                assert len(ids) == count(turn.logprobs) == turn.versions[-1].end
                assert renderer.decode(ids).startswith(turn.text)
                if before is not None:
                    second_turns += 1
                    assert before.observation
                    assert unpack_ids(turn.context_ids) == renderer.continuation(
                        unpack_ids(before.action_ids), "user", before.observation
                    )
    return second_turns


@pytest.mark.timeout(180)
def test_the_loop_trains_on_real_parts(up: Callable[..., Any], tiny_model: Path) -> None:
    """A few steps of the real loop end by themselves with a report whose every rollout is accounted for."""
    system = up()
    assert system.wait(150) == 0, system.text[-4000:]
    messages = anyio.run(read_bus, system.root)
    check_conservation(messages, steps=3)
    assert check_tokens(messages["group"], ChatRenderer(tiny_model)) > 0
    rows = {row["measure"]: row for row in msgspec.json.decode(system.results.read_bytes())}
    assert rows["policy updates"]["value"] == 3
    assert rows["rollouts without a verdict"]["holds"]
    assert rows["staleness, highest"]["holds"]
    assert rows["sandboxes started"]["value"] > 0
    assert rows["sandbox start, p50"]["value"] > 10
    assert not Archive(system.run_path).empty
    assert "Held-out pass rate" in system.text
    assert (system.run_path / "policies" / "v000003" / "model.safetensors").is_file()


@pytest.mark.timeout(400)
def test_killing_every_service_once_changes_nothing(up: Callable[..., Any]) -> None:
    """SIGKILL of each service and of the bus server, one after another in the middle of a run, costs time only."""
    steps = 8
    system = up(f"run.steps={steps}", "run.group_deadline_s=120")
    victims = ["gateway", "trainer", "sandbox", "aggregator", "nats-server", "verifier", "sampler", "engine"]
    killed: list[str] = []
    deadline = time.monotonic() + 330
    while system.process.poll() is None and time.monotonic() < deadline:
        victim = system.child(victims[len(killed)]) if len(killed) < len(victims) else None
        if victim is not None and "state=training" in system.text and is_up(system, killed):
            victim.send_signal(signal.SIGKILL)
            victim.wait(10)
            killed.append(victims[len(killed)])
        time.sleep(0.1)
    assert system.wait(10) == 0, system.text[-6000:]
    assert killed == victims[: len(killed)]
    assert len(killed) >= 6, f"the run ended before {victims[len(killed) :]} could be killed"
    messages = anyio.run(read_bus, system.root)
    check_conservation(messages, steps)
    summary = msgspec.json.decode((system.run_path / "summary.json").read_bytes())
    assert summary["state"] == "finished"
    for name in killed:
        assert summary["restarts"]["nats" if name == "nats-server" else name] >= 1


def is_up(system: Any, killed: list[str]) -> bool:
    """Every process that was killed runs again, for at least a second."""
    return all((child := system.child(name)) is not None and time.time() - child.create_time() > 1.0 for name in killed)


@pytest.mark.timeout(120)
def test_interrupt_drains_and_leaves_nothing(up: Callable[..., Any]) -> None:
    """Ctrl-C in the middle ends every process, and the report of what was done is printed."""
    system = up("run.steps=50")
    deadline = time.monotonic() + 60
    while "state=training" not in system.text and time.monotonic() < deadline:
        time.sleep(0.1)
    family = psutil.Process(system.process.pid).children(recursive=True)
    assert len(family) > len(SERVICES)
    system.process.send_signal(signal.SIGINT)
    assert system.wait(60) == 0
    assert "Run tiny" in system.text
    gone, alive = psutil.wait_procs(family, timeout=5)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    assert gone


@pytest.mark.timeout(120)
def test_a_second_one_is_refused_in_one_line(up: Callable[..., Any]) -> None:
    """Two at once on one data directory: the second says whose it is and touches nothing."""
    first = up("run.steps=50")
    deadline = time.monotonic() + 60
    while "bus:" not in first.text and time.monotonic() < deadline:
        time.sleep(0.1)
    second = up()
    assert second.wait(30) == 2, second.text[-3000:]
    last = second.text.strip().splitlines()[-1]
    assert "is in use by tiltyard up" in second.text
    assert last
    assert first.process.poll() is None


@pytest.mark.timeout(60)
def test_a_taken_port_is_one_line(up: Callable[..., Any]) -> None:
    """A port that is taken ends the command with status 2 and the mend."""
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        system = up(f'bus.servers=["nats://127.0.0.1:{taken.getsockname()[1]}"]')
        assert system.wait(45) == 2
    assert "is taken" in system.text.strip().splitlines()[-1]
    assert "Traceback" not in system.text

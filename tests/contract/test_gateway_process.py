"""The gateway as a process, between a real bus and the embedded engine, with a real chat template."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from support.build import rollout, task

from tiltyard.engine.serve import make_backend, running
from tiltyard.engine.settings import EngineSettings
from tiltyard.kit.bus import Bus
from tiltyard.policy.chat import ChatRenderer
from tiltyard.policy.tiny import make_random
from tiltyard_proto.messages import Environment, Policy, Rollout, Sampling
from tiltyard_proto.tokens import count, unpack_floats, unpack_ids
from tiltyard_proto.topology import EXECUTE, GENERATE, POLICY, VERIFY, Stage

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]


@contextmanager
def gateway_process(nats: str, engine: str, root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m tiltyard.gateway` for run 'run'; drained by SIGTERM, killed if it doesn't end."""
    config = root / "run.toml"
    config.write_text(
        f'[run]\nname = "run"\n[bus]\nservers = ["{nats}"]\n[data]\nroot = "{root}"\n'
        f'[gateway]\nengines = ["{engine}"]\nprobe_s = 0.2\n'
    )
    path = f"{ROOT / 'services'}:{ROOT / 'proto'}"
    process = subprocess.Popen(
        [sys.executable, "-m", "tiltyard.gateway", "-c", str(config)], env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"}
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=15) == 0
    finally:
        process.kill()
        process.wait()


async def test_rollouts_over_a_version(bus: Bus, nats_server: Any, tmp_path: Path) -> None:
    """Turns are sampled whole, a later one on the earlier one's ids and from the version announced in between."""
    one, two = make_random(tmp_path / "one", seed=1), make_random(tmp_path / "two", seed=2)
    settings = EngineSettings(port=0, threads=1, dtype="float32")
    backend = make_backend(settings, one)
    chat = ChatRenderer(one)
    of = task(turns=2, environment=Environment(interface="shell"))
    short = Sampling(max_new_tokens=12)

    def member(index: int, group: str) -> Rollout:
        return rollout(of, member=index, group=group, size=4, deadline=time.time() + 50, sampling=short)

    try:
        async with running(settings, one, backend) as (_engine, url):
            with gateway_process(nats_server.url, url, tmp_path):
                await bus.publish(POLICY, Policy(run="run", version=0, path=str(one)))
                for index in range(4):
                    await bus.publish(GENERATE, member(index, "run-t-0"))
                first = await arrive_anywhere(bus, 4)
                await bus.publish(POLICY, Policy(run="run", version=1, path=str(two)))
                seen = msgspec.structs.replace(first[0].turns[0], observation="again", command=None)
                again = msgspec.structs.replace(first[0], turns=(seen,), outcome=None, attempt=1)
                await bus.publish(GENERATE, again)
                later = [item for item in await arrive_anywhere(bus, 5) if len(item.turns) == 2]
    finally:
        backend.close()
    prompt = chat.render([("user", "What is 1 + 1?")])
    assert {item.member for item in first} == set(range(4))
    for item in first:
        sampled = item.turns[0]
        assert unpack_ids(sampled.context_ids) == prompt
        assert [span.version for span in sampled.versions] == [0]
        assert 1 <= count(sampled.action_ids) == len(unpack_floats(sampled.logprobs)) <= 12
    (second,) = later
    assert second.turns[0].action_ids == seen.action_ids
    assert second.turns[1].versions[-1].version == 1


async def arrive_anywhere(bus: Bus, number: int) -> list[Rollout]:
    """The first `number` rollouts on execute and verify together: random text may or may not be a command."""
    found: list[Rollout] = []
    enough = anyio.Event()

    async def read(stage: Stage[Any]) -> None:
        async for _sequence, message in bus.follow(stage):
            found.append(message)
            if len(found) >= number:
                enough.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, EXECUTE)
        tasks.start_soon(read, VERIFY)
        with anyio.fail_after(40):
            await enough.wait()
        tasks.cancel_scope.cancel()
    return found


def test_the_gateway_loads_no_torch() -> None:
    """The gateway's process, tokenizer included, never imports torch or transformers."""
    code = "import tiltyard.gateway.app, sys; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": f"{ROOT / 'services'}:{ROOT / 'proto'}"},
    )
    assert run.stdout.strip() == "[]"

"""The system under test: a real NATS server, every service as a real process, a simulated engine, tasks of two kinds.

Invariants: services are started and started again by the supervisor's own `Child`; whatever happens, every process is
gone when `World.running` ends. Left out: killing (`kills`), counting (`audit`).
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from tiltyard.cli.up.child import Child, service_argv
from tiltyard.cli.up.settings import SupervisorSettings
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.embedded import free_port, start_server
from tiltyard.kit.provision import consumer_config, provision
from tiltyard_proto import keys, topology
from tiltyard_proto.messages import ChatMessage, Environment, RolloutLimits, Sampling, Task, Verification

SERVICES = ("gateway", "sandbox", "verifier", "aggregator", "trainer", "sampler")
TASKS = 40
"""Of each domain."""
CONFIG = """\
[run]
name = "chaos"
model = "{model}"
steps = {steps}
groups_per_step = {groups}
group_size = {size}
staleness = 4
group_deadline_s = 3600
train = {{ "chaos.answer" = {{ tasks = {tasks} }}, "chaos.shell" = {{ tasks = {tasks} }} }}
[bus]
servers = ["{bus}"]
[data]
root = "{root}"
[gateway]
engines = ["{engine}"]
model_dir = "{model}"
slots = 64
probe_s = 0.5
[sandbox]
backend = "null"
slots = 16
[trainer]
learner = "fake"
checkpoint_every = 3
max_staleness = 1000
"""


@dataclass(kw_only=True)
class Plan:
    """How large a test is."""

    rollouts: int = 10_000
    server_kills: int = 5
    kill_every_s: float = 2.0
    kills: int = 0
    """Kills of services at most; 0: until all rollouts have their verdict."""
    lease_s: float = 20.0
    """Lease of a delivery, so the time that a message of a killed service waits."""
    seed: int = 0
    size: int = 8

    @property
    def groups(self) -> int:
        """Groups of a step."""
        return max(4, self.rollouts // self.size // 24)

    @property
    def steps(self) -> int:
        return max(1, math.ceil(self.rollouts / self.size / self.groups))


def tasks() -> list[Task]:
    """Questions that are answered at once, and ones that take up to three turns in a sandbox."""
    made: list[Task] = []
    for index in range(TASKS):
        for domain, interface, turns in (("chaos.answer", "answer", 1), ("chaos.shell", "shell", 3)):
            data = {"answer": "1"} if interface == "answer" else {"expected": {"command": "echo 1"}}
            kind = "last_number" if interface == "answer" else "files"
            task = Task(
                id="",
                domain=domain,
                prompt=(ChatMessage(role="user", content=f"Question {index}"),),
                verification=Verification(kind=kind, data=data),
                environment=Environment(interface=interface),
                sampling=Sampling(max_new_tokens=16),
                limits=RolloutLimits(turns=turns, wall_s=3600),
                template=f"t{index % 4}",
            )
            made.append(keys.with_id(task))
    return made


@dataclass
class World:
    """The processes of one test, below `root`."""

    root: Path
    model: Path
    plan: Plan
    children: dict[str, Child] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    """When each service last said that it is ready, monotonic seconds."""

    def __post_init__(self) -> None:
        self.port, self.engine_port = free_port(), free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.server: subprocess.Popen[bytes] | None = None
        self.log = (self.root / "services.log").open("w")

    def start_server(self) -> None:
        self.server = start_server(self.root / "nats", port=self.port)

    def kill_server(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def _line(self, name: str, line: str) -> None:
        self.log.write(f"{time.time():.3f} {name} {line}\n")
        self.log.flush()
        if "_ready" in line or "engine_listens" in line:
            self.ready[name] = time.monotonic()

    def _config(self) -> Path:
        path = self.root / "chaos.toml"
        plan = self.plan
        text = CONFIG.format(
            model=self.model,
            steps=plan.steps,
            groups=plan.groups,
            size=plan.size,
            tasks=TASKS,
            bus=self.url,
            root=self.root,
            engine=f"http://127.0.0.1:{self.engine_port}",
        )
        path.write_text(text)
        return path

    def _children(self) -> None:
        config = str(self._config())
        settings = SupervisorSettings(steady_s=0.0)  # each kill is the first: restarts wait restart_first_s
        engine = [sys.executable, str(Path(__file__).with_name("engine.py")), str(self.engine_port), str(self.model)]
        commands = {"engine": [*engine, str(self.plan.seed)]}
        commands |= {service: service_argv(service, config, []) for service in SERVICES}
        self.children = {name: Child(name, argv, settings, self._line) for name, argv in commands.items()}

    async def _provision(self, bus: Bus) -> None:
        await provision(bus)
        for stage in topology.STAGES:
            if stage.work and self.plan.lease_s != stage.ack_wait_s:
                config = consumer_config(stage) | {"ack_wait": int(self.plan.lease_s * 1e9)}
                payload = {"stream_name": stage.stream, "config": config}
                await bus.js.api(f"CONSUMER.DURABLE.CREATE.{stage.stream}.{config['durable_name']}", payload)
        for task in tasks():
            await bus.publish(topology.TASK, task)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Bus]:
        """Everything runs while the block does."""
        self.start_server()
        bus = await Bus.connect(self.url, BlobStore(self.root / "blobs"), "chaos")
        try:
            await self._provision(bus)
            self._children()
            async with anyio.create_task_group() as group:
                for child in self.children.values():
                    group.start_soon(child.run)
                try:
                    yield bus
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._stop()
                    group.cancel_scope.cancel()
        finally:
            await bus.close()
            self.kill_server()
            self.log.close()

    async def _stop(self) -> None:
        async with anyio.create_task_group() as group:
            for child in self.children.values():
                group.start_soon(child.stop)

    def count(self, event: str) -> int:
        """Log lines with this event."""
        wanted = json.dumps(event)
        return sum(f'"event": {wanted}' in line for line in (self.root / "services.log").open())

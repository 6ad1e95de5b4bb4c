"""The system under test: a NATS server, every service as a real process, a simulated engine.

Invariants: services are started, and started again, by the supervisor's own `Child`; whatever happens, every process is
gone when `World.running` ends. The server is our own on loopback unless a world names another. Left out: what is asked
of the system and what is counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from tiltyard.cli.up.child import Child, service_argv
from tiltyard.cli.up.settings import SupervisorSettings
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.embedded import LOG, free_port, launch_server, wait_ready
from tiltyard.kit.provision import consumer_config, provision
from tiltyard_proto import topology
from tiltyard_proto.messages import Task

SERVICES = ("gateway", "sandbox", "verifier", "aggregator", "trainer", "sampler")


@dataclass(kw_only=True)
class World:
    """The processes of one test, below `root`."""

    root: Path
    model: Path
    run: str
    config: str
    """TOML of all services, with `{model}`, `{bus}`, `{root}` and `{engine}` to be filled in."""
    tasks: Sequence[Task]
    services: Sequence[str] = SERVICES
    engine: Sequence[str] = ()
    """Further arguments of the simulated engine."""
    lease_s: float = 0.0
    """Lease of a delivery, so the time that a message of a killed service waits; 0: the stage's own."""
    server_url: str = ""
    """A server that is there already; empty: one of our own."""
    further: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Further processes: arguments by name; `{config}` stands for the configuration."""
    children: dict[str, Child] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    """When each service last said that it is ready, monotonic seconds."""
    begun: dict[str, float] = field(default_factory=dict)
    """When each said that it begins, if it says so."""

    def __post_init__(self) -> None:
        self.port, self.engine_port = free_port(), free_port()
        self.url = self.server_url or f"nats://127.0.0.1:{self.port}"
        self.server: subprocess.Popen[bytes] | None = None
        self.log = (self.root / "services.log").open("w")

    @property
    def path(self) -> Path:
        """The configuration of all services."""
        return self.root / f"{self.run}.toml"

    def start_server(self) -> None:
        """From the main thread: the server ends with the thread that started it, however that ends."""
        self.server = launch_server(self.root / "nats", "127.0.0.1", self.port, tied_to_us=True)

    async def until_served(self) -> None:
        """Until the server answers."""
        arguments = self.server, "127.0.0.1", self.port, self.root / "nats" / LOG
        await anyio.to_thread.run_sync(wait_ready, *arguments)

    def kill_server(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def _line(self, name: str, line: str) -> None:
        self.log.write(f"{time.time():.3f} {name} {line}\n")
        self.log.flush()
        if "_ready" in line or "engine_listens" in line:
            self.ready[name] = time.monotonic()
        elif "_begins" in line:
            self.begun[name] = time.monotonic()

    def _children(self) -> None:
        places = {"model": self.model, "bus": self.url, "root": self.root}
        self.path.write_text(self.config.format(engine=f"http://127.0.0.1:{self.engine_port}", **places))
        settings = SupervisorSettings(steady_s=0.0)  # each kill is the first: restarts wait restart_first_s
        program = str(Path(__file__).with_name("engine.py"))
        commands = {"engine": [sys.executable, program, str(self.engine_port), str(self.model), *self.engine]}
        commands |= {service: service_argv(service, str(self.path), []) for service in self.services}
        for name, argv in self.further.items():
            commands[name] = [argument.format(config=self.path) for argument in argv]
        self.children = {name: Child(name, argv, settings, self._line) for name, argv in commands.items()}

    async def _provision(self, bus: Bus) -> None:
        await provision(bus)
        for stage in topology.STAGES:
            if stage.work and self.lease_s and self.lease_s != stage.ack_wait_s:
                config = consumer_config(stage) | {"ack_wait": int(self.lease_s * 1e9)}
                payload = {"stream_name": stage.stream, "config": config}
                await bus.js.api(f"CONSUMER.DURABLE.CREATE.{stage.stream}.{config['durable_name']}", payload)
        for task in self.tasks:
            await bus.publish(topology.TASK, task)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Bus]:
        """The server runs while the block does."""
        if not self.server_url:
            self.start_server()
            await self.until_served()
        try:
            bus = await Bus.connect(self.url, BlobStore(self.root / "blobs"), self.run)
            try:
                yield bus
            finally:
                await bus.close()
        finally:
            if self.server is not None:
                self.kill_server()
            self.log.close()

    @asynccontextmanager
    async def served(self, bus: Bus) -> AsyncIterator[None]:
        """All services run while the block does."""
        await self._provision(bus)
        self._children()
        async with anyio.create_task_group() as group:
            for child in self.children.values():
                group.start_soon(child.run)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await self._stop()
                group.cancel_scope.cancel()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Bus]:
        """Everything runs while the block does."""
        async with self.connected() as bus, self.served(bus):
            yield bus

    async def _stop(self) -> None:
        async with anyio.create_task_group() as group:
            for child in self.children.values():
                group.start_soon(child.stop)

    def count(self, event: str) -> int:
        """Log lines with this event."""
        wanted = json.dumps(event)
        return sum(f'"event": {wanted}' in line for line in (self.root / "services.log").open())

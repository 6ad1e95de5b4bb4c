"""The bus server and the service processes of one `up`: prepare, keep running, drain.

Invariants: every process started here is stopped before `run` returns, however it ends, and dies with this process when
that is killed; the first interrupt drains, or gives up preparing; the second kills.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from argparse import Namespace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskGroup

from tiltyard.cli.errors import UserError
from tiltyard.cli.publish import publish_tasks
from tiltyard.kit import credentials
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.depth import depth
from tiltyard.kit.durability import check_durability
from tiltyard.kit.embedded import LOG, EmbeddedError, launch_server, stop_server, wait_ready
from tiltyard.kit.janitor import tidy
from tiltyard.kit.jetstream import BusError
from tiltyard.kit.provision import provision
from tiltyard_proto import topology
from tiltyard_proto.messages import RunStatus

from . import preflight
from .child import Child, backoff, cpu_seconds, service_argv
from .disk import DiskWatch
from .lines import MergedLog
from .plan import run_tasks
from .progress import Progress
from .summary import Session

STOP_ORDER = (("sampler", "trainer", "gateway"), ("engine", "sandbox", "verifier"), ("aggregator",))
"""Who is stopped together: who starts work, who does it, who archives it."""
CONNECT_S = 10.0


class Supervisor:
    """The bus server and the service processes of one `up`."""

    def __init__(
        self,
        arguments: Namespace,
        sections: dict[str, Any],
        root: Path,
        log: MergedLog,
        progress: Progress,
        session: Session,
    ) -> None:
        self.arguments = arguments
        self.sections = sections
        self.root = root
        self.log = log
        self.progress = progress
        self.session = session
        self.server: subprocess.Popen[bytes] | None = None
        self.bus: Bus | None = None
        self.children: list[Child] = []
        self.model = Path()
        self.ending = "failed"
        self._security = ""
        """Of the embedded server's configuration."""
        self._ended = anyio.Event()
        self._finished = False
        """Has the run finished, though the services are kept?"""

    async def run(self) -> str:
        """Until the run has finished or somebody stops it; how it ended."""
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._signals, tasks.cancel_scope)
                if not await self._prepare():
                    await self._keep_running(tasks)
                    await self._stop_services()
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            with anyio.CancelScope(shield=True):
                await self._stop_services()
                await self._stop_bus()
        return self.ending

    def end(self, how: str) -> None:
        """Drain, because the run has finished or somebody wants to stop."""
        self.ending = how
        self._ended.set()

    # ------------------------------------------------------------ before the services

    async def _prepare(self) -> bool:
        """Check the machine, start and provision the bus, publish the run's tasks; True: the run had finished."""
        services, say, run = self.sections["supervisor"].services, self.log.say, self.sections["run"]
        preflight.check_ports(self.sections)
        if services.get("sandbox"):
            await preflight.check_sandbox(self.sections["sandbox"], self.sections["data"], say)
        self.model = await preflight.check_model(run.model, self.sections["data"], say)
        tasks = await anyio.to_thread.run_sync(run_tasks, run, abandon_on_cancel=True)
        await self._start_bus()
        assert self.bus is not None
        await check_durability(self.sections["bus"])
        await provision(self.bus, self.sections["bus"].replicas)
        new, old = await publish_tasks(self.bus, tasks)
        say(f"tasks: {new} published, {old} were there already")
        status = await self._run_status()
        if status is None or status.state != "finished" or self.arguments.keep:
            return False
        say(f"run {run.name} had finished already: nothing to do; --fresh starts it anew, run.name names another")
        self.ending = "finished before"
        return True

    async def _start_bus(self) -> None:
        settings, data = self.sections["bus"], self.sections["data"]
        if settings.embedded:
            directory = credentials.directory_of(settings, data)
            if directory is not None:
                await anyio.to_thread.run_sync(credentials.make, directory)
                self._security = credentials.security(directory)
            await self._start_server()
            self.log.say(f"bus: {settings.servers[0]}")
        options = credentials.client_options(settings, data, "supervisor")
        with anyio.move_on_after(CONNECT_S):
            self.bus = await Bus.connect(settings.servers, BlobStore(data.blob_path), "supervisor", **options)
        if self.bus is None:
            raise UserError(
                f"no bus at {', '.join(settings.servers)} after {CONNECT_S:g} s: start it, or let this command start "
                "one with --set bus.embedded=true"
            )

    async def _start_server(self) -> None:
        """Started from this thread, with whose end the server ends; awaited in another."""
        settings = self.sections["bus"]
        url = urlsplit(settings.servers[0])
        address = url.hostname or "127.0.0.1", url.port or 4222
        self.server = launch_server(
            self.root / "nats", *address, binary=settings.binary, tied_to_us=True, security=self._security
        )
        await anyio.to_thread.run_sync(
            wait_ready, self.server, *address, self.root / "nats" / LOG, abandon_on_cancel=True
        )

    # ------------------------------------------------------------ while they run

    async def _keep_running(self, tasks: TaskGroup) -> None:
        tasks.start_soon(self._watch_run)
        tasks.start_soon(self._watch_server)
        tasks.start_soon(self._watch_disk)
        tasks.start_soon(self._sample)
        assert self.bus is not None
        tasks.start_soon(tidy, self.bus, self.sections["janitor"])
        for child in self._make_children():
            tasks.start_soon(child.run)
        await self._ended.wait()

    def _make_children(self) -> list[Child]:
        settings = self.sections["supervisor"]
        config = str(self.arguments.config) if self.arguments.config else None
        port = self.sections["service"].metrics_port
        for service, count in settings.services.items():
            for replica in range(count):
                own = [f'run.model="{self.model}"']
                if port:  # each process has its own
                    own.append(f"service.metrics_port={port + len(self.children)}")
                argv = service_argv(service, config, [*self.arguments.set, *own])
                name = service if count == 1 else f"{service}.{replica}"
                self.children.append(Child(name, argv, settings, self.log.line))
        if port:
            names = ", ".join(f"{child.name} {port + number}" for number, child in enumerate(self.children))
            self.log.say(f"metrics, /healthz and /readyz on ports: {names}")
        return self.children

    async def _signals(self, scope: anyio.CancelScope, *, task_status: Any = anyio.TASK_STATUS_IGNORED) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                name = signal.Signals(number).name
                if not self.children:
                    self.log.say(f"{name}: stopping before anything has run")
                    self.ending = "interrupted"
                    scope.cancel()
                elif not self._ended.is_set():
                    self.log.say(f"{name}: draining; once more to stop at once")
                    self.end("finished" if self._finished else "stopped")
                else:
                    self.log.say(f"{name}: stopping at once", "warning")
                    for child in self.children:
                        child.kill()

    async def _run_status(self) -> RunStatus | None:
        assert self.bus is not None
        entry = await self._quiet(self.bus.kv(topology.RUNS_BUCKET).read(self.sections["run"].name, RunStatus))
        return None if entry is None else entry[0]

    async def _watch_run(self) -> None:
        """End when the run has finished, and feed the progress display."""
        while True:
            await anyio.sleep(0.5)
            status = await self._run_status()
            if status is not None:
                self.progress.status(status)
                self._finished = status.state == "finished"
                if self._finished and not self.arguments.keep:
                    self.log.say("the run has finished; draining")
                    self.end("finished")
                    return
            self.progress.refresh(await self._quiet(self._counts()) or {})

    async def _counts(self) -> dict[str, int]:
        assert self.bus is not None
        counts: dict[str, int] = {}
        for stage in (s for s in topology.STAGES if s.work):
            work = await depth(self.bus, stage)
            counts[stage.name] = work.waiting + work.in_flight
        return counts

    @staticmethod
    async def _quiet(call: Any) -> Any:
        try:
            return await call
        except BusError:
            return None

    async def _watch_server(self) -> None:
        """Start the embedded bus again when it dies; EmbeddedError when that keeps failing."""
        settings, failures = self.sections["supervisor"], 0
        while self.server is not None:
            await anyio.sleep(0.3)
            if self.server.poll() is None:
                continue
            self.log.say("bus server ended; starting it again", "warning")
            self.session.restarts["nats"] = self.session.restarts.get("nats", 0) + 1
            try:
                await self._start_server()
                failures = 0
            except EmbeddedError as error:
                failures += 1
                if failures > settings.give_up:
                    raise
                self.log.say(str(error), "error")
                await anyio.sleep(backoff(failures, settings))

    async def _watch_disk(self) -> None:
        """Say when the disk is full; when there is room again, start a bus server that met the full disk anew."""
        watch = DiskWatch()
        while True:
            free = shutil.disk_usage(self.root).free
            found = watch.look(free, time.monotonic())
            if found == "full":
                self.log.say(f"{self.root}: the disk is full ({free >> 20} MiB left); work waits for room", "error")
            elif found == "room":
                self.log.say(f"{self.root}: there is room again; work goes on", "warning")
                if self.server is not None:
                    await stop_server(self.server)
            await anyio.sleep(1.0)

    async def _sample(self) -> None:
        while True:
            for child in self.children:
                child.sample_cpu()
            await anyio.sleep(1.0)

    # ------------------------------------------------------------ the end

    async def _stop_services(self) -> None:
        """Stop the services in the order of the flow; what is stopped already costs nothing."""
        for services in STOP_ORDER:
            group = [child for child in self.children if child.name.split(".")[0] in services]
            async with anyio.create_task_group() as tasks:
                for child in group:
                    tasks.start_soon(child.stop)
        self.note_costs()

    def note_costs(self) -> None:
        """Bring the session's costs by service up to now."""
        costs: dict[str, float] = {}
        for child in self.children:
            service = child.name.split(".")[0]
            costs[service] = round(costs.get(service, 0.0) + child.cpu_s, 2)
            if child.restarts:
                self.session.restarts[child.name] = child.restarts
        if self.server is not None and (cpu_s := cpu_seconds(self.server.pid)):
            costs["nats"] = cpu_s
        self.session.cpu_by_service |= costs

    async def _stop_bus(self) -> None:
        if self.bus is not None:
            await self.bus.close()
        if self.server is not None:
            self.note_costs()
            await stop_server(self.server)

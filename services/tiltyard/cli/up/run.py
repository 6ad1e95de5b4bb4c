"""`tiltyard up` from start to end: check, start the bus, provision, publish, supervise, drain, report.

Invariants: nothing starts before the whole configuration and the machine are checked; whatever happens, every process
that was started is stopped before this returns; the summary beside the run says what it cost.
"""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import anyio
import msgspec

from tiltyard.cli import report as report_command
from tiltyard.cli.errors import UserError
from tiltyard.cli.main import source_of
from tiltyard.cli.publish import publish_tasks
from tiltyard.cli.sections import check_all
from tiltyard.domains import registry
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.embedded import EmbeddedError, start_server, stop_server
from tiltyard.kit.provision import provision
from tiltyard_proto import topology
from tiltyard_proto.messages import RunStatus, Task

from . import preflight
from .child import Child, GaveUp, service_argv
from .lines import MergedLog
from .progress import Progress

STOP_ORDER = ("sampler", "trainer", "gateway", "engine", "sandbox", "verifier", "aggregator")


class Summary(msgspec.Struct, kw_only=True):
    """What a run cost on this machine; written as `summary.json` beside the run."""

    run: str
    state: str = "started"
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """Of every process that this command started, reaped descendants included."""
    cpu_by_service: dict[str, float] = {}
    restarts: dict[str, int] = {}


def up(arguments: Namespace) -> int:
    """Run the command; the exit status."""
    source = source_of(arguments)
    sections = check_all(source)
    root = Path(sections["data"].root).absolute()
    preflight.check_disk(root, sections["supervisor"])
    lock = preflight.take_lock(root)
    try:
        if arguments.fresh:
            forget(root, sections["run"].name)
        status = anyio.run(_up, arguments, sections, root)
    except (EmbeddedError, GaveUp) as error:
        raise UserError(str(error)) from error
    finally:
        lock.close()
    return status


def forget(root: Path, run: str) -> None:
    """Remove a run and the bus's store; blobs stay, they are content-addressed."""
    shutil.rmtree(root / "runs" / run, ignore_errors=True)
    shutil.rmtree(root / "nats", ignore_errors=True)


async def _up(arguments: Namespace, sections: dict[str, Any], root: Path) -> int:
    run, started = sections["run"], time.monotonic()
    run_path = sections["data"].run_path(run.name)
    run_path.mkdir(parents=True, exist_ok=True)
    (run_path / "run.json").write_bytes(msgspec.json.format(msgspec.json.encode(run)))
    progress = Progress(run, plain=arguments.plain or not sys.stdout.isatty())
    log = MergedLog(run_path / "up.log", progress.print, colour=sys.stdout.isatty())
    summary = Summary(run=run.name)
    supervisor = Supervisor(arguments, sections, root, log, progress, summary)
    try:
        with progress:
            await supervisor.prepare()
            summary.state = await supervisor.supervise()
    finally:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        summary.wall_s = time.monotonic() - started
        summary.cpu_s = usage.ru_utime + usage.ru_stime + time.process_time()
        (run_path / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary)))
        log.close()
    print(report_command.text(run, run_path))
    if arguments.results is not None:
        report_command.write_rows(arguments.results, run, run_path)
    return 0 if summary.state in ("finished", "stopped") else 1


class Supervisor:
    """The bus server and the service processes of one `up`."""

    def __init__(
        self,
        arguments: Namespace,
        sections: dict[str, Any],
        root: Path,
        log: MergedLog,
        progress: Progress,
        summary: Summary,
    ) -> None:
        self.arguments = arguments
        self.sections = sections
        self.root = root
        self.log = log
        self.progress = progress
        self.summary = summary
        self.server: subprocess.Popen[bytes] | None = None
        self.bus: Bus | None = None
        self.children: list[Child] = []
        self.model = Path()

    # ------------------------------------------------------------ before the services

    async def prepare(self) -> None:
        """Check the machine, start and provision the bus, publish the run's tasks."""
        services, say = self.sections["supervisor"].services, self.log.say
        if services.get("sandbox"):
            await preflight.check_sandbox(self.sections["sandbox"], self.sections["data"], say)
        self.model = await preflight.check_model(self.sections["run"].model, self.sections["data"], say)
        tasks = await anyio.to_thread.run_sync(run_tasks, self.sections["run"])
        await self._start_bus()
        assert self.bus is not None
        await provision(self.bus, self.sections["bus"].replicas)
        new, old = await publish_tasks(self.bus, tasks)
        say(f"tasks: {new} published, {old} were there already")

    async def _start_bus(self) -> None:
        settings = self.sections["bus"]
        url = settings.servers[0]
        if settings.embedded:
            self.server = await anyio.to_thread.run_sync(self._start_server)
            self.log.say(f"bus: {url}")
        self.bus = await Bus.connect(settings.servers, BlobStore(self.sections["data"].blob_path), "cli")

    def _start_server(self) -> subprocess.Popen[bytes]:
        settings = self.sections["bus"]
        host, _, port = settings.servers[0].removeprefix("nats://").partition(":")
        return start_server(self.root / "nats", host, int(port or 4222), binary=settings.binary)

    # ------------------------------------------------------------ while they run

    async def supervise(self) -> str:
        """Keep everything running until the run has finished or somebody stops it; how it ended."""
        ended = anyio.Event()
        state = "failed"
        try:
            async with anyio.create_task_group() as tasks:

                async def end(how: str) -> None:
                    nonlocal state
                    state = how
                    ended.set()

                tasks.start_soon(self._signals, end)
                tasks.start_soon(self._watch_run, end)
                tasks.start_soon(self._watch_server)
                tasks.start_soon(self._sample)
                for child in self._make_children():
                    tasks.start_soon(child.run)
                await ended.wait()
                await self._stop_services()
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            with anyio.CancelScope(shield=True):
                await self._stop_services()
                await self._stop_bus()
        return state

    def _make_children(self) -> list[Child]:
        settings = self.sections["supervisor"]
        config = str(self.arguments.config) if self.arguments.config else None
        for service, count in settings.services.items():
            argv = service_argv(service, config, [*self.arguments.set, f'run.model="{self.model}"'])
            for replica in range(count):
                name = service if count == 1 else f"{service}.{replica}"
                self.children.append(Child(name, argv, settings, self.log.line))
        return self.children

    async def _signals(self, end: Any) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                self.log.say(f"{signal.Signals(number).name}: draining")
                await end("stopped")

    async def _watch_run(self, end: Any) -> None:
        """End when the run has finished, and feed the progress display."""
        assert self.bus is not None
        runs, name = self.bus.kv(topology.RUNS_BUCKET), self.sections["run"].name
        while True:
            await anyio.sleep(0.5)
            entry = await self._quiet(runs.get(name))
            if entry is not None:
                status = msgspec.msgpack.decode(entry[0], type=RunStatus)
                self.progress.status(status)
                if status.state == "finished" and not self.arguments.keep:
                    self.log.say("the run has finished; draining")
                    await end("finished")
                    return
            self.progress.refresh(await self._quiet(self._counts()) or {})

    async def _counts(self) -> dict[str, int]:
        assert self.bus is not None
        counts: dict[str, int] = {}
        for stage in (s for s in topology.STAGES if s.work):
            info = await self.bus.js.api(f"CONSUMER.INFO.{stage.stream}.{stage.name}_work")
            counts[stage.name] = int(info["num_pending"]) + int(info["num_ack_pending"])
        return counts

    @staticmethod
    async def _quiet(call: Any) -> Any:
        from tiltyard.kit.jetstream import BusError

        try:
            return await call
        except BusError:
            return None

    async def _watch_server(self) -> None:
        """Start the embedded bus again when it dies."""
        while self.server is not None:
            await anyio.sleep(0.3)
            if self.server.poll() is not None:
                self.log.say("bus server ended; starting it again", "warning")
                self.summary.restarts["nats"] = self.summary.restarts.get("nats", 0) + 1
                self.server = await anyio.to_thread.run_sync(self._start_server)

    async def _sample(self) -> None:
        while True:
            for child in self.children:
                child.sample_cpu()
            await anyio.sleep(1.0)

    # ------------------------------------------------------------ the end

    async def _stop_services(self) -> None:
        """Stop the services in the order of the flow; what is stopped already costs nothing."""
        for service in STOP_ORDER:
            group = [child for child in self.children if child.name.split(".")[0] == service]
            async with anyio.create_task_group() as tasks:
                for child in group:
                    tasks.start_soon(child.stop)
        costs: dict[str, float] = {}
        for child in self.children:
            service = child.name.split(".")[0]
            costs[service] = round(costs.get(service, 0.0) + child.cpu_s, 2)
            if child.restarts:
                self.summary.restarts[child.name] = child.restarts
        self.summary.cpu_by_service |= costs

    async def _stop_bus(self) -> None:
        if self.bus is not None:
            await self.bus.close()
        if self.server is not None:
            from .child import cpu_seconds

            self.summary.cpu_by_service["nats"] = cpu_seconds(self.server.pid)
            await stop_server(self.server)


def run_tasks(run: Any) -> list[Task]:
    """The tasks that a run's configuration names, from its domains' generators."""
    tasks: list[Task] = []
    for name, share in run.train.items():
        tasks += registry.load(name).tasks("train", share.tasks, run.seed)
    for name, share in run.evaluate.items():
        tasks += registry.load(name).tasks("eval", share.tasks, run.seed)
    return tasks

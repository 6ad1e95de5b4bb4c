"""What every service process does around its work: arguments, settings, log, bus, signals, health.

Invariants: settings are checked before anything heavy is imported; the first SIGTERM or SIGINT asks for a drain, the
second ends at once; a service waits for its bus instead of failing. Left out: the work itself, which a service's
`app.start` does with the context it is given.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup

from tiltyard_proto.topology import Stage

from . import log as log_setup
from . import tracing
from .blobs import BlobStore
from .breaker import Breaker
from .bus import Bus
from .credentials import client_options
from .health import HealthServer
from .settings import (
    BusSettings,
    DataSettings,
    RunSettings,
    ServiceSettings,
    SettingsError,
    Source,
    read_source,
    section,
)

S = TypeVar("S", bound=BaseException)
GC_THRESHOLDS = (10_000, 2, 3)
"""So many more objects than before until the garbage collector looks at the new ones; then at older ones after so many
of such looks, about as often as by default, since a cycle may hold something large."""


@dataclass(kw_only=True)
class Context:
    """What a service's `start` is given."""

    name: str
    settings: Any
    """The service's own settings struct."""
    run: RunSettings
    bus_settings: BusSettings
    data_settings: DataSettings
    service: ServiceSettings
    bus: Bus
    blobs: BlobStore
    data: Path
    """Directory of the run."""
    stop: anyio.Event
    """Set when the service shall drain."""
    log: Any
    health: HealthServer
    """Services may add named readiness checks."""

    def breaker(self, stage: Stage[Any]) -> Breaker:
        """What pauses a domain that dies at a stage, as the settings say."""
        service = self.service
        return Breaker(self.bus, stage, share=service.breaker_share, window=service.breaker_window)


def parse_arguments(name: str, argv: Sequence[str] | None) -> Source:
    """The settings source from `-c FILE` and `--set table.key=value`; exits with 2 and one line on a mistake."""
    parser = argparse.ArgumentParser(prog=f"tiltyard run {name}", description=f"Run one {name} service.")
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="TOML configuration; defaults without it")
    parser.add_argument("--set", action="append", default=[], metavar="TABLE.KEY=VALUE", help="override one setting")
    arguments = parser.parse_args(argv)
    return read_source(arguments.config, arguments.set)


def run_service(name: str, kind: type[msgspec.Struct], start: str, argv: Sequence[str] | None = None) -> int:
    """Run `start` ('module:function', imported late) with a context until it returns; the exit status.

    2 means the user's mistake: a setting that is wrong, or that `start` finds wrong here (SettingsError); 1 that it
    failed, which the log says with its cause.
    """
    try:
        source = parse_arguments(name, argv)
        settings = section(source, name, kind)
        shared: list[Any] = [section(source, table, of) for table, of in _SHARED]
        options = client_options(shared[1], shared[2], name)
        tracing.setup(name, shared[3].otlp_endpoint)
    except SettingsError as error:
        print(f"tiltyard {name}: {error}", file=sys.stderr)
        return 2
    service: Any = shared[3]
    log_setup.setup(name, service.log_format, service.log_level)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        anyio.run(_main, name, settings, shared, start, options, backend_options={"use_uvloop": True})
    except BaseExceptionGroup as group:
        mistake = _first(group, SettingsError)
        if mistake is not None:
            print(f"tiltyard {name}: {mistake}", file=sys.stderr)
            return 2
        structlog.get_logger().critical("service_failed", exc_info=_first(group, Exception) or group)
        return 1
    finally:
        tracing.shutdown()
    return 0


def _first(group: BaseExceptionGroup[BaseException], kind: type[S]) -> S | None:
    """One exception of that kind from a group; None when there is none."""
    for error in group.exceptions:
        found = _first(error, kind) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, kind):
            return found
    return None


_SHARED: tuple[tuple[str, type[msgspec.Struct]], ...] = (
    ("run", RunSettings),
    ("bus", BusSettings),
    ("data", DataSettings),
    ("service", ServiceSettings),
)


async def _main(name: str, settings: Any, shared: Sequence[Any], start: str, options: dict[str, Any]) -> None:
    run, bus_settings, data, service = shared
    log = structlog.get_logger()
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        await tasks.start(_watch_signals, stop, tasks)
        blobs = BlobStore(data.blob_path)
        health = HealthServer(service.metrics_port, name)
        tasks.start_soon(health.serve)
        health.bus = bus = await _connect(bus_settings, blobs, name, stop, options)
        if bus is not None:
            tasks.start_soon(_end_when_refused, bus)
            context = Context(
                name=name,
                settings=settings,
                run=run,
                bus_settings=bus_settings,
                data_settings=data,
                service=service,
                bus=bus,
                blobs=blobs,
                data=data.run_path(run.name),
                stop=stop,
                log=log,
                health=health,
            )
            work = _load(start)
            spare_modules()
            log.info("service_starts", pid=os.getpid())
            try:
                await work(context)
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(3):
                    await bus.close()
            log.info("service_ends")
        tasks.cancel_scope.cancel()


def spare_modules() -> None:
    """Have the garbage collector look at what comes and goes only, and seldom.

    Modules live for ever; looking through them again stalls the loop for 10 ms and more. What is in flight is no
    garbage, and a few hundred messages are more objects than the collector lets pass by default.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def _end_when_refused(bus: Bus) -> None:
    """End the process with an error when the server has ended the connection for good; a supervisor starts it again."""
    await bus.client.closed.wait()
    if not bus.closing:
        structlog.get_logger().error("bus_refuses", hint="are this service's credentials still valid?")
        raise ConnectionError("the server ended the connection for good")


def _load(target: str) -> Callable[[Context], Awaitable[None]]:
    module, _, function = target.partition(":")
    loaded: Callable[[Context], Awaitable[None]] = getattr(importlib.import_module(module), function)
    return loaded


async def _connect(
    settings: BusSettings, blobs: BlobStore, name: str, stop: anyio.Event, options: dict[str, Any]
) -> Bus | None:
    """A connection, however long it takes; None when told to stop before there was one."""
    while not stop.is_set():
        found: list[Bus] = []
        try:
            async with anyio.create_task_group() as race:
                race.start_soon(_try_connect, race, found, settings, blobs, name, options)
                race.start_soon(_cancel_on, stop, race)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        if found:
            return found[0]
    return None


async def _try_connect(
    race: TaskGroup, found: list[Bus], settings: BusSettings, blobs: BlobStore, name: str, options: dict[str, Any]
) -> None:
    try:
        found.append(await Bus.connect(settings.servers, blobs, name, **options))
    except (OSError, TimeoutError) as error:
        structlog.get_logger().warning("bus_away", servers=settings.servers, error=str(error))
        await anyio.sleep(1.0)
    race.cancel_scope.cancel()


async def _cancel_on(stop: anyio.Event, race: TaskGroup) -> None:
    await stop.wait()
    race.cancel_scope.cancel()


async def _watch_signals(stop: anyio.Event, tasks: Any, *, task_status: Any = anyio.TASK_STATUS_IGNORED) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            if stop.is_set():
                tasks.cancel_scope.cancel()
                return
            structlog.get_logger().info("drain", signal=signal.Signals(number).name)
            stop.set()

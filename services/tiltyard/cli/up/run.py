"""`tiltyard up` from start to end: check, start the bus, provision, publish, supervise, drain, report.

Invariants: nothing starts before the whole configuration and the machine are checked; whatever happens, every process
that was started is stopped before this returns; the summary beside the run says what it cost.
"""

from __future__ import annotations

import resource
import shutil
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
from tiltyard.cli.sections import check_all
from tiltyard.kit.durability import NotDurable
from tiltyard.kit.embedded import EmbeddedError
from tiltyard.kit.jetstream import BusError

from . import preflight
from .child import GaveUp
from .lines import MergedLog
from .plan import check_run, check_together
from .progress import Progress
from .summary import RUNNING, Session, Summary, earlier, summarise, write
from .supervisor import Supervisor

SUMMARY = "summary.json"
KEEP_EVERY_S = 2.0
"""Between two writings of the summary."""
INTERRUPTED = 130
"""Exit status of a command that was interrupted before it had done anything."""


def up(arguments: Namespace) -> int:
    """Run the command; the exit status."""
    if arguments.secure:
        arguments.set = [*arguments.set, "bus.secure=true"]  # the services are told the same way
    source = source_of(arguments)
    sections = check_all(source)
    check_run(sections["run"], source)
    check_together(sections, source)
    root = Path(sections["data"].root).absolute()
    preflight.check_disk(root, sections["supervisor"])
    if arguments.results is not None:
        preflight.check_results(arguments.results)
    lock = preflight.take_lock(root)
    try:
        if arguments.fresh and forget(root, sections["run"].name):
            print(f"--fresh: an earlier run {sections['run'].name!r} and the bus's store in {root} are forgotten")
        status = anyio.run(_up, arguments, sections, root)
    except (EmbeddedError, GaveUp, BusError, NotDurable) as error:
        raise UserError(str(error)) from error
    finally:
        lock.close()
    return status


def forget(root: Path, run: str) -> bool:
    """Remove a run and the bus's store, if there are any; blobs stay, they are content-addressed."""
    found = [path for path in (root / "runs" / run, root / "nats") if path.exists()]
    for path in found:
        shutil.rmtree(path, ignore_errors=True)
    return bool(found)


async def _up(arguments: Namespace, sections: dict[str, Any], root: Path) -> int:
    run = sections["run"]
    run_path = sections["data"].run_path(run.name)
    try:
        run_path.mkdir(parents=True, exist_ok=True)
        (run_path / "run.json").write_bytes(msgspec.json.format(msgspec.json.encode(run)))
    except OSError as error:
        raise UserError(f"{run_path}: {error.strerror}; free some space, or use --set data.root=DIR") from error
    progress = Progress(run, plain=arguments.plain or not sys.stdout.isatty())
    log = MergedLog(run_path / "up.log", progress.print, colour=sys.stdout.isatty())
    session = Session()
    supervisor = Supervisor(arguments, sections, root, log, progress, session)
    keeper = Keeper(run.name, run_path / SUMMARY, supervisor, session, log)
    try:
        with progress:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(keeper.keep)
                session.state = await supervisor.run()
                tasks.cancel_scope.cancel()
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        keeper.end()
        log.close()
    if session.state == "interrupted":
        return INTERRUPTED
    print(report_command.text(run, run_path))
    if arguments.results is not None:
        report_command.write_rows(arguments.results, run, run_path)
    return 1 if session.state == "failed" else 0


class Keeper:
    """Keeps the run's summary up to date while a session lasts."""

    def __init__(self, run: str, path: Path, supervisor: Supervisor, session: Session, log: MergedLog) -> None:
        self._run, self._path, self._log = run, path, log
        self._supervisor, self._session = supervisor, session
        self._before = earlier(path)
        self._started = time.monotonic()

    async def keep(self) -> None:
        """Write it every few seconds, so that a session that is killed has been there."""
        while True:
            await anyio.sleep(KEEP_EVERY_S)
            self._supervisor.note_costs()
            self._session.cpu_s = time.process_time() + sum(self._session.cpu_by_service.values())
            self._write()

    def end(self) -> None:
        """The last word on this session."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._session.cpu_s = usage.ru_utime + usage.ru_stime + time.process_time()
        if self._session.state == RUNNING:
            self._session.state = "failed"
        self._write()

    def _write(self) -> None:
        if self._supervisor.children:  # else nothing ran, and the earlier summary stays
            self._session.wall_s = time.monotonic() - self._started
            self._session.ended = time.time()
            write_summary(self._path, summarise(self._run, [*self._before, self._session]), self._log)


def write_summary(path: Path, summary: Summary, log: MergedLog) -> None:
    """Beside the run; where the disk is full, the log says so and nothing else is lost."""
    try:
        write(path, summary)
    except OSError as error:
        log.say(f"{path} can't be written: {error.strerror}", "error")

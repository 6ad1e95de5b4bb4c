"""`tiltyard publish`: tasks from a JSON-lines file, a domain's generator or a run's configuration onto the bus.

Invariants: every line is checked before the first one is published, errors name file and line; a task's id is its
content hash, so publishing a file twice adds nothing. A task that goes straight to its subject instead is checked by
whoever reads it: what is wrong with it stands in `tiltyard dlq ls --stage task`.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Collection, Iterable
from pathlib import Path

import anyio
import msgspec

from tiltyard.domains import registry
from tiltyard.gate import admission
from tiltyard.kit.bus import Bus
from tiltyard.kit.settings import RunSettings, section
from tiltyard.sandbox.images import profile_folders
from tiltyard.sandbox.profiles import load
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto import keys, topology
from tiltyard_proto.messages import Task
from tiltyard_proto.validity import problem

from .connection import connected
from .errors import UserError
from .main import source_of
from .task_check import check_task
from .up.plan import check_run, run_tasks

MAX_SHOWN = 5


def read_tasks(lines: Iterable[bytes], name: str, profiles: Collection[str] = ()) -> list[Task]:
    """Tasks of a JSON-lines file with their ids set; UserError lists the bad lines.

    `profiles`: of sandboxes, beside those that the domains name.
    """
    tasks: list[Task] = []
    errors: list[str] = []
    known = registry.load_all()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            raw = msgspec.json.decode(line)
            if isinstance(raw, dict):
                raw = {"type": "task", "id": "", **raw}
            task = keys.with_id(msgspec.convert(raw, Task))
            if unknown := sorted(set(raw) - {"type", *Task.__struct_fields__}):
                raise ValueError(f"unknown key {unknown[0]!r}; known keys: {', '.join(Task.__struct_fields__)}")
            check_task(task, known, profiles)
            if wrong := problem(task):
                raise ValueError(wrong)
            topology.encode(task)  # OverflowError: an integer that no message can carry
            tasks.append(task)
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            errors.append(f"{name}:{number}: {error}")
    if errors:
        more = f"\n(and {len(errors) - MAX_SHOWN} more)" if len(errors) > MAX_SHOWN else ""
        raise UserError("nothing was published:\n" + "\n".join(errors[:MAX_SHOWN]) + more)
    return tasks


async def publish_tasks(bus: Bus, tasks: Iterable[Task]) -> tuple[int, int]:
    """Publish tasks; how many were new and how many were there already."""
    new = old = 0
    for task in tasks:
        if await bus.publish(topology.TASK, task, patience_s=20):
            new += 1
        else:
            old += 1
    return new, old


def chosen_tasks(arguments: Namespace) -> list[Task]:
    """What the arguments say to publish; UserError or ValueError for a mistake."""
    if arguments.run:
        return _tasks_of_the_run(arguments)
    if arguments.domain:
        domain = registry.load(arguments.domain)
        reports = admission.reports_on([domain.name])
        if why := admission.refusal(reports.get(domain.name)):
            raise UserError(f"domain {domain.name} does not pass the entry gate: {why}")
        return admission.without_faulty(domain.tasks(arguments.split, arguments.n, arguments.seed), reports)
    if arguments.file is None:
        raise UserError("name a FILE.jsonl, a domain with --domain, or the configured run with --run")
    profiles = load(profile_folders(section(source_of(arguments), "sandbox", SandboxSettings)))
    if str(arguments.file) == "-":
        return read_tasks(sys.stdin.buffer, "standard input", profiles)
    try:
        with Path(arguments.file).open("rb") as file:
            return read_tasks(file, str(arguments.file), profiles)
    except OSError as error:
        raise UserError(f"{arguments.file}: {error.strerror}") from error


def _tasks_of_the_run(arguments: Namespace) -> list[Task]:
    if arguments.domain or arguments.file:
        raise UserError("--run publishes what the run's configuration names: leave file and domain out")
    source = source_of(arguments)
    run = section(source, "run", RunSettings)
    check_run(run, source)
    return run_tasks(run)


async def _publish(arguments: Namespace, tasks: list[Task]) -> tuple[int, int]:
    async with connected(source_of(arguments)) as bus:
        return await publish_tasks(bus, tasks)


def main(arguments: Namespace) -> int:
    tasks = chosen_tasks(arguments)
    new, old = anyio.run(_publish, arguments, tasks)
    print(f"{new} tasks published, {old} were there already")
    return 0

"""The gate over many domains: what was checked before is not checked again, the rest runs on several cores.

Domains whose verdicts need no sandbox are checked in processes of their own; the others in this one, with their
attempts on one sandbox back-end. Invariant: a check that can't be made is a problem of its domain, never a pass.
Left out: how the result is shown.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import anyio
import anyio.to_thread
import msgspec

from tiltyard.domains import Domain
from tiltyard.sandbox.backend import SandboxError
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker
from tiltyard.verifier.kinds.registry import AnyKind, installed

from . import prompts
from .check import FULL, IN_SANDBOX, LIGHT, QUICK, Checker, Extent
from .digest import digest, evaluation_digest
from .grading import Grader, sandboxed
from .report import GATE, Problem, Report
from .store import Store

HELD_TASKS = 400
"""Tasks of each evaluation set whose prompts are looked for in training."""
Tell = Callable[[Report], None]


def needs_sandbox(domain: Domain, kinds: Mapping[str, AnyKind]) -> bool:
    """Does judging one of its attempts run anything?"""
    kind = kinds.get(domain.definition.verifier.kind)
    return domain.definition.interface != "answer" or (kind is not None and kind.executes)


def evaluation_index(domains: Mapping[str, Domain]) -> set[int]:
    """Runs of words of all evaluation-only domains; one that can't be drawn is left out, its own check says so."""
    found: set[int] = set()
    for domain in domains.values():
        if "train" not in domain.definition.splits:
            try:
                found |= prompts.index(domain.tasks("eval", HELD_TASKS))
            except ValueError:
                continue
    return found


def spread(every: Mapping[str, Domain], running: Sequence[Domain]) -> dict[str, Extent]:
    """How much of each domain with a sandbox: of the levels of one family member the first in the registry has all
    probes, the others only references, since they differ in their tasks and not in who judges them."""
    first: dict[str, str] = {}
    for name, domain in every.items():
        first.setdefault(_without_level(domain), name)
    return {one.name: IN_SANDBOX if first[_without_level(one)] == one.name else LIGHT for one in running}


def _without_level(domain: Domain) -> str:
    level = domain.definition.level
    return domain.name.removesuffix(f".{level}") if level else domain.name


class Gate:
    """Checks of domains, by content."""

    def __init__(self, domains: Mapping[str, Domain], store: Store, settings: SandboxSettings, jobs: int = 2) -> None:
        self.domains, self.store, self.settings, self.jobs = domains, store, settings, jobs
        self.kinds = installed()
        self.evaluation = evaluation_digest(domains.values())

    def known(self, names: Sequence[str]) -> dict[str, Report]:
        """The reports that hold for the present content."""
        found = {name: self.store.get(self.digest(self.domains[name])) for name in names}
        return {name: report for name, report in found.items() if report is not None}

    async def check(
        self, names: Sequence[str], *, again: bool = False, full: bool = False, tell: Tell = lambda _: None
    ) -> list[Report]:
        """A report on each domain in the order of the names; `tell` hears of each when it is ready."""
        reports = {} if again or full else self.known(names)
        for report in reports.values():
            tell(report)

        def keep(report: Report) -> None:
            report = msgspec.structs.replace(report, digest=self.digest(self.domains[report.domain]))
            if not any(problem.check == GATE for problem in report.problems):
                self.store.put(report)
            reports[report.domain] = report
            tell(report)

        todo = [self.domains[name] for name in names if name not in reports]
        if todo:
            await self._run(todo, full, keep)
        return [reports[name] for name in names]

    def digest(self, domain: Domain) -> str:
        """What a report on this domain must have been made with."""
        return digest(domain, self.kinds, self.evaluation)

    async def _run(self, todo: Sequence[Domain], full: bool, keep: Tell) -> None:
        held = await anyio.to_thread.run_sync(evaluation_index, self.domains)
        running = [domain for domain in todo if needs_sandbox(domain, self.kinds)]
        pure = [domain for domain in todo if domain not in running]
        extents = dict.fromkeys((one.name for one in running), FULL) if full else spread(self.domains, running)
        async with anyio.create_task_group() as tasks:
            if pure:
                tasks.start_soon(self._pure, pure, FULL if full else QUICK, held, keep)
            if running:
                await self._sandboxed(running, extents, held, keep)

    # ------------------------------------------------------------ without a sandbox

    async def _pure(self, domains: Sequence[Domain], extent: Extent, held: set[int], keep: Tell) -> None:
        workers = min(self.jobs, len(domains))
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (held,))
        try:
            futures = [(domain, pool.submit(_check_pure, domain, extent)) for domain in domains]
            for domain, future in futures:
                try:
                    keep(await anyio.to_thread.run_sync(future.result))
                except BrokenProcessPool as error:
                    keep(_failed(domain, f"the checking process died: {error}"))
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(lambda: pool.shutdown(cancel_futures=True))

    # ------------------------------------------------------------ with a sandbox

    async def _sandboxed(
        self, domains: Sequence[Domain], extents: Mapping[str, Extent], held: set[int], keep: Tell
    ) -> None:
        try:
            async with sandboxed(self.settings) as worker, anyio.create_task_group() as tasks:
                limit = anyio.CapacityLimiter(self.jobs)
                for domain in domains:
                    tasks.start_soon(self._one, domain, worker, extents[domain.name], held, keep, limit)
        except* SandboxError as group:
            why = str(group.exceptions[0])
            for domain in domains:
                keep(_failed(domain, f"no sandbox: {why}; what does `tiltyard sandbox doctor` say?"))

    async def _one(
        self,
        domain: Domain,
        worker: Worker,
        extent: Extent,
        held: set[int],
        keep: Tell,
        limit: anyio.CapacityLimiter,
    ) -> None:
        async with limit:
            keep(await Checker(domain, Grader(self.kinds, worker), extent, held).run())


def _failed(domain: Domain, why: str) -> Report:
    problem = Problem(check=GATE, detail=why)
    return Report(domain=domain.name, kind=domain.definition.verifier.kind, problems=(problem,))


_index: set[int] = set()


def _begin(held: set[int]) -> None:
    """A checking process gets the evaluation sets once."""
    _index.update(held)


def _check_pure(domain: Domain, extent: Extent) -> Report:
    return anyio.run(Checker(domain, Grader(installed()), extent, _index).run)

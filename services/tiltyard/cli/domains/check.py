"""`tiltyard domains check`: the entry gate over some or all domains, with the reasons."""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence

import anyio
import msgspec

from tiltyard.cli.connection import connected
from tiltyard.cli.errors import UserError
from tiltyard.cli.main import source_of
from tiltyard.cli.sandbox.services import settings_of
from tiltyard.domains import Domain, registry
from tiltyard.gate import admission
from tiltyard.gate.registry import Gate
from tiltyard.gate.report import Report
from tiltyard.gate.store import Store
from tiltyard.kit import breaker
from tiltyard.kit.bus import Bus
from tiltyard.sandbox.reaper import become_subreaper
from tiltyard_proto.topology import GATE

MOST = 6
"""Problems shown of one domain; all are in the results file."""


def check_main(arguments: Namespace) -> int:
    """A line for each domain; 1 when one of them may not be sampled."""
    become_subreaper()
    begun = time.monotonic()
    domains = dict(registry.load_all())
    names = _chosen(arguments, domains)
    gate = Gate(domains, Store(), settings_of(arguments), max(1, arguments.jobs))
    known = set() if arguments.again or arguments.full else set(gate.known(names))
    reports: list[Report] = []

    async def run() -> None:
        reports.extend(await gate.check(names, again=arguments.again, full=arguments.full, tell=_tell))

    anyio.run(run, backend_options={"use_uvloop": True})
    failed = [report for report in reports if not report.passed]
    seconds = time.monotonic() - begun
    print(
        f"{len(reports)} domains, {len(failed)} failed, {sum(r.verdicts for r in reports)} verdicts, "
        f"{seconds:.0f} s ({len(known)} checked before)"
    )
    if arguments.pause:
        print(f"{anyio.run(_pause, arguments, reports)} domains paused or let go on")
    if arguments.results:
        _write(arguments, reports, seconds, len(known))
    return 1 if failed else 0


def _chosen(arguments: Namespace, domains: dict[str, Domain]) -> list[str]:
    if arguments.file:
        found = registry.open_file(arguments.file)
        domains |= {domain.name: domain for domain in found}
        return [domain.name for domain in found]
    names = [
        name for name in domains if not arguments.names or any(f"{name}.".startswith(f"{n}.") for n in arguments.names)
    ]
    if not names:
        raise UserError(f"no domain is named {' or '.join(arguments.names)}; `tiltyard domains ls` lists them")
    return names


def _tell(report: Report) -> None:
    state = "ok    " if report.passed else "FAILED"
    print(
        f"{state} {report.domain:44} {report.kind:16} {report.tasks:4} tasks {report.verdicts:4} verdicts "
        f"{report.verdict_cpu_s * 1000:7.1f} ms {report.seconds:6.1f} s",
        flush=True,
    )
    for problem in report.problems[:MOST]:
        print(f"         {problem.check}: {f'task {problem.task}: ' if problem.task else ''}{problem.detail}")
    if len(report.problems) > MOST:
        print(f"         and {len(report.problems) - MOST} more")


async def _pause(arguments: Namespace, reports: list[Report]) -> int:
    async with connected(source_of(arguments)) as bus:
        return await tell_bus(bus, reports)


async def tell_bus(bus: Bus, reports: Sequence[Report]) -> int:
    """Keep out what failed, let in what passes again; how many changed."""
    held = {pause.domain: pause for pause in await breaker.standing(bus) if pause.stage == GATE}
    changed = 0
    for report in reports:
        if report.passed and report.domain in held:
            await breaker.resume(bus, held[report.domain], "the entry gate")
            changed += 1
        elif not report.passed and report.domain not in held:
            await breaker.pause(bus, GATE, report.domain, admission.refusal(report), of=report.tasks)
            changed += 1
    return changed


def _write(arguments: Namespace, reports: list[Report], seconds: float, known: int) -> None:
    """The figures and every report, as `make domains-check` keeps them."""
    summary = {
        "domains": len(reports),
        "failed": [report.domain for report in reports if not report.passed],
        "faulty_tasks": sum(len(report.faulty) for report in reports),
        "verdicts": sum(report.verdicts for report in reports),
        "seconds": round(seconds, 1),
        "checked_before": known,
        "by_category": dict(sorted(Counter(report.domain.partition(".")[0] for report in reports).items())),
    }
    body = msgspec.json.format(msgspec.json.encode({"check": summary, "reports": reports}), indent=1)
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    arguments.results.write_bytes(body + b"\n")

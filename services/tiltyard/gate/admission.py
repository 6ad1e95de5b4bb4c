"""What the gate lets through to a run: domains that it did not fail, and of their tasks those without a fault.

Invariant: only reports on the present content count; a domain that nobody has checked in this state is let through,
and the caller is told. Left out: checking, which may take minutes (`registry`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tiltyard.domains import registry
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Task

from .registry import Gate
from .report import Report
from .store import Store


def reports_on(names: Collection[str], store: Store | None = None) -> dict[str, Report]:
    """What the gate said about these domains as they are now; those that nobody checked are missing."""
    domains = registry.load_all()
    known = [name for name in names if name in domains]
    return Gate(domains, store or Store(), SandboxSettings()).known(known) if known else {}


def refusal(report: Report | None) -> str:
    """Why a domain may not be sampled, in one line; '' when it may, or when nobody has looked."""
    if report is None or report.passed:
        return ""
    first = next((problem for problem in report.problems if not problem.task), None) or report.problems[0]
    more = f" (and {len(report.problems) - 1} more)" if len(report.problems) > 1 else ""
    return f"{first.check}: {first.detail}{more}"


def without_faulty(tasks: Sequence[Task], reports: dict[str, Report]) -> list[Task]:
    """The tasks in which the gate found no fault."""
    return [task for task in tasks if task.domain not in reports or task.id not in reports[task.domain].faulty]

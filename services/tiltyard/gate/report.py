"""What the gate found out about a domain."""

from __future__ import annotations

import msgspec

GATE = "gate"
"""The check that says that the others could not be made here; such a report isn't kept."""
TOLERATED = 0.1
"""Share of a domain's tasks that may be faulty: those are left out, and the others are sampled."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, with a domain or with one of its tasks."""

    check: str
    detail: str
    task: str = ""
    """Id of the task; empty: the domain as a whole."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one domain."""

    domain: str
    kind: str
    version: str = ""
    """Of the kind."""
    digest: str = ""
    """Content of definition, generator and kind that this holds for."""
    tasks: int = 0
    """Drawn and looked at."""
    graded: int = 0
    """Of those, judged at least once."""
    verdicts: int = 0
    problems: tuple[Problem, ...] = ()
    verdict_cpu_s: float = 0.0
    """Median CPU seconds of a verdict on a reference, the sandbox's included."""
    seconds: float = 0.0

    @property
    def faulty(self) -> frozenset[str]:
        """Ids of tasks that must not be sampled."""
        return frozenset(problem.task for problem in self.problems if problem.task)

    @property
    def passed(self) -> bool:
        """May the domain be sampled? Not with a fault of its own, nor with too many faulty tasks."""
        if not self.tasks or any(not problem.task for problem in self.problems):
            return False
        return len(self.faulty) <= TOLERATED * self.tasks

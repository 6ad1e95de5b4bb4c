"""Cases: submissions with the verdict that is right, and how a kind makes something to judge out of one.

A case is a line of a JSON-lines file: what was asked, the reference, the submission and the right verdict, all in the
words of whoever met it. `<kind>/cases.py` turns those of its subject into tasks and actions, by general rules and
never by a case's id: it names `CASE_KINDS`, the values of `kind` that it serves, and defines
`trials(case) -> Sequence[Trial] | Ruling | None`, where None leaves the case to the next kind that serves it.
Left out: running trials, and the files themselves (`tests/cases/`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Literal

import msgspec

from tiltyard_proto.messages import Task
from tiltyard_proto.outcomes import Outcome

from .base import Part
from .registry import FOLDER

Judgement = Literal["accept", "partial", "reject", "quarantine", "list"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a file of cases."""

    id: str
    kind: str
    """Subject: 'math', 'code', 'terminal' ..."""
    task: str = ""
    reference: Any = None
    submission: Any = None
    verdict: Judgement
    score: float | list[float | None] | None = None
    """Wanted; with 'partial' within 0.05, with 'list' one for each trial in order."""
    source: str = ""
    note: str = ""
    setup: dict[str, Any] = {}
    """Of our own cases: what the words of `task` can't say, for the kind's `trials` (data, options, files)."""


class Trial(Part, frozen=True):
    """A task and the actions of one attempt at it, judged through the real path."""

    task: Task
    texts: tuple[str, ...]
    """One action a turn; of a task with a session each is run in the sandbox."""
    outcome: Outcome = Outcome.FINISHED
    """How the attempt ended."""


class Ruling(Part, frozen=True):
    """What something other than a verifier says: the entry gate about a task, the aggregator about a group."""

    verdict: Judgement
    score: float | list[float | None] | None = None
    reasons: tuple[str, ...] = ()


Mapper = Callable[[Case], Sequence[Trial] | Ruling | None]


def mappers(subject: str) -> Iterator[tuple[str, Mapper]]:
    """The kinds that serve a subject, by name, with their `trials`."""
    for path in sorted(FOLDER.glob("*/cases.py")):
        module = import_module(f"{__package__}.{path.parent.name}.cases")
        if subject in module.CASE_KINDS:
            yield path.parent.name, module.trials

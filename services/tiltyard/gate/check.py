"""The checks of one domain.

Drawing: the same seed gives the same tasks, another seed others, and nothing of evaluation is in training. Prompts: no
answer in them, no repeats, no long run of words of an evaluation set. Verdicts: the reference and its harmless changes
get full credit, what is worth nothing gets nothing, twice judged is the same bytes, in time and without side effects.
A fault of one task counts against that task; what shows that the verifier can be had counts against the domain.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from statistics import median

import msgspec

from tiltyard.domains import Domain
from tiltyard.domains.drafts import Split
from tiltyard.verifier.kinds.base import Probe, canonical
from tiltyard.verifier.kinds.registry import check_options
from tiltyard_proto import topology
from tiltyard_proto.messages import Task, Verdict
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.validity import problem as invalid

from . import effects, probes, prompts
from .grading import Grader, NoSandbox
from .report import GATE, Problem, Report

NOT_HERE = frozenset(
    (Outcome.SANDBOX_START_FAILED, Outcome.SANDBOX_LOST, Outcome.NODE_LOST, Outcome.BLOB_MISSING, Outcome.REFUSED)
)
"""Endings that say something about this machine, not about the domain."""


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a domain is looked at."""

    drawn: int = 40
    """Tasks of each split whose prompts are compared."""
    graded: int = 8
    """Of those, tasks whose reference is judged; spread over their templates."""
    probed: int = 2
    """Of those, tasks on which everything is tried."""
    verdict_cpu_s: float = 3.0
    """Most CPU seconds of the verifier for one verdict."""
    draw_s: float = 2.0
    """Most CPU seconds to draw one task, on average."""


QUICK, FULL = Extent(), Extent(drawn=200, graded=40, probed=8)
IN_SANDBOX, LIGHT = Extent(graded=3, probed=1), Extent(graded=2, probed=0)


class Checker:
    """One domain's check. Verdicts that need a sandbox need a grader with one."""

    def __init__(self, domain: Domain, grader: Grader, extent: Extent, held: set[int]) -> None:
        self.domain, self.grader, self.extent, self.held = domain, grader, extent, held
        self.problems: list[Problem] = []
        self.costs: list[float] = []
        self.verdicts = 0
        self.graded: list[Task] = []

    async def run(self, digest: str = "") -> Report:
        """All checks; what keeps the later ones from making sense ends the check."""
        begun, table = time.monotonic(), self.domain.definition.verifier
        tasks: dict[Split, list[Task]] = {}
        stage = "definition"
        try:
            check_options(self.grader.world.kinds, table.kind, table.options)
            stage = "draw"
            for split in self.domain.definition.splits:
                tasks[split] = self._drawn(split)
            if not self.problems:
                stage = "judge"
                self._look(tasks)
                await self._judge([task for each in tasks.values() for task in each])
        except NoSandbox:
            self._add(GATE, "something must run, and there is no sandbox")
        except Exception as error:  # generators and kinds may come from other packages and fail in any way
            self._add(stage, str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}")
        kind = self.grader.world.kinds.get(table.kind)
        return Report(
            domain=self.domain.name,
            kind=table.kind,
            version=kind.version if kind else "",
            digest=digest,
            tasks=sum(map(len, tasks.values())),
            graded=len(self.graded),
            verdicts=self.verdicts,
            problems=tuple(self.problems),
            verdict_cpu_s=median(self.costs) if self.costs else 0.0,
            seconds=round(time.monotonic() - begun, 3),
        )

    def _add(self, check: str, detail: str, task: str = "") -> None:
        self.problems.append(Problem(check=check, detail=detail[:500], task=task))

    # ------------------------------------------------------------ drawing

    def _drawn(self, split: Split) -> list[Task]:
        before = time.process_time()
        tasks = self.domain.tasks(split, self.extent.drawn)
        if not tasks:
            self._add("draw", f"split {split!r} has no tasks")
        elif (each := (time.process_time() - before) / len(tasks)) > self.extent.draw_s:
            self._add("draw", f"a task of split {split!r} takes {each:.1f} s to draw")
        few = min(5, len(tasks))
        if self.domain.tasks(split, few) != tasks[:few]:
            self._add("repeat", f"the same seed gives other tasks of split {split!r}")
        if self.domain.definition.data:
            return tasks  # a file is what it is, whatever the seed
        if len(tasks) == self.extent.drawn and self.domain.tasks(split, few, seed=1) == tasks[:few]:
            self._add("repeat", f"another seed gives the same tasks of split {split!r}")
        return tasks

    # ------------------------------------------------------------ prompts

    def _look(self, tasks: dict[Split, list[Task]]) -> None:
        for task in (task for each in tasks.values() for task in each):
            for check, detail in _faults(task, extractive=self.domain.definition.extractive):
                self._add(check, detail, task.id)
        for each in tasks.values():
            for task_id, other in prompts.contradictions(each).items():
                self._add("duplicate", f"it asks the same as task {other}, which may be judged otherwise", task_id)
            for task_id, other in prompts.near_duplicates(each).items():
                self._add("duplicate", f"it is nearly task {other}", task_id)
        train, held = tasks.get("train", []), tasks.get("eval", [])
        for task_id in prompts.overlaps(train, self.held):
            self._add("overlap", f"{prompts.OVERLAP_WORDS} words in a row are those of an evaluation set", task_id)
        if train and held:
            self._apart(train, held)

    def _apart(self, train: Sequence[Task], held: Sequence[Task]) -> None:
        """Nothing of evaluation is in training."""
        definition = self.domain.definition
        if not definition.held_out and not definition.held_out_sources:
            self._add("held out", "no template or source is held out for evaluation: set held_out or held_out_sources")
        asked = {" ".join(prompts.text_of(task).split()): task.id for task in train}
        for task in held:
            if (other := asked.get(" ".join(prompts.text_of(task).split()))) and not _start(task):
                self._add("held out", f"training task {other} asks the same", task.id)

    # ------------------------------------------------------------ verdicts

    async def _judge(self, tasks: Sequence[Task]) -> None:
        kind = self.grader.world.kinds[self.domain.definition.verifier.kind]
        without = {problem.task for problem in self.problems if problem.check == "task"}
        self.graded = list(_spread([task for task in tasks if task.id not in without], self.extent.graded))
        pure = self.grader.worker is None
        echoed = 0
        with effects.apart() if pure else nullcontext():
            before = effects.snapshot()
            for index, task in enumerate(self.graded):
                if not await self._reference(task, twice=pure or not index) or index >= self.extent.probed:
                    continue
                for probe in (*probes.variants(task, kind), *probes.worthless(task, kind)):
                    await self._probe(task, probe)
                if task.environment.interface == "answer":
                    echoed += (await self._verdict(task, probes.echo(task).texts)).passed
            if pure and (left := effects.changed(before, effects.snapshot())):
                self._add("side effects", f"judging changed {', '.join(left)}")
        if echoed * 2 > min(self.extent.probed, len(self.graded)):
            self._add("leak", "repeating the prompt gets full credit")

    async def _verdict(self, task: Task, texts: Sequence[str]) -> Verdict:
        found = await self.grader.verdict(task, texts)
        self.verdicts += 1
        if found.cpu_s > self.extent.verdict_cpu_s:
            self._add("time", f"a verdict took {found.cpu_s:.1f} s of the verifier's CPU time", task.id)
        return found

    async def _reference(self, task: Task, *, twice: bool) -> bool:
        """Does the reference get full credit, and the same bytes when it is judged `twice`?"""
        kind = self.grader.world.kinds[task.verification.kind]
        texts = probes.solution(task, kind)
        found = await self._verdict(task, texts)
        self.costs.append(found.cpu_s + (found.grading.cpu_s if found.grading else 0.0))
        if not (found.passed and found.score == 1.0):
            if found.outcome in NOT_HERE:
                self._add(GATE, f"task {task.id}: the reference gets {_said(found)}")
            else:
                self._add("reference", f"the reference gets {_said(found)}", task.id)
            return False
        if twice and canonical(await self._verdict(task, texts)) != canonical(found):
            self._add("repeat", "the same submission gets another verdict the second time")
        return True

    async def _probe(self, task: Task, probe: Probe) -> None:
        found = await self._verdict(task, probe.texts)
        fine = {
            "accept": found.passed and found.score == 1.0,
            "reject": found.score == 0.0 and not found.passed,
            "partial": found.score is not None and 0.0 < found.score < 1.0 and not found.passed,
            "no_accept": found.score is not None and not found.passed and found.score < 1.0,
        }
        if not fine[probe.wanted]:
            check = GATE if found.outcome in NOT_HERE else "format" if probe.wanted == "accept" else "worthless"
            self._add(check, f"task {task.id}: {probe.name}: wanted {probe.wanted}, got {_said(found)}")


def _start(task: Task) -> bool:
    """Does a task begin with a workspace, which can differ where the words don't?"""
    return bool(task.environment.files or task.environment.setup)


def _faults(task: Task, *, extractive: bool) -> Iterator[tuple[str, str]]:
    """What is wrong with one task by itself."""
    if wrong := invalid(task):
        yield "task", wrong
    try:
        topology.encode(task)
    except (OverflowError, ValueError) as error:
        yield "task", f"no message can carry it: {error}"
    if not task.reference:
        yield "task", "it has no reference"
    if not task.template:
        yield "task", "it has no template"
    need = len(prompts.text_of(task)) // 5 + task.sampling.max_new_tokens
    if need > task.limits.tokens:
        yield "task", f"prompt and answer need about {need} tokens, limits.tokens is {task.limits.tokens}"
    if not extractive and (where := prompts.leak(task)):
        yield "leak", where


def _spread(tasks: Sequence[Task], count: int) -> Iterator[Task]:
    """So many tasks, one of each template and split before a second of any."""
    seen: dict[tuple[str, str], int] = {}
    ranked: list[tuple[int, int, Task]] = []
    for index, task in enumerate(tasks):
        rank = seen[task.split, task.template] = seen.get((task.split, task.template), -1) + 1
        ranked.append((rank, index, task))
    ranked.sort(key=lambda each: each[:2])
    chosen = [task for _, _, task in ranked]
    step = max(1, len([1 for rank, _, _ in ranked if not rank]) // count)
    yield from chosen[: count * step : step][:count]


def _said(found: Verdict) -> str:
    reasons = "; ".join(found.reasons)
    return f"{found.judgement} (score {found.score}, {found.outcome.value}): {reasons or 'no reason'}"[:400]

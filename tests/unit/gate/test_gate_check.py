"""The gate: a sound domain passes, and every kind of fault is found and named."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tiltyard.domains import Domain, Draft, Request
from tiltyard.domains.registry import open_file
from tiltyard.gate.check import Checker, Extent
from tiltyard.gate.grading import Grader
from tiltyard.gate.report import Problem, Report
from tiltyard.verifier.kinds.base import Finding, Probe, Rule
from tiltyard.verifier.kinds.last_number.data import Data, Options
from tiltyard.verifier.kinds.registry import AnyKind, installed
from tiltyard_proto.messages import Task

pytestmark = pytest.mark.anyio
GOOD = """
name = "test.sums"
title = "Sums"
data = "tasks.jsonl"
held_out = ["t0"]
[verifier]
kind = "last_number"
"""
SMALL = Extent(drawn=12, graded=4, probed=2)


def line(n: int, **changes: object) -> dict[str, object]:
    word = f"w{n}"
    draft = {
        "template": f"t{n % 3}",
        "fields": {"prompt": f"{word}: what is {n} plus 100?"},
        "data": {"answer": str(n + 100)},
    }
    return {**draft, "reference": str(n + 100), **changes}


def domain(tmp_path: Path, text: str = GOOD, lines: list[dict[str, object]] | None = None) -> Domain:
    (tmp_path / "sums.toml").write_text(text)
    drafts = [line(n) for n in range(12)] if lines is None else lines
    (tmp_path / "tasks.jsonl").write_text("\n".join(json.dumps(draft) for draft in drafts))
    (one,) = open_file(tmp_path / "sums.toml")
    return one


async def check(one: Domain, *kinds: AnyKind, held: set[int] | None = None, extent: Extent = SMALL) -> Report:
    grader = Grader({**installed(points=[]), **{kind.name: kind for kind in kinds}})
    return await Checker(one, grader, extent, held or set()).run()


async def test_a_sound_domain_passes(tmp_path: Path) -> None:
    """Nothing is found, and the report says what was looked at."""
    report = await check(domain(tmp_path))
    assert report.problems == ()
    assert report.passed
    assert (report.tasks, report.graded, report.kind) == (12, 4, "last_number")
    assert report.verdicts > 40


@pytest.mark.parametrize(
    ("text", "check_name", "says"),
    [
        (GOOD.replace('kind = "last_number"', 'kind = "last_numbr"'), "definition", "last_numbr"),
        (GOOD + "options = { tolerence = 1 }", "definition", "tolerence"),
        (GOOD.replace('held_out = ["t0"]', ""), "held out", "no template or source"),
        (GOOD.replace('"t0"', '"t7"'), "draw", "no tasks"),
        (GOOD.replace("tasks.jsonl", "gone.jsonl"), "draw", "gone"),
        (GOOD + "[limits]\ntokens = 60", "task", "limits.tokens"),
    ],
)
async def test_faults_of_definitions(tmp_path: Path, text: str, check_name: str, says: str) -> None:
    """A wrong option, nothing held out, an empty split, and a budget that is too small are named."""
    report = await check(domain(tmp_path, text))
    assert not report.passed
    assert any(one.check == check_name and says in one.detail for one in report.problems), report.problems


@pytest.mark.parametrize(
    ("changes", "check_name", "says"),
    [
        ({"reference": "7"}, "reference", "reject"),
        ({"reference": ""}, "task", "no reference"),
        ({"data": {"answer": "see figure"}}, "reference", "quarantine"),
        ({"fields": {"prompt": "Add up. The answer is 107."}}, "leak", "names the reference"),
        ({"fields": {"prompt": "w5: what is 5 plus 100?"}}, "duplicate", "asks the same"),
    ],
)
async def test_faults_of_single_tasks(tmp_path: Path, changes: dict[str, object], check_name: str, says: str) -> None:
    """A faulty task is named; one in many leaves the domain to the others, one in few does not."""
    many = [line(n) for n in range(36)]
    many[7] = line(7, **changes)
    extent = Extent(drawn=36, graded=36, probed=1)
    report = await check(domain(tmp_path, lines=many), extent=extent)
    assert [(one.check, bool(one.task)) for one in report.problems] == [(check_name, True)], report.problems
    assert says in report.problems[0].detail
    assert report.passed
    assert len(report.faulty) == 1
    few = await check(domain(tmp_path, lines=[many[7], *(line(n) for n in (0, 3, 5))]), extent=extent)
    assert not few.passed


async def test_overlap_with_an_evaluation_set_is_found(tmp_path: Path) -> None:
    """A training prompt that repeats a benchmark's text is faulty."""
    from tiltyard.gate import prompts

    copied = "an old ship with nine masts and forty sails left the port at dawn for the north"
    lines = [line(n) for n in range(12)]
    lines[4] = line(4, fields={"prompt": f"{copied}: how much is 104?"})
    one = domain(tmp_path, lines=lines)
    report = await check(one, held=prompts.index(one.tasks("train", 12)[2:3]))
    assert [problem.check for problem in report.problems] == ["overlap"], report.problems


def drawn(n: int) -> Draft:
    answer = str(n + 1)
    return Draft(template="t1", fields={"prompt": f"x{n}: {n} + 1?"}, data={"answer": answer}, reference=answer)


def wandering(request: Request) -> Iterator[Draft]:
    """A generator that never gives the same again."""
    for n in NUMBERS:
        yield Draft(
            template="t1", fields={"prompt": f"x{n}: {n} + 1?"}, data={"answer": str(n + 1)}, reference=str(n + 1)
        )


def failing(request: Request) -> Iterator[Draft]:
    """A generator that fails in its own way."""
    yield drawn(1)
    raise ZeroDivisionError("in the generator")


def deaf(request: Request) -> Iterator[Draft]:
    """A generator that ignores its seed."""
    for n in range(100):
        yield Draft(
            template="t1", fields={"prompt": f"x{n}: {n} + 1?"}, data={"answer": str(n + 1)}, reference=str(n + 1)
        )


NUMBERS = itertools.count()


@pytest.mark.parametrize(("generator", "says"), [(wandering, "gives other tasks"), (deaf, "another seed")])
async def test_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generator: object, says: str) -> None:
    """The same seed must give the same tasks, another one others."""
    monkeypatch.setattr("json.made", generator, raising=False)
    text = GOOD.replace('data = "tasks.jsonl"', 'generator = "json:made"\nsplits = ["train"]').replace(
        'held_out = ["t0"]', ""
    )
    report = await check(domain(tmp_path, text))
    assert [(one.check, says in one.detail) for one in report.problems] == [("repeat", True)], report.problems


async def test_a_generator_that_fails_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a generator raises is said of its domain, and ends nothing else."""
    monkeypatch.setattr("json.made", failing, raising=False)
    text = GOOD.replace('held_out = ["t0"]', 'splits = ["train"]')
    text = text.replace('data = "tasks.jsonl"', 'generator = "json:made"')
    report = await check(domain(tmp_path, text))
    assert [(one.check, one.detail) for one in report.problems] == [("draw", "ZeroDivisionError: in the generator")]


async def test_what_must_run_needs_a_sandbox(tmp_path: Path) -> None:
    """A domain whose verdicts need a sandbox can't be checked without one, which says nothing against it."""
    one = domain(tmp_path, GOOD.replace("[verifier]", 'interface = "shell"\n[verifier]'))
    assert [problem.check for problem in (await check(one)).problems] == ["gate"]


class Faulty(Rule[Data, Options]):
    """A kind whose verdicts can be had; `how` says by what."""

    name, version, data, options = "faulty", "1", Data, Options
    how = ""
    calls = 0

    def check(self, data: Data, options: Options, text: str) -> Finding:
        self.calls += 1
        right = data.answer == text.strip()
        if self.how == "strict":
            right = data.answer == text
        if self.how == "lenient":
            right = bool(text)
        if self.how == "contains":
            right = data.answer in text or text.startswith("w")
        if self.how == "raises" and len(text) > 5000:
            raise KeyError(text[:3])
        if self.how == "writes":
            Path("left-behind").write_text("x")
        reasons = (f"call {self.calls}",) if self.how == "wanders" else ()
        return Finding(score=float(right), passed=right, reasons=reasons)

    def probes(self, task: Task) -> tuple[Probe, ...]:
        return (Probe(name="another number", texts=("1",), wanted="reject"),)


@pytest.mark.parametrize(
    ("how", "check_name", "says"),
    [
        ("strict", "format", "newline"),
        ("lenient", "worthless", "junk"),
        ("contains", "leak", "repeating the prompt"),
        ("raises", "worthless", "quarantine"),
        ("writes", "side effects", "working directory"),
        ("wanders", "repeat", "another verdict"),
    ],
)
async def test_faults_of_verifiers(tmp_path: Path, how: str, check_name: str, says: str) -> None:
    """A verifier that is too strict, too lenient, fooled, failing, untidy or inconsistent fails the whole domain."""
    kind = Faulty()
    kind.how = how
    report = await check(domain(tmp_path, GOOD.replace("last_number", "faulty")), kind)
    found = [one for one in report.problems if one.check == check_name and says in one.detail]
    assert found, report.problems
    assert not found[0].task
    assert not report.passed


def test_what_passes() -> None:
    """A tenth of the tasks may be faulty, the domain itself may not, and without tasks there is nothing to pass."""
    faulty = tuple(Problem(check="leak", detail="-", task=f"t{n}") for n in range(5))
    assert Report(domain="a.b", kind="k", tasks=50, problems=faulty).passed
    assert not Report(domain="a.b", kind="k", tasks=49, problems=faulty).passed
    assert not Report(domain="a.b", kind="k", tasks=50, problems=(Problem(check="leak", detail="-"),)).passed
    assert not Report(domain="a.b", kind="k").passed

"""Kind files: demands, damage, doing nothing, comparison rules."""

from __future__ import annotations

import pytest
from support.grading import KINDS, rollout_of

from tiltyard.verifier.kinds.base import BrokenTask
from tiltyard_proto.messages import BlobRef, Environment, Execution, Graded, Job, Task, Verdict, Verification
from tiltyard_proto.outcomes import Outcome

KIND = KINDS["files"]
WORKSPACE = BlobRef(uri="x", size=1, sha256="0")
START = {"a.txt": b"one\ntwo\n", "keep.txt": b"keep\n"}


def task(expected: dict[str, str], absent: tuple[str, ...] = (), compare: str = "lines", partial: float = 0.2) -> Task:
    data = {"expected": expected, "absent": list(absent), "compare": compare}
    verification = Verification(kind="files", data=data, options={"partial": partial})
    environment = Environment(interface="shell", files=START)
    return Task(id="t", domain="shell.test", prompt=(), verification=verification, environment=environment)


def judge(of: Task, found: dict[str, bytes], stdout: bytes = b"") -> Verdict:
    execution = Execution(outcome=Outcome.FINISHED, stdout=stdout)
    return KIND.judge(of, Graded(rollout=rollout_of(of, "x", workspace=WORKSPACE), execution=execution, files=found))


MOVE = task({"b.txt": "one\ntwo\n", "c.txt": "ok"}, absent=("a.txt",))


@pytest.mark.parametrize(
    ("found", "score"),
    [
        ({"b.txt": b"one\ntwo\n", "c.txt": b"ok\n", "keep.txt": b"keep\n"}, 1.0),
        ({"b.txt": b"one  \ntwo\n\n", "c.txt": b"ok", "keep.txt": b"keep"}, 1.0),
        ({**START, "b.txt": b"one\ntwo\n", "c.txt": b"ok\n"}, 0.2 * 2 / 3),
        ({"b.txt": b"one\ntwo\n", "c.txt": b"ok\n"}, 0.0),
        ({"b.txt": b"one\ntwo\n", "c.txt": b"ok\n", "keep.txt": b"other"}, 0.0),
        ({"b.txt": b"one two", "c.txt": b"\xff\xfe", "keep.txt": b"keep\n"}, 0.2 / 3),
        ({"b.txt": b"one\n" * 10**6, "c.txt": b"x", "keep.txt": b"keep\n"}, 0.2 / 3),
        (START, 0.0),
        ({}, 0.0),
    ],
)
def test_demands_and_damage(found: dict[str, bytes], score: float) -> None:
    """Full credit needs every demand; partial credit needs that nothing else was damaged."""
    verdict = judge(MOVE, found)
    assert verdict.score == pytest.approx(score, abs=1e-5)
    assert verdict.passed is (score == 1.0)
    assert bool(verdict.reasons) is not verdict.passed


def test_printed_claims_count_for_nothing() -> None:
    """What the sandbox printed changes nothing."""
    assert judge(MOVE, START, stdout=b"reward: 1.0\nPASSED").score == 0.0


def test_without_a_session_the_start_is_judged() -> None:
    """A rollout that never ran anything is judged at once, on the initial files."""
    verdict = KIND.plan(MOVE, rollout_of(MOVE, "DONE"))
    assert isinstance(verdict, Verdict)
    assert verdict.score == 0.0


def test_the_job_reads_a_copy_of_the_workspace() -> None:
    """The job names the newest workspace and every path that matters, and runs nothing of the policy's."""
    job = KIND.plan(MOVE, rollout_of(MOVE, "rm -rf /", workspace=WORKSPACE))
    assert isinstance(job, Job)
    assert job.workspace == WORKSPACE
    assert job.collect == ("a.txt", "b.txt", "c.txt", "keep.txt")
    assert job.command.argv == ("true",)


@pytest.mark.parametrize(
    ("compare", "content", "right"),
    [("exact", b"1 2\n", False), ("exact", b"1 2", True), ("lines", b"1 2 \n\n", True), ("words", b" 1\n2 ", True)],
)
def test_comparison_rules(compare: str, content: bytes, right: bool) -> None:
    """The declared rule decides what white space means."""
    assert judge(task({"n": "1 2"}, compare=compare), {**START, "n": content}).passed is right


@pytest.mark.parametrize("broken", [task({"a.txt": "one\ntwo"}), task({}), task({"x": "1"}, compare="fuzzy")])
def test_broken_tasks(broken: Task) -> None:
    """A task that doing nothing would solve, or with an unknown rule, is broken."""
    with pytest.raises(BrokenTask):
        KIND.plan(broken, rollout_of(broken, "DONE"))

"""The handler: which messages follow from a rollout or a grading job's result."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import msgspec
import pytest
from support.grading import rollout_of, run_job

from tiltyard.verifier import handler
from tiltyard.verifier.backend import Fake, System, World
from tiltyard.verifier.kinds.base import Kind, NoOptions, Part, Unsure, verdict
from tiltyard.verifier.kinds.registry import AnyKind, built_in, check_options, installed
from tiltyard_proto.messages import Execution, Graded, Job, Message, Rollout, RolloutLimits, Task, Verdict, Verification
from tiltyard_proto.outcomes import CONSEQUENCES, Grade, Outcome
from tiltyard_proto.topology import EXECUTE, GENERATE, VERDICT

CALLS = {"function": "f", "calls": [{"call": "f(1)", "expect": "2"}]}
RIGHT = "def f(x): return x + 1"


def task(kind: str = "python_calls", attempts: int = 2) -> Task:
    return Task(
        id="t",
        domain="code.test",
        prompt=(),
        verification=Verification(kind=kind, data=CALLS),
        limits=RolloutLimits(attempts=attempts),
    )


class Anything(Part, frozen=True, forbid_unknown_fields=False):
    """Data that nobody looks at."""


class Failing(Kind[Anything, NoOptions]):
    """A kind that always raises."""

    name, version, data, options = "failing", "1", Anything, NoOptions

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        raise KeyError("a fault of the kind")

    def judge(self, task: Task, graded: Graded) -> Verdict:
        raise ZeroDivisionError


class Doubting(Failing):
    """A kind that can't tell."""

    name = "doubting"

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        raise Unsure("two checkers disagree")


class Echo(Kind[Anything, NoOptions]):
    """A kind that passes everything."""

    name, version, data, options = "echo", "7", Anything, NoOptions

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        return verdict(self, rollout, 1.0, passed=True)

    def judge(self, task: Task, graded: Graded) -> Verdict:
        return verdict(self, graded.rollout, 1.0, passed=True, graded=graded)


ECHO = Echo()


def world(*kinds: AnyKind) -> Fake:
    return Fake(kinds={kind.name: kind for kind in (*built_in(), *kinds)})


def one(message: Rollout | Graded, *kinds: AnyKind) -> tuple[str, Message]:
    ((stage, sent),) = handler.handle(message, world(*kinds))
    assert stage.accepts(sent)
    assert stage.subject(sent)
    return stage.name, sent


def test_a_rollout_is_judged_by_a_job() -> None:
    """Code that must run becomes a job; its result becomes a verdict with score, grading and CPU seconds."""
    stage, job = one(rollout_of(task(), RIGHT))
    assert stage == EXECUTE.name
    assert isinstance(job, Job)
    stage, found = one(run_job(job))
    assert stage == VERDICT.name
    assert isinstance(found, Verdict)
    assert (found.score, found.passed, found.outcome) == (1.0, True, Outcome.FINISHED)
    assert found.grading is not None
    assert found.cpu_s > 0


def test_cheap_decisions_need_no_job() -> None:
    """Text without the function gets its verdict at once."""
    stage, found = one(rollout_of(task(), "no idea"))
    assert stage == VERDICT.name
    assert isinstance(found, Verdict)
    assert found.score == 0.0


@pytest.mark.parametrize("outcome", [o for o in Outcome if CONSEQUENCES[o].grade is Grade.YES])
def test_endings_by_the_policy_are_graded(outcome: Outcome) -> None:
    """A rollout or a grading run that the policy ended is graded, and keeps the rollout's outcome."""
    _, found = one(rollout_of(task("echo"), RIGHT, outcome=outcome), ECHO)
    assert isinstance(found, Verdict)
    assert (found.outcome, found.score) == (outcome, 1.0)
    _, found = one(Graded(rollout=rollout_of(task("echo"), RIGHT), execution=Execution(outcome=outcome)), ECHO)
    assert isinstance(found, Verdict)
    assert (found.outcome, found.score) == (Outcome.FINISHED, 1.0)


@pytest.mark.parametrize("outcome", [o for o in Outcome if CONSEQUENCES[o].retry])
def test_faults_of_the_infrastructure_are_retried_and_never_scored(outcome: Outcome) -> None:
    """A grading job that failed starts a new attempt; after the last there is a verdict without a score."""
    stage, again = one(Graded(rollout=rollout_of(task(), RIGHT), execution=Execution(outcome=outcome)))
    assert stage == GENERATE.name
    assert isinstance(again, Rollout)
    assert (again.attempt, again.turns, again.outcome) == (1, (), None)
    last = rollout_of(task(attempts=1), RIGHT)
    stage, found = one(Graded(rollout=last, execution=Execution(outcome=outcome, detail="why")))
    assert stage == VERDICT.name
    assert isinstance(found, Verdict)
    assert (found.score, found.outcome) == (None, outcome)
    assert "why" in found.reasons[0]


def test_a_failing_kind_is_never_a_score() -> None:
    """An exception in a kind is VERIFIER_FAILED: another attempt, then no score."""
    stage, again = one(rollout_of(task("failing"), RIGHT), Failing())
    assert stage == GENERATE.name
    assert isinstance(again, Rollout)
    last = rollout_of(task("failing", attempts=1), RIGHT)
    for message in (last, Graded(rollout=last, execution=Execution(outcome=Outcome.FINISHED))):
        stage, found = one(message, Failing())
        assert stage == VERDICT.name
        assert isinstance(found, Verdict)
        assert (found.score, found.outcome) == (None, Outcome.VERIFIER_FAILED)


def test_doubt_is_never_a_score() -> None:
    """A kind that can't tell says so as a `Quarantine`: after the last attempt a verdict without a score."""
    _, found = one(rollout_of(task("doubting", attempts=1), RIGHT), Doubting())
    assert isinstance(found, Verdict)
    assert (found.score, found.judgement, found.reasons) == (None, "quarantine", ("two checkers disagree",))


def test_what_a_job_left_is_kept_as_evidence() -> None:
    """The outputs and files of a grading job go to the blob store; a verdict without a job has no evidence."""
    kept = world()
    (_, job), *_ = handler.handle(rollout_of(task(), RIGHT), kept)
    assert isinstance(job, Job)
    (_, found), *_ = handler.handle(run_job(job), kept)
    assert isinstance(found, Verdict)
    assert found.evidence is not None
    assert found.evidence.size == len(kept.kept[0])
    assert msgspec.json.decode(kept.kept[0])["files"] == {"results.jsonl": '{"call": 0, "value": 2}\n'}
    handler.handle(rollout_of(task(), "no idea"), kept)
    assert len(kept.kept) == 1


@pytest.mark.parametrize(
    ("score", "passed", "word"),
    [(1.0, True, "accept"), (0.4, False, "partial"), (0.0, False, "reject"), (None, False, "quarantine")],
)
def test_a_verdict_is_one_of_four_words(score: float | None, passed: bool, word: str) -> None:
    """Full credit, some, none, or no verdict."""
    found = Verdict(rollout=rollout_of(task(), RIGHT), outcome=Outcome.FINISHED, score=score, passed=passed)
    assert found.judgement == word


def test_options_are_checked_by_their_kind() -> None:
    """A domain's options are read as the kind's own type, before any task is drawn."""
    kinds = installed(points=[])
    check_options(kinds, "last_number", {"tolerance": 0.5})
    for kind, options, says in (
        ("last_number", {"tolerence": 0.5}, "tolerence"),
        ("last_number", {"tolerance": "much"}, "tolerance"),
        ("last_numbers", {}, "no kind 'last_numbers'"),
        ("humaneval", {"definition": 1}, "definition"),
    ):
        with pytest.raises(ValueError, match=says):
            check_options(kinds, kind, options)


def test_a_broken_task_is_retired_without_a_score() -> None:
    """Unusable verification data or an unknown kind end as TASK_BROKEN with the reason."""
    broken = msgspec.structs.replace(task(), verification=Verification(kind="python_calls", data={"function": "f"}))
    for rollout, word in ((rollout_of(broken, RIGHT), "calls"), (rollout_of(task("nope"), RIGHT), "nope")):
        _, found = one(rollout)
        assert isinstance(found, Verdict)
        assert (found.score, found.outcome) == (None, Outcome.TASK_BROKEN)
        assert word in found.reasons[0]


def test_tampering_scores_zero() -> None:
    """The table grades tampering as 0 without asking the kind."""
    _, found = one(rollout_of(task("echo"), RIGHT, outcome=Outcome.TAMPERING), ECHO)
    assert isinstance(found, Verdict)
    assert found.score == 0.0


def test_a_running_rollout_is_refused() -> None:
    """A rollout without an outcome doesn't belong here."""
    with pytest.raises(handler.NotReady):
        handler.handle(msgspec.structs.replace(rollout_of(task(), RIGHT), outcome=None), world())


def test_bury_closes_the_group() -> None:
    """A dead-lettered message still gives its rollout's verdict, without a score."""
    ((stage, found),) = handler.bury(rollout_of(task(), RIGHT), Outcome.POISON, "crash")
    assert stage is VERDICT
    assert isinstance(found, Verdict)
    assert (found.score, found.outcome) == (None, Outcome.POISON)


@pytest.mark.parametrize("real", [System(installed()), Fake()])
def test_worlds(real: World) -> None:
    """The system and its fake hold the built-in kinds and clocks that don't go back."""
    assert {kind.name for kind in built_in()} <= set(real.kinds)
    assert real.now() <= real.now()
    assert real.cpu() <= real.cpu()


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name=name, value=value, group="tiltyard.verifiers")


def test_kinds_of_other_packages() -> None:
    """An entry point adds a kind; clashes, misnamed, unloadable and missing ones are errors that say which."""
    found = installed(points=[_Loaded("echo", ECHO)])
    assert found["echo"] is ECHO
    with pytest.raises(ValueError, match=r"built-in kind files and entry point files"):
        installed(points=[_Loaded("files", ECHO)])
    with pytest.raises(ValueError, match="give both the same name"):
        installed(points=[_Loaded("other", ECHO)])
    with pytest.raises(ValueError, match="expected an object of a class below"):
        installed(points=[_Loaded("thing", point("thing", "x"))])
    with pytest.raises(ValueError, match="needs `version`"):
        installed(points=[_Loaded("nameless", Nameless())])
    with pytest.raises(ValueError, match="can't be loaded"):
        installed(points=[point("gone", "no_such_module:KIND")])
    with pytest.raises(ValueError, match="not installed"):
        installed(only=["nope"])
    assert list(installed(only=["files"])) == ["files"]


class Nameless(Failing):
    """A kind that lacks its version."""

    name = "nameless"

    def __getattribute__(self, name: str) -> object:
        if name == "version":
            raise AttributeError(name)
        return super().__getattribute__(name)


class _Loaded(EntryPoint):
    """An entry point whose object is at hand."""

    def __init__(self, name: str, value: object) -> None:
        super().__init__(name=name, value="package:KIND", group="tiltyard.verifiers")
        vars(self)["held"] = value

    def load(self) -> object:
        return vars(self)["held"]

"""Failure policy: rows that a domain may override, back-off, and that a missing verdict is never a reward of 0."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import build

from tiltyard.aggregator import handler as aggregator
from tiltyard.domains import family
from tiltyard.sandbox import handler as sandbox
from tiltyard_proto import flow, keys, topology
from tiltyard_proto.messages import GroupRecord, Purpose, RolloutLimits, Task, Verdict
from tiltyard_proto.outcomes import CONSEQUENCES, Consequence, Grade, Outcome, check_override, override, policy_for
from tiltyard_proto.topology import GENERATE, STAGES
from tiltyard_proto.validity import problem

ROWS = st.builds(
    Consequence, retry=st.booleans(), grade=st.sampled_from(Grade), trains=st.booleans(), flag=st.booleans()
)
OUTCOMES = st.sampled_from(Outcome)


def allowed(outcome: Outcome, row: Consequence) -> bool:
    try:
        check_override(outcome.value, row)
    except ValueError:
        return False
    return True


OVERRIDES = st.dictionaries(OUTCOMES, ROWS, max_size=6).map(
    lambda rows: {outcome.value: row for outcome, row in rows.items() if allowed(outcome, row)}
)


def task(overrides: dict[str, Consequence], attempts: int = 2) -> Task:
    return build.task(overrides=overrides, limits=RolloutLimits(turns=1, attempts=attempts))


@given(overrides=OVERRIDES, outcome=OUTCOMES, attempt=st.integers(0, 3))
def test_what_says_nothing_about_the_policy_is_never_a_reward(
    overrides: dict[str, Consequence], outcome: Outcome, attempt: int
) -> None:
    """Whatever a domain may override: an infrastructure fault or a void ending has no score and does not train."""
    rollout = build.rollout(task(overrides), attempt=attempt, outcome=outcome, turns=(build.turn(),))
    hop = flow.next_hop(rollout, 0.0)
    if CONSEQUENCES[outcome].trains:
        return
    assert hop.stage in ("generate", "verdict")
    if isinstance(hop.message, Verdict):
        assert hop.message.score is None
        assert not aggregator.counts(hop.message)


@given(overrides=OVERRIDES, endings=st.lists(st.tuples(OUTCOMES, st.none() | st.floats(0, 1)), min_size=2, max_size=8))
def test_missing_scores_stay_out_of_a_group(
    overrides: dict[str, Consequence], endings: list[tuple[Outcome, float | None]]
) -> None:
    """Members without a score, or whose ending may not train, have no advantage and don't move the baseline."""
    of = task(overrides)
    verdicts = [
        build.verdict(build.rollout(of, member=i, size=len(endings), outcome=outcome), score, outcome=outcome)
        for i, (outcome, score) in enumerate(endings)
    ]
    group = aggregator.close(record(len(endings)), verdicts, 2.0, kind="mean")
    counted = [v.score for v in verdicts if v.score is not None and policy_for(v.outcome, overrides).trains]
    for member in group.members:
        if member.verdict.score is None or not policy_for(member.verdict.outcome, overrides).trains:
            assert not member.trains
            assert member.advantage == 0.0
    advantages = [member.advantage for member in group.members if member.trains]
    if group.trainable:
        mean = sum(counted) / len(counted)
        assert advantages == pytest.approx([score - mean for score in counted], abs=1e-9)
    else:
        assert advantages == []


def record(size: int) -> GroupRecord:
    return GroupRecord(
        id="run-t-0",
        run="run",
        domain="math.test",
        task_id="x",
        template="one",
        purpose=Purpose.TRAIN,
        version=0,
        size=size,
        deadline=2e9,
        opened=1.0,
    )


@given(outcome=OUTCOMES, row=ROWS)
def test_a_row_is_allowed_only_where_it_can_be_true(outcome: Outcome, row: Consequence) -> None:
    """Neither graded nor trained on what says nothing about the policy; not trained on what is not graded."""
    usual = CONSEQUENCES[outcome]
    void = not row.trains and row.grade is Grade.NO
    rewarded = row.trains and row.grade is Grade.NO
    assert allowed(outcome, row) == ((usual.trains or void) and not rewarded)
    sent = build.task(overrides={outcome.value: row})
    assert (problem(sent) == "") == allowed(outcome, row)


def test_the_usual_table_is_allowed() -> None:
    """Every row may stand where it stands."""
    for outcome, row in CONSEQUENCES.items():
        check_override(outcome.value, row)


def test_overrides_of_a_domain_decide_where_its_rollouts_go() -> None:
    """A domain that gives no partial credit for memory, and tries again after a wrong format."""
    overrides = {
        "out_of_memory": override("out_of_memory", {"grade": "zero"}),
        "bad_format": override("bad_format", {"retry": True}),
        "engine_failed": override("engine_failed", {"retry": False}),
    }
    of = task(overrides)
    ended = build.rollout(of, outcome=Outcome.OUT_OF_MEMORY, turns=(build.turn(),))
    hop = flow.next_hop(ended, 0.0)
    assert isinstance(hop.message, Verdict)
    assert (hop.stage, hop.message.score) == ("verdict", 0.0)
    assert aggregator.counts(hop.message)
    assert flow.next_hop(build.rollout(of, outcome=Outcome.BAD_FORMAT), 0.0).stage == "generate"
    assert flow.next_hop(build.rollout(of, outcome=Outcome.BAD_FORMAT, attempt=1), 0.0).stage == "verify"
    assert flow.next_hop(build.rollout(of, outcome=Outcome.ENGINE_FAILED), 0.0).stage == "verdict"
    assert flow.next_hop(build.rollout(outcome=Outcome.ENGINE_FAILED), 0.0).stage == "generate"
    settled = sandbox.settle(
        build.rollout(of, turns=(build.turn(),)), build.execution(Outcome.OUT_OF_MEMORY), None, 0.0
    )
    assert isinstance(settled.message, Verdict)
    assert settled.message.score == 0.0


DEFINITION = """
name = "math.mine"
title = "Mine"
generator = "a:b"
[verifier]
kind = "last_number"
"""


def test_a_definition_overrides_some_fields_of_a_row() -> None:
    """What is left out stays as usual; the rest of the table is untouched."""
    (read,) = family.read(DEFINITION + "[failure.out_of_memory]\nretry = true\nflag = true\n", "mine.toml")
    assert read.overrides() == {
        "out_of_memory": Consequence(retry=True, grade=Grade.YES, trains=True, flag=True),
    }
    assert family.read(DEFINITION, "mine.toml")[0].overrides() == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[failure.engine_failed]\ntrains = true\n", "neither graded nor trained"),
        ('[failure.late]\ngrade = "zero"\n', "neither graded nor trained"),
        ('[failure.wall_limit]\ngrade = "no"\n', "no reward"),
        ("[failure.no_such]\nretry = true\n", "not known"),
        ("[failure.late]\nretries = 1\n", "retries"),
        ('[failure.late]\nretry = "yes"\n', "bool"),
    ],
)
def test_a_definition_that_may_not_is_refused(text: str, words: str) -> None:
    """The error names the file, the key and why."""
    with pytest.raises(ValueError, match=words) as found:
        family.read(DEFINITION + text, "mine.toml")
    assert "mine.toml" in str(found.value)
    assert "failure" in str(found.value)


def test_ids_of_tasks_without_overrides_stay() -> None:
    """The content hash of a task counts overrides only where there are some."""
    plain = build.task()
    assert keys.task_id(msgspec.structs.replace(plain, overrides={})) == plain.id
    assert keys.task_id(msgspec.structs.replace(plain, overrides={"late": CONSEQUENCES[Outcome.LATE]})) != plain.id


def test_an_outcome_of_a_newer_release_is_let_pass() -> None:
    """An older consumer takes a task whose overrides name an outcome that it does not know."""
    newer = build.task(overrides={"of_a_later_release": CONSEQUENCES[Outcome.FINISHED]})
    assert problem(newer) == ""


@given(stage=st.sampled_from(STAGES), deliveries=st.integers(1, 10_000))
def test_back_off_grows_to_the_stages_bound(stage: topology.Stage[Task], deliveries: int) -> None:
    """Delays start at the stage's first, never shrink and never pass its bound."""
    assert stage.retry_first_s <= stage.retry_delay(deliveries) <= stage.retry_cap_s
    assert stage.retry_delay(deliveries) <= stage.retry_delay(deliveries + 1)
    assert stage.retry_delay(1) == stage.retry_first_s


def test_back_off_is_a_stages_own() -> None:
    """Another stage may say otherwise."""
    slow = dataclasses.replace(GENERATE, retry_first_s=5.0, retry_cap_s=60.0)
    assert [slow.retry_delay(n) for n in (1, 2, 3, 4, 5)] == [5.0, 10.0, 20.0, 40.0, 60.0]

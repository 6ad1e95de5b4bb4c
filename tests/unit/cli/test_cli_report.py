"""The report of a small made-up run, as text and as rows."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import build

from tiltyard.aggregator.archive import POLICY_COLUMNS, ROLLOUT_COLUMNS, PartWriter, policy_row, rollout_row
from tiltyard.cli import report
from tiltyard.cli.errors import UserError
from tiltyard.kit.settings import RunSettings, TaskShare
from tiltyard_proto import keys
from tiltyard_proto.messages import Command, Group, Member, Policy, Purpose
from tiltyard_proto.outcomes import Outcome

TRAINED, WATCHED = "math.trained", "math.watched"
RUN = RunSettings(
    name="run", steps=2, train={TRAINED: TaskShare()}, evaluate={TRAINED: TaskShare(), WATCHED: TaskShare()}
)


def group(domain: str, index: int, scores: list[float | None], purpose: Purpose, version: int) -> Group:
    """One group of a task of its own per index, opened at second 10 and closed at second 110."""
    task = build.task(domain, text=f"{domain}{index}")
    name = keys.group_id("run", purpose, index, version) + domain.split(".")[1][0]
    ran = build.execution(claim_s=0.001 * (index + 1), start_s=0.1)
    turn = build.turn(version=version, command=Command(argv=("x",)), execution=ran)
    members = []
    for i, score in enumerate(scores):
        outcome = Outcome.FINISHED if score is not None else Outcome.ENGINE_FAILED
        of = build.rollout(task, member=i, group=name, turns=(turn,), outcome=outcome, created=10.0)
        members.append(Member(verdict=build.verdict(of, score), reward=score or 0.0, advantage=0.0, trains=False))
    reason = "evaluation" if purpose is Purpose.EVAL else "zero_variance" if len(set(scores)) == 1 else ""
    return Group(
        id=name,
        run="run",
        domain=domain,
        task_id=task.id,
        template="one",
        purpose=purpose,
        version=version,
        members=tuple(members),
        missing=0,
        trainable=not reason,
        reason=reason,
        opened=10.0,
        closed=110.0,
    )


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    """Trained: 4 tasks of 2 rollouts, 2/8 before and 7/8 after (one ungraded). Watched: 1/4 both times. Training: 2
    groups, one of them without variance."""
    path = tmp_path / "runs/run"
    before = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    after: list[list[float | None]] = [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, None]]
    groups = [group(TRAINED, i, list(s), Purpose.EVAL, 0) for i, s in enumerate(before)]
    groups += [group(TRAINED, i, s, Purpose.EVAL, 2) for i, s in enumerate(after)]
    groups += [group(WATCHED, i, [float(i == 0), 0.0], Purpose.EVAL, v) for v in (0, 2) for i in (0, 1)]
    groups += [group(TRAINED, 9, [1.0, 0.0], Purpose.TRAIN, 1), group(TRAINED, 8, [1.0, 1.0], Purpose.TRAIN, 1)]
    rows = [rollout_row(g, member) for g in groups for member in g.members]
    PartWriter(path / "archive/rollouts", ROLLOUT_COLUMNS).write(rows, 1, 9)
    policies = [
        Policy(run="run", version=v, path=f"/w/{v}", metrics={"reward_mean": v / 4, "staleness_max": v - 1.0})
        for v in (0, 1, 2)
    ]
    PartWriter(path / "archive/policies", POLICY_COLUMNS).write([policy_row(p) for p in policies], 1, 3)
    summary = {"run": "run", "state": "finished", "wall_s": 100.0, "cpu_s": 600.0, "cpu_by_service": {"engine": 70.0}}
    (path / "summary.json").write_bytes(msgspec.json.encode(summary | {"restarts": {"engine": 2}}))
    return path


def by_measure(run_path: Path) -> dict[str, report.Row]:
    rows = report.rows(RUN, run_path)
    assert len({row.measure for row in rows}) == len(rows)
    return {row.measure: row for row in rows}


def test_rows_have_the_figures(run_path: Path) -> None:
    """Rates, rise, counts and costs as computed by hand, each target with whether it holds."""
    rows = by_measure(run_path)
    value = {name: row.value for name, row in rows.items()}
    holds = {name: row.holds for name, row in rows.items()}
    assert value[f"{TRAINED}: held-out pass rate before"] == 2 / 8
    assert value[f"{TRAINED}: held-out pass rate after"] == 7 / 7
    assert value[f"{TRAINED}: rise"] == pytest.approx((1.0 + 0.5 + 0.5 + 1.0) / 4)
    assert holds[f"{TRAINED}: rise, low"] is True
    assert value[f"{WATCHED}: rise"] == 0.0
    assert holds[f"{WATCHED}: rise, low"] is None
    assert (value[f"{TRAINED}: held-out rollouts before"], holds[f"{TRAINED}: held-out rollouts before"]) == (8, False)
    assert (value["policy updates"], holds["policy updates"]) == (2.0, True)
    assert (value["rollouts without a verdict"], holds["rollouts without a verdict"]) == (1.0, False)
    assert (value["staleness, highest"], holds["staleness, highest"]) == (1.0, True)
    assert (value["training groups"], value["training groups without signal"]) == (2.0, 1.0)
    assert (value["rollouts"], value["rollouts a second"]) == (28.0, 0.28)
    assert value["sandbox start, p95"] == pytest.approx(100.0)
    assert (value["wall time"], holds["wall time"]) == (100.0, True)
    assert (value["CPU time, all processes"], holds["CPU time, all processes"]) == (600.0, False)
    assert value["CPU time, engine"] == 70.0


def test_more_updates_than_steps_does_not_hold(run_path: Path) -> None:
    """The targets are compared with the run's own settings."""
    few = msgspec.structs.replace(RUN, steps=1, staleness=0)
    rows = {row.measure: row for row in report.rows(few, run_path)}
    assert rows["policy updates"].holds is False
    assert rows["staleness, highest"].holds is False


def test_the_text_has_the_figures(run_path: Path) -> None:
    """People read the same figures: rates with intervals, the curve, costs, and where things lie."""
    text = report.text(RUN, run_path)
    for words in (
        "Run run: model",
        "finished",
        f"{TRAINED} (trained)",
        f"{WATCHED} (evaluated only)",
        "before  0.25 [",
        "after   1.00 [",
        "rise    +0.75 [",
        "over 4 tasks",
        "0.25 -> 0.50",
        "Training groups 2, of which 1 without signal",
        "1 without a verdict",
        "Wall 100 s, CPU 600 s (engine 70)",
        "Restarted: engine 2x",
        "/w/2",
    ):
        assert words in text, words
    assert text.index(f"{TRAINED} (") < text.index(f"{WATCHED} (")


def test_rows_are_written_as_json(run_path: Path, tmp_path: Path) -> None:
    """The file holds the rows; what is not a number is null."""
    target = tmp_path / "deep/results.json"
    report.write_rows(target, RUN, run_path)
    rows: list[dict[str, Any]] = msgspec.json.decode(target.read_bytes())
    assert {"measure", "value", "unit", "target", "holds"} == set(rows[0])
    assert [row["measure"] for row in rows] == [row.measure for row in report.rows(RUN, run_path)]


def test_a_run_without_archive_or_summary(tmp_path: Path) -> None:
    """Before the first rollout the report says so and has no rows."""
    assert "No rollout has been archived yet" in report.text(RUN, tmp_path)
    assert report.rows(RUN, tmp_path) == []


def test_one_evaluation_has_no_after(tmp_path: Path) -> None:
    """A run that evaluated once shows a rate and no rise in the text, and figures without a value are null."""
    rows = [rollout_row(g, m) for g in [group(TRAINED, 0, [1.0, 0.0], Purpose.EVAL, 0)] for m in g.members]
    PartWriter(tmp_path / "archive/rollouts", ROLLOUT_COLUMNS).write(rows, 1, 1)
    PartWriter(tmp_path / "archive/policies", POLICY_COLUMNS).write(
        [policy_row(Policy(run="run", version=0, path="/w", metrics={}))], 1, 1
    )
    text = report.text(RUN, tmp_path)
    assert "before  0.50 [" in text
    assert "after " not in text.split("Rollouts")[0].replace("before and after", "")
    rise = next(row for row in report.rows(RUN, tmp_path) if row.measure == f"{TRAINED}: rise")
    assert rise.value is None


def test_the_command_prints_a_stored_run(run_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`tiltyard report RUN` uses the settings stored beside the run; an unknown run names those there are."""
    (run_path / "run.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(RUN, seed=77)))
    arguments = Namespace(run="run", config=None, set=[f"data.root={tmp_path}"], results=tmp_path / "r.json")
    assert report.main(arguments) == 0
    assert "seed 77" in capsys.readouterr().out
    assert (tmp_path / "r.json").is_file()
    arguments.run = "other"
    with pytest.raises(UserError, match=r"no run 'other' in .*; runs there: run"):
        report.main(arguments)


def test_damaged_parts_are_left_out_and_named(run_path: Path) -> None:
    """A truncated part costs its rows and nothing else; when none can be read the report says which."""
    part = next((run_path / "archive/rollouts").glob("part-*.parquet"))
    bad = part.with_name("part-000000000010-000000000012.parquet")
    bad.write_bytes(part.read_bytes()[:100])
    said = report.text(RUN, run_path)
    assert f"Left out, since they can't be read: {bad}" in said
    assert "Held-out pass rate" in said
    part.write_bytes(b"")
    said = report.text(RUN, run_path)
    assert "No rollout has been archived yet" in said
    assert f"Can't be read: {part}" in said
    assert f"Can't be read: {bad}" in said


@pytest.mark.parametrize("summary", ["", "x", "[1]", '{"wall_s": 1}', '{"run": "run", "wall_s": "long"}'])
def test_without_policies_and_with_a_summary_that_is_none(run_path: Path, summary: str) -> None:
    """Half a run has a report as well."""
    for part in (run_path / "archive/policies").glob("*"):
        part.unlink()
    (run_path / "summary.json").write_text(summary)
    assert "unknown state" in report.text(RUN, run_path)
    assert {row.measure: row for row in report.rows(RUN, run_path)}["policy updates"].value == 0


def test_a_damaged_run_file_and_a_bad_name(run_path: Path, tmp_path: Path) -> None:
    """Each is one line; a name can't reach other directories."""
    overrides = [f"data.root={tmp_path}", "run.name=run"]
    (run_path / "run.json").write_text("x")
    with pytest.raises(UserError, match=r"run\.json is damaged: .*remove it"):
        report.main(Namespace(config=None, set=overrides, run=None, results=None))
    with pytest.raises(ValueError, match=r"run '\.\./run': expected a lower-case letter"):
        report.main(Namespace(config=None, set=overrides, run="../run", results=None))
    (run_path / "run.json").unlink()
    with pytest.raises(UserError, match="--results /proc/x/y"):
        report.main(Namespace(config=None, set=overrides, run=None, results=Path("/proc/x/y")))

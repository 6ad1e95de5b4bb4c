"""The archive: what is written comes back through the reader that reports use."""

from __future__ import annotations

from pathlib import Path

import msgspec
from support import build

from tiltyard.aggregator.archive import POLICY_COLUMNS, ROLLOUT_COLUMNS, PartWriter, policy_row, rollout_row
from tiltyard.cli.archive import Archive
from tiltyard_proto.messages import Command, Group, Policy, Purpose, VersionSpan


def rollout_writer(run: Path) -> PartWriter:
    return PartWriter(run / "archive/rollouts", ROLLOUT_COLUMNS)


def rows(group: Group) -> list[dict[str, object]]:
    return [rollout_row(group, member) for member in group.members]


def test_a_row_has_every_column(tmp_path: Path) -> None:
    """Rows name exactly the columns, in both tables."""
    assert list(rows(build.group([1.0]))[0]) == list(ROLLOUT_COLUMNS)
    assert list(policy_row(Policy(run="r", version=0, path="/w"))) == list(POLICY_COLUMNS)


def test_rollouts_come_back(tmp_path: Path) -> None:
    """Every value of a row comes back from Parquet, texts and lists included."""
    command = Command(argv=("true",))
    ran = build.execution(claim_s=0.25, start_s=0.5, cpu_s=1.5)
    hit = build.execution(cached=True, claim_s=9.0, cpu_s=9.0)
    spans = (VersionSpan(version=3, start=0, end=1), VersionSpan(version=4, start=1, end=3))
    turns = (
        build.turn(command=command, execution=ran, observation="a'b\n\"ü", seconds=0.5),
        build.turn(command=command, execution=hit, text="zwei\n", versions=spans, seconds=0.25),
    )
    group = build.group([0.5])
    rollout = msgspec.structs.replace(group.members[0].verdict.rollout, turns=turns, attempt=1)
    verdict = msgspec.structs.replace(group.members[0].verdict, rollout=rollout, score=None, reasons=("a", "b"))
    member = msgspec.structs.replace(group.members[0], verdict=verdict)
    row = rollout_row(group, member)
    rollout_writer(tmp_path).write([row], 1, 1)
    (found,) = Archive(tmp_path).rows(f"SELECT {', '.join(ROLLOUT_COLUMNS)} FROM rollouts")
    assert dict(zip(ROLLOUT_COLUMNS, found, strict=True)) == row
    assert (row["score"], row["sandboxes"], row["cached"], row["sandbox_cpu_s"]) == (None, 1, 1, 1.5)
    assert (row["claim_s"], row["start_s"], row["generate_s"]) == ([0.25], [0.5], 0.75)
    assert (row["first_version"], row["last_version"]) == (0, 4)
    assert (row["prompt_tokens"], row["action_tokens"]) == (8, 6)
    assert row["action"] == "2\n---\nzwei\n"


def test_policies_come_back(tmp_path: Path) -> None:
    """Versions come back in order, with their metrics."""
    writer = PartWriter(tmp_path / "archive/policies", POLICY_COLUMNS)
    policies = [Policy(run="r", version=v, path=f"/w/{v}", metrics={"loss": v / 4, "groups": 8.0}) for v in (1, 0)]
    writer.write([policy_row(policy) for policy in policies], 1, 2)
    found = Archive(tmp_path).policies()
    assert [row["version"] for row in found] == [0, 1]
    assert found[1]["metrics"] == {"loss": 0.25, "groups": 8.0}


def test_a_part_written_twice_counts_once(tmp_path: Path) -> None:
    """Parts that overlap, as after a crash, or that two writers wrote, give each rollout once."""
    first, second = build.group([1.0, 0.0], index=1), build.group([1.0, 1.0], index=2, purpose=Purpose.EVAL)
    writer = rollout_writer(tmp_path)
    writer.write(rows(first), 1, 1)
    writer.write([*rows(first), *rows(second)], 1, 2)
    writer.write(rows(first), 1, 1)
    archive = Archive(tmp_path)
    assert archive.totals()["rollouts"] == 4
    assert archive.rows("SELECT count(*) FROM rollouts WHERE purpose = 'train'") == [(2,)]
    (evaluation,) = archive.evaluations()
    assert (evaluation.rollouts, evaluation.passed) == (2, 2)


def test_the_position_is_read_off_whole_parts(tmp_path: Path) -> None:
    """Where to go on is the highest position of a part; leftovers of a crash don't count; no rows write no part."""
    writer = rollout_writer(tmp_path)
    assert writer.position() == 0
    writer.write(rows(build.group([1.0])), 1, 7)
    writer.write(rows(build.group([1.0], index=1)), 8, 123)
    assert not writer.write([], 124, 130).exists()
    (writer.directory / ".part-crashed").mkdir()
    (writer.directory / ".part-crashed/part.parquet").write_bytes(b"PAR1")
    assert rollout_writer(tmp_path).position() == 123
    assert sorted(path.name for path in writer.directory.glob("part-*")) == [
        "part-000000000001-000000000007.parquet",
        "part-000000000008-000000000123.parquet",
    ]


def test_an_empty_archive_says_so(tmp_path: Path) -> None:
    """A run without parts is empty, and one in a folder with a quote in its name is read all the same."""
    assert Archive(tmp_path).empty
    odd = tmp_path / "it's"
    rollout_writer(odd).write(rows(build.group([1.0])), 1, 1)
    assert not Archive(odd).empty

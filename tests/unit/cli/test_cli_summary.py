"""`summary.json` covers the run: every session has its entry, and the totals are their sums."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tiltyard.cli.up.summary import KILLED, RUNNING, Session, Summary, earlier, summarise, write


def session(at: float, state: str = "interrupted", **fields: object) -> Session:
    base = Session(
        state=state, started=at, ended=at + 10, wall_s=10.0, cpu_s=4.0,
        cpu_by_service={"engine": 3.0, "nats": 0.5}, restarts={"engine": 1},
    )  # fmt: skip
    return msgspec.structs.replace(base, **fields)


def test_the_totals_are_the_sums() -> None:
    """Wall, CPU and restarts add up, the time in between does not count; first and last are those of the run."""
    sessions = [session(100.0), session(500.0, "finished", cpu_by_service={"engine": 1.0}, restarts={"nats": 2})]
    found = summarise("run", sessions)
    assert (found.started, found.ended, found.state) == (100.0, 510.0, "finished")
    assert (found.wall_s, found.cpu_s) == (20.0, 8.0)
    assert found.cpu_by_service == {"engine": 4.0, "nats": 0.5}
    assert found.restarts == {"engine": 1, "nats": 2}


def test_a_session_goes_on_where_the_file_ended(tmp_path: Path) -> None:
    """What is read back are the sessions that were written; one that never said how it ended was killed."""
    path = tmp_path / "summary.json"
    assert earlier(path) == []
    write(path, summarise("run", [session(1.0), session(50.0, RUNNING)]))
    assert earlier(path) == [session(1.0), session(50.0, KILLED)]
    assert [each.name for each in tmp_path.iterdir()] == ["summary.json"]


def test_the_file_of_an_older_release_is_one_session(tmp_path: Path) -> None:
    """It kept the last session's cost, which goes on counting."""
    path = tmp_path / "summary.json"
    path.write_bytes(b'{"run": "run", "state": "interrupted", "wall_s": 7.0, "cpu_s": 3.0, "restarts": {"nats": 1}}')
    found = summarise("run", [*earlier(path), session(100.0)])
    assert (found.wall_s, found.cpu_s, found.started, len(found.sessions)) == (17.0, 7.0, 0.0, 2)
    assert found.restarts == {"nats": 1, "engine": 1}


@pytest.mark.parametrize("text", ["", "x", "[]", '{"run": 1}'])
def test_a_damaged_file_is_no_session(tmp_path: Path, text: str) -> None:
    """The run goes on without its past cost."""
    (tmp_path / "summary.json").write_text(text)
    assert earlier(tmp_path / "summary.json") == []


def test_the_written_file_is_a_summary(tmp_path: Path) -> None:
    """Others can read it."""
    write(tmp_path / "summary.json", summarise("run", [session(1.0)]))
    assert msgspec.json.decode((tmp_path / "summary.json").read_bytes(), type=Summary).sessions == (session(1.0),)

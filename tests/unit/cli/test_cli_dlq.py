"""The arguments and the texts of `tiltyard dlq`."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import msgspec
import pytest
from support.examples import EXAMPLES

from tiltyard.cli.dlq import ACTIONS, CLASSES, STATES
from tiltyard.cli.dlq.act import account
from tiltyard.cli.dlq.choose import age, seconds, which, who
from tiltyard.cli.dlq.files import read_lines
from tiltyard.cli.dlq.look import groups, structure
from tiltyard.cli.errors import UserError
from tiltyard.cli.main import main, parser
from tiltyard.kit import deadletters, intake
from tiltyard.kit.deadletters import Entry, letter_id
from tiltyard.kit.render import hexdump, rendering_of_bytes
from tiltyard.kit.settle import matches, passed
from tiltyard_proto.messages import DeadLetter, LetterState

LETTER = EXAMPLES["dead_letter"]
assert isinstance(LETTER, DeadLetter)


def entry(state: str = "open", result: str = "", **fields: Any) -> Entry:
    letter = msgspec.structs.replace(LETTER, **fields)
    return Entry(
        letter=letter,
        state=LetterState(letter=letter_id(letter), state=state, result=result),
        revision=0,
        position=1,
    )


@pytest.mark.parametrize("action", ACTIONS)
def test_help_of_each_action(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` is enough to use it, and every action takes a configuration."""
    with pytest.raises(SystemExit) as ended:
        main(["dlq", action, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert f"usage: tiltyard dlq {action}" in said
    assert "--config" in said


def test_the_arguments_know_the_classes_and_states() -> None:
    """What can be asked for is what there is; the lists are apart so that help stays quick."""
    assert CLASSES == intake.CLASSES
    assert set(STATES) == {*deadletters.STATES, "any"}


def test_ages() -> None:
    """Seconds, minutes, hours, days both ways; anything else is a mistake."""
    assert [seconds(text) for text in ("90s", "30m", "6h", "2d", "1.5h")] == [90, 1800, 21600, 172800, 5400]
    assert [age(s) for s in (0, 1, 119, 120, 7199, 7200, 172799, 172800)] == [
        "0s",
        "1s",
        "119s",
        "2m",
        "120m",
        "2h",
        "48h",
        "2d",
    ]
    for text in ("", "6", "h", "6 h", "-6h", "6w", "nan"):
        with pytest.raises(UserError, match="30m"):
            seconds(text)


def test_filters_from_arguments() -> None:
    """Ages count back from now; 'any' excludes no state."""
    parsed = parser().parse_args(
        ["dlq", "replay", "a", "b", "--since", "1h", "--older", "1m", "--state", "any", "--domain", "math"]
    )
    found = which(parsed, now=10_000.0)
    assert (found.since, found.until, found.state, found.domain) == (6400.0, 9940.0, "", "math")
    assert found.ids == {"a", "b"}
    assert which(parser().parse_args(["dlq", "ls"])).state == "open"


def test_somebody_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The account names the user, or says that it is unknown."""
    monkeypatch.setenv("LOGNAME", "operator")
    assert who() == "operator"

    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert who() == "unknown"


def test_groups_count_by_what_failed() -> None:
    """Largest first, with the span of ages and the commonest detail."""
    rows = groups(
        [
            entry(sequence=1, failed=10.0, detail="a"),
            entry(sequence=2, failed=70.0, detail="b"),
            entry(sequence=3, failed=40.0, detail="b"),
            entry(sequence=4, reason="schema"),
            entry("resolved", "late", sequence=5),
        ],
        100.0,
    )
    first = rows[0]
    assert (first["count"], first["oldest_s"], first["newest_s"], first["detail"]) == (3, 90.0, 30.0, "b")
    assert first["domain"] == "code.python.functions"
    assert {row["state"]: row["results"] for row in rows if row["results"]} == {"resolved": {"late": 1}}


def test_every_replay_is_accounted_for() -> None:
    """Whatever the states, the counts add up."""
    ended = [
        entry("resolved", "processed"),
        entry("resolved", "late"),
        entry("superseded", "x"),
        entry("replaying"),
        entry("open"),
    ]
    counts = account(ended)
    assert counts == {"processed": 1, "late": 1, "failed_again": 1, "under_way": 1, "lost": 1}
    assert sum(counts.values()) == len(ended)


def test_patterns_match_subjects() -> None:
    """`*` is one token, a final `>` one or more."""
    assert matches("tilt.v1.generate.>", "tilt.v1.generate.d.k.replay.0")
    assert matches(">", "a")
    assert matches("tilt.*.generate.d.k", "tilt.v1.generate.d.k")
    assert not matches("tilt.v1.generate.>", "tilt.v1.generate")
    assert not matches("tilt.v1.generate.d.>", "tilt.v1.generate.e.k")
    assert not matches("a.*", "a.b.c")
    assert not matches("a.b.c", "a.b")


def test_passed_asks_a_worker_that_takes_the_subject() -> None:
    """One that takes the subject and has answered so far; another that nobody pulls from changes nothing."""
    floors = [(["a.x.>"], 5), (["a.>"], 0), (["b.>"], 9), ([], 9)]
    assert passed(floors, "a.x.1", 5)
    assert not passed(floors, "a.x.1", 6)
    assert not passed(floors, "a.y.1", 1)
    assert not passed(floors, "c.1", 0)


def test_the_domain_of_a_letter() -> None:
    """Read from the subject, whatever stands there, without a lane."""
    assert entry().domain == "code.python.functions"
    assert entry(subject="tilt.v1.generate.math__test-eval.k").domain == "math.test"
    assert entry(subject="x").domain == "?"


def test_bytes_for_people() -> None:
    """Structure as JSON, else sixteen bytes a line, cut after a while."""
    assert structure(b"\x81\xa1a\x01") == {"a": 1}
    assert structure(b"[1]") is None
    assert structure(b"\x81\x01\xc1") is None
    assert rendering_of_bytes(b'{"a": [1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert rendering_of_bytes(b"\xc1").startswith("00000000  c1")
    lines = hexdump(bytes(range(256)) * 20).splitlines()
    assert lines[2] == "00000020  20 21 22 23 24 25 26 27  28 29 2a 2b 2c 2d 2e 2f  | !\"#$%&'()*+,-./|"
    assert lines[-1] == "... 1024 more bytes"


@pytest.mark.parametrize(
    "line", [b"nonsense", b"{}", b'{"letter": {}}', b"[" * 5000, msgspec.json.encode({"letter": {"stage": 1}})]
)
def test_an_import_says_which_line_is_wrong(line: bytes) -> None:
    """Before anything is stored."""
    good = msgspec.json.encode({"letter": LETTER})
    with pytest.raises(UserError, match=r"file:2: no exported dead letter"):
        read_lines([good, line], "file")


def test_an_import_refuses_other_stages_and_ids() -> None:
    """A letter of no stage of this release, or whose id can't be a key."""
    for wrong in (msgspec.structs.replace(LETTER, stage="nowhere"), msgspec.structs.replace(LETTER, stream="a b")):
        with pytest.raises(UserError, match="file:1"):
            read_lines([msgspec.json.encode({"letter": wrong})], "file")


def test_every_action_has_its_function() -> None:
    """Each name of an action leads to a function."""
    for action in ACTIONS:
        parsed = parser().parse_args(
            ["dlq", action, *(["x"] if action in ("show", "import", "edit") else [])]
            + (["--json", "{}"] if action == "edit" else [])
        )
        assert isinstance(parsed, Namespace)
        assert parsed.action == action

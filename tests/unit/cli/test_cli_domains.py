"""`tiltyard domains`: looking at the registry, starting a new domain, judging files of cases."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tiltyard.cli.domains.examples import EXAMPLES
from tiltyard.cli.main import main
from tiltyard.domains import load
from tiltyard.domains.registry import open_file
from tiltyard.gate.store import Store


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of these tests are kept apart, while the sandbox's images stay where they are."""
    monkeypatch.setattr(Store, "__init__", lambda self, folder=None: setattr(self, "folder", tmp_path / "gate"))


def test_domains_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Without an action all are listed; a beginning chooses; JSON lines say the same."""
    assert main(["domains"]) == 0
    assert "code.python.functions" in capsys.readouterr().out
    assert main(["domains", "ls", "code.python", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"code.python.functions", "code.python.humaneval"} <= {row["name"] for row in rows}
    assert all(row["name"].startswith("code.python.") for row in rows)
    assert {row["gate"] for row in rows} == {"not checked"}


def test_a_domain_is_shown_and_sampled(capsys: pytest.CaptureFixture[str]) -> None:
    """`show` prints the definition and its source, `sample` tasks for people or as lines to publish."""
    assert main(["domains", "show", "shell.files"]) == 0
    shown = capsys.readouterr().out
    assert '"kind": "files"' in shown
    assert "not checked" in shown
    assert main(["domains", "sample", "shell.files", "-n", "2", "--json"]) == 0
    tasks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [task["id"] for task in tasks] == [task.id for task in load("shell.files").tasks("train", 2)]
    assert main(["domains", "sample", "code.python.humaneval"]) == 0
    assert "[reference]" in capsys.readouterr().out
    assert main(["domains", "show", "shell.file"]) == 2
    assert "shell.files" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [kind for kind in sorted(EXAMPLES) if kind != "python_calls"])
def test_a_new_domain_passes_as_it_is(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `new` writes is a package whose domain goes through the gate; nothing is written over."""
    name = f"test.fresh_{kind}"
    assert main(["domains", "new", name, "--kind", kind, "--into", str(tmp_path / "p")]) == 0
    file = tmp_path / "p" / f"test_fresh_{kind}" / f"{name}.toml"
    project = tomllib.loads((tmp_path / "p/pyproject.toml").read_text())
    assert project["project"]["entry-points"]["tiltyard.domains"] == {name: f"test_fresh_{kind}:FOLDER"}
    assert main(["domains", "check", "--file", str(file), "--results", str(tmp_path / "r.json")]) == 0
    assert "1 domains, 0 failed" in capsys.readouterr().out
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["check"]["failed"], report["check"]["by_category"]) == ([], {"test": 1})
    assert main(["domains", "new", name, "--into", str(tmp_path / "p")]) == 2
    assert "there already" in capsys.readouterr().err


def test_a_new_domain_of_any_kind_can_be_read(tmp_path: Path) -> None:
    """For a kind without an example the package says which fields its data has."""
    assert main(["domains", "new", "test.other", "--kind", "humaneval", "--into", str(tmp_path)]) == 0
    (one,) = open_file(tmp_path / "test_other/test.other.toml")
    assert one.tasks("train", 1)[0].verification.kind == "humaneval"
    assert (
        "entry" in (tmp_path / "test_other/generator.py").read_text()
        or "function" in (tmp_path / "test_other/generator.py").read_text()
    )


@pytest.mark.parametrize("name", ["Test.upper", "a b", "", "x..y"])
def test_a_new_name_is_checked(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that no subject can carry is refused before anything is written."""
    assert main(["domains", "new", name, "--into", str(tmp_path / "n")]) == 2
    assert "dotted lower-case" in capsys.readouterr().err
    assert not (tmp_path / "n").exists()


def test_a_failing_domain_is_said_with_its_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The check's exit status and lines name what is wrong."""
    text = (
        'name = "test.bad"\ntitle = "Bad"\ndata = "bad.jsonl"\nsplits = ["train"]\n[verifier]\nkind = "last_number"\n'
    )
    (tmp_path / "bad.toml").write_text(text)
    draft = {"template": "a", "fields": {"prompt": "1 + 1?"}, "data": {"answer": "3"}, "reference": "2"}
    (tmp_path / "bad.jsonl").write_text(json.dumps(draft))
    assert main(["domains", "check", "--file", str(tmp_path / "bad.toml")]) == 1
    said = capsys.readouterr().out
    assert "FAILED test.bad" in said
    assert "right is 3" in said
    assert main(["domains", "check", "no.such"]) == 2


def test_a_file_of_cases_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each case with what was found and wanted; one that doesn't hold makes the exit status 1."""
    own = Path(__file__).parents[2] / "cases/aggregate.jsonl"
    out = tmp_path / "out.json"
    assert main(["domains", "cases", str(own), "--json", str(out)]) == 0
    rows = json.loads(out.read_text())
    assert [row["holds"] for row in rows] == [True] * len(rows)
    assert {"id", "kind", "verdict", "score", "wanted", "holds", "reasons"} <= set(rows[0])
    wrong = {"id": "w", "kind": "aggregate", "reference": "2 scores + 1 error", "verdict": "accept", "score": None}
    strange = {"id": "s", "kind": "no_such_kind", "verdict": "accept", "score": 1}
    (tmp_path / "c.jsonl").write_text(json.dumps(wrong) + "\n" + json.dumps(strange))
    capsys.readouterr()
    assert main(["domains", "cases", str(tmp_path / "c.jsonl")]) == 1
    said = capsys.readouterr().out
    assert "WRONG" in said
    assert "no verifier kind serves it" in said
    (tmp_path / "c.jsonl").write_text('{"id": "x"}')
    assert main(["domains", "cases", str(tmp_path / "c.jsonl")]) == 2
    assert "c.jsonl:1" in capsys.readouterr().err

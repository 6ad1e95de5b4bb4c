"""Definitions and the registry: what is refused, and what the message says."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tiltyard.domains import Domain, Draft, Request, load, load_all
from tiltyard.domains.family import read, read_file
from tiltyard.domains.registry import FOLDER

GOOD = 'name = "code.test"\ntitle = "Test"\ndata = "tasks.jsonl"\n[verifier]\nkind = "last_number"\n'
LINES = (
    '{"template": "a", "fields": {"prompt": "1 + 1"}, "data": {"answer": "2"}, "reference": "2"}\n\n'
    '{"template": "b", "fields": {"prompt": "2 + 2"}, "data": {"answer": "4"}, "reference": "4"}\n'
)


def domain(tmp_path: Path, text: str = GOOD, lines: str = LINES) -> Domain:
    (tmp_path / "d.toml").write_text(text)
    (tmp_path / "tasks.jsonl").write_text(lines)
    (one,) = read_file(tmp_path / "d.toml")
    return Domain(definition=one, source="d.toml", folder=tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD + "[verifier2]\n", "verifier2"),
        (GOOD.replace("title", "titel"), "titel"),
        (GOOD + "[sampling]\nmax_tokens = 3\n", "max_tokens"),
        (GOOD + "[curriculum]\nprior_pass = 1.0\n", "prior_pass"),
        (GOOD + "[curriculum]\ntarget_low = 0.9\n", "target_low"),
        (GOOD + "[curriculum]\ntrain_tasks = -1\n", "train_tasks"),
        (GOOD + "[limits]\nturns = 0\n", "turns"),
        (GOOD + "[exec]\nwall_s = 0.0\n", "wall_s"),
        (GOOD + "cost = -1.0\n", "verifier.cost"),
        (GOOD.replace("code.test", "Code Test"), "dotted lower-case"),
        (GOOD.replace('data = "tasks.jsonl"\n', ""), "`generator` or `data`"),
        ('splits = ["eval"]\n' + GOOD, "`trained`"),
        ("name = ", "not TOML"),
        ('value = "much"\n' + GOOD, "value"),
    ],
)
def test_bad_definitions_name_file_and_key(text: str, says: str) -> None:
    """A wrong definition is refused with the file and what's wrong in it."""
    with pytest.raises(ValueError, match="my-file") as caught:
        read(text, "my-file")
    assert says in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A definition that can't be read is named."""
    with pytest.raises(ValueError, match=r"gone\.toml"):
        read_file(tmp_path / "gone.toml")


def test_data_files(tmp_path: Path) -> None:
    """A data file gives its tasks, held-out templates apart."""
    assert [task.reference for task in domain(tmp_path).tasks("train", 9)] == ["2", "4"]
    held = domain(tmp_path, 'held_out = ["b"]\nsystem = "Count."\n' + GOOD)
    assert [task.reference for task in held.tasks("train", 9)] == ["2"]
    assert [task.reference for task in held.tasks("eval", 9)] == ["4"]
    assert [message.role for message in held.tasks("eval", 9)[0].prompt] == ["system", "user"]


def test_shots_come_before_the_question(tmp_path: Path) -> None:
    """Worked examples are turns of the chat, made with the same pattern."""
    line = '{"template": "a", "fields": {"prompt": "1"}, "shots": [[{"prompt": "0"}, "zero"]], "reference": "one"}'
    (task,) = domain(tmp_path, 'user = "Say {prompt}"\n' + GOOD, line).tasks("train", 9)
    assert [(m.role, m.content) for m in task.prompt] == [("user", "Say 0"), ("assistant", "zero"), ("user", "Say 1")]


def test_broken_data_files_name_the_line(tmp_path: Path) -> None:
    """A bad line of a data file is named."""
    with pytest.raises(ValueError, match="line 3"):
        domain(tmp_path, lines=LINES.split("\n")[0] + '\n\n{"x": 1}\n').tasks("train", 9)


def test_a_pattern_with_an_unknown_field(tmp_path: Path) -> None:
    """A user pattern that asks for a field nobody fills names both."""
    with pytest.raises(ValueError, match=r"user.*question.*prompt"):
        domain(tmp_path, 'user = "{question}"\n' + GOOD).tasks("train", 1)


def disobedient(request: Request) -> Iterator[Draft]:
    yield Draft(template="held")


def test_generators_must_keep_splits_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator that ignores the held-out templates is caught; one that isn't there is named."""
    text = 'held_out = ["held"]\n' + GOOD.replace('data = "tasks.jsonl"', 'generator = "json:dumps_"')
    with pytest.raises(ValueError, match=r"json:dumps_"):
        domain(tmp_path, text).tasks("train", 1)
    monkeypatch.setattr("json.dumps_", disobedient, raising=False)
    with pytest.raises(ValueError, match=r"request\.wants"):
        domain(tmp_path, text).tasks("train", 1)


class _Point(EntryPoint):
    """An entry point whose object is at hand."""

    def __init__(self, name: str, value: object) -> None:
        super().__init__(name=name, value="package:domain", group="tiltyard.domains")
        vars(self)["held"] = value

    def load(self) -> object:
        return vars(self)["held"]


def test_domains_of_other_packages(tmp_path: Path) -> None:
    """Entry points add domains by path or function; clashes name both sources."""
    domain(tmp_path)
    path = tmp_path / "d.toml"
    for value in (path, str(path), lambda: path):
        assert "code.test" in load_all([_Point("code.test", value)])
    with pytest.raises(ValueError, match=r"defined twice: .* and entry point code.test"):
        load_all([_Point("code.test", path), _Point("code.test", path)])
    with pytest.raises(ValueError, match="or one below it"):
        load_all([_Point("other.name", path)])
    with pytest.raises(ValueError, match="path of a TOML file"):
        load_all([_Point("code.test", 7)])
    with pytest.raises(ValueError, match="can't be loaded"):
        load_all([EntryPoint("code.test", "no_such_module:path", "tiltyard.domains")])


def test_unknown_domains_list_the_known() -> None:
    """A misspelt name is answered with the list."""
    with pytest.raises(ValueError, match=r"code\.python\.functions"):
        load("code.python.function")


def test_every_definition_is_named_like_its_file() -> None:
    """A built-in file has the name of its domain, or of the family that all its domains are below."""
    for path in FOLDER.rglob("*.toml"):
        for one in read_file(path):
            assert one.name == path.stem or one.name.startswith(f"{path.stem}.")


def test_hosts_of_a_domain_reach_its_tasks(tmp_path: Path) -> None:
    """What a definition says its sessions may reach stands in the environment of every task; by default nothing."""
    (task,) = domain(tmp_path, 'egress = ["pypi.org"]\n' + GOOD).tasks("train", 1)
    assert task.environment.egress == ("pypi.org",)
    assert domain(tmp_path).tasks("train", 1)[0].environment.egress == ()

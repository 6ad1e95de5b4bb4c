"""`tiltyard publish`: every line is checked before the first task is published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tiltyard.cli.errors import UserError
from tiltyard.cli.main import main, parser
from tiltyard.cli.publish import chosen_tasks, read_tasks
from tiltyard.cli.up.plan import run_tasks
from tiltyard.kit.settings import RunSettings, read_source, section
from tiltyard_proto import keys

EXAMPLE = Path(__file__).parents[3] / "examples/tiny.toml"
GOOD: dict[str, Any] = {
    "domain": "math.arithmetic.chain_sum",
    "prompt": [{"role": "user", "content": "1 + 1?"}],
    "verification": {"kind": "last_number", "data": {"answer": "2"}},
}


def line(**changes: Any) -> bytes:
    return msgspec.json.encode({**GOOD, **changes})


def without(key: str) -> bytes:
    return msgspec.json.encode({name: value for name, value in GOOD.items() if name != key})


def test_good_lines_become_tasks_with_their_id() -> None:
    """Type and id may be left out; the id is the content's hash whatever the line says; empty lines don't count."""
    tasks = read_tasks([line(), b"\n", line(id="mine", type="task"), line(split="eval"), b"  "], "f")
    assert len(tasks) == 3
    assert tasks[0] == tasks[1]
    assert [task.id for task in tasks] == [keys.task_id(task) for task in tasks]
    assert tasks[2].split == "eval"


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b"{", "f:2: Input data was truncated"),
        (b"[]", "f:2: Expected `object`"),
        (b"null", "f:2: Expected `object`"),
        (b"\xff\xfe", "f:2: "),
        (b"[" * 100_000, "f:2: "),
        (line(type="rollout"), "f:2: Invalid value 'rollout'"),
        (without("prompt"), "f:2: Object missing required field `prompt`"),
        (line(prompt=[]), "f:2: prompt: expected at least one message"),
        (line(prompt="text"), "f:2: Expected `array`, got `str`"),
        (line(split="test"), "f:2: split: expected one of train, eval, got 'test'"),
        (line(domain="nope"), "f:2: domain 'nope' is not known; `tiltyard domains` lists them"),
        (line(domain="Not.A.Domain"), "f:2: domain 'Not.A.Domain': expected dotted lower-case"),
        (line(limits={"turns": "many"}), "f:2: Expected `int`, got `str` - at `$.limits.turns`"),
    ],
)
def test_a_bad_line_is_named_by_number(bad: bytes, words: str) -> None:
    """The message says which line of which file and what was expected."""
    with pytest.raises(UserError) as caught:
        read_tasks([line(), bad, line()], "f")
    first, second = str(caught.value).splitlines()
    assert first == "nothing was published:"
    assert second.startswith(words)


def test_many_bad_lines_are_cut() -> None:
    """Five are shown, the others are counted."""
    with pytest.raises(UserError) as caught:
        read_tasks([b"1"] * 12, "f")
    lines = str(caught.value).splitlines()
    assert [text.split(" ")[0] for text in lines[1:6]] == [f"f:{i}:" for i in range(1, 6)]
    assert lines[6:] == ["(and 7 more)"]


def test_a_bad_file_never_reaches_the_bus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With one bad line the command ends with 2 before it connects, so nothing is published."""
    file = tmp_path / "tasks.jsonl"
    file.write_bytes(line() + b"\n5\n")
    assert main(["publish", str(file), "--set", 'bus.servers=["nats://127.0.0.1:9"]']) == 2
    said = capsys.readouterr().err
    assert f"{file}:2: " in said
    assert "no bus" not in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name a FILE.jsonl, a domain with --domain, or the configured run with --run"),
        (["--run", "--domain", "code.python.functions"], "--run publishes what the run's configuration names"),
        (["--run"], "[run.train]: expected at least one domain to train on"),
        (["/no/such/file.jsonl"], "/no/such/file.jsonl: No such file"),
        (["--domain", "nope"], "no domain 'nope'; near it are: code."),
    ],
)
def test_what_can_not_be_read_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The user's mistake is one line and status 2."""
    assert main(["publish", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_the_configured_run_s_tasks_are_those_that_up_publishes() -> None:
    """`--run` takes the tasks of every domain of the run's configuration, to train and to evaluate on."""
    arguments = parser().parse_args(["publish", "--run", "-c", str(EXAMPLE)])
    run = section(read_source(EXAMPLE, (), {}), "run", RunSettings)
    tasks = chosen_tasks(arguments)
    assert [task.id for task in tasks] == [task.id for task in run_tasks(run)]
    assert {task.split for task in tasks} == {"train", "eval"}


def test_a_task_may_name_any_profile_of_the_sandbox(tmp_path: Path) -> None:
    """Shipped profiles, those of the sandbox's settings, and no others."""
    profile = 'name = "mine"\ndescription = "mine"\n[image]\npackages = ["python3-minimal"]\n'
    (tmp_path / "mine.toml").write_text(profile)
    file = tmp_path / "tasks.jsonl"
    file.write_bytes(b"\n".join(line(environment={"profile": name}) for name in ("shell", "mine")))
    chosen = parser().parse_args(["publish", str(file), "--set", f'sandbox.profiles="{tmp_path}"'])
    assert [task.environment.profile for task in chosen_tasks(chosen)] == ["shell", "mine"]
    file.write_bytes(line(environment={"profile": "other"}))
    with pytest.raises(UserError, match=r"environment.profile: expected one of .*mine.*, got 'other'"):
        chosen_tasks(chosen)

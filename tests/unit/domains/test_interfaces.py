"""Interfaces: what an action's text asks the sandbox to run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiltyard.domains.interfaces import MAX_TEXT, BadFormat, code_of, fenced_blocks, parse_action
from tiltyard_proto.messages import Command, Environment, ExecLimits, Task, Verification

CODE = "def f(x):\n    return x"


def task(interface: str, files: dict[str, bytes] | None = None) -> Task:
    environment = Environment(interface=interface, files=files or {}, limits=ExecLimits(wall_s=3))
    return Task(id="t", domain="d", prompt=(), verification=Verification(kind="k"), environment=environment)


@pytest.mark.parametrize(
    "text",
    [
        CODE,
        f"```python\n{CODE}\n```",
        f"```\n{CODE}\n```",
        f"Sure:\n```py\n{CODE}",
        f"```python\nprint(1)\n```\nor\n```python\n{CODE}\n```\nbye",
        f"~~~\n{CODE}\n~~~",
        f"```python\n{CODE}\n```\n```\n```",
    ],
)
def test_python_takes_the_last_block_or_the_bare_text(text: str) -> None:
    """Code in the last fence that holds any, closed or not, or without a fence."""
    command = parse_action(task("python"), text)
    assert command is not None
    assert command.files == {"solution.py": CODE.encode() + b"\n"}
    assert command.argv == ("python3", "solution.py")
    assert command.limits.wall_s == 3


def test_python_runs_the_visible_check() -> None:
    """With a check in the task's files the check runs, and it's sent again so that earlier code can't change it."""
    command = parse_action(task("python", {"check.py": b"import solution"}), CODE)
    assert command is not None
    assert command.argv == ("python3", "check.py")
    assert command.files["check.py"] == b"import solution"


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("ls -l", "ls -l"),
        ("$ ls -l\n$ pwd\n", "ls -l\npwd"),
        ("```sh\nmkdir a\nmv b a/\n```", "mkdir a\nmv b a/"),
        ("ls\nDONE", "ls"),
        ("First I look.\n```bash\nls\n```\n", "ls"),
        ("echo DONE", "echo DONE"),
    ],
)
def test_shell_takes_lines(text: str, script: str) -> None:
    """Commands bare or fenced, prompts and a closing DONE taken off."""
    command = parse_action(task("shell"), text)
    assert command is not None
    assert command.argv == ("sh", "-c", script)


@pytest.mark.parametrize("text", ["DONE", " DONE \n", "\nDONE\nls", "```\nDONE\n```", "DONE\n```sh\nls\n```"])
def test_done_ends_the_work(text: str) -> None:
    """A DONE before any command runs nothing."""
    assert parse_action(task("shell"), text) is None


@pytest.mark.parametrize("interface", ["python", "shell"])
@pytest.mark.parametrize("text", ["", " \n\t", "```\n```", "a\0b", "x" * (MAX_TEXT + 1), "\ud800"])
def test_unreadable_actions(interface: str, text: str) -> None:
    """Nothing, NUL, too much, and text that isn't Unicode are BadFormat with one line of detail."""
    with pytest.raises(BadFormat) as caught:
        parse_action(task(interface), text)
    assert caught.value.detail
    assert "\n" not in caught.value.detail


def test_answers_run_nothing() -> None:
    """Interface 'answer' never runs anything, whatever the text."""
    assert parse_action(task("answer"), "rm -rf /\0") is None


def test_an_unknown_interface_is_the_tasks_fault() -> None:
    """An interface that doesn't exist is an error naming it."""
    with pytest.raises(ValueError, match="'browser'"):
        parse_action(task("browser"), "x")


HOSTILE = st.one_of(
    st.text(max_size=300),
    st.text(alphabet="`~\n $ DONEpython\t\0\ud800", max_size=300),
    st.lists(st.sampled_from(["```", "```python", "~~~", "DONE", "$ ls", "x = 1", "", "   ```"]), max_size=30).map(
        "\n".join
    ),
)


@given(HOSTILE, st.sampled_from(["answer", "python", "shell"]))
def test_any_text_is_a_command_nothing_or_bad_format(text: str, interface: str) -> None:
    """Whatever the text, the result is a command with sendable parts, None, or BadFormat."""
    try:
        command = parse_action(task(interface), text)
    except BadFormat:
        return
    if command is not None:
        assert isinstance(command, Command)
        assert all(part and "\0" not in part for part in command.argv)
        assert all(part.encode() is not None for part in command.argv)
        assert sum(map(len, command.files.values())) <= 4 * MAX_TEXT + 1


@given(HOSTILE)
def test_blocks_are_parts_of_the_text(text: str) -> None:
    """Extraction invents nothing."""
    assert all(block in text for block in fenced_blocks(text))
    assert code_of(text) in text


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="`~\0\r"), min_size=1, max_size=200))
def test_fenced_code_round_trips(code: str) -> None:
    """Code put into a fence comes out as it was, but for empty lines around it."""
    assert code_of(f"text\n```python\n{code}\n```\nmore") == code.strip("\n") or not code.strip()

"""How an action's text becomes what the sandbox runs.

'answer': nothing runs. 'python': the code becomes `solution.py`; the task's visible check `check.py` runs when it
has one, else the code itself. 'shell': the lines run through `sh -c`, or in the session's persistent shell where the
environment has one; a line `DONE` as the first says that the work is over.

Invariants: pure; time and size are bounded by the text's first `MAX_TEXT` characters; whatever the text, the result is
a command, None or `BadFormat`. Left out: running it is the sandbox's, judging it the verifier's.
"""

from __future__ import annotations

import re

from tiltyard_proto.messages import Command, Task

MAX_TEXT = 16_384
"""Longest action, in characters."""
SOLUTION = "solution.py"
CHECK = "check.py"
_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)[ \t]*([\w+.#-]*)[^\n]*$", re.MULTILINE)


class BadFormat(ValueError):
    """The action can't be read; `detail` says why in one line."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


def fenced_blocks(text: str) -> list[str]:
    """The contents of the fenced code blocks in order; a last block that isn't closed runs to the end."""
    blocks: list[str] = []
    start: int | None = None
    for fence in _FENCE.finditer(text):
        if start is None:
            start = fence.end() + 1
        else:
            blocks.append(text[start : max(start, fence.start())].strip("\n"))
            start = None
    if start is not None:
        blocks.append(text[start:].strip("\n"))
    return blocks


def code_of(text: str) -> str:
    """The last block that holds anything, or the bare text when nothing is fenced."""
    blocks = fenced_blocks(text)
    if not blocks:
        return text.strip("\n")
    return next((block for block in reversed(blocks) if block.strip()), "")


def parse_action(task: Task, text: str) -> Command | None:
    """What `text` asks the sandbox of `task` to run; None when there is nothing to run.

    BadFormat: no code or command, more than `MAX_TEXT` characters, a NUL, or text that isn't valid Unicode.
    ValueError: the task names an interface that doesn't exist.
    """
    interface = task.environment.interface
    if interface == "answer":
        return None
    if interface not in ("python", "shell"):
        raise ValueError(f"task {task.id}: interface {interface!r}; expected 'answer', 'python' or 'shell'")
    _check_text(text)
    return _python(task, text) if interface == "python" else _shell(task, text)


def _check_text(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise BadFormat(f"the action has {len(text)} characters, at most {MAX_TEXT} are read")
    if "\0" in text:
        raise BadFormat("the action contains a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError as err:
        raise BadFormat("the action isn't valid Unicode text") from err


def _python(task: Task, text: str) -> Command:
    code = code_of(text)
    if not code.strip():
        raise BadFormat("the action holds no code")
    files = {SOLUTION: code.encode() + b"\n"}
    start = task.environment.files
    if CHECK in start:  # sent again each time, as an earlier turn's code could have changed it
        files[CHECK] = start[CHECK]
    script = CHECK if CHECK in start else SOLUTION
    return Command(argv=("python3", script), files=files, limits=task.environment.limits)


def _shell(task: Task, text: str) -> Command | None:
    if fenced_blocks(text):
        if text.strip().split("\n", 1)[0].strip() == "DONE":
            return None
        text = code_of(text)
    lines: list[str] = []
    for line in text.split("\n"):
        if line.strip() == "DONE":
            break
        lines.append(line.removeprefix("$ "))
    script = "\n".join(lines).strip()
    if script:
        persistent = task.environment.shell == "persistent"
        return Command(argv=("sh", "-c", script), limits=task.environment.limits, shell=persistent)
    if len(lines) < len(text.split("\n")):
        return None
    raise BadFormat("the action holds no command")

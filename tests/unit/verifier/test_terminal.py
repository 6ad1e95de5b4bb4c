"""Kind terminal: checks against what a probe found, formats, hostile findings, and the probing program itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from support.grading import KINDS, rollout_of, run_job

from tiltyard.verifier import limits
from tiltyard.verifier.kinds.base import BrokenTask
from tiltyard.verifier.kinds.terminal.compare import number, problem
from tiltyard.verifier.kinds.terminal.data import Check
from tiltyard_proto.messages import BlobRef, Environment, Execution, Graded, Job, Task, Verdict, Verification
from tiltyard_proto.outcomes import Outcome

KIND = KINDS["terminal"]
WORKSPACE = BlobRef(uri="x", size=1, sha256="0")


@pytest.fixture(scope="module", autouse=True)
def children() -> Iterator[None]:
    yield
    limits.close()


def task(*checks: dict[str, Any], files: dict[str, bytes] | None = None, free: tuple[str, ...] = ()) -> Task:
    verification = Verification(kind="terminal", data={"checks": list(checks), "free": list(free)})
    environment = Environment(interface="shell", files=files or {})
    return Task(id="t", domain="terminal.test", prompt=(), verification=verification, environment=environment)


def look(one: Task, workspace: dict[str, bytes]) -> Verdict:
    """The verdict on a workspace, probed by the real program in a local subprocess."""
    job = KIND.plan(one, rollout_of(one, "x", workspace=WORKSPACE))
    assert isinstance(job, Job)
    return KIND.judge(one, run_job(job, workspace))


FILE = {"kind": "file", "text": "ok\n", "mode": 0o644}


@pytest.mark.parametrize(
    ("check", "found", "holds"),
    [
        (Check(check="file", path="a", text="ok"), FILE, True),
        (Check(check="file", path="a", text="ok", compare="exact"), FILE, False),
        (Check(check="file", path="a"), {"kind": "link", "target": "b"}, False),
        (Check(check="file", path="a", text="ok"), {"kind": "file", "unreadable": "x"}, False),
        (Check(check="absent", path="a"), {"kind": "none"}, True),
        (Check(check="absent", path="a"), {}, False),
        (Check(check="mode", path="a", text="644"), FILE, True),
        (Check(check="mode", path="a", text="600"), FILE, False),
        (Check(check="mode", path="a", text="600"), {"kind": "file", "mode": "384"}, False),
        (Check(check="link", path="a", text="b/"), {"kind": "link", "target": "./b"}, True),
        (Check(check="link", path="a", text="b"), FILE, False),
        (Check(check="folder", path="a", names=("x", "y")), {"kind": "folder", "names": ["x", "y"]}, True),
        (Check(check="folder", path="a", names=("x",)), {"kind": "folder", "names": ["x", "y"]}, False),
        (Check(check="archive", path="a", members={"x": "1\n"}), {"members": {"x": "1"}, "count": 1}, True),
        (Check(check="archive", path="a", members={"x": "1"}), {"members": {"x": "1"}, "count": 2}, False),
        (Check(check="archive", path="a", members={"x": "1"}), {"unreadable": "no"}, False),
        (Check(check="git", args=("log",), text="b\na", compare="set"), {"status": 0, "stdout": "a\nb\n"}, True),
        (Check(check="run", args=("x",), text="1"), {"status": 1, "stdout": "1"}, False),
        (Check(check="run", args=("x",), status=3), {"status": 3, "stdout": "whatever"}, True),
        (Check(check="run", args=("x",), text="1"), {"status": 0, "stdout": 1}, False),
        (Check(check="run", args=("x",), text="1"), "garbage", False),
    ],
)
def test_checks(check: Check, found: Any, holds: bool) -> None:
    """Each check holds for exactly what it asks for, and for nothing that can't be read."""
    assert (problem(check, found) == "") is holds


@pytest.mark.parametrize(
    ("form", "want", "got", "holds"),
    [
        ("json", '{"a": 1, "b": [2]}', '{"b": [2.0], "a": 1}', True),
        ("json", '{"a": 1}', '{"a": 1, "a": 1}', False),
        ("json", "[1]", "[true]", False),
        ("json", "[1]", "[NaN]", False),
        ("json", "[1]", "[" * 5000, False),
        ("yaml", "a: 1\nb: [x]", "b:\n  - x\na: 1 # one", True),
        ("yaml", "a: [1, 1]", "a: &x [1, 1]\nb: *x", False),
        ("yaml", "a: 1", "!!python/object/apply:os.system ['true']", False),
        ("toml", "x = 1\n[a]\nb = 'c'", 'x=1\n[a]\nb="c"', True),
        ("ini", "[a]\nx = 1\n[b]\ny = 2", "; note\n[b]\ny=2\n[a]\nx: 1", True),
        ("ini", "[a]\nx = 1", "[a]\nX = 1", False),
        ("csv", "a,b\n1,2", '"a","b"\r\n1,2\r\n', True),
        ("nginx", "server { listen 80; root /a; }", "# x\nserver {\n root /a;\tlisten 80;\n}", True),
        ("nginx", "server { listen 80; }", "server { listen 81; }", False),
        ("nginx", "server { listen 80; }", "server { listen 80", False),
        ("nginx", "server { listen 80; }", "include /etc/passwd; server { listen 80; }", False),
    ],
)
def test_formats_compare_by_meaning(form: str, want: str, got: str, holds: bool) -> None:
    """Order of keys, comments and notation don't matter; doubled keys, aliases and other values do."""
    check = Check(check="file", path="a", text=want, compare=form)  # type: ignore[arg-type]
    assert (problem(check, {"kind": "file", "text": got}) == "") is holds


def test_a_reference_that_cannot_be_read_breaks_the_task() -> None:
    """Text of the task's own that isn't of its format is the task's fault."""
    with pytest.raises(BrokenTask):
        problem(Check(check="file", path="a", text="{", compare="json"), {"kind": "file", "text": "{}"})


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3.0), (" 3.0\n", 3.0), ("-2", -2.0), ("", None), ("null", None), ("nan", None), ("1e3", None)],
)
def test_only_a_plain_number_is_a_number(text: str, value: float | None) -> None:
    """Nothing, null, NaN and words never become 0."""
    assert number(text) == value


def test_the_program_says_what_is_there() -> None:
    """The probing program reports files, modes, absence, archives and what programs print."""
    one = task(
        {"check": "file", "path": "a.txt", "text": "one"},
        {"check": "absent", "path": "b.txt"},
        {"check": "mode", "path": "a.txt", "text": "644"},
        {"check": "run", "args": ["sh", "-c", "cat a.txt; cat"], "stdin": "two\n", "text": "one\ntwo"},
        files={"keep.txt": b"k", "c.txt": b"c"},
        free=("c.txt",),
    )
    right = look(one, {"a.txt": b"one\n", "keep.txt": b"k"})
    assert right.passed, right.reasons
    assert not look(one, {"a.txt": b"one\n", "keep.txt": b"other"}).passed
    assert not look(one, {"a.txt": b"two\n", "keep.txt": b"k"}).passed
    assert not look(one, {"a.txt": b"one\n", "keep.txt": b"k", "b.txt": b""}).passed


def test_programs_of_the_session_come_last() -> None:
    """Whatever a `run` starts, what other checks found was said before; they are moved in front."""
    one = task({"check": "run", "args": ["python3", "s.py"]}, {"check": "file", "path": "a", "text": "right"})
    forged = b"import os\nos.write(1, b'')\nopen('a', 'w').write('right')\n"
    verdict = look(one, {"s.py": forged, "a": b"wrong"})
    assert not verdict.passed
    assert any(reason.startswith("a gives") for reason in verdict.reasons)


def test_expected_state_stays_outside() -> None:
    """The job holds where to look, never what is right."""
    one = task(
        {"check": "file", "path": "a", "text": "a secret"}, {"check": "run", "args": ["x"], "text": "another secret"}
    )
    job = KIND.plan(one, rollout_of(one, "x", workspace=WORKSPACE))
    assert b"secret" not in msgspec.msgpack.encode(msgspec.structs.replace(job, rollout=rollout_of(task())))


@pytest.mark.parametrize(
    "stdout", [b"", b"\xff\xfe", b'{"call": 0, "value": 1}\n', b'{"call": 0}\n{"call": 1}\n', b"[" * 9999]
)
def test_garbled_findings_are_no_credit(stdout: bytes) -> None:
    """What can't be read doesn't hold."""
    one = task({"check": "absent", "path": "a"})
    graded = Graded(
        rollout=rollout_of(one, "x", workspace=WORKSPACE), execution=Execution(outcome=Outcome.FINISHED, stdout=stdout)
    )
    assert KIND.judge(one, graded).score == 0.0


@pytest.mark.parametrize(
    "checks",
    [
        [],
        [{"check": "file", "path": "/etc/passwd"}],
        [{"check": "file", "path": "../x"}],
        [{"check": "mode", "path": "a", "text": "rw"}],
        [{"check": "git"}],
        [{"check": "owner", "path": "a"}],
    ],
)
def test_broken_tasks(checks: list[dict[str, Any]]) -> None:
    """Checks that can't be made are the task's fault."""
    one = task(*checks)
    with pytest.raises(BrokenTask):
        KIND.plan(one, rollout_of(one, "x", workspace=WORKSPACE))


def test_nothing_run_is_nothing_done() -> None:
    """A rollout that ran nothing scores 0 at once."""
    one = task({"check": "file", "path": "a"})
    verdict = KIND.plan(one, rollout_of(one, "DONE"))
    assert isinstance(verdict, Verdict)
    assert verdict.score == 0.0

"""The program that becomes another user: run here as it runs inside."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tiltyard.sandbox.guest import enter, spawn

LOOK = "id -u; id -g; id -G; grep CapEff /proc/self/status | cut -f2; echo $0 $1 $VARIABLE"


@pytest.fixture
def program() -> Iterator[str]:
    """The executable, where every user may run it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "enter"
        path.write_bytes(enter.program())
        path.chmod(0o755)
        yield str(path)


@pytest.mark.skipif(platform.machine() != spawn.MACHINE, reason=f"only for {spawn.MACHINE}")
def test_it_becomes_the_user_then_the_program(program: str) -> None:
    """User, group and groups are the given one, no capability is left, arguments and environment arrive."""
    argv = ["1000", "/bin/sh", "sh", "-c", LOOK, "name", "argument"]
    done = subprocess.run(argv, executable=program, env={"VARIABLE": "x", "PATH": "/usr/bin:/bin"}, capture_output=True)
    assert done.stdout.decode().split("\n")[:5] == ["1000", "1000", "1000", "0" * 16, "name argument x"]
    assert done.returncode == 0


@pytest.mark.skipif(platform.machine() != spawn.MACHINE, reason=f"only for {spawn.MACHINE}")
@pytest.mark.parametrize(
    "argv", [["0", "/bin/true", "true"], ["", "/bin/true", "true"], ["1000", "/no/such", "x"], ["1000"], ["x"]]
)
def test_anything_else_fails(program: str, argv: list[str]) -> None:
    """User 0, no user, a missing program: status 127, and nothing is run."""
    assert subprocess.run(argv, executable=program, check=False).returncode == 127


def test_programs_are_found_as_a_shell_finds_them(tmp_path: Path) -> None:
    """The first of the search path that the user may run; scripts, directories, pipes and missing ones are left."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        shutil.copy("/bin/true", folder / "tool")
    search = f"{first}:{second}"
    assert spawn.find(b"tool", search, "/", 1000) == os.fsencode(first / "tool")
    (first / "tool").chmod(0o600)
    assert spawn.find(b"tool", search, "/", 1000) == os.fsencode(second / "tool")
    assert spawn.find(b"./tool", search, str(second), 1000) == os.fsencode(second) + b"/./tool"
    (second / "tool").write_text("#!/bin/sh\n")
    assert spawn.find(b"tool", search, "/", 1000) == b""
    (first / "folder").mkdir()
    os.mkfifo(first / "pipe", 0o777)
    for name in (b"folder", b"pipe", b"missing"):
        assert spawn.find(name, search, "/", 1000) == b""

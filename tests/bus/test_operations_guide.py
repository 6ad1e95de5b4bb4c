"""The operations guide's commands that need no cluster are given, in its order, on a real bus."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import structlog.testing
from support import letters
from support.guide import ROOT, blocks, commands

from tiltyard.cli import connection
from tiltyard.cli.main import main
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.breaker import Pause
from tiltyard.kit.bus import Bus
from tiltyard.kit.deadletters import Filter, Letters
from tiltyard.kit.embedded import free_port, start_server
from tiltyard.kit.provision import provision
from tiltyard_proto.topology import GENERATE, PAUSES_BUCKET, Stage

pytestmark = pytest.mark.anyio
BUS = ("status", "dlq", "weights", "quotas", "provision", "janitor")
"""Subcommands that speak to the bus."""
GIVEN = commands("run")


class Guide:
    """A directory like a checkout, and what the guide's capital words stand for."""

    def __init__(self, where: Path, url: str, root: Path) -> None:
        self.where, self.root = where, root
        self.sets = ["--set", f'bus.servers=["{url}"]', "--set", f"data.root={root}"]
        self.ids: list[str] = []

    def filled(self, line: str) -> str:
        """The line with its capital words replaced; each `ID` is a letter that is still open."""
        for _ in range(len(re.findall(r"\bID\b", line))):
            line = re.sub(r"\bID\b", self.ids[0] if "show" in line or "edit" in line else self.ids.pop(), line, count=1)
        return re.sub(r"\bDATA\b", str(self.root), line)

    def run(self, line: str) -> tuple[int, str]:
        """Give one command; its status and what it said."""
        if line.startswith("tiltyard"):
            return self._ours(line)
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.where, capture_output=True, text=True, timeout=60, check=False,
            env={"EDITOR": "true", "PATH": "/usr/bin:/bin:/usr/local/bin"},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def _ours(self, line: str) -> tuple[int, str]:
        text, _, file = line.partition(" > ")
        argv = shlex.split(text)[1:]
        said = io.StringIO()
        with contextlib.chdir(self.where), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = main([*argv, *(self.sets if argv[0] in BUS else [])])
            if file:
                Path(file.strip()).write_text(said.getvalue())
        return status, said.getvalue()


@pytest.fixture
def guide(nats_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guide]:
    monkeypatch.setattr(connection.log_setup, "setup", lambda *_, **__: None)
    where, root = tmp_path / "checkout", tmp_path / "data"
    where.mkdir()
    root.mkdir()
    (where / "examples").symlink_to(ROOT / "examples")
    (where / "infra/kubernetes").mkdir(parents=True)
    with structlog.testing.capture_logs():
        yield Guide(where, nats_server.url, root)


async def _prepare(bus: Bus) -> list[str]:
    """Letters of the classes that the guide speaks of, and a paused domain; the ids of letters to act on."""
    made = await letters.make_letters(bus, 6)
    for index in range(17):
        await bus.js.publish(f"tilt.v1.generate.math__test.garbage-{index}", b"\xc1 no message", {})
    await letters.serve_all(bus, letters.take)
    pause = Pause(stage="verify", domain="code.python.functions", since=1.0, died=9, of=10, detail="handler: KeyError")
    await bus.kv(PAUSES_BUCKET).put(pause.key, msgspec.msgpack.encode(pause))
    return [entry.id for entry in made]


@pytest.mark.timeout(240)
async def test_every_command_of_the_guide_works(bus: Bus, guide: Guide) -> None:
    """Each command ends with 0, in the guide's order; what it makes is what the next steps need."""
    guide.ids = await _prepare(bus)
    stage: Stage[Any] = letters.QUICK
    assert stage.name == GENERATE.name
    async with letters.serving(bus, letters.take):
        for line in GIVEN:
            status, said = await anyio.to_thread.run_sync(guide.run, guide.filled(line))
            assert status == 0, f"{line}\n{said}"
            if line.startswith("tiltyard credentials"):
                security = guide.where / "infra/kubernetes/credentials/server/security.conf"
                assert "/etc/nats/security/tls.pem" in security.read_text()
    keys = [guide.where / "infra/kubernetes/credentials/engine" / name for name in ("api-key", "admin-key")]
    assert all(re.fullmatch("[0-9a-f]{64}", path.read_text()) for path in keys)
    assert (guide.where / "letters.jsonl").exists()


async def test_a_backup_that_was_restored_is_the_bus_that_was(tmp_path: Path) -> None:
    """What the guide's commands copy of a stopped system serves the same letters from another directory."""
    root = tmp_path / "data"
    guide = Guide(tmp_path, "", root)
    made = await _with_server(root / "nats", tmp_path, lambda bus: letters.make_letters(bus, 3))
    for line in [line for line in GIVEN if "tar " in line or "restored" in line]:
        status, said = await anyio.to_thread.run_sync(guide.run, guide.filled(line))
        assert status == 0, said
    found = await _with_server(tmp_path / "restored/nats", tmp_path, lambda bus: Letters(bus).all(Filter()))
    assert [entry.id for entry in found] == [entry.id for entry in made]


async def _with_server(store: Path, where: Path, work: Callable[[Bus], Awaitable[list[Any]]]) -> list[Any]:
    """What `work` gives on a server with that store, which is stopped in good order afterwards."""
    port = free_port()
    process = start_server(store, port=port)
    bus = await Bus.connect(f"nats://127.0.0.1:{port}", BlobStore(where / "blobs"), "test")
    try:
        await provision(bus)
        return await work(bus)
    finally:
        await bus.close()
        process.terminate()
        process.wait()


def test_the_guide_has_every_action() -> None:
    """Each action on dead letters is shown at least once, and every block says how it is tested."""
    text = "\n".join(GIVEN)
    for action in ("ls", "show", "replay", "edit", "purge", "export", "import", "resume"):
        assert f"tiltyard dlq {action}" in text
    assert len(GIVEN) > 25
    languages = {language for language, _ in blocks(ROOT / "docs/operations.md")}
    assert languages <= {"sh run", "sh cluster", "sh make", "sh up", "toml"}

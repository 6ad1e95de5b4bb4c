"""`tiltyard dlq` as a person calls it, on a real bus."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import structlog.testing
from support import build, letters
from support.services import stored

from tiltyard.cli import connection
from tiltyard.cli.main import main
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.deadletters import Filter, Letters
from tiltyard.kit.embedded import free_port, start_server
from tiltyard.kit.provision import provision
from tiltyard_proto import topology
from tiltyard_proto.topology import DLQ, GENERATE, VERIFY

pytestmark = pytest.mark.anyio
Command = Callable[..., Any]


class Called(msgspec.Struct, frozen=True):
    status: int
    out: str
    err: str


@pytest.fixture
def dlq(
    nats_server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    """Call `tiltyard dlq ...` against the test's bus, off the test's event loop and without a log of its own."""
    monkeypatch.setattr(connection.log_setup, "setup", lambda *_, **__: None)

    async def call(*arguments: str, server: str = nats_server.url) -> Called:
        where = ["--set", f'bus.servers=["{server}"]', "--set", f"data.root={tmp_path}"]
        capsys.readouterr()
        status = await anyio.to_thread.run_sync(main, ["dlq", *arguments, *where])
        said = capsys.readouterr()
        return Called(status, said.out, said.err)

    with structlog.testing.capture_logs():
        yield call


async def test_ls_counts_and_lists(bus: Bus, dlq: Command) -> None:
    """Groups by stage, class and domain with ages; `--long` names every letter; `--json` says the same."""
    assert "no dead letters" in (await dlq("ls")).out
    await letters.make_letters(bus, 3)
    await letters.make_letters(bus, 2, domain="code.python.functions")
    called = await dlq("ls")
    assert called.status == 0
    assert "5 dead letters" in called.out
    row = next(line for line in called.out.splitlines() if "math.test" in line)
    assert {"generate", "validation", "open", "3"} <= set(row.split())
    said = msgspec.json.decode((await dlq("ls", "--json", "--long", "--domain", "code")).out)
    assert said["total"] == 2
    (group,) = said["groups"]
    assert (group["stage"], group["reason"], group["count"]) == ("generate", "validation", 2)
    assert 0 <= group["newest_s"] <= group["oldest_s"] < 60
    names = {letter["id"] for letter in said["letters"]}
    listed = await dlq("ls", "--long")
    assert all(name in listed.out for name in names)
    assert "no dead letters" in (await dlq("ls", "--older", "1h")).out
    assert "5 dead letters" in (await dlq("ls", "--since", "1h")).out


async def test_show_says_why(bus: Bus, dlq: Command) -> None:
    """Reason, headers, trace and the decoded message; a hexdump where there is none; what this release says now."""
    rollout = build.rollout()
    headers = {"Tilt-Schema": "rollout/1", "traceparent": "00-abc-def-01"}
    await bus.js.publish(GENERATE.subject(rollout), topology.encode(rollout), headers)
    await bus.js.publish("tilt.v1.generate.math__test.bad", b"\xc1[bold]\x00", {})
    await letters.serve_all(bus, letters.refuse)
    bad = next(entry for entry in await Letters(bus).all() if entry.letter.reason == "decode")
    good = next(entry for entry in await Letters(bus).all() if entry.letter.reason == "validation")
    said = (await dlq("show", good.id)).out
    for words in ("not by this release", "00-abc-def-01", "this release would take it", '"id": "run-t-0-0"'):
        assert words in said
    said = (await dlq("show", bad.id[:8])).out
    assert "c1 5b 62 6f 6c 64 5d 00" in said
    assert "|.[bold].|" in said
    found = msgspec.json.decode((await dlq("show", bad.id, "--json")).out)
    assert found["message"] is None
    assert found["letter"]["body"] == "wVtib2xkXQA="
    message = (await dlq("show", good.id, "--message")).out
    assert msgspec.json.decode(message, type=type(rollout)) == rollout
    assert (await dlq("show", bad.id, "--message")).status == 2
    unknown = await dlq("show", "nothing")
    assert (unknown.status, unknown.err.count("\n")) == (2, 1)


async def test_replay_dry_run_then_for_good_then_again(bus: Bus, dlq: Command) -> None:
    """A dry run sends nothing, a replay accounts for all, a second one finds nothing open."""
    await letters.make_letters(bus, 5)
    dry = await dlq("replay", "--all", "--dry-run")
    assert "5 letters would be replayed: 5 would be taken" in dry.out
    assert len(await stored(bus, GENERATE)) == 5
    async with letters.serving(bus, letters.take):
        called = await dlq("replay", "--all", "--rate", "200", "--wait", "30")
        assert (called.status, called.out) == (0, "5 replayed: 5 processed\n")
        assert (await dlq("replay", "--all")).out == "0 replayed\n"
    assert len(await stored(bus, VERIFY)) == 5
    assert "resolved (5 processed)" in (await dlq("ls", "--state", "any")).out


async def test_replay_that_fails_again_is_status_1(bus: Bus, dlq: Command) -> None:
    """Letters by id; what fails again is said and is a letter of its own."""
    first, _ = await letters.make_letters(bus, 2)
    async with letters.serving(bus, letters.refuse):
        called = await dlq("replay", first.id, "--wait", "30", "--json")
    assert called.status == 1
    counts = msgspec.json.decode(called.out)
    assert (counts["replayed"], counts["failed_again"], counts["processed"]) == (1, 1, 0)
    assert "2 dead letters" in (await dlq("ls")).out


async def test_edit_from_a_file(bus: Bus, dlq: Command, tmp_path: Path) -> None:
    """What `show --message` printed, corrected, is replayed; the difference is printed and kept."""
    broken = build.rollout(attempt=-1)
    await bus.js.publish(GENERATE.subject(broken), topology.encode(broken), {})
    await letters.serve_all(bus, letters.refuse)
    (entry,) = await Letters(bus).all()
    file = tmp_path / "message.json"
    file.write_text((await dlq("show", entry.id, "--message")).out)
    assert (await dlq("edit", entry.id, "--file", str(file))).status == 2  # as wrong as before
    file.write_text(file.read_text().replace('"attempt": -1', '"attempt": 0'))
    async with letters.serving(bus, letters.take):
        called = await dlq("edit", entry.id, "--file", str(file))
    assert called.status == 0, called.err
    assert '-  "attempt": -1' in called.out
    assert "processed" in called.out
    assert '-  "attempt": -1' in (await dlq("show", entry.id)).out


async def test_purge_takes_two_steps(bus: Bus, dlq: Command) -> None:
    """First the count, then the count as a confirmation; a wrong one discards nothing."""
    await letters.make_letters(bus, 3)
    asked = await dlq("purge", "--reason", "validation")
    assert "--yes 3" in asked.out
    wrong = await dlq("purge", "--reason", "validation", "--yes", "2")
    assert wrong.status == 2
    assert len(await stored(bus, DLQ)) == 3
    done = await dlq("purge", "--reason", "validation", "--yes", "3")
    assert (done.status, done.out) == (0, "3 dead letters discarded\n")
    assert await stored(bus, DLQ) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay"], "--all"),
        (["purge"], "--all"),
        (["replay", "--all", "--rate", "0"], "--rate"),
        (["ls", "--since", "yesterday"], "30m"),
        (["ls", "--stage", "nowhere"], "generate"),
        (["replay", "nobody"], "nobody"),
        (["edit", "nobody", "--json", "{}"], "nobody"),
        (["edit", "nobody", "--file", "/nonexistent"], "/nonexistent"),
        (["import", "/nonexistent"], "/nonexistent"),
        (["export", "/nonexistent/x"], "/nonexistent"),
    ],
)
async def test_mistakes_are_one_line(bus: Bus, dlq: Command, arguments: list[str], words: str) -> None:
    """The user's mistake is one line that says how to mend it, and status 2."""
    called = await dlq(*arguments)
    assert called.status == 2
    assert words in called.err
    assert called.err.count("\n") == 1


async def test_export_and_import_on_another_bus(bus: Bus, dlq: Command, tmp_path: Path) -> None:
    """Letters and what they claim arrive on another bus, once, open; there they can be replayed."""
    big = build.rollout(build.task("math.test", text="x" * 100_000))
    await bus.publish(GENERATE, big)
    await bus.js.publish("tilt.v1.generate.math__test.bad", bytes(range(256)), {})
    await letters.serve_all(bus, letters.refuse)
    file = tmp_path / "letters.jsonl"
    assert (await dlq("export", str(file))).status == 0
    port = free_port()
    process = start_server(tmp_path / "other", port=port)
    try:
        url = f"nats://127.0.0.1:{port}"
        other = await Bus.connect(url, BlobStore(tmp_path / "other-blobs"), "test")
        await provision(other)
        where = ("--set", f"data.root={tmp_path / 'elsewhere'}")
        for new, old in ((2, 0), (0, 2)):
            called = await dlq("import", str(file), *where, server=url)
            assert called.out == f"{new} dead letters stored, {old} were there already\n"
        here, there = await Letters(bus).all(), await Letters(other).all(Filter(state="open"))
        assert [entry.letter for entry in here] == [entry.letter for entry in there]
        await other.close()
    finally:
        process.kill()
        process.wait()
    blobs = BlobStore(tmp_path / "blobs")
    (claimed,) = [entry for entry in here if entry.letter.headers.get("Tilt-Claim")]
    assert list(blobs.root.rglob("*")) != []
    assert claimed.letter.reason == "validation"


async def test_import_of_something_else(bus: Bus, dlq: Command, tmp_path: Path) -> None:
    """A file that is no export is refused with its line before anything is stored."""
    file = tmp_path / "tasks.jsonl"
    file.write_text('\n{"domain": "math.test"}\n')
    called = await dlq("import", str(file))
    assert called.status == 2
    assert f"{file}:2" in called.err
    assert await stored(bus, DLQ) == []


async def test_without_a_bus(dlq: Command) -> None:
    """One line, at once."""
    called = await dlq("ls", server=f"nats://127.0.0.1:{free_port()}")
    assert called.status == 2
    assert "no bus" in called.err


async def test_help_is_light() -> None:
    """The arguments load neither the bus client nor what prints tables."""
    code = (
        "import sys\nfrom tiltyard.cli.main import parser\nparser()\n"
        "print(sorted({'nats', 'rich', 'duckdb', 'aiohttp'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = await anyio.run_process([sys.executable, "-c", code], env=environment)
    assert done.stdout == b"[]\n"

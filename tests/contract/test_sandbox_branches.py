"""Snapshots on real gVisor: of a profile, of a session, and what happens to a bad one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from support.sandbox_host import eventually_no_traces

from tiltyard.sandbox import images
from tiltyard.sandbox.backend import Sandbox, SandboxLost, SnapshotFailed, StartFailed, Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.process import ProcessBackend
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits
from tiltyard_proto.outcomes import Outcome

pytestmark = pytest.mark.anyio
PROFILE = """
name = "loaded"
description = "with modules imported"
preload = ["json", "random", "statistics"]
[image]
packages = ["python3"]
"""
LOADED = Want(profile="loaded")
NUMBERS = b"import os, random\nprint(random.random(), os.urandom(8).hex())"


@pytest.fixture
def settings(tmp_path: Path) -> SandboxSettings:
    """A home of its own, with a profile that imports modules."""
    found = SandboxSettings()
    image = str(images.find_image(found, "python"))
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "loaded.toml").write_text(PROFILE)
    return SandboxSettings(
        home=str(tmp_path / "home"),
        runsc=images.find_runsc(found),
        image={"python": image, "loaded": image},
        profiles=str(tmp_path / "profiles"),
        branches=2,
    )


@pytest.fixture
async def backend(settings: SandboxSettings) -> AsyncIterator[GVisorBackend]:
    opened = GVisorBackend.open(settings)
    yield opened
    await opened.close()
    assert opened.leaked == 0
    assert not opened.instance.path.exists()


async def said(sandbox: Sandbox, script: str) -> bytes:
    found = await sandbox.run(Command(argv=("bash", "-c", script)))
    assert found.outcome is Outcome.FINISHED, found
    return found.stdout


async def numbers(sandbox: Sandbox) -> bytes:
    found = await sandbox.run(Command(argv=("python3", "main.py"), files={"main.py": NUMBERS}))
    assert found.outcome is Outcome.FINISHED, found
    return found.stdout


def snapshots(settings: SandboxSettings) -> list[Path]:
    return list((Path(settings.home) / "snapshots").glob("*"))


async def test_a_profile_is_restored_with_its_modules(backend: GVisorBackend, settings: SandboxSettings) -> None:
    """A profile with a preload is snapshotted once and restored after that; clones differ in their random numbers."""
    seen = set()
    for _ in range(3):
        sandbox = await backend.start(LOADED)
        seen.add(await numbers(sandbox))
        script = {"main.py": b"import sys; print('statistics' in sys.modules)"}
        found = await sandbox.run(Command(argv=("python3", "main.py"), files=script))
        assert found.stdout == b"True\n"
        await sandbox.kill()
    assert len(seen) == 3
    (place,) = snapshots(settings)
    made = place.stat().st_ino
    await (await backend.start(LOADED)).kill()
    assert [path.stat().st_ino for path in snapshots(settings)] == [made]


@pytest.mark.parametrize("name", ["pages.img", "checkpoint.img"])
async def test_a_bad_snapshot_means_a_cold_start(
    backend: GVisorBackend, settings: SandboxSettings, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flipped byte costs a cold start; what can't be restored though its bytes are right costs one too."""
    await (await backend.start(LOADED)).kill()
    (place,) = snapshots(settings)
    damaged = bytearray((place / name).read_bytes())
    damaged[len(damaged) // 2] ^= 255
    (place / name).write_bytes(damaged)
    sandbox = await backend.start(LOADED)
    assert await said(sandbox, "echo works") == b"works\n"
    await sandbox.kill()
    (place,) = snapshots(settings)
    monkeypatch.setattr(backend.store, "find", lambda key: place)  # as if damage had gone unseen
    (place / "checkpoint.img").write_bytes(b"nonsense")
    sandbox = await backend.start(LOADED)
    assert await said(sandbox, "echo works") == b"works\n"
    await sandbox.kill()
    assert snapshots(settings) == []
    await eventually_no_traces(backend)


async def test_many_builders_at_once(backend: GVisorBackend, settings: SandboxSettings) -> None:
    """Two services that start the same profile at the same time both work, and one snapshot is kept."""
    other = GVisorBackend.open(settings)
    made: list[Sandbox] = []
    try:

        async def start(one: GVisorBackend) -> None:
            made.append(await one.start(LOADED))

        async with anyio.create_task_group() as tasks:
            for one in (backend, other, backend, other):
                tasks.start_soon(start, one)
        assert [await said(sandbox, "echo works") for sandbox in made] == [b"works\n"] * 4
        assert len(snapshots(settings)) == 1
    finally:
        await other.close()


async def test_a_session_is_branched(backend: GVisorBackend) -> None:
    """Clones begin with the original's files, modes and background processes, and go their own ways."""
    original = await backend.start(Want(disk_bytes=32 << 20))
    await original.write({"deep/kept.txt": b"kept", "gone.txt": b"x"})
    await said(original, "rm gone.txt; chmod 700 deep/kept.txt; echo t > /tmp/t; ln -s deep/kept.txt link")
    branch = await backend.snapshot(original)
    await original.write({"later.txt": b"later"})
    clones = [await backend.start(Want(snapshot=branch)) for _ in range(2)]
    look = "cat deep/kept.txt link /tmp/t; stat -c %a deep/kept.txt; ls; df --output=size -k . | tail -1"
    one, two = [await said(clone, look) for clone in clones]
    assert one == two
    assert one.splitlines()[:4] == [b"keptkeptt", b"700", b"deep", b"link"]
    assert one.splitlines()[4].strip() == b"32768"
    await clones[0].write({"mine.txt": b"1"})
    assert await clones[1].read(["mine.txt", "later.txt"]) == {}
    assert await original.read(["mine.txt", "later.txt"]) == {"later.txt": b"later"}
    assert len({await numbers(sandbox) for sandbox in (original, *clones)}) == 3
    await original.kill()
    assert await said(clones[1], "echo on") == b"on\n"
    for clone in clones:
        await clone.kill()


async def test_a_large_session_is_branched(backend: GVisorBackend) -> None:
    """A session with more in memory than a fresh sandbox may use is restored, with the process that holds it."""
    limits = ExecLimits(memory_bytes=800 << 20)
    original = await backend.start(Want())
    hold = "import time; block = b'x' * (420 << 20); open('ready', 'w').close(); time.sleep(1000)"
    await original.run(Command(argv=("python3", "-c", hold), limits=limits, background=True))
    with anyio.fail_after(20):
        while not await original.read(["ready"]):  # noqa: ASYNC110  (nobody announces it)
            await anyio.sleep(0.05)
    clone = await backend.start(Want(snapshot=await backend.snapshot(original)))
    await original.kill()
    assert [job.running for job in await clone.jobs()] == [True]
    found = await clone.run(Command(argv=("true",), limits=limits))
    assert found.outcome is Outcome.FINISHED
    await clone.kill()


async def test_snapshots_of_sessions_go(backend: GVisorBackend) -> None:
    """Too many, forgotten ones and those of gone sandboxes are refused by name; a snapshot waits for a command."""
    sandbox = await backend.start(Want())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(said, sandbox, "sleep 0.5; echo done > done.txt")
        await anyio.sleep(0.1)
        first = await backend.snapshot(sandbox)
    clone = await backend.start(Want(snapshot=first))
    assert await clone.read(["done.txt"]) == {"done.txt": b"done\n"}
    await clone.kill()
    others = [await backend.snapshot(sandbox) for _ in range(2)]
    with pytest.raises(StartFailed, match="gone"):
        await backend.start(Want(snapshot=first))
    await backend.forget_snapshot(others[0])
    await backend.forget_snapshot(others[0])
    with pytest.raises(StartFailed, match="gone"):
        await backend.start(Want(snapshot=others[0]))
    assert len(list((backend.instance.path / "branches").iterdir())) == 1
    await sandbox.kill()
    with pytest.raises(SandboxLost):
        await backend.snapshot(sandbox)


async def test_an_answer_from_another_clone_is_refused(backend: GVisorBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored agent that gives back another token than its own is not used."""
    await (await backend.start(LOADED)).kill()
    monkeypatch.setattr("tiltyard.sandbox.gvisor.secrets.token_bytes", lambda size: OddBytes(b"a" * size))
    sandbox = await backend.start(LOADED)  # the restore is refused, the cold start is not
    assert await said(sandbox, "echo works") == b"works\n"
    await sandbox.kill()
    await eventually_no_traces(backend)


class OddBytes(bytes):
    """A token that is never equal to the one given back."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


async def test_back_ends_without_snapshots_say_so() -> None:
    """The plain back-end refuses by name."""
    backend = ProcessBackend(SandboxSettings(allow_untrusted_process=True))
    sandbox = await backend.start(Want())
    with pytest.raises(SnapshotFailed, match="process"):
        await backend.snapshot(sandbox)
    await sandbox.kill()
    await backend.close()


async def test_what_waits_costs_no_cpu(backend: GVisorBackend) -> None:
    """A resting sandbox uses no CPU time; woken, it answers."""
    sandbox = await backend.start(Want())
    cell, _ = backend._live[sandbox.id]
    assert await sandbox.rest()
    await anyio.sleep(0.3)
    before = cell.counters().cpu_s
    await anyio.sleep(1.0)
    assert cell.counters().cpu_s - before < 0.005  # about 0.025 without rest
    assert await said(sandbox, "echo awake") == b"awake\n"
    assert await sandbox.rest()
    clone = await backend.start(Want(snapshot=await backend.snapshot(sandbox)))  # a snapshot of what rests
    assert await said(clone, "echo awake") == b"awake\n"
    await clone.kill()
    await sandbox.kill()

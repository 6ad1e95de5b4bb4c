"""Files of a session beyond reading and writing: lists, archives of a part, patches; over all back-ends."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator

import pytest
from support.sandboxes import BACKENDS, bash, open_named

from tiltyard.sandbox.archive import pack
from tiltyard.sandbox.backend import Absent, ArchiveRefused, Backend, PatchRefused, Sandbox, Want, WorkspaceTooLarge
from tiltyard.sandbox.settings import SandboxSettings

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(allow_untrusted_process=True, workspace_bytes=1 << 20, workspace_entries=50)


@pytest.fixture(scope="module", params=BACKENDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    opened = open_named(request.param, SETTINGS)
    yield opened
    await opened.close()
    assert opened.leaked == 0


@pytest.fixture
async def sandbox(backend: Backend) -> AsyncIterator[Sandbox]:
    made = await backend.start(Want())
    yield made
    await made.kill()


async def test_entries_are_listed(sandbox: Sandbox) -> None:
    """Everything is listed with kind, mode and size, without a byte being read; a part by its directory."""
    await bash(sandbox, "mkdir -m 750 d; printf 12345 > d/f; chmod 4711 d/f; ln -s f d/l; mkfifo p; truncate -s 1T big")
    found = {entry.path: (entry.kind, entry.mode) for entry in await sandbox.entries()}
    assert found == {
        "big": ("f", 0o644), "d": ("d", 0o750), "d/f": ("f", 0o711), "d/l": ("l", 0o777), "p": ("o", 0o644),
    }  # fmt: skip
    assert [(entry.path, entry.size) for entry in await sandbox.entries("d") if entry.kind == "f"] == [("d/f", 5)]
    assert [entry.path for entry in await sandbox.entries("d/f")] == ["d/f"]
    for missing in ("nope", "d/f/x", "nope/x"):
        with pytest.raises(Absent):
            await sandbox.entries(missing)
    assert sandbox.alive


async def test_a_directory_with_too_many_entries_is_refused(sandbox: Sandbox) -> None:
    """The cap ends a list before it is made."""
    await bash(sandbox, "touch $(seq 60)")
    with pytest.raises(WorkspaceTooLarge, match="entries"):
        await sandbox.entries()


async def test_a_part_goes_out_and_in(sandbox: Sandbox) -> None:
    """An archive of a directory holds names relative to it, and unpacks into another."""
    await bash(sandbox, "mkdir -p a/b; echo 1 > a/b/c; echo 2 > a/d; chmod 755 a/d; echo 3 > out; ln -s d a/l")
    part = await sandbox.export("a")
    with tarfile.open(fileobj=io.BytesIO(part)) as tar:
        assert tar.getnames() == ["b", "b/c", "d", "l"]
    await sandbox.restore(part, "x/y")
    assert (await bash(sandbox, "cat x/y/b/c x/y/l; test -x x/y/d")).stdout == b"1\n2\n"
    assert await sandbox.export("x/y") == part
    one = await sandbox.export("out")
    with tarfile.open(fileobj=io.BytesIO(one)) as tar:
        assert tar.getnames() == ["out"]
    with pytest.raises(Absent):
        await sandbox.export("nope")
    with pytest.raises(ValueError, match="workspace path"):
        await sandbox.restore(part, "../x")


@pytest.mark.parametrize(
    "entries",
    [
        [("f", 0o644, b"a", b"1"), ("f", 0o644, b"a", b"2")],
        [("l", 0o777, b"a", b"b"), ("f", 0o644, b"a/c", b"2")],
        [("f", 0o644, b"a", b"1"), ("d", 0o755, b"a", b"")],
        [("f", 0o644, b"f%d" % number, b"") for number in range(60)],
        [("f", 0o644, b"zeros", bytes(2 << 20))],
    ],
    ids=["twice", "below-a-link", "file-and-directory", "entries", "bytes"],
)
async def test_archives_that_contradict_themselves_are_refused(
    sandbox: Sandbox, entries: list[tuple[str, int, bytes, bytes]]
) -> None:
    """Nothing of such an archive is unpacked."""
    with pytest.raises(ArchiveRefused, match="archive"):
        await sandbox.restore(pack(entries))
    assert await sandbox.entries() == []


async def test_files_are_patched(sandbox: Sandbox) -> None:
    """A diff over several files is applied whole, modes stay, files come and go."""
    await bash(sandbox, "mkdir d; printf 'one\\ntwo\\n' > d/f; chmod 755 d/f; echo bye > gone")
    changed = await sandbox.patch(
        b"--- a/d/f\n+++ b/d/f\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n"
        b"--- /dev/null\n+++ b/e/new\n@@ -0,0 +1 @@\n+made\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n"
    )
    assert changed == ["d/f", "e/new", "gone"]
    found = {entry.path: entry.mode for entry in await sandbox.entries()}
    assert found == {"d": 0o755, "d/f": 0o755, "e": 0o755, "e/new": 0o644}
    assert await sandbox.listing() == {"d/f": b"one\nTWO\n", "e/new": b"made\n"}


async def test_a_patch_that_does_not_fit_changes_nothing(sandbox: Sandbox) -> None:
    """One hunk or one file that does not fit refuses all of it; links are no files to patch."""
    await bash(sandbox, "echo one > f; echo two > g; ln -s f link")
    good = b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+ONE\n"
    for bad in (b"g", b"link", b"missing"):
        with pytest.raises(PatchRefused, match=r"patch: "):
            await sandbox.patch(good + b"--- a/%b\n+++ b/%b\n@@ -1 +1 @@\n-one\n+ONE\n" % (bad, bad))
    assert await sandbox.listing() == {"f": b"one\n", "g": b"two\n"}

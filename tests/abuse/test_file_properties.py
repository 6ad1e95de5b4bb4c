"""The file API against whatever lies in the workspace: nothing reaches outside of it, and nothing hangs (cases 22, 23).

One real sandbox serves all examples; the workspace is emptied between them. `/tmp/outside` stands for all that is not
the workspace: the agent could read and write it, so its content and listing show every escape.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.sandboxes import bash

from tiltyard.sandbox.backend import ArchiveRefused, PatchRefused, Sandbox, SandboxError, SandboxLost, Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard_proto.messages import Command, ExecLimits

pytestmark = pytest.mark.anyio
QUIET = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
OUTSIDE = "rm -rf /tmp/*; mkdir /tmp/outside; echo SECRET > /tmp/outside/f; cp /tmp/outside/f /tmp/outside/a"
LOOK = "ls -lnR /tmp/outside | md5sum; cat /tmp/outside/*"
NAMES = st.sampled_from(["a", "b", "f"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
TARGETS = st.sampled_from(
    ["/tmp/outside", "/tmp/outside/f", "../tmp/outside", "../../tmp/outside/f", "/etc", "/etc/passwd",
     "/proc/1/cmdline", "/proc/self/root/tmp/outside", "/proc/self/fd/0", "a", "b", "a/b", ".", "..", "/workspace/a"]
)  # fmt: skip
THINGS = st.one_of(
    st.tuples(st.just("ln -sfn {t} {p}"), PATHS, TARGETS),
    st.tuples(st.sampled_from(["mkdir -p {p}", "mkfifo {p}", "echo mine > {p}", "ln -f a {p}"]), PATHS, TARGETS),
)
WRITES = st.sampled_from(["write", "restore", "patch", "command"])
READS = st.sampled_from(["read", "listing", "entries", "export", "below", "part"])


def tar_of(*members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * max(0, member.size)))
    return buffer.getvalue()


def file_of(path: str, size: int = 3) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.size = size
    return info


async def change(sandbox: Sandbox, how: str, path: str) -> None:
    """Put a file at a path in one of the ways there are; only typed refusals may come."""
    if how == "write":
        await sandbox.write({path: b"api"})
    elif how == "restore":
        await sandbox.restore(tar_of(file_of(path)))
    elif how == "command":
        await sandbox.run(Command(argv=("true",), files={path: b"api"}))
    else:
        old = (await sandbox.read([path])).get(path)
        side = f"a/{path}" if old is not None else "/dev/null"
        mine = f"@@ -1 +1 @@\n-{(old or b'').decode().rstrip()}\n+api\n" if old is not None else "@@ -0,0 +1 @@\n+api\n"
        try:
            await sandbox.patch(f"--- {side}\n+++ b/{path}\n{mine}".encode())
        except PatchRefused:
            return


async def look(sandbox: Sandbox, how: str, path: str) -> bytes:
    """What the API tells of the workspace, in one of the ways there are, as bytes."""
    try:
        if how == "read":
            return repr(await sandbox.read([path, "a", "a/f", "b/a/f", "f"])).encode()
        if how == "listing":
            return repr(await sandbox.listing()).encode()
        if how == "entries":
            return repr(await sandbox.entries()).encode()
        if how == "below":
            return repr(await sandbox.entries(path)).encode()
        return await sandbox.export(path if how == "part" else "")
    except SandboxLost:
        raise
    except SandboxError as error:
        return str(error).encode()


@pytest.fixture(scope="module")
async def shared(gvisor: GVisorBackend) -> AsyncIterator[Sandbox]:
    """A sandbox for all examples of a module."""
    made = await gvisor.start(Want())
    yield made
    await made.kill()


async def start_over(sandbox: Sandbox) -> bytes:
    """Empty the workspace; what the outside looks like."""
    found = await bash(sandbox, f"rm -rf /workspace/* /workspace/.[!.]*; {OUTSIDE}; {LOOK}")
    assert b"SECRET" in found.stdout
    return found.stdout


@QUIET
@given(
    st.lists(THINGS, max_size=6),
    st.lists(st.tuples(WRITES, PATHS), max_size=3),
    st.lists(READS, min_size=1, max_size=3),
)
async def test_nothing_planted_leads_outside(
    shared: Sandbox, things: list[tuple[str, str, str]], writes: list[tuple[str, str]], reads: list[str]
) -> None:
    """Links of every kind, loops, pipes and directories in any order: what is written stays in, what is read is in."""
    before = await start_over(shared)
    await bash(shared, "; ".join(form.format(p=path, t=target) for form, path, target in things) or ":")
    for how, path in writes:
        await change(shared, how, path)
        if how != "patch":
            assert (await shared.read([path]))[path] in (b"api", b"xxx")
        for reading in reads:
            told = await look(shared, reading, path)
            assert b"SECRET" not in told
            assert b"root:x" not in told
            assert b"guest.agent" not in told
    assert (await bash(shared, LOOK)).stdout == before
    assert shared.alive


@pytest.mark.parametrize(
    "swap", ["ln -sfn /tmp/outside a", "rm -rf a; ln -s /tmp/outside a", "mv a c; ln -s /tmp/outside a"]
)
async def test_a_race_leads_nowhere(gvisor: GVisorBackend, swap: str) -> None:
    """A background process that swaps a directory and a link to the outside all the time wins nothing."""
    sandbox = await gvisor.start(Want())
    try:
        before = await start_over(sandbox)
        race = f"while :; do rm -rf a c; mkdir -p a/b; echo mine > a/f; {swap}; rm -rf a; done"
        limits = ExecLimits(cpu_s=60)
        await sandbox.run(Command(argv=("bash", "-c", race), background=True, limits=limits))
        refused = 0
        for number in range(25):
            try:
                await change(sandbox, ("write", "restore")[number % 2], ("a/b/x", "a/f", "a")[number % 3])
            except SandboxError:  # it lost the race too often; nothing is harmed
                refused += 1
            for how in ("read", "listing", "entries", "export", "part"):
                assert b"SECRET" not in await look(sandbox, how, "a")
        assert refused < 25
        assert sandbox.alive
        assert [job.running for job in await sandbox.jobs()] == [True]
        await sandbox.signal(1, 9)
        assert (await bash(sandbox, LOOK)).stdout == before
    finally:
        await sandbox.kill()


KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
MEMBERS = st.builds(
    lambda path, kind, target, size, mode: (path, kind, target, size, mode),
    st.one_of(
        PATHS, st.sampled_from(["../a", "/tmp/outside/f", "a/../../x", "", ".", "./a", "a//b", "\udcff", "n\nl"])
    ),
    KINDS,
    TARGETS,
    st.sampled_from([0, 1, 5000, 20 << 20]),
    st.sampled_from([0o644, 0o4755, 0o000, 0o777]),
)  # fmt: skip


@QUIET
@given(st.lists(MEMBERS, min_size=1, max_size=5))
async def test_an_archive_stays_inside_or_is_refused(
    shared: Sandbox, members: list[tuple[str, bytes, str, int, int]]
) -> None:
    """Any mixture of members is unpacked as it says, without special bits and within the caps, or not at all."""
    before = await start_over(shared)
    infos = []
    for path, kind, target, size, mode in members:
        info = file_of(path, size if kind == tarfile.REGTYPE else 0)
        info.type, info.linkname, info.mode = kind, target if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else "", mode
        infos.append(info)
    try:
        await shared.restore(tar_of(*infos))
    except ArchiveRefused:
        assert await shared.entries() == []
    else:
        assert {entry.kind for entry in await shared.entries()} <= {"f", "d", "l"}
        assert (await bash(shared, "find . -perm /7000; find . -lname '/*' -o -lname '..'")).stdout == b""
    assert (await bash(shared, LOOK)).stdout == before


@QUIET
@given(st.binary(max_size=1500), st.integers(0, 3000))
async def test_a_damaged_archive_is_refused_or_whole(shared: Sandbox, junk: bytes, at: int) -> None:
    """Whatever bytes come as an archive, the only error is that it is refused, and the outside stays as it was."""
    before = await start_over(shared)
    good = tar_of(file_of("a"), file_of("b/f", 700))
    for data in (junk, good[:at] + junk + good[at + len(junk) :], good[:at]):
        try:
            await shared.restore(data)
        except ArchiveRefused:
            continue
    assert (await bash(shared, LOOK)).stdout == before
    assert shared.alive


@QUIET
@given(
    st.dictionaries(
        st.lists(st.text("ab \n'é\udcff", min_size=1, max_size=4), min_size=1, max_size=3).map("/".join),
        st.binary(max_size=300),
        max_size=6,
    )
)
async def test_what_is_written_is_what_is_there(shared: Sandbox, files: dict[str, bytes]) -> None:
    """Any names and contents go in and come out the same, by file and by archive, a later one replacing an earlier."""
    await start_over(shared)
    await shared.write(files)
    kept = {path: data for path, data in files.items() if (await shared.read([path]))}
    listed = await shared.listing()
    assert listed == kept == await shared.read(list(kept))
    archive = await shared.export()
    await start_over(shared)
    await shared.restore(archive)
    assert await shared.listing() == listed
    assert await shared.export() == archive

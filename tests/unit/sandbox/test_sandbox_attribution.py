"""What endings mean, and how archives are made."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiltyard.sandbox import archive
from tiltyard.sandbox.attribution import attribute, attribute_loss, unanswered
from tiltyard.sandbox.backend import ArchiveRefused, SandboxLost, check_path
from tiltyard.sandbox.cgroups import Counters
from tiltyard.sandbox.channel import encode, split
from tiltyard_proto.messages import ExecLimits
from tiltyard_proto.outcomes import Attribution, Outcome

LIMITS = ExecLimits(cpu_s=2.0)


@pytest.mark.parametrize(
    ("flags", "status", "cpu_s", "expected"),
    [
        ("", 0, 0.1, Outcome.FINISHED),
        ("", 3 << 8, 0.1, Outcome.NONZERO_EXIT),
        ("", 137 << 8, 0.1, Outcome.NONZERO_EXIT),
        ("", 11, 0.1, Outcome.SIGNALLED),
        ("", 9, 0.1, Outcome.SIGNALLED),
        ("", 9, 2.5, Outcome.WALL_LIMIT),
        ("", 24, 2.0, Outcome.WALL_LIMIT),
        ("", 25, 0.1, Outcome.DISK_LIMIT),
        ("wall", 15, 0.1, Outcome.WALL_LIMIT),
        ("wall", 0, 0.1, Outcome.WALL_LIMIT),
        ("interrupted", 15, 0.1, Outcome.WALL_LIMIT),
        ("output", 9, 0.1, Outcome.OUTPUT_LIMIT),
        ("disk", 1 << 8, 0.1, Outcome.DISK_LIMIT),
        ("disk", 0, 0.1, Outcome.FINISHED),
        ("processes", 1 << 8, 0.1, Outcome.PROCESS_LIMIT),
        ("processes", 0, 0.1, Outcome.FINISHED),
        ("processes,left", 0, 0.1, Outcome.PROCESS_LIMIT),
        ("processes,wall", 15, 0.1, Outcome.PROCESS_LIMIT),
    ],
)
def test_endings_are_attributed(flags: str, status: int, cpu_s: float, expected: Outcome) -> None:
    """Flags of limits that were enforced count before the wait status; an exit status of 137 alone means nothing."""
    found = attribute(frozenset(flags.split(",")), status, cpu_s, LIMITS)
    assert (found.outcome, found.attribution) == (expected, Attribution.POLICY)
    assert bool(found.detail) == (expected is not Outcome.FINISHED)


def test_losses_are_attributed_by_counters() -> None:
    """A sandbox that died is the policy's fault only where a counter of the kernel says so."""
    none = Counters()
    assert attribute_loss(none, Counters(oom_kills=1), LIMITS)[0] is Outcome.OUT_OF_MEMORY
    assert attribute_loss(none, Counters(pids_refused=4), LIMITS)[0] is Outcome.PROCESS_LIMIT
    assert attribute_loss(none, none, LIMITS)[0] is Outcome.SANDBOX_LOST
    assert attribute_loss(Counters(oom_kills=1), Counters(oom_kills=1), LIMITS)[0] is Outcome.SANDBOX_LOST
    counted = attribute_loss(none, Counters(oom_kills=1), LIMITS)
    assert counted.attribution is Attribution.POLICY
    for unsure in (attribute_loss(none, none, LIMITS), unanswered(LIMITS)):
        assert unsure.attribution is Attribution.AMBIGUOUS


NAMES = st.binary(min_size=1, max_size=20).filter(
    lambda name: b"/" not in name and b"\0" not in name and name.strip(b".")
)


@given(st.dictionaries(NAMES, st.tuples(st.integers(0, 0o777), st.binary(max_size=200)), max_size=8))
def test_archives_round_trip(files: dict[bytes, tuple[int, bytes]]) -> None:
    """Any names and contents come back as they were, and the order of packing does not matter."""
    entries = [("f", mode, name, data) for name, (mode, data) in files.items()]
    packed = archive.pack(entries)
    assert packed == archive.pack(reversed(entries))
    assert archive.unpack(packed, 1 << 20, 100) == sorted(entries, key=lambda entry: entry[2])


@pytest.mark.parametrize("target", [b"/etc/passwd", b"../x", b"a/../../x", b"", b"x\0y"])
def test_links_to_outside_are_not_packed(target: bytes) -> None:
    """A link that leaves the workspace is left out of its archive."""
    assert archive.unpack(archive.pack([("l", 0o777, b"link", target)]), 100, 10) == []
    assert archive.unpack(archive.pack([("l", 0o777, b"d/link", b"../x")]), 100, 10) == [
        ("l", 0o777, b"d/link", b"../x")
    ]


def hostile(name: str, kind: bytes, link: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        tar.addfile(info)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        hostile("../up", tarfile.REGTYPE),
        hostile("/etc/passwd", tarfile.REGTYPE),
        hostile("link", tarfile.SYMTYPE, "/etc/passwd"),
        hostile("link", tarfile.SYMTYPE, "../../etc"),
        hostile("hard", tarfile.LNKTYPE, "other"),
        hostile("disk", tarfile.BLKTYPE),
        hostile("tty", tarfile.CHRTYPE),
        hostile("pipe", tarfile.FIFOTYPE),
        b"x" * 2000,
    ],
)
def test_hostile_archives_are_refused(data: bytes) -> None:
    """Names and kinds that must not be unpacked are refused with a reason."""
    with pytest.raises(ArchiveRefused, match=r"archive|workspace path"):
        archive.unpack(data, 1 << 20, 100)


def test_archives_have_caps() -> None:
    """Bytes and entries are counted before anything is unpacked."""
    packed = archive.pack([("f", 0o644, b"a", b"x" * 100), ("f", 0o644, b"b", b"x" * 100)])
    with pytest.raises(ArchiveRefused, match="too large"):
        archive.unpack(packed, 199, 10)
    with pytest.raises(ArchiveRefused, match="more than 1 entries"):
        archive.unpack(packed, 200, 1)
    assert len(archive.unpack(packed, 200, 2)) == 2


@given(st.text(max_size=40))
def test_checked_paths_stay_inside(path: str) -> None:
    """A path either is refused or is relative, normal and without a way up."""
    try:
        checked = check_path(path)
    except ValueError:
        return
    assert not checked.startswith(b"/")
    assert b".." not in checked.split(b"/")
    assert b"" not in checked.split(b"/")


@given(st.binary(max_size=60))
def test_malformed_answers_are_a_lost_sandbox(body: bytes) -> None:
    """Any bytes of the agent's side either split into fields that add up, or mean that the sandbox is lost."""
    try:
        fields = split(body)
    except SandboxLost:
        return
    assert sum(len(field) + 4 for field in fields) == len(body)


def test_requests_are_framed() -> None:
    """A request carries its length first."""
    frame = encode({"op": "get", "paths": [b"a"]})
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4

"""Counting refused forks: what runsc's trace frames say, and the two ends of the socket."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiltyard.sandbox.refusals import Refusals, refused

pytestmark = pytest.mark.anyio
# as a runsc sent them: clone that gave pid 2, clone refused, clone3 that gave pid 20, clone3 refused
FRAMES = {
    "08001700000000001202080218382091808009": False,
    "08001700000000001202100b18382091808009": True,
    "08000600000000001202081420b30328808c908292e01f305838f0fddad8d3e91f400848c0edfe8fd0e91f50f78d908292e01f": False,
    "08000600000000001202100b20b30328808c908292e01f305838f0fddad8d3e91f400848c0cdfe8bd0e91f50f78d908292e01f": True,
    "0800170000000000120210261838": False,  # another error
    "080017000000000018381202100b": True,
    "0a0b1202100b": False,  # a header longer than the frame
}


@pytest.mark.parametrize(("frame", "expected"), FRAMES.items())
def test_frames_are_read(frame: str, expected: bool) -> None:
    """A frame tells of a refused fork only where its exit has the error EAGAIN."""
    assert refused(bytes.fromhex(frame)) is expected


@given(st.binary(max_size=80), st.sampled_from([bytes.fromhex(frame) for frame in FRAMES]))
def test_any_bytes_are_read(junk: bytes, frame: bytes) -> None:
    """Whatever comes, the answer is yes or no."""
    for data in (junk, frame[: len(junk)] + junk, frame + junk):
        assert refused(data) in (True, False)


async def test_what_a_sandbox_tells_is_counted(tmp_path: Path) -> None:
    """The greeting is given back, frames are counted as they come and when asked, and the peer's end is no error."""
    refusals = Refusals()
    (flag,) = refusals.listen(tmp_path)
    assert flag == f"--pod-init-config={tmp_path / 'trace.json'}"
    said = json.loads((tmp_path / "trace.json").read_text())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.connect(said["trace_session"]["sinks"][0]["config"]["endpoint"])
        peer.send(b"\x08\x01")
        with anyio.fail_after(5):
            assert await anyio.to_thread.run_sync(peer.recv, 10) == b"\x08\x01"
        for frame in FRAMES:
            peer.send(bytes.fromhex(frame))
        assert refusals.seen() == 3
        peer.send(bytes.fromhex(list(FRAMES)[1]))
        assert refusals.seen() == 4
    assert refusals.seen() == 4
    refusals.close()
    refusals.close()
    assert refusals.seen() == 4


async def test_a_path_too_long_for_a_socket_means_no_count(tmp_path: Path) -> None:
    """Then runsc is started without."""
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    assert Refusals().listen(folder) == ()

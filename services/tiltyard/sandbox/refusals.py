"""Forks that a sandbox's own kernel refused, counted from outside: runsc's trace points tell of every attempt.

Inside, nothing counts them, and looking at the number of processes can miss a bomb that is over soon. Invariants: a
count only ever goes up; what the sandbox says is read within bounds and never trusted beyond counting; without the
trace points, or with a socket path that is too long, there is no count and nothing else changes. Left out: other
system calls. Source of the format: gVisor's runtime monitoring, remote sink (a header of its own size, type and
dropped count, then a protobuf whose field 2 is the exit with its error number in field 2).
"""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

POINTS = ("syscall/clone/exit", "syscall/fork/exit", "syscall/vfork/exit", "syscall/sysno/435/exit")
"""The fourth: clone3, which the sentry has no name for."""
EAGAIN_EXIT = b"\x12\x02\x10\x0b"
"""Field 2 (exit), two bytes long: error number 11, without a result."""
MAX_PATH = 100
MAX_FRAME = 4096
AT_A_TIME = 256


class Refusals:
    """The listening end for one sandbox. Use from the event loop; `close` it with the sandbox."""

    def __init__(self) -> None:
        self.count = 0
        self._listener: socket.socket | None = None
        self._peer: socket.socket | None = None
        self._greeted = False

    def listen(self, folder: Path) -> tuple[str, ...]:
        """Make the socket and the configuration in `folder`; the flags for runsc, none when it can't be had."""
        place = folder / "t"
        if len(str(place)) > MAX_PATH:
            return ()
        sink = {"name": "remote", "config": {"endpoint": str(place)}, "ignore_setup_error": True}
        session = {"name": "Default", "points": [{"name": point} for point in POINTS], "sinks": [sink]}
        (folder / "trace.json").write_text(json.dumps({"trace_session": session}))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._listener.bind(str(place))
        self._listener.listen(1)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)
        return (f"--pod-init-config={folder / 'trace.json'}",)

    def seen(self) -> int:
        """Refused forks so far, those included that are told of and not yet read."""
        for _ in range(64):
            if not self._read():
                break
        return self.count

    def close(self) -> None:
        """Stop listening; harmless again."""
        for end in (self._listener, self._peer):
            if end is not None:
                asyncio.get_running_loop().remove_reader(end)
                end.close()
        self._listener = self._peer = None

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            self._peer, _ = self._listener.accept()
        except BlockingIOError:
            return
        self._peer.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        self._listener.close()
        self._listener = None
        loop.add_reader(self._peer, self._read)

    def _read(self) -> bool:
        """Read what is there, up to a bound; may there be more?"""
        if self._peer is None:
            return False
        for _ in range(AT_A_TIME):
            try:
                frame = self._peer.recv(MAX_FRAME)
                if not self._greeted and frame:
                    self._greeted = True
                    self._peer.send(frame)  # the same version back
                    continue
            except BlockingIOError:
                return False
            except OSError:
                frame = b""
            if not frame:
                self.close()
                return False
            self.count += refused(frame)
        return True


def refused(frame: bytes) -> bool:
    """Does the frame tell of a fork that was refused for want of room?"""
    size = int.from_bytes(frame[:2], "little")
    at = size
    while at < len(frame):
        if frame[at : at + 4] == EAGAIN_EXIT:
            return True
        at = _after(frame, at)
    return False


def _after(frame: bytes, at: int) -> int:
    """Where the next protobuf field begins; the end when this one can't be read."""
    kind = frame[at] & 7
    at += 1
    if kind == 0:
        while at < len(frame) and frame[at] & 0x80:
            at += 1
        return at + 1
    if kind == 2 and at < len(frame):
        return at + 1 + frame[at] if frame[at] < 0x80 else len(frame)
    return len(frame)

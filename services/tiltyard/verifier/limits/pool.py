"""The parent's side: pools of children, one for each function and its limits.

A zygote imports the function's module once; children are forked from it, so a killed one is replaced in milliseconds.
Invariants: a child that ran out of time, memory or of its number of checks is never used again; it leads a process
group that is killed as a whole, and stays a zombie until it is reaped here, so that its number is nobody else's.
No child outlives this process: each ends when its pipe ends, or when its time is up. Thread-safe; calls block.
"""

from __future__ import annotations

import atexit
import os
import signal
import struct
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from socket import AF_UNIX, SOCK_SEQPACKET, SOCK_STREAM, send_fds, socket, socketpair
from typing import Any

import msgspec

from tiltyard.verifier.kinds.base import Quarantine
from tiltyard_proto.outcomes import Outcome

START_S = 60.0
"""For a zygote to import its module on a busy machine."""
HEAD = struct.Struct("<IdB")
"""Of a reply: bytes that follow, CPU seconds, how it went."""
MAX_REPLY = 16 << 20
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables that children see; among the others may be secrets."""
_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_START = "import sys; sys.path[:] = sys.argv[3].split('\\n'); from tiltyard.verifier.limits.zygote import main; main()"


class TimedOut(Quarantine):
    """The rule did not come to an end within its limits."""

    outcome = Outcome.VERIFIER_TIMEOUT


class Crashed(Quarantine):
    """The rule failed: an exception, no memory left, a signal."""

    outcome = Outcome.VERIFIER_FAILED


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one check may take."""

    cpu_s: float = 2.0
    memory_bytes: int = 512 << 20
    """On top of what the imported modules take."""
    checks: int = 500
    """Of one child, before another takes its place."""
    wall_s: float = 30.0
    """For what waits instead of working; wide, since a busy machine is no fault of the submission."""


_local = threading.local()
_pools: dict[tuple[str, Limits], Pool] = {}
_lock = threading.Lock()


def call(target: str, argument: Any, limits: Limits = Limits()) -> Any:  # noqa: B008  # frozen
    """What 'module:function' returns for `argument` (both made of plain values), found in a child.

    TimedOut, Crashed: nothing can be said about the submission. ValueError: there is no such function.
    """
    with _lock:
        pool = _pools.get((target, limits))
        if pool is None:
            pool = _pools[target, limits] = Pool(target, limits)
    return msgspec.msgpack.decode(pool.ask(msgspec.msgpack.encode(argument)))


def spent() -> float:
    """CPU seconds that children have worked for this thread so far."""
    return float(getattr(_local, "cpu_s", 0.0))


def processes() -> set[int]:
    """The zygotes that run now."""
    with _lock:
        return {zygote.pid for pool in _pools.values() if (zygote := pool.zygote) is not None}


def close() -> None:
    """End all children; the next call starts anew."""
    with _lock:
        pools = list(_pools.values())
        _pools.clear()
    for pool in pools:
        pool.close()


atexit.register(close)


class Child:
    """One forked child: its number and our end of the pipe."""

    def __init__(self, pid: int, pipe: socket) -> None:
        self.pid, self.pipe, self.checks = pid, pipe, 0

    def ask(self, request: bytes, wall_s: float) -> tuple[int, float, bytes]:
        """How it went, CPU seconds, the answer. TimeoutError; EOFError or OSError when the child is gone."""
        self.checks += 1
        self.pipe.settimeout(wall_s)
        self.pipe.sendall(struct.pack("<I", len(request)) + request)
        size, cpu_s, how = HEAD.unpack(self._read(HEAD.size))
        if size > MAX_REPLY:
            raise EOFError("the answer is too long")
        return how, cpu_s, self._read(size)

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.pipe.recv(min(size - len(parts), 1 << 16))
            if not part:
                raise EOFError("the child has ended")
            parts += part
        return bytes(parts)


class Pool:
    """Children that run one function."""

    def __init__(self, target: str, limits: Limits) -> None:
        self.target, self.limits = target, limits
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self.zygote: subprocess.Popen[bytes] | None = None
        self._control: socket | None = None

    def ask(self, request: bytes) -> bytes:
        """The function's answer, encoded."""
        with self._lock:
            child = self._idle.pop() if self._idle else self._fork()
        try:
            how, cpu_s, answer = child.ask(request, self.limits.wall_s)
        except TimeoutError as err:
            self._end(child)
            raise TimedOut(f"no end within {self.limits.wall_s:g} s") from err
        except (EOFError, OSError) as err:
            raise self._explained(self._end(child)) from err
        _local.cpu_s = spent() + cpu_s
        if how or child.checks >= self.limits.checks:
            self._end(child)
        else:
            with self._lock:
                self._idle.append(child)
        if how:
            raise Crashed(answer.decode("utf-8", "replace")[:300])
        return answer

    def _explained(self, status: int) -> Quarantine:
        """Why a child ended in the middle of a check, from its wait status."""
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if number == signal.SIGPROF:
            _local.cpu_s = spent() + self.limits.cpu_s
            return TimedOut(f"no end within {self.limits.cpu_s:g} s of CPU time")
        return Crashed(f"the checking process ended with {f'signal {number}' if number else f'status {status >> 8}'}")

    # ------------------------------------------------------------ children

    def _fork(self) -> Child:
        ours, theirs = socketpair(AF_UNIX, SOCK_STREAM)
        with theirs, ExitStack() as unless_started:
            unless_started.enter_context(ours)
            try:
                pid = self._ask_zygote(b"fork", theirs.fileno())
            except (OSError, EOFError):  # it was killed: once more with a new one
                self._stop()
                pid = self._ask_zygote(b"fork", theirs.fileno())
            unless_started.pop_all()
        return Child(pid, ours)

    def _ask_zygote(self, request: bytes, *descriptors: int) -> int:
        control = self._running()
        send_fds(control, [request], list(descriptors))
        return int(_answer(control))

    def _end(self, child: Child) -> int:
        """Kill a child's process group; its wait status."""
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.pipe.close()
        with self._lock:
            try:
                return self._ask_zygote(b"reap %d" % child.pid) if self._control else 0
            except (OSError, EOFError):
                self._stop()
                return 0

    def _running(self) -> socket:
        if self._control is None:
            ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
            ours.settimeout(START_S)
            limits = msgspec.json.encode(self.limits).decode()
            with theirs:
                self.zygote = subprocess.Popen(
                    [sys.executable, "-c", _START, str(theirs.fileno()), limits, "\n".join(sys.path), self.target],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    env={name: os.environ[name] for name in _KEPT if name in os.environ} | _THREADS,
                )
            self._control = ours
            try:
                said = _answer(ours)
            except (OSError, EOFError) as err:
                self._stop()
                raise Crashed(f"{self.target} could not be loaded in a child: {err}") from err
            if said != b"ready":
                self._stop()
                raise ValueError(f"{self.target}: can't be loaded: {said.decode('utf-8', 'replace')}")
        return self._control

    def _stop(self) -> None:
        """End the zygote, which ends its children."""
        if self._control is not None:
            self._control.close()
            self._control = None
        for child in self._idle:
            child.pipe.close()
        self._idle.clear()
        if self.zygote is not None:
            try:
                self.zygote.wait(5)
            except subprocess.TimeoutExpired:
                self.zygote.kill()
                self.zygote.wait()
            self.zygote = None

    def close(self) -> None:
        """End the zygote and all children."""
        with self._lock:
            self._stop()


def _answer(control: socket) -> bytes:
    """The zygote's answer; EOFError when it has ended."""
    answer = control.recv(4096)
    if not answer:
        raise EOFError("it has ended")
    return answer

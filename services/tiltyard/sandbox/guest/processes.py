"""A command's processes: start, feed, drain, limit, sweep.

Invariants: user code runs as another uid with resource limits and never holds the protocol's descriptors; the answer
comes when the main process has ended plus a short drain, never at end of file; everything that command started is
killed and reaped before. As PID 1 a single kill(-1) reaches all of it; elsewhere only its process group is touched.
"""

import _signal  # type: ignore[import-not-found,unused-ignore]  # the built-in half of `signal`
import os
import select
import time

from .spawn import spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CHUNK = 65536
TERM_GRACE_S = 0.2
DRAIN_S = 0.1
SWEEP_S = 2.0
KILL, TERM = 9, 15


class Stream:
    """One output of a command: keeps the first and the last half of `cap` bytes and counts all."""

    def __init__(self, fd: int, cap: int) -> None:
        self.fd, self.total, self.sent = fd, 0, 0
        self.head_cap, self.tail_cap = cap - cap // 2, cap // 2
        self.head, self.tail = bytearray(), bytearray()

    def read(self) -> bool:
        """Take what is there; False at the end."""
        try:
            data = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return True
        self.total += len(data)
        room = self.head_cap - len(self.head)
        self.head += data[:room]
        self.tail += data[max(0, room) :]
        if len(self.tail) > self.tail_cap + (1 << 18):
            del self.tail[: len(self.tail) - self.tail_cap]
        return bool(data)

    def fresh(self) -> bytes:
        """The part of the head not yet handed out."""
        data = bytes(self.head[self.sent :])
        self.sent = len(self.head)
        return data

    def end(self) -> bytes:
        """The tail."""
        return bytes(self.tail[max(0, len(self.tail) - self.tail_cap) :])


def count_processes() -> int:
    """Processes and threads of user code, dead ones not yet reaped included."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            try:
                count += max(1, os.stat("/proc/" + name + "/task").st_nlink - 2)
            except OSError:
                continue
    return count


class Child:
    """The running command and what is known of it."""

    def __init__(self, request: "dict[str, Any]", pid: int, stdin: int, stdout: int, stderr: int) -> None:
        self.request, self.pid, self.stdin = request, pid, stdin
        self.streams = [Stream(stdout, request["output"]), Stream(stderr, request["output"])]
        self.pending = memoryview(request["stdin"])
        self.status: int | None = None
        self.cpu_us, self.peak_bytes, self.peak_processes = 0, 0, 0
        self.stopped = ""

    def reap(self) -> None:
        """Collect every dead process; note the main one's status and usage."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.status = status
                self.cpu_us = int((usage.ru_utime + usage.ru_stime) * 1e6)
                self.peak_bytes = usage.ru_maxrss * 1024

    def feed(self) -> bool:
        """Write more of stdin; False when it is all written or nobody reads."""
        try:
            self.pending = self.pending[os.write(self.stdin, self.pending[:CHUNK]) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return len(self.pending) > 0

    def close_stdin(self) -> None:
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def signal(self, number: int) -> None:
        """Signal the command's group, and as PID 1, for a kill, everything else there is."""
        try:
            os.killpg(self.pid, number)
        except OSError:
            pass
        if number == KILL and os.getpid() == 1:
            try:
                os.kill(-1, KILL)
            except OSError:
                pass

    def others(self) -> bool:
        """Is any process of the command still there, besides the main one that has ended?"""
        self.reap()
        try:
            os.kill(-1 if os.getpid() == 1 else -self.pid, 0)
        except OSError:
            return False
        return True

    def sweep(self) -> bool:
        """Kill and reap until nothing of the command is left; False when something stays."""
        deadline = time.monotonic() + SWEEP_S
        while True:
            self.reap()
            if os.getpid() != 1:
                self.signal(KILL)
                return True
            try:
                os.kill(-1, KILL)
            except ProcessLookupError:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)


class Supervisor:
    """Moves bytes until the command has ended and its output is drained, or until a limit has ended it."""

    def __init__(self, child: Child, protocol_in: int, wake: int, report: "Callable[[int, bytes], None]") -> None:
        self.child, self.protocol_in, self.wake, self.report = child, protocol_in, wake, report
        self.begun = time.monotonic()
        self.stop_at = self.begun + child.request["wall"]
        self.tick_at, self.drain_until, self.kill_at = self.begun + 0.05, 0.0, 0.0
        self.open = {stream.fd: stream for stream in child.streams}
        self.poll = select.poll()
        self.poll.register(protocol_in, 0)
        for fd in (wake, *self.open):
            self.poll.register(fd, select.POLLIN)
        if child.pending:
            self.poll.register(child.stdin, select.POLLOUT)
        else:
            child.close_stdin()

    def run(self) -> None:
        """Returns once the main process has ended; only the kill of the whole sandbox ends it otherwise."""
        while True:
            now = time.monotonic()
            if self.child.status is not None:
                self.drain_until = self.drain_until or now + DRAIN_S
                if not self.open or now >= self.drain_until:
                    return
            self._limits(now)
            if now >= self.tick_at:
                self._tick(now)
            due = self.drain_until or min(self.tick_at, self.kill_at or self.stop_at)
            for fd, event in self.poll.poll(max(0.0, due - now) * 1000 + 1):
                self._event(fd, event, now)

    def _limits(self, now: float) -> None:
        if self.child.status is not None:
            return
        if self.kill_at and now >= self.kill_at:
            self.child.signal(KILL)
            self.kill_at = now + 0.5
        elif not self.kill_at and now >= self.stop_at:
            self.child.stopped = "wall"
            self.child.signal(TERM)
            self.kill_at = now + TERM_GRACE_S

    def _tick(self, now: float) -> None:
        self.tick_at = now + 0.25
        self.child.peak_processes = max(self.child.peak_processes, count_processes())
        for index, stream in enumerate(self.child.streams):
            data = stream.fresh()
            if data:
                self.report(index + 1, data)

    def _event(self, fd: int, event: int, now: float) -> None:
        child = self.child
        if fd == self.protocol_in:
            os._exit(0)
        elif fd == self.wake:
            os.read(fd, 4096)
            child.reap()
        elif fd == child.stdin:
            if event & select.POLLERR or not child.feed():
                self.poll.unregister(fd)
                child.close_stdin()
        elif fd in self.open:
            if not self.open[fd].read():
                self.poll.unregister(fd)
                del self.open[fd]
            elif self.open[fd].total > child.request["output_hard"] and not child.stopped:
                child.stopped = "output"
                child.signal(KILL)
                self.kill_at = now + 0.5


def start(request: "dict[str, Any]", workspace: str, uid: int, in_process: bool) -> Child | None:
    """Fork the command. Returns None in the child when it is to go on in this process (a script)."""
    import resource  # noqa: F401  (once here instead of in every child; not built in, so not at the start)

    pipes = [os.pipe(), os.pipe(), os.pipe()]
    pid = 0 if in_process else spawn(request, (pipes[0][0], pipes[1][1], pipes[2][1]), workspace, uid)
    pid = pid or os.fork()
    if pid == 0:
        try:
            become_user(request, (pipes[0][0], pipes[1][1], pipes[2][1]), workspace, uid)
            if in_process:
                return None
            for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
                _signal.signal(number, _signal.SIG_DFL)
            os.execvpe(request["argv"][0], request["argv"], request["env"])
        except OSError as error:
            os.write(2, f"{request['argv'][0]}: {error.strerror}\n".encode())
        os._exit(127)
    for fd in (pipes[0][0], pipes[1][1], pipes[2][1]):
        os.close(fd)
    for fd in (pipes[0][1], pipes[1][0], pipes[2][0]):
        os.set_blocking(fd, False)
    return Child(request, pid, pipes[0][1], pipes[1][0], pipes[2][0])


def become_user(request: "dict[str, Any]", fds: tuple[int, int, int], workspace: str, uid: int) -> None:
    """In the child: own session, own descriptors, limits, then another uid for good."""
    import resource

    os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    os.closerange(3, 64)
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request["env"])
    os.umask(0o022)
    for name, value in request["rlimits"]:
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value + 1 if name == "CPU" else value))
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    os.chdir(workspace)

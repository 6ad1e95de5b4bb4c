"""A command's processes: start, feed, drain, limit, sweep.

Invariants: user code runs as another uid with resource limits and never holds the protocol's descriptors; the answer
comes when the main process has ended plus a short drain, never at end of file; everything that command started is
killed and reaped before, except the sessions that are kept on purpose. As PID 1 one kill(-1) reaches all of it while
nothing is kept, else a walk over /proc does; where the agent is not PID 1 only the command's group is touched.
"""

import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from .standby import Standby

    class Surroundings(Protocol):
        """What a supervisor needs of the agent."""

        input: int
        wake: int

        def interrupted(self) -> bool:
            """Read a frame that came while a command runs: does it ask for the command's end?"""

        def report(self, stream: int, data: bytes) -> None:
            """Hand out early output, so that the host has it when the sandbox dies."""

        def streams(self) -> "list[Stream]":
            """Outputs of background commands, to be drained meanwhile."""

        def drain(self, stream: "Stream") -> bool:
            """Read one of those; False at its end."""


CHUNK = 65536
TERM_GRACE_S = 0.2
DRAIN_S = 0.1
SWEEP_S = 2.0
FIRST_TICK_S, BUSY_TICK_S, TICK_S = 0.05, 0.05, 0.25
"""Until the first look at a command, and between looks at one with many processes and one with few."""
OPEN_BELOW = 64
"""The agent's own descriptors are below this."""
KILL, TERM = 9, 15


class Stream:
    """One output of a command: keeps the first and the last half of `cap` bytes and counts all."""

    def __init__(self, fd: int, cap: int) -> None:
        self.fd, self.total, self.sent, self.done = fd, 0, 0, False
        self.head_cap, self.tail_cap = cap - cap // 2, cap // 2
        self.head, self.tail = bytearray(), bytearray()

    def read(self) -> bool:
        """Take what is there; False at the end."""
        try:
            data = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return True
        self.total += len(data)
        self.done = not data
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


def read_off(stream: Stream) -> None:
    """Read what is there; not for ever when more keeps coming."""
    for _ in range(8):
        before = stream.total
        if stream.done or not stream.read() or stream.total == before:
            return


def count_processes(spared: "set[int] | tuple[()]" = ()) -> int:
    """Processes and threads of user code, dead ones not yet reaped included; without those of our own, `spared`."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1" and int(name) not in spared:
            try:
                count += max(1, os.stat("/proc/" + name + "/task").st_nlink - 2)
            except OSError:
                continue
    return count


class Table:
    """The agent's children by pid, and the sessions among them that a sweep spares."""

    def __init__(self) -> None:
        self.children: dict[int, Child | Standby] = {}
        self.kept: set[int] = set()
        self.first = os.getpid() == 1
        """Is every process here one of ours?"""
        self.spared: set[int] = set()
        """Processes that are no user's."""

    def reap(self) -> None:
        """Collect every dead process; note the status and usage of those that are known."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self.children.get(pid)
            if child is not None and child.status is None:
                child.status = status
                child.cpu_us = int((usage.ru_utime + usage.ru_stime) * 1e6)
                child.peak_bytes = usage.ru_maxrss * 1024

    def strangers(self) -> list[int]:
        """Processes that belong to no kept session."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and name != "1" and int(name) not in self.spared:
                try:
                    if os.getsid(int(name)) not in self.kept:
                        found.append(int(name))
                except OSError:
                    continue
        return found

    def signal_strangers(self, number: int) -> bool:
        """Signal everything that is not kept; False when there was nothing. Only as PID 1."""
        pids = self.strangers() if self.kept or self.spared else [-1]
        there = False
        for pid in pids:
            try:
                os.kill(pid, number)
                there = True
            except OSError:
                continue
        return there


class Child:
    """The running command and what is known of it."""

    def __init__(self, request: "dict[str, Any]", table: Table, pid: int, stdin: int, outputs: tuple[int, int]) -> None:
        self.request, self.table, self.pid, self.stdin = request, table, pid, stdin
        self.streams = [Stream(fd, request["output"]) for fd in outputs if fd >= 0]
        self.pending = memoryview(request["stdin"])
        self.status: int | None = None
        self.cpu_us, self.peak_bytes, self.peak_processes = 0, 0, 0
        self.stopped = ""
        self.begun = time.monotonic()
        table.kept.discard(pid)
        table.children[pid] = self

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
        """Signal the command's group, and as PID 1, for a kill, everything else that is not kept."""
        self.signal_group(number)
        if number == KILL and self.table.first:
            self.table.signal_strangers(KILL)

    def signal_group(self, number: int) -> None:
        """Signal the command's group, or the command alone when it has only been forked and has no group yet."""
        for send in (os.killpg, os.kill) if self.status is None else (os.killpg,):
            try:
                send(self.pid, number)
                return
            except OSError:
                continue

    def others(self) -> bool:
        """Is any process of the command still there, besides the main one that has ended?"""
        self.table.reap()
        if self.table.first:
            return self.table.signal_strangers(0)
        try:
            os.kill(-self.pid, 0)
        except OSError:
            return False
        return True

    def sweep(self, left: bool) -> bool:
        """Kill and reap until nothing of the command is left; False when something stays. `left`: as `others` said.

        What forks faster than it is killed one by one goes with everything that was kept.
        """
        if not left:
            return True
        deadline = time.monotonic() + SWEEP_S
        while True:
            self.table.reap()
            if not self.table.first:
                self.signal(KILL)
                return True
            if not self.table.signal_strangers(KILL):
                return True
            now = time.monotonic()
            if now > deadline - SWEEP_S / 2:
                self.table.kept.clear()
                self.table.spared.clear()
            if now > deadline:
                return False
            time.sleep(0.002)

    def close(self) -> None:
        """Close its pipes and forget it."""
        self.close_stdin()
        for stream in self.streams:
            os.close(stream.fd)
        self.table.children.pop(self.pid, None)


class Supervisor:
    """Moves bytes until the command has ended and its output is drained, or until a limit has ended it."""

    def __init__(self, child: Child, agent: "Surroundings") -> None:
        self.child, self.agent = child, agent
        now = child.begun
        self.stop_at = now + child.request["wall"]
        self.drain_until, self.kill_at = 0.0, 0.0
        self.tick_at = now + FIRST_TICK_S
        self.open = {stream.fd: stream for stream in child.streams}
        self.also = {stream.fd: stream for stream in agent.streams()}
        self.poll = select.poll()
        for fd in (agent.input, agent.wake, *self.open, *self.also):
            self.poll.register(fd, select.POLLIN)
        if child.pending:
            self.poll.register(child.stdin, select.POLLOUT)
        else:
            self.fed()

    def fed(self) -> None:
        """All of stdin is written, or nobody reads it."""
        self.child.close_stdin()

    def ended(self) -> bool:
        """Has the command come to its end, though its output may still be on its way?"""
        return self.child.status is not None

    def run(self) -> None:
        """Returns once the main process has ended; only the kill of the whole sandbox ends it otherwise."""
        while True:
            now = time.monotonic()
            if self.ended():
                self.drain_until = self.drain_until or now + DRAIN_S
                if not self.open or now >= self.drain_until:
                    return
            else:
                self.limits(now)
            if now >= self.tick_at:
                self.tick(now)
            due = self.drain_until or min(self.tick_at, self.kill_at or self.stop_at)
            for fd, event in self.poll.poll(max(0.0, due - now) * 1000 + 1):
                self.event(fd, event, now)

    def limits(self, now: float) -> None:
        """Ask the command to end at its limit, then make it."""
        if self.kill_at and now >= self.kill_at:
            self.child.signal(KILL)
            self.kill_at = now + 0.5
        elif not self.kill_at and now >= self.stop_at:
            self.stop("wall", now)

    def stop(self, why: str, now: float) -> None:
        """Ask the command to end."""
        self.child.stopped = why
        self.child.signal(TERM)
        self.kill_at = now + TERM_GRACE_S

    def tick(self, now: float) -> None:
        """Count processes, more often while they are many, and hand out early output."""
        count = count_processes(self.child.table.spared)
        busy = count > 2 and 4 * count > self.child.request["processes"]
        self.tick_at = now + (BUSY_TICK_S if busy else TICK_S)
        self.child.peak_processes = max(self.child.peak_processes, count)
        for index, stream in enumerate(self.child.streams):
            data = stream.fresh()
            if data:
                self.agent.report(index + 1, data)

    def event(self, fd: int, event: int, now: float) -> None:
        """Something can be read or written."""
        child = self.child
        if fd == self.agent.input:
            if self.agent.interrupted() and not child.stopped:
                self.stop("interrupted", now)
        elif fd == self.agent.wake:
            os.read(fd, 4096)
            child.table.reap()
        elif fd == child.stdin:
            if event & select.POLLERR or not child.feed():
                self.poll.unregister(fd)
                self.fed()
        elif fd in self.open:
            if not self.open[fd].read():
                self.poll.unregister(fd)
                del self.open[fd]
            elif self.open[fd].total > child.request["output_hard"] and not child.stopped:
                child.stopped = "output"
                self.kill(now)
        elif fd in self.also and not self.agent.drain(self.also[fd]):
            self.poll.unregister(fd)

    def kill(self, now: float) -> None:
        """End the command at once."""
        self.child.signal(KILL)
        self.kill_at = now + 0.5

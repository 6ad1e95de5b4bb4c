"""Background commands that were asked for: they stay after the answer, can be listed, read and signalled.

Invariants: each is a session of its own, so that a sweep can spare it and a kill reaches all of it; its output is
drained whenever the agent waits for something, so that it never blocks on a reader; one that writes without end is
killed. Left out: stdin.
"""

import os

from .processes import KILL, Child, Stream, Table


class Kept:
    """Background commands by number."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.jobs: dict[int, Child] = {}
        self.count = 0

    def add(self, child: Child) -> int:
        """Keep a command that has just been started; its number."""
        child.close_stdin()
        self.table.kept.add(child.pid)
        self.count += 1
        self.jobs[self.count] = child
        return self.count

    def streams(self) -> list[Stream]:
        """Outputs that may still give something."""
        return [stream for child in self.jobs.values() for stream in child.streams if not stream.done]

    def drain(self, stream: Stream) -> bool:
        """Read one output; False at its end. Over the hard cap its writer is killed."""
        more = stream.read()
        for child in self.jobs.values():
            if stream in child.streams and stream.total > child.request["output_hard"] and not child.stopped:
                child.stopped = "output"
                self.signal(child, KILL)
        return more

    def listing(self) -> list[bytes]:
        """Number, wait status (empty while it runs), bytes on stdout and stderr, program; for each command."""
        self.table.reap()
        found: list[bytes] = []
        for number, child in self.jobs.items():
            status = b"" if child.status is None else b"%d" % child.status
            sizes = [b"%d" % stream.total for stream in child.streams]
            found += [b"%d" % number, status, *sizes, os.fsencode(" ".join(child.request["argv"]))[:200]]
        return found

    def signal(self, child: Child, number: int) -> None:
        """Signal the command's group; a kill reaches its whole session, and nothing of it is spared any more."""
        child.signal_group(number)
        if number != KILL:
            return
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and name != "1" and os.getsid(int(name)) == child.pid:
                    os.kill(int(name), KILL)
            except OSError:
                continue
        self.table.kept.discard(child.pid)

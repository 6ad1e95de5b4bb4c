"""A fork of the agent that waits for the next script, so that the script doesn't wait for a fork.

A fork marks all memory as shared, and both sides then copy what they touch, 2 MiB at a time in gVisor: 15 ms for the
bare interpreter, 40 with numpy. The standby has that behind it when a script comes; it is made after a script's answer.
Not ahead of the first one: what it copies would be in every idle sandbox and every restore. Invariants: it holds no
descriptor of the agent but the one that it is told its script by, and runs nothing of a user's before it has become
that user; it is neither counted nor swept; one that is gone is replaced by a fork as usual. Left out: programs, which
are started without a fork.
"""

import marshal
import os

from .processes import Child, Table
from .start import begin, place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONTROL = 3


class Standby:
    """The waiting fork, with the pipes of the script that it will become."""

    def __init__(self, table: Table, pid: int, control: int, pipes: tuple[int, int, int]) -> None:
        self.table, self.pid, self.control, self.pipes = table, pid, control, pipes
        self.status: int | None = None
        self.cpu_us, self.peak_bytes = 0, 0
        table.children[pid] = self
        table.spared.add(pid)

    def take(self, request: "dict[str, Any]", uid: int) -> Child | None:
        """Become the script; None when it is gone."""
        self.table.reap()
        self.table.spared.discard(self.pid)
        self.table.children.pop(self.pid, None)
        told = {name: request[name] for name in ("argv", "env", "cwd", "rlimits", "fork")}
        body = marshal.dumps((told, uid))
        view = memoryview(len(body).to_bytes(4, "big") + body)
        try:
            while view and self.status is None:
                view = view[os.write(self.control, view) :]
        except BrokenPipeError:
            self.status = 0
        os.close(self.control)
        if self.status is not None:
            for fd in self.pipes:
                os.close(fd)
            return None
        for fd in self.pipes if request["keep"] else self.pipes[:1] if request["stdin"] else ():
            os.set_blocking(fd, False)
        return Child(request, self.table, self.pid, self.pipes[0], self.pipes[1:])


def prepare(table: Table, workspace: str) -> "Standby | list[str]":
    """Fork it. In the fork it returns later, as the user: the argv of the script to run there."""
    ends = [os.pipe() for _ in range(4)]
    theirs = {0: ends[0][0], 1: ends[1][1], 2: ends[2][1], CONTROL: ends[3][0]}
    pid = os.fork()
    if pid == 0:
        place(theirs)
        return wait(workspace)
    for fd in theirs.values():
        os.close(fd)
    return Standby(table, pid, ends[3][1], (ends[0][1], ends[1][0], ends[2][0]))


def wait(workspace: str) -> list[str]:
    """In the fork: wait for the script, and become its user. Ends with the agent."""
    size = int.from_bytes(read(4), "big")
    request, uid = marshal.loads(read(size))
    begin(request, {0: 0, 1: 1, 2: 2}, workspace, uid)
    argv: list[str] = request["argv"]
    return argv


def read(size: int) -> bytes:
    """`size` bytes of what the agent says; ends the process when it says no more."""
    data = b""
    while len(data) < size:
        part = os.read(CONTROL, size - len(data))
        if not part:
            os._exit(0)
        data += part
    return data

"""A shell that stays between commands, with its directory, variables, functions and background jobs.

It is an interactive bash without a terminal, since that survives errors and comes back to its next line after an
interrupt. A command is one `eval` on its stdin; the status comes back on a descriptor that the command doesn't have,
after a word that nobody can guess, by builtins, whatever functions and aliases of these names a command has made. A
command that has the shell itself end (`exit`) ends like a program; the next one gets a new shell, and files stay.
Invariant: whatever is run, the agent waits no longer than the command's wall limit and the ladder after it: interrupt,
kill what the shell started, kill the shell. Left out: stdin of commands, job control.
"""

import os
import select
import time

from .processes import KILL, Child, Supervisor, Table, read_off
from .start import start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .processes import Surroundings

STATUS_FD = 19
ARGV = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
BEGIN = "set +H +o history; unset HISTFILE MAILCHECK; export -n PS1 PS2"
GREET_S = 2.0
LEAVE_S = 0.3
CLOSE_S = 1.0
"""Between the rungs of the ladder."""
TICK_US = 10_000


def quoted(text: bytes) -> bytes:
    """`text` as one word of the shell."""
    return b"'" + text.replace(b"'", b"'\\''") + b"'"


def cpu_us(pid: int) -> int:
    """CPU time of a process and of its children that have ended, microseconds; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", 0) as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return sum(int(field) for field in fields[11:15]) * TICK_US


class Shell:
    """The running bash of one user; one that is missing ends the first command with status 127."""

    def __init__(self, request: "dict[str, Any]", table: Table, workspace: str, uid: int) -> None:
        status, theirs = os.pipe()
        begun = {**request, "argv": ARGV, "stdin": b"", "fork": False, "cwd": ""}
        begun["env"] = {**request["env"], "PS1": "", "PS2": ""}
        child = start(begun, table, workspace, uid, {STATUS_FD: theirs})
        assert child is not None
        self.child, self.status, self.table = child, status, table
        os.set_blocking(status, False)
        table.kept.add(child.pid)
        self._greet()

    def _greet(self) -> None:
        """Wait until bash reads commands, and drop what it says about having no terminal."""
        try:
            os.write(self.child.stdin, f"{BEGIN}; echo >&{STATUS_FD}\n".encode())
        except OSError:  # there is no bash; its status says so
            return
        poll = select.poll()
        poll.register(self.status, select.POLLIN)
        deadline = time.monotonic() + GREET_S
        while self.alive and time.monotonic() < deadline:
            if poll.poll(50):
                os.read(self.status, 4096)
                read_off(self.child.streams[1])
                break

    @property
    def alive(self) -> bool:
        self.table.reap()
        return self.child.status is None

    def command(self, request: "dict[str, Any]") -> "ShellCommand":
        """The next command, to be supervised."""
        return ShellCommand(self, request)

    def close(self) -> None:
        """End the shell and what it started."""
        deadline = time.monotonic() + CLOSE_S
        while time.monotonic() < deadline:
            left = self.members() if self.child.status is not None else [self.child.pid, *self.members()]
            if not left:
                break
            for pid in left:
                try:
                    os.kill(pid, KILL)
                except OSError:
                    continue
            time.sleep(0.002)
            self.table.reap()
        self.table.kept.discard(self.child.pid)
        os.close(self.status)
        self.child.close()

    def members(self) -> list[int]:
        """Processes of the shell's session, besides itself."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != self.child.pid:
                try:
                    if os.getsid(int(name)) == self.child.pid:
                        found.append(int(name))
                except OSError:
                    continue
        return found


class ShellCommand(Child):
    """One command of a shell; its pid is the shell's, its pipes too."""

    def __init__(self, shell: Shell, request: "dict[str, Any]") -> None:
        self.shell = shell
        self.word = os.urandom(8).hex().encode()
        text = b"\\builtin eval " + quoted(os.fsencode(request["argv"][-1])) + b" </dev/null %d>&-\n" % STATUS_FD
        text += b"\\builtin echo %s $? >&%d; PS1= PS2= PROMPT_COMMAND=\n" % (self.word, STATUS_FD)
        if request["cwd"]:
            text = b"\\builtin cd -- " + quoted(os.fsencode(request["cwd"])) + b"\n" + text
        self.cpu_before = cpu_us(shell.child.pid)
        outputs = (shell.child.streams[0].fd, shell.child.streams[1].fd)
        super().__init__({**request, "stdin": text}, shell.table, shell.child.pid, shell.child.stdin, outputs)
        shell.table.children[shell.child.pid] = shell.child
        shell.table.kept.add(shell.child.pid)
        self.answer = b""
        self.rung = 0

    def close_stdin(self) -> None:
        """The shell's stdin stays open."""

    def close(self) -> None:
        """Nothing of the shell's is closed."""

    def sweep(self, left: bool) -> bool:
        """What is outside of every kept session goes; the shell's jobs stay."""
        self.peak_bytes = 0
        self.cpu_us = max(0, cpu_us(self.pid) - self.cpu_before) or self.shell.child.cpu_us
        return not self.table.first or super().sweep(True)

    def others(self) -> bool:
        return False

    def note(self) -> bool:
        """Read the status; True when the command has ended."""
        try:
            self.answer += os.read(self.shell.status, 4096)
        except OSError:
            pass
        for line in self.answer.split(b"\n")[:-1]:
            word, _, code = line.partition(b" ")
            if word == self.word and code.isdigit():
                self.status = (int(code) & 0xFF) << 8
        if self.status is None and not self.shell.alive:
            self.status = self.shell.child.status
        return self.status is not None

    def climb(self) -> None:
        """The next rung of the ladder: interrupt, kill what the shell started, kill the shell."""
        self.rung += 1
        if self.rung == 1:
            try:
                os.killpg(self.pid, 2)
            except OSError:
                pass
            return
        for pid in self.shell.members() if self.rung == 2 else [self.pid, *self.shell.members()]:
            try:
                os.kill(pid, KILL)
            except OSError:
                continue


class ShellSupervisor(Supervisor):
    """Moves a shell command's bytes until its status has come and what it wrote is read."""

    child: ShellCommand

    def __init__(self, child: ShellCommand, agent: "Surroundings") -> None:
        super().__init__(child, agent)
        self.poll.register(child.shell.status, select.POLLIN)

    def fed(self) -> None:
        return

    def ended(self) -> bool:
        return self.child.status is not None or self.child.note()

    def run(self) -> None:
        """Returns when the status has come; what is in the pipes by then is the command's output."""
        while not self.ended():
            now = time.monotonic()
            self.limits(now)
            if now >= self.tick_at:
                self.tick(now)
            due = min(self.tick_at, self.kill_at or self.stop_at)
            for fd, event in self.poll.poll(max(0.0, due - now) * 1000 + 1):
                self.event(fd, event, now)
        for stream in self.child.streams:
            read_off(stream)

    def limits(self, now: float) -> None:
        if self.kill_at and now >= self.kill_at:
            self.kill(now)
        elif not self.kill_at and now >= self.stop_at:
            self.stop("wall", now)

    def stop(self, why: str, now: float) -> None:
        self.child.stopped = why
        self.kill(now)

    def kill(self, now: float) -> None:
        self.child.climb()
        self.kill_at = now + LEAVE_S

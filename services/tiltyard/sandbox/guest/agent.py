"""PID 1 of a sandbox: runs commands and moves files, told by frames on stdin, answering on stdout.

It is compiled into the image and imports only what the interpreter has built in, since every import costs CPU in every
sandbox, and what the profile asks for. `python3 script.py` and `python3 -c` run in a fork of this interpreter, not in
a fresh one (same `__main__`, `sys.argv`, `sys.path`, exit status and traceback). End of file on stdin ends the sandbox.

A request is a marshalled dict from the trusted side. An answer is a list of byte strings, which the host must not
trust. Left out: what an ending means.
"""

import _io
import _signal  # type: ignore[import-not-found,unused-ignore]  # the built-in half of `signal`
import atexit
import gc
import marshal
import os
import sys
import time

from . import preload
from .files import Refused, Workspace, nearly_full
from .processes import Child, Stream, Supervisor, Table, count_processes, read_off
from .start import start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .kept import Kept
    from .shell import Shell
    from .standby import Standby

VERSION = b"2"
LENT = "/tiltyard/python"
"""Prefix of an interpreter that is the agent's alone: the image has none that commands could mean."""
PYTHONS = ("python", "python3", "/usr/bin/python3")


def read_exactly(fd: int, size: int) -> bytes:
    """`size` bytes; ends the process at end of file."""
    parts = []
    while size:
        data = os.read(fd, min(size, 1 << 20))
        if not data:
            os._exit(0)
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def send(fd: int, *fields: bytes) -> None:
    """One frame: its length, then each field with its length."""
    body = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
    view = memoryview(len(body).to_bytes(4, "big") + body)
    while view:
        view = view[os.write(fd, view) :]


def is_script(argv: list[str]) -> bool:
    """Is this a plain `python3 script.py ...` or `python3 -c code ...`?"""
    if len(argv) < 2 or argv[0] not in PYTHONS or sys.prefix == LENT:
        return False
    return argv[1][:1] not in ("-", "") or (argv[1] == "-c" and len(argv) > 2)


def outputs(child: Child) -> list[bytes]:
    """The part of each output's head that was not handed out, its tail, its size."""
    return [part for s in child.streams for part in (s.fresh(), s.end(), b"%d" % s.total)]


def numbers(child: Child, wall_us: int) -> list[bytes]:
    """Wait status, wall and CPU time (microseconds), peak memory (bytes)."""
    return [b"%d" % number for number in (child.status or 0, wall_us, child.cpu_us, child.peak_bytes)]


class Agent:
    """Answers requests until stdin ends."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.table = Table()
        self.standby: Standby | None = None
        self.scripts = False
        """Was the last command a script, so that another one is likely?"""
        self.kept: Kept | None = None
        self.shell: Shell | None = None
        self.input, self.output = os.dup(0), os.dup(1)
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.close(null)
        self.wake, wake = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake, False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.set_wakeup_fd(wake)

    def serve(self) -> list[str]:
        """Never returns, except in a forked child: the argv of the script to run there."""
        send(self.output, b"hello", VERSION, sys.version.split()[0].encode())
        while True:
            argv = self.prepare()
            if argv:
                return argv
            if self.kept is not None:
                self.idle(self.kept)
            request = self.frame()
            try:
                answer = self.answer(request)
                if answer is None:
                    return list(request["argv"])
            except Refused as error:
                answer = (b"refused", str(error).encode())
            except OSError as error:
                answer = (b"error", b"%d" % (error.errno or 0), str(error).encode())
            if answer:
                send(self.output, *answer)

    def prepare(self) -> list[str]:
        """Have a fork wait for the next script if one is likely. In that fork: the script's argv."""
        if not self.scripts or (self.standby is not None and self.standby.status is None):
            return []
        from . import standby

        self.scripts = False
        made = standby.prepare(self.table, self.workspace.path)
        if isinstance(made, list):
            return made
        self.standby = made
        return []

    def frame(self) -> "dict[str, Any]":
        """The next request; ends the process at end of file."""
        request: dict[str, Any] = marshal.loads(
            read_exactly(self.input, int.from_bytes(read_exactly(self.input, 4), "big"))
        )
        return request

    def idle(self, kept: "Kept") -> None:
        """Drain background commands until a request comes."""
        from select import POLLIN, poll

        while True:
            watch = poll()
            streams = {stream.fd: stream for stream in kept.streams()}
            for fd in (self.input, *streams):
                watch.register(fd, POLLIN)
            for fd, _ in watch.poll():
                if fd == self.input:
                    return
                kept.drain(streams[fd])

    def answer(self, request: "dict[str, Any]") -> tuple[bytes, ...] | None:
        """The answer's fields, none for what needs no answer; None in the forked child of a script."""
        if request["op"] == "run":
            return self.run(request)
        if request["op"] == "fence":
            return (b"fence", request["token"])
        if request["op"] == "put":
            self.workspace.put(request["entries"], self.uid_of(request))
            return (b"ok",)
        if request["op"] == "get":
            return (b"ok", *self.workspace.get(request["paths"], request["limit"]))
        if request["op"] == "tree":
            caps = (request["limit"], request["entries"])
            return (b"ok", *self.workspace.tree(*caps, request["under"], request["data"]))
        if request["op"] == "interrupt":  # the command had just ended
            return ()
        if request["op"] == "restart":
            return self.restart()
        if request["op"] == "count":
            self.table.reap()
            waits = self.shell is not None and self.shell.alive
            return (b"ok", b"%d" % (count_processes(self.table.spared) - waits))
        return self.background(request)

    # ------------------------------------------------------------ commands

    def uid_of(self, request: "dict[str, Any]") -> int:
        """The user a request is for: the policy's (0) or the grader's (1)."""
        return self.workspace.uid + request["user"] if self.workspace.uid else 0

    def run(self, request: "dict[str, Any]") -> tuple[bytes, ...] | None:
        """Run one command to its end, or start one that stays."""
        begun = time.monotonic()
        uid = self.uid_of(request)
        self.workspace.put(request["entries"], uid)
        if request["shell"]:
            return self.run_in_shell(request, uid, begun)
        given = self.candidate(request) if request["candidate"] else None
        request["fork"] = request["fork"] and is_script(request["argv"])
        child = None
        if request["fork"]:
            self.scripts = True
            if self.standby is not None and not given:
                child, self.standby = self.standby.take(request, uid), None
        child = child or start(request, self.table, self.workspace.path, uid, given)
        if child is None:
            return None
        if request["keep"]:
            from .kept import Kept

            self.kept = self.kept or Kept(self.table)
            return (b"kept", b"%d" % self.kept.add(child))
        Supervisor(child, self).run()
        return self.finish(child, begun)

    def candidate(self, request: "dict[str, Any]") -> dict[int, int]:
        """Start the program under test as the policy's user; the grader's descriptors to talk to it."""
        argv, entries = request["candidate"]
        self.workspace.put(entries, self.workspace.uid)
        self.workspace.protect()
        (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
        null = os.open("/dev/null", os.O_WRONLY)
        wanted = {**request, "argv": argv, "fork": False, "stdin": b""}
        start(wanted, self.table, self.workspace.path, self.workspace.uid, {0: theirs_in, 1: theirs_out, 2: null})
        return {3: ours_out, 4: ours_in}

    def run_in_shell(self, request: "dict[str, Any]", uid: int, begun: float) -> tuple[bytes, ...]:
        """Run one command in the shell that stays; a new one when there is none."""
        from .shell import Shell, ShellSupervisor

        if self.shell is None or not self.shell.alive:
            self.restart()
            self.shell = Shell(request, self.table, self.workspace.path, uid)
        child = self.shell.command(request)
        ShellSupervisor(child, self).run()
        gone = not self.shell.alive
        answer = self.finish(child, begun, ["shell"] if gone else [])
        if gone:
            self.restart()
        return answer

    def restart(self) -> tuple[bytes, ...]:
        """End the shell; the next command in one gets a new one."""
        if self.shell is not None:
            self.shell.close()
            self.shell = None
        return (b"ok",)

    def finish(self, child: Child, begun: float, flags: list[str] | None = None) -> tuple[bytes, ...]:
        """Sweep, close, and say how it went."""
        flags = [*(flags or []), child.stopped] if child.stopped else [*(flags or [])]
        left = child.others()
        if child.status != 0 or child.stopped or left:
            count = count_processes(self.table.spared)
            child.peak_processes = max(child.peak_processes, count + left)  # and the main one
        if left:
            flags.append("left")
        if not child.sweep(left):
            flags.append("unswept")
        if child.peak_processes >= child.request["processes"]:
            flags.append("processes")
        if child.status != 0 and (nearly_full(self.workspace.path) or nearly_full("/tmp")):
            flags.append("disk")
        child.close()
        wall_us = int((time.monotonic() - begun) * 1e6)
        return (b"done", ",".join(flags).encode(), *numbers(child, wall_us), *outputs(child))

    # ------------------------------------------------------------ background commands

    def background(self, request: "dict[str, Any]") -> tuple[bytes, ...]:
        """List, read or signal background commands; refused for a number that there is not."""
        if request["op"] == "jobs":
            return (b"ok", *(self.kept.listing() if self.kept else ()))
        child = self.kept.jobs.get(request["job"]) if self.kept else None
        if child is None or self.kept is None:
            raise Refused("job")
        if request["op"] == "signal":
            self.kept.signal(child, request["number"])
            return (b"ok",)
        self.table.reap()
        for stream in child.streams:
            read_off(stream)
            stream.sent = 0
        flags = child.stopped if child.status is not None else "running"
        wall_us = int((time.monotonic() - child.begun) * 1e6)
        return (b"done", flags.encode(), *numbers(child, wall_us), *outputs(child))

    # ------------------------------------------------------------ what a supervisor needs

    def interrupted(self) -> bool:
        """See `processes.Surroundings`."""
        return bool(self.frame()["op"] == "interrupt")

    def report(self, stream: int, data: bytes) -> None:
        """See `processes.Surroundings`."""
        send(self.output, b"part", b"%d" % stream, data)

    def streams(self) -> list[Stream]:
        """See `processes.Surroundings`."""
        return self.kept.streams() if self.kept else []

    def drain(self, stream: Stream) -> bool:
        """See `processes.Surroundings`."""
        return self.kept.drain(stream) if self.kept else False


def run_script(argv: list[str]) -> int:
    """What `python3 script.py` or `python3 -c code` does, in this forked interpreter; the exit status."""
    path = None if argv[1] == "-c" else argv[1]
    folder = "" if path is None else os.path.dirname(os.path.abspath(path))
    if preload.shadowed(folder or "."):
        os.execvpe(argv[0], argv, os.environ)
    sys.argv = argv[1:] if path else ["-c", *argv[3:]]
    sys.orig_argv = argv
    sys.path[0] = folder
    sys.dont_write_bytecode = True
    for name in [name for name in sys.modules if name.split(".")[0] == "guest"]:
        del sys.modules[name]
    main = type(sys)("__main__")
    main.__dict__.update(__builtins__=__builtins__, __annotations__={})
    if path is not None:
        main.__dict__.update(__file__=path, __cached__=None)
    sys.modules["__main__"] = main
    gc.enable()
    preload.reseed()
    try:
        source = argv[2].encode("utf-8", "surrogateescape") if path is None else read_source(path)
    except OSError as error:
        where = os.path.abspath(argv[1])
        sys.stderr.write(f"python3: can't open file {where!r}: [Errno {error.errno}] {error.strerror}\n")
        return 2
    return execute(source, path or "<string>", main.__dict__)


def read_source(path: str) -> bytes:
    """A script's bytes."""
    with open(path, "rb") as file:
        return file.read()


def execute(source: bytes, name: str, scope: "dict[str, Any]") -> int:
    """Run a program in the scope of its `__main__`; the exit status."""
    try:
        exec(compile(source, name, "exec", dont_inherit=True), scope)
    except SystemExit as error:
        return exit_status(error.code)
    except BaseException as error:  # shown as the interpreter would, without our own frame
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error, error.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def exit_status(code: object) -> int:
    """The exit status for the argument of `sys.exit`."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def leave(status: int, inside: str) -> None:
    """End a script's process as the interpreter would: threads joined, exit functions run, files closed.

    Only what the script made is torn down; a full finalisation touches, and so copies, every page of the interpreter.
    """
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    for thing in gc.get_objects():
        if isinstance(thing, (_io.TextIOWrapper, _io.BufferedWriter)):
            flush(thing)
    for name, module in list(sys.modules.items()):
        if name == "__main__" or str(getattr(module, "__file__", None) or "").startswith(inside):
            module.__dict__.clear()
    gc.collect()
    flushed = [flush(stream) for stream in (sys.stdout, sys.stderr) if stream is not None]
    os._exit(status if all(flushed) else status or 120)


def flush(stream: "Any") -> bool:
    """Write what is buffered; False when that fails."""
    try:
        if not stream.closed:
            stream.flush()
    except (OSError, ValueError):
        return False
    return True


def main(workspace: str, uid: str, modules: "tuple[str, ...]" = ()) -> None:
    """Entry point inside the sandbox."""
    preload.load(modules)
    agent = Agent(Workspace(workspace, int(uid)))
    gc.disable()
    gc.freeze()
    leave(run_script(agent.serve()), workspace + "/")

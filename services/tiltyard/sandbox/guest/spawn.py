"""Start a program without copying the agent.

A fork marks all memory of this interpreter as shared, and both sides then copy what they touch: in gVisor 10 to 30 ms.
A vfork shares it outright, but runs no code of ours before the program: so the agent itself wears the command's limits
until then, and `enter` becomes the user: 4 ms. Invariants: the agent never has the user's id, so nothing of a user's
can signal it; hard limits come from the agent, so that no child ever has higher ones; signals are blocked from before
the vfork until `enter` lets them through, since the interpreter's vfork resets each that is not, one system call for
each. What can't be done so returns 0, and the caller forks: scripts with an interpreter line, what is not there, other
machines and interpreters.
"""

import _signal  # type: ignore[import-not-found,unused-ignore]  # the built-in half of `signal`
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ENTER = os.path.join(os.path.dirname(__file__), "enter")
MACHINE = "x86_64"
"""What `enter` is made for."""
WORN = ("NPROC", "NOFILE", "FSIZE", "CORE")
"""Limits that the agent can wear itself; the time limit would count its own past, and is set on the child."""

FIXED = frozenset(("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"))
"""Directories that no user can write to: what is found there stays there."""

_able: "list[bool]" = []
_found: "dict[tuple[bytes, str, int], bytes]" = {}
_own: "dict[int, tuple[int, int]]" = {}
"""The agent's own limits."""


def spawn(request: "dict[str, Any]", fds: tuple[int, int, int], folder: str, uid: int) -> int:
    """Pid of the running program, which begins in `folder`; 0 when it has to be forked."""
    if not uid or not able():
        return 0
    program = find(os.fsencode(request["argv"][0]), request["env"].get("PATH", "/bin:/usr/bin"), folder, uid)
    if not program:
        return 0
    import resource

    limits = [(getattr(resource, "RLIMIT_" + name), value) for name, value in request["rlimits"] if name in WORN]
    for number, _ in limits:
        if number not in _own:
            _own[number] = resource.getrlimit(number)
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    try:
        for number, value in limits:
            resource.setrlimit(number, (value, value))
        pid = execute([b"%d" % uid, program], request, fds, folder)
    finally:
        for number, _ in limits:
            resource.setrlimit(number, _own[number])
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    for name, value in request["rlimits"]:
        if pid and name not in WORN:
            limit_child(pid, getattr(resource, "RLIMIT_" + name), value)
    return pid


def able() -> bool:
    """Can it be done here at all? Tried once."""
    if not _able:
        known = os.getpid() == 1 and sys.version_info[:2] == (3, 11) and os.uname().machine == MACHINE
        _able.append(known and os.access(ENTER, os.X_OK) and may_raise())
    return _able[0]


def may_raise() -> bool:
    """Can this process raise a hard limit again? In a user namespace of Linux it can't."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1), hard - 1))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    except ValueError:
        return False
    return True


def find(name: bytes, search: str, folder: str, uid: int) -> bytes:
    """Path of the machine program that this user would run; empty when there is none, or when it is something else."""
    key = (name, search, uid)
    if key not in _found:
        path = look(name, search, folder, uid)
        if not path or b"/" in name or not FIXED.issuperset(search.split(":")):
            return path
        _found[key] = path
    return _found[key]


def look(name: bytes, search: str, folder: str, uid: int) -> bytes:
    """The same, looked up."""
    places = [os.fsencode(folder)] if b"/" in name else [os.fsencode(place) for place in search.split(":")]
    for place in places:
        path = os.path.join(place, name)
        try:
            status = os.stat(path)
            if status.st_mode & 0o170000 != 0o100000 or not may_run(status, uid):
                continue
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        magic = os.read(fd, 4)
        os.close(fd)
        return path if magic == b"\x7fELF" else b""
    return b""


def may_run(status: os.stat_result, uid: int) -> bool:
    """Does the file's mode let this user, alone in the group of the same number, execute it?"""
    shift = 6 if status.st_uid == uid else 3 if status.st_gid == uid else 0
    return bool(status.st_mode >> shift & 1)


def execute(lead: list[bytes], request: "dict[str, Any]", fds: tuple[int, int, int], folder: str) -> int:
    """Start `enter` with its arguments; the pid, or 0. The arguments are those of the `subprocess` module."""
    import _posixsubprocess

    said, say = os.pipe()
    try:
        argv = [*lead, *(os.fsencode(word) for word in request["argv"])]
        variables = [os.fsencode(f"{name}={value}") for name, value in request["env"].items()]
        pairs = (fds[0], -1, -1, fds[1], -1, fds[2], said, say)
        user = (-1, None, None, None, 0o022)  # process group, gid, groups, uid: as they are; umask
        begin = (argv, [os.fsencode(ENTER)], False, (), folder, variables)
        arguments: list[Any] = [*begin, *pairs, True, True, *user, None, True]
        pid = _posixsubprocess.fork_exec(*arguments)
    finally:
        os.close(say)
    failed = os.read(said, 1)
    os.close(said)
    if not failed:
        return int(pid)
    os.waitpid(pid, 0)
    return 0


def limit_child(pid: int, number: int, value: int) -> None:
    """Limit a running program; one that has ended needs no limit."""
    import resource

    try:
        resource.prlimit(pid, number, (value, value + 1))
    except ProcessLookupError:
        return

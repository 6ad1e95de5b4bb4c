"""Start a program without copying the agent.

A fork marks all memory of this interpreter as shared, and both sides then copy what they touch: in gVisor 10 to 30 ms.
A vfork shares it outright, but runs no code between fork and exec, so the agent itself wears the command's limits and
user until the program runs: 4 ms. Invariants: this is done only while no process of a user is there, who could then
signal the agent; the saved user id stays 0, so that the agent can go back, and a program loses it when it is executed;
hard limits come from the agent, so that no child ever has higher ones. What can't be done so returns 0, and the caller
forks. Left out: scripts, which need the fork.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WORN = ("NPROC", "NOFILE", "FSIZE", "CORE")
"""Limits that the agent can wear itself; the time limit would count its own past, and is set on the child."""

_may_raise: "list[bool]" = []


def spawn(request: "dict[str, Any]", fds: tuple[int, int, int], workspace: str, uid: int) -> int:
    """Pid of the running program, or 0 when it has to be forked."""
    if os.getpid() != 1 or not uid or sys.version_info[:2] != (3, 11) or not may_raise() or not alone():
        return 0
    import resource

    limits = [(getattr(resource, "RLIMIT_" + name), value) for name, value in request["rlimits"] if name in WORN]
    own = [(number, resource.getrlimit(number)) for number, _ in limits]
    try:
        for number, value in limits:
            resource.setrlimit(number, (value, value))
        pid = as_user(request, fds, workspace, uid)
        for name, value in request["rlimits"]:
            if pid and name not in WORN:
                limit_child(pid, getattr(resource, "RLIMIT_" + name), value)
        return pid
    except OSError:
        return 0
    finally:
        for number, pair in own:
            resource.setrlimit(number, pair)


def may_raise() -> bool:
    """Can this process raise a hard limit again? Tried once; in a user namespace of Linux it can't."""
    if not _may_raise:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1), hard - 1))
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            _may_raise.append(True)
        except ValueError:
            _may_raise.append(False)
    return _may_raise[0]


def alone() -> bool:
    """Is no other process here?"""
    try:
        os.kill(-1, 0)
    except ProcessLookupError:
        return True
    return False


def as_user(request: "dict[str, Any]", fds: tuple[int, int, int], workspace: str, uid: int) -> int:
    """Become the user but for the saved id, start the program, and go back."""
    groups = os.getgroups()
    os.setgroups([])
    try:
        os.setresgid(uid, uid, 0)
        os.setresuid(uid, uid, 0)
        return execute(request, fds, workspace)
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)


def execute(request: "dict[str, Any]", fds: tuple[int, int, int], workspace: str) -> int:
    """The pid, or 0 when the program can't be executed. The arguments are those of the `subprocess` module."""
    import _posixsubprocess

    said, say = os.pipe()
    try:
        argv = [os.fsencode(word) for word in request["argv"]]
        variables = [os.fsencode(f"{name}={value}") for name, value in request["env"].items()]
        pairs = (fds[0], -1, -1, fds[1], -1, fds[2], said, say)
        user = (-1, None, None, None, 0o022)  # process group, gid, groups, uid: none but what is worn; umask
        program = (argv, places(argv[0], request["env"]), False, (), workspace, variables)
        arguments: list[Any] = [*program, *pairs, True, True, *user, None, True]
        pid = _posixsubprocess.fork_exec(*arguments)
    finally:
        os.close(say)
    failed = os.read(said, 1)
    os.close(said)
    if not failed:
        return int(pid)
    os.waitpid(pid, 0)
    return 0


def places(program: bytes, variables: "dict[str, str]") -> list[bytes]:
    """Where a program may lie."""
    if b"/" in program:
        return [program]
    return [os.fsencode(folder) + b"/" + program for folder in variables.get("PATH", "/bin:/usr/bin").split(":")]


def limit_child(pid: int, number: int, value: int) -> None:
    """Limit a running program; one that has ended needs no limit."""
    import resource

    try:
        resource.prlimit(pid, number, (value, value + 1))
    except ProcessLookupError:
        return

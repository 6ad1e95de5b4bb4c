"""Start a command: another session, descriptors, limits and uid, then the program.

Invariants: the child holds no descriptor of the agent; its uid is another one before any of its code runs; what can't
be started ends with status 127 and one line on its stderr, as in a shell.
"""

import _signal  # type: ignore[import-not-found,unused-ignore]  # the built-in half of `signal`
import os

from .processes import OPEN_BELOW, Child, Table
from .spawn import spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def start(
    request: "dict[str, Any]", table: Table, workspace: str, uid: int, given: "dict[int, int] | None" = None
) -> Child | None:
    """Fork the command. Returns None in the child when it is to go on in this process (a script).

    `given`: descriptors that the command gets, number there to descriptor here; the agent's own copies are closed.
    Without one for 0, 1 or 2 there is a pipe.
    """
    import resource  # noqa: F401  (once here instead of in every child; not built in, so not at the start)

    theirs, ours = dict(given or {}), [-1, -1, -1]
    for number in (0, 1, 2):
        if number not in theirs:
            ends = os.pipe()
            theirs[number], ours[number] = ends if number == 0 else ends[::-1]
    pid = 0
    if not request["fork"] and not given:
        pid = spawn(
            request, (theirs[0], theirs[1], theirs[2]), os.path.join(workspace, os.fsdecode(request["cwd"])), uid
        )
    pid = pid or os.fork()
    if pid == 0:
        begin(request, theirs, workspace, uid)
        return None
    for fd in theirs.values():
        os.close(fd)
    stays = request["keep"] or request["shell"]
    for fd, wait in zip(ours, (not request["stdin"], True, True), strict=True):
        if fd >= 0 and (stays or not wait):  # else it is read when there is something to read, and never written to
            os.set_blocking(fd, False)
    return Child(request, table, pid, ours[0], (ours[1], ours[2]))


def begin(request: "dict[str, Any]", theirs: dict[int, int], workspace: str, uid: int) -> None:
    """In the child: become the program. Returns only when it is a script that goes on in this process."""
    try:
        become_user(request, theirs, workspace, uid)
        if request["fork"]:
            return
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        os.execvpe(request["argv"][0], request["argv"], request["env"])
    except OSError as error:
        what = error.filename if isinstance(error.filename, str) else request["argv"][0]
        os.write(2, f"{what}: {error.strerror}\n".encode())
    os._exit(127)


def become_user(request: "dict[str, Any]", descriptors: dict[int, int], workspace: str, uid: int) -> None:
    """In the child: own session, own descriptors, limits, then another uid for good."""
    import resource

    os.setsid()
    place(descriptors)
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request["env"])
    os.umask(0o022)
    for name, value in request["rlimits"]:
        number = getattr(resource, "RLIMIT_" + name)
        most = resource.getrlimit(number)[1]
        hard = value + 1 if name == "CPU" else value
        hard = hard if most == resource.RLIM_INFINITY else min(hard, most)
        resource.setrlimit(number, (min(value, hard), hard))
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    os.chdir(workspace)
    if request["cwd"]:
        os.chdir(os.fsdecode(request["cwd"]))


def place(descriptors: dict[int, int]) -> None:
    """Put the descriptors (number there to descriptor here) where they are wanted and close all others."""
    high = OPEN_BELOW + len(descriptors)
    for index, fd in enumerate(descriptors.values()):
        os.dup2(fd, OPEN_BELOW + index)
    for index, number in enumerate(descriptors):
        os.dup2(OPEN_BELOW + index, number)
    wanted = sorted(descriptors)
    for below, above in zip([-1, *wanted], [*wanted, high], strict=True):
        if below + 1 < above:  # an empty range would close everything
            os.closerange(below + 1, above)

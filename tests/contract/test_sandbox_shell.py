"""Sessions over many commands: the persistent shell and background commands, over every back-end with an agent."""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncIterator

import anyio
import pytest
from support.sandboxes import BACKENDS, bash, open_named, shell

from tiltyard.sandbox.backend import Absent, Backend, Busy, Sandbox, Want
from tiltyard.sandbox.process import ProcessBackend
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits
from tiltyard_proto.outcomes import Outcome

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(allow_untrusted_process=True, output_hard_bytes=1 << 18)
KEPT = Command(argv=(), background=True)


@pytest.fixture(scope="module", params=BACKENDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    opened = open_named(request.param, SETTINGS)
    yield opened
    await opened.close()
    assert opened.leaked == 0


@pytest.fixture
async def sandbox(backend: Backend) -> AsyncIterator[Sandbox]:
    made = await backend.start(Want())
    yield made
    await made.kill()


async def processes(sandbox: Sandbox) -> int:
    """Processes inside, without those of the count itself."""
    return int((await bash(sandbox, "set -- /proc/[0-9]*; echo $#")).stdout) - 1


async def until_ended(sandbox: Sandbox, job: int) -> None:
    with anyio.fail_after(10):
        while next(each for each in await sandbox.jobs() if each.number == job).running:  # noqa: ASYNC110  (asked for)
            await anyio.sleep(0.02)


# ---------------------------------------------------------------- the persistent shell


async def test_a_shell_keeps_its_state(sandbox: Sandbox) -> None:
    """Directory, variables, functions and options of one command are there in the next, and no output is mixed up."""
    assert (await shell(sandbox, "echo hi; x=5; mkdir d; cd d; f() { echo fun $1; }; export Y=z")).stdout == b"hi\n"
    found = await shell(sandbox, "basename $PWD; echo $x; f 3; env | grep ^Y=")
    assert (found.stdout, found.stderr, found.exit_code) == (b"d\n5\nfun 3\nY=z\n", b"", 0)
    assert (await bash(sandbox, "echo ${x-none}; ls -a")).stdout == b"none\n.\n..\nd\n"


@pytest.mark.parametrize(
    ("script", "code", "stdout", "stderr"),
    [
        ("false", 1, b"", b""),
        ("(exit 7)", 7, b"", b""),
        ("no-such-program", 127, b"", b"no-such-program"),
        ("if", 2, b"", b"syntax error"),
        ("echo 'it'\"'\"'s'; echo \"two\nlines\" # comment", 0, b"it's\ntwo\nlines\n", b""),
        ("for i in 1 2; do echo $i; break; done; break; echo on", 0, b"1\non\n", b"break"),
        ("echo ${nope?unset}; echo never", 1, b"", b"unset"),
        ("cat; read line; echo $?", 0, b"1\n", b""),
        ("printf '\\x00\\xff'; printf end >&2", 0, b"\x00\xff", b"end"),
        ("cat <<EOF\nhere $((1+1))\nEOF", 0, b"here 2\n", b""),
        ("PS1='> '; PS2='more '; echo quiet", 0, b"quiet\n", b""),
        ("alias eval=false; cd() { :; }; echo() { printf 'mine %s\\n' \"$*\"; }; echo x", 0, b"mine x\n", b""),
    ],
)
async def test_a_shell_survives(sandbox: Sandbox, script: str, code: int, stdout: bytes, stderr: bytes) -> None:
    """Errors, quotes, several lines, binary output and stray syntax end one command, not the shell."""
    await shell(sandbox, "x=kept")
    found = await shell(sandbox, script)
    assert (found.exit_code, found.stdout) == (code, stdout)
    assert stderr in found.stderr
    assert not found.shell_ended
    assert (await shell(sandbox, "builtin echo $x")).stdout == b"kept\n"


@pytest.mark.parametrize(
    "script", ["sleep 30", "while :; do :; done", "trap '' INT; sleep 30", "(trap '' INT TERM; while :; do :; done)"]
)
async def test_a_stuck_command_is_interrupted(sandbox: Sandbox, script: str) -> None:
    """At the wall limit a stuck command ends and the shell goes on with its state."""
    await shell(sandbox, "x=kept")
    begun = time.monotonic()
    found = await shell(sandbox, f"echo begun; {script}", wall_s=0.5)
    assert time.monotonic() - begun < 3
    assert (found.outcome, found.stdout, found.shell_ended) == (Outcome.WALL_LIMIT, b"begun\n", False)
    assert (await shell(sandbox, "echo $x")).stdout == b"kept\n"


async def test_a_caller_interrupts(sandbox: Sandbox) -> None:
    """A running command, in the shell or not, ends when its caller says so, and its output is kept."""
    for run in (shell, bash):
        async with anyio.create_task_group() as tasks:

            async def later() -> None:
                await anyio.sleep(0.5)
                await sandbox.interrupt()

            tasks.start_soon(later)
            found = await run(sandbox, "echo begun; sleep 30")
        assert (found.outcome, found.detail, found.stdout) == (Outcome.WALL_LIMIT, "interrupted", b"begun\n")
    await sandbox.interrupt()
    assert (await bash(sandbox, "echo on")).stdout == b"on\n"


@pytest.mark.parametrize(
    ("script", "code", "signal"),
    [
        ("exit 4", 4, None),
        ("exec true", 0, None),
        ("kill -9 $$", None, 9),
        ("trap '' INT; while :; do :; done", None, 9),
    ],
)
async def test_a_shell_that_ends_is_replaced(
    sandbox: Sandbox, script: str, code: int | None, signal: int | None
) -> None:
    """A command that ends the shell says so; the next has a new shell, without the old one's jobs, and all files."""
    await shell(sandbox, "x=gone; echo kept > file; cd /tmp; sleep 99 &")
    found = await shell(sandbox, script, wall_s=0.5)
    assert (found.shell_ended, found.exit_code, found.signal) == (True, code, signal)
    found = await shell(sandbox, "echo ${x-new}; cat file; jobs")
    assert (found.stdout, found.shell_ended) == (b"new\nkept\n", False)
    assert await processes(sandbox) == 2  # the init and the shell


async def test_a_shell_is_restarted(sandbox: Sandbox) -> None:
    """A restart loses state and jobs, never files; restarting what is not there is harmless."""
    await sandbox.restart_shell()
    await shell(sandbox, "x=gone; echo kept > file; sleep 99 & exec >/dev/null")
    await sandbox.restart_shell()
    assert await processes(sandbox) == 1
    assert (await shell(sandbox, "echo ${x-new}; cat file")).stdout == b"new\nkept\n"


async def test_jobs_of_a_shell_stay_and_what_left_it_goes(sandbox: Sandbox) -> None:
    """A shell's background job outlives commands in and beside the shell; a daemon in a session of its own does not."""
    await shell(sandbox, "sleep 98 & setsid sleep 99 & sleep 0.1")
    await bash(sandbox, "sleep 97 &")
    assert (await shell(sandbox, "kill -0 $! 2>/dev/null; jobs -r | wc -l")).stdout == b"1\n"
    assert await processes(sandbox) == 3  # the init, the shell, its job


async def test_output_of_a_shell_is_capped(sandbox: Sandbox) -> None:
    """Head and tail are kept and the rest counted; a flood is stopped, and the shell lives."""
    found = await shell(
        sandbox, "head -c 5000 /dev/zero | tr '\\0' a; head -c 5000 /dev/zero | tr '\\0' b", output_bytes=100
    )
    assert (found.stdout, found.stdout_dropped) == (b"a" * 50 + b"b" * 50, 9900)
    assert (await shell(sandbox, "x=kept; yes", wall_s=20.0)).outcome is Outcome.OUTPUT_LIMIT
    assert (await shell(sandbox, "echo $x")).stdout == b"kept\n"


# ---------------------------------------------------------------- background commands


async def test_background_commands_are_kept_listed_and_read(sandbox: Sandbox) -> None:
    """One that was asked for outlives its answer and other commands, and its output and end can be read later."""
    script = "echo one; while ! test -e go; do sleep 0.05; done; echo two >&2; exit 3"
    started = await bash(sandbox, script, KEPT)
    assert (started.outcome, started.job, started.exit_code) == (Outcome.FINISHED, 1, None)
    await bash(sandbox, "sleep 99 & echo else")
    (job,) = await sandbox.jobs()
    assert (job.number, job.running) == (1, True)
    assert "echo one" in job.program
    found = await sandbox.output(1)
    assert (found.stdout, found.stderr, found.exit_code) == (b"one\n", b"", None)
    await sandbox.write({"go": b""})
    await until_ended(sandbox, 1)
    found = await sandbox.output(1)
    assert (found.outcome, found.exit_code) == (Outcome.NONZERO_EXIT, 3)
    assert (found.stdout, found.stderr) == (b"one\n", b"two\n")
    assert await sandbox.output(1) == found or found.wall_s > 0


async def test_background_commands_are_signalled(sandbox: Sandbox) -> None:
    """A signal reaches the command; a kill reaches all it started; an unknown number is absent."""
    await bash(sandbox, "trap 'echo got; exit 0' TERM; touch ready; while :; do sleep 0.05; done", KEPT)
    await bash(sandbox, "sleep 98 & sleep 99", KEPT)
    await bash(sandbox, "while ! test -e ready; do sleep 0.02; done")
    await sandbox.signal(1, 15)
    await until_ended(sandbox, 1)
    assert (await sandbox.output(1)).stdout == b"got\n"
    await sandbox.signal(2, 9)
    await until_ended(sandbox, 2)
    assert (await sandbox.output(2)).signal == 9
    assert await processes(sandbox) == 1
    for absent in (sandbox.output(3), sandbox.signal(3, 9)):
        with pytest.raises(Absent):
            await absent


async def test_a_background_server_answers_later_commands(sandbox: Sandbox) -> None:
    """A server kept in the background talks to commands that come after, and a full pipe never blocks it."""
    server = """
import socket, sys
listener = socket.create_server(('127.0.0.1', 8765))
print('x' * 200_000, flush=True)
while True:
    peer, _ = listener.accept()
    peer.sendall(b'served')
    peer.close()
"""
    await sandbox.write({"server.py": server.encode()})
    await sandbox.run(Command(argv=("python3", "server.py"), background=True, limits=ExecLimits(output_bytes=100)))
    client = """
import socket, time
for _ in range(100):
    try:
        print(socket.create_connection(('127.0.0.1', 8765)).recv(99).decode()); break
    except OSError: time.sleep(0.05)
"""
    await sandbox.write({"client.py": client.encode()})
    for _ in range(2):
        assert (await sandbox.run(Command(argv=("python3", "client.py")))).stdout == b"served\n"
    found = await sandbox.output(1)
    assert (found.stdout, found.stdout_dropped) == (b"x" * 99 + b"\n", 199_901)


async def test_a_background_flood_is_killed(sandbox: Sandbox) -> None:
    """One that writes without end is ended, and named."""
    await bash(sandbox, "yes", KEPT)
    await until_ended(sandbox, 1)
    assert (await sandbox.output(1)).outcome is Outcome.OUTPUT_LIMIT


async def test_there_is_a_most_of_background_commands(sandbox: Sandbox) -> None:
    """The seventeenth is refused with a word for it."""
    for _ in range(16):
        await bash(sandbox, "true", KEPT)
    with pytest.raises(Busy, match="16 background commands"):
        await bash(sandbox, "true", KEPT)


# ---------------------------------------------------------------- cwd, env, many at once


async def test_directory_and_variables(sandbox: Sandbox) -> None:
    """A command runs where and with what it asks for; a missing directory is its failure; a script sees both."""
    await sandbox.write({"d/main.py": b"import os; print(os.path.basename(os.getcwd()), os.environ['A'])"})
    here = Command(argv=("python3", "main.py"), cwd="d", env={"A": "x"})
    assert (await sandbox.run(here)).stdout == b"d x\n"
    own = Command(argv=("python3", "main.py"), cwd="d", env={"A": "y", "PYTHONOPTIMIZE": "1"})
    assert (await sandbox.run(own)).stdout == b"d y\n"
    missing = await sandbox.run(Command(argv=("true",), cwd="nowhere"))
    assert (missing.exit_code, b"nowhere" in missing.stderr) == (127, True)
    for wrong in ({"cwd": "../x"}, {"env": {"A=B": "x"}}, {"env": {"A": "\0"}}, {"user": "root"}):
        with pytest.raises(ValueError, match=r"command|workspace path"):
            await sandbox.run(Command(argv=("true",), **wrong))  # type: ignore[arg-type]


async def test_what_no_command_can_be_is_refused(sandbox: Sandbox) -> None:
    """No program, or a limit that nothing can keep, is the caller's mistake: said so, and the sandbox goes on."""
    with pytest.raises(ValueError, match="expected a program"):
        await sandbox.run(Command(argv=()))
    for limits in ({"open_files": 0}, {"memory_bytes": -1}, {"processes": 0}, {"wall_s": -1.0}, {"wall_s": math.nan}):
        with pytest.raises(ValueError, match=f"command.limits.{next(iter(limits))}"):
            await sandbox.run(Command(argv=("true",), limits=ExecLimits(**limits)))  # type: ignore[arg-type]
    assert (await sandbox.run(Command(argv=("true",)))).exit_code == 0


async def test_commands_at_once_wait_in_order(sandbox: Sandbox) -> None:
    """64 in one sandbox run one after the other, each with its own wall time; beyond, they are turned away."""
    ended: list[int] = []
    refused: list[int] = []

    async def one(number: int) -> None:
        try:
            found = await sandbox.run(
                Command(argv=("sh", "-c", f"sleep 0.02; echo {number}"), limits=ExecLimits(wall_s=1))
            )
        except Busy:
            refused.append(number)
            return
        assert found.stdout == b"%d\n" % number, found
        ended.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(70):
            tasks.start_soon(one, number)
    assert ended == sorted(ended)
    assert len(ended) >= 64
    assert len(refused) == 70 - len(ended) > 0
    assert sandbox.alive


async def test_the_grader_is_another_user(backend: Backend, sandbox: Sandbox) -> None:
    """What the grader owns the policy's commands can't change; where users are told apart at all."""
    grader, policy = Command(argv=(), user="grader"), Command(argv=())
    await sandbox.write({"theirs": b"1", "d/theirs": b"1"}, user="grader")
    users = [int((await bash(sandbox, "id -u", each)).stdout) for each in (policy, grader)]
    if isinstance(backend, ProcessBackend):
        assert users == [os.getuid()] * 2
        return
    assert users == [1000, 1001]
    assert (
        await bash(sandbox, "echo 2 > theirs || echo 2 > d/theirs || rm -f d/theirs || touch d/x", policy)
    ).exit_code == 1
    assert (await bash(sandbox, "echo 2 > theirs; touch d/x; cat theirs", grader)).stdout == b"2\n"


# ---------------------------------------------------------------- rest


async def test_what_goes_on_inside_keeps_it_awake(sandbox: Sandbox) -> None:
    """Neither a background command nor a job of the shell is stopped; a shell that waits rests with the sandbox."""
    await shell(sandbox, "x=1")
    assert await sandbox.rest()
    found = await shell(sandbox, "echo $x; sleep 60 & echo $!")
    number, pid = found.stdout.split()
    assert number == b"1"
    assert not await sandbox.rest()
    await shell(sandbox, f"kill {int(pid)}; wait")
    job = (await sandbox.run(Command(argv=("sleep", "60"), background=True))).job
    assert not await sandbox.rest()
    await sandbox.signal(job, 9)
    await until_ended(sandbox, job)
    assert await sandbox.rest()
    assert (await shell(sandbox, "echo $x")).stdout == b"1\n"

"""What every sandbox back-end promises: the same suite over all of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import anyio
import pytest
from support.sandboxes import BACKENDS, open_named

from tiltyard.sandbox.archive import pack
from tiltyard.sandbox.backend import ArchiveRefused, Backend, Sandbox, SandboxLost, Want, WorkspaceTooLarge
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits, Execution
from tiltyard_proto.outcomes import Outcome

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(allow_untrusted_process=True, workspace_bytes=1 << 20, workspace_entries=50)


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


async def sh(sandbox: Sandbox, script: str, **limits: float) -> Execution:
    return await sandbox.run(Command(argv=("bash", "-c", script), limits=ExecLimits(**limits)))  # type: ignore[arg-type]


async def py(sandbox: Sandbox, source: str, *arguments: str, stdin: bytes = b"", **limits: float) -> Execution:
    return await sandbox.run(
        Command(
            argv=("python3", "main.py", *arguments),
            files={"main.py": source.encode()},
            stdin=stdin,
            limits=ExecLimits(**limits),  # type: ignore[arg-type]
        )
    )


async def test_exit_status_and_streams_are_reported(sandbox: Sandbox) -> None:
    """A command's exit status, both streams and its times come back."""
    found = await sh(sandbox, "echo out; echo err >&2; exit 3")
    assert (found.outcome, found.exit_code, found.signal) == (Outcome.NONZERO_EXIT, 3, None)
    assert (found.stdout, found.stderr) == (b"out\n", b"err\n")
    assert 0 < found.wall_s < 5
    assert found.start_s > 0


async def test_missing_program_is_status_127(sandbox: Sandbox) -> None:
    """A program that is not there ends like in a shell."""
    found = await sandbox.run(Command(argv=("no-such-program",)))
    assert (found.outcome, found.exit_code) == (Outcome.NONZERO_EXIT, 127)
    assert b"no-such-program" in found.stderr


async def test_death_by_signal_is_reported(sandbox: Sandbox) -> None:
    """A program killed by a signal is told apart from one that exits."""
    found = await sh(sandbox, "kill -SEGV $$")
    assert (found.outcome, found.exit_code, found.signal) == (Outcome.SIGNALLED, None, 11)
    assert "SIGSEGV" in found.detail


async def test_stdin_is_fed_and_ends(sandbox: Sandbox) -> None:
    """All of stdin arrives, then end of file; without stdin there is end of file at once."""
    found = await sandbox.run(Command(argv=("wc", "-c"), stdin=b"x" * 300_000))
    assert found.stdout.strip() == b"300000"
    found = await sandbox.run(Command(argv=("wc", "-c")))
    assert found.stdout.strip() == b"0"


async def test_output_keeps_head_and_tail(sandbox: Sandbox) -> None:
    """Too much output keeps its first and last half and counts what was dropped."""
    found = await py(sandbox, "print('a' * 5000 + 'b' * 5000, end='')", output_bytes=1000)
    assert found.stdout == b"a" * 500 + b"b" * 500
    assert found.stdout_dropped == 9000
    assert found.outcome is Outcome.FINISHED


async def test_binary_output_is_intact(sandbox: Sandbox) -> None:
    """Bytes that are not text come back as they are."""
    found = await py(sandbox, "import sys; sys.stdout.buffer.write(bytes(range(256)))")
    assert found.stdout == bytes(range(256))


async def test_wall_limit_keeps_partial_output(sandbox: Sandbox) -> None:
    """At the wall limit a command is stopped, what it wrote is kept, and the sandbox can be used again."""
    begun = time.monotonic()
    found = await sh(sandbox, "echo begun; sleep 30", wall_s=0.4)
    assert time.monotonic() - begun < 2
    assert (found.outcome, found.stdout) == (Outcome.WALL_LIMIT, b"begun\n")
    assert sandbox.alive
    assert (await sh(sandbox, "echo again")).stdout == b"again\n"


async def test_ignored_signals_do_not_help(sandbox: Sandbox) -> None:
    """A command that ignores every signal it can is killed all the same."""
    found = await sh(sandbox, "trap '' TERM INT HUP; while :; do sleep 0.1; done", wall_s=0.4)
    assert found.outcome is Outcome.WALL_LIMIT
    assert found.wall_s < 2


async def test_background_child_does_not_hold_the_answer(sandbox: Sandbox) -> None:
    """The answer comes when the main process has ended, and its background children are gone afterwards."""
    found = await sh(sandbox, "sleep 60 & setsid sleep 61 & echo done")
    assert found.stdout == b"done\n"
    assert found.wall_s < 1
    found = await py(sandbox, "import os\nprint(sum(1 for n in os.listdir('/proc') if n.isdigit()))")
    assert int(found.stdout) == 2  # the init and this script


# ---------------------------------------------------------------- scripts


async def test_script_looks_like_a_fresh_interpreter(sandbox: Sandbox) -> None:
    """A script sees its own `__main__`, arguments, path, builtins and uid, and nothing of what started it."""
    source = """
import sys, os
sys.path.sort()
print(__name__, sys.argv, __file__, sys.modules['__main__'].__file__, 'guest' in ' '.join(sys.modules))
print(os.getcwd() in sys.path, sys.stdin.read(), exit.__class__.__name__)
"""
    found = await py(sandbox, source, "one", "two", stdin=b"typed")
    first, second = found.stdout.decode().splitlines()
    assert first == "__main__ ['main.py', 'one', 'two'] main.py main.py False"
    assert second == "True typed Quitter"


@pytest.mark.parametrize(
    ("code", "arguments", "status", "stdout", "stderr"),
    [
        (
            "import sys; print(sys.argv, sys.path[0] == '', __name__)",
            ("a", "-b"),
            0,
            "['-c', 'a', '-b'] True __main__\n",
            "",
        ),
        ("print('__file__' in globals(), 'guest' in str(globals()))", (), 0, "False False\n", ""),
        ("import neighbour; print(neighbour.answer)", (), 0, "41\n", ""),
        ("1 / 0", (), 1, "", 'File "<string>", line 1, in <module>\nZeroDivisionError'),
        ("def f(:", (), 1, "", "SyntaxError"),
        ("print('é'); import sys; sys.exit('reason')", (), 1, "é\n", "reason\n"),
    ],
)
async def test_code_on_the_command_line(
    sandbox: Sandbox, code: str, arguments: tuple[str, ...], status: int, stdout: str, stderr: str
) -> None:
    """`python3 -c` behaves as in a fresh interpreter: arguments, path, names, exit status and traceback."""
    await sandbox.write({"neighbour.py": b"answer = 41\n"})
    found = await sandbox.run(Command(argv=("python3", "-c", code, *arguments)))
    assert (found.exit_code, found.stdout.decode()) == (status, stdout)
    assert stderr in found.stderr.decode()
    assert "agent" not in found.stderr.decode()


async def test_script_imports_its_neighbours(sandbox: Sandbox) -> None:
    """A script imports modules that lie beside it, also when their names are those of the agent's parts."""
    await sandbox.write({"files.py": b"answer = 41\n", "agent.py": b"step = 1\n"})
    found = await py(sandbox, "import files, agent\nprint(files.answer + agent.step)")
    assert found.stdout == b"42\n"


@pytest.mark.parametrize(
    ("source", "code", "text"),
    [
        ("raise SystemExit(7)", 7, ""),
        ("exit()", 0, ""),
        ("import sys; sys.exit('reason')", 1, "reason\n"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
        ("def f():\n    1 / 0\nf()", 1, 'File "main.py", line 3, in <module>'),
        ("def f(:\n", 1, "SyntaxError"),
    ],
)
async def test_script_ends_like_in_an_interpreter(sandbox: Sandbox, source: str, code: int, text: str) -> None:
    """Exit statuses and tracebacks are the interpreter's, without a trace of the agent."""
    found = await py(sandbox, source)
    assert found.exit_code == code
    assert text in found.stderr.decode()
    assert b"agent" not in found.stderr


async def test_script_is_torn_down_like_by_an_interpreter(sandbox: Sandbox) -> None:
    """At the end of a script threads are joined, exit functions run, open files are written, output is flushed."""
    source = """
import atexit, threading, time, sys
kept = open('left-open.txt', 'w')
kept.write('written')
class Node: pass
ring = Node(); ring.ring = ring; ring.file = open('cycle.txt', 'w'); ring.file.write('also')
atexit.register(lambda: print('exit function'))
threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()
sys.stdout.write('main ')
"""
    found = await py(sandbox, source)
    assert found.stdout == b"main thread\nexit function\n"
    assert await sandbox.read(["left-open.txt", "cycle.txt"]) == {"left-open.txt": b"written", "cycle.txt": b"also"}


async def test_script_may_use_processes(sandbox: Sandbox) -> None:
    """Subprocesses, forked pools and unit tests work in a script."""
    source = """
import multiprocessing, subprocess, unittest, sys
def square(x): return x * x
class Case(unittest.TestCase):
    def test_it(self):
        self.assertEqual(multiprocessing.get_context('fork').Pool(2).map(square, [1, 2, 3]), [1, 4, 9])
        self.assertEqual(subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True).stdout, b'5\\n')
unittest.main()
"""
    found = await py(sandbox, source, processes=64)
    assert found.exit_code == 0, found.stderr
    assert b"OK" in found.stderr


async def test_two_commands_share_only_the_workspace(sandbox: Sandbox) -> None:
    """Files stay from command to command; interpreter state does not."""
    await py(
        sandbox, "import builtins, sys\nbuiltins.leak = 1\nsys.modules['leak'] = sys\nopen('kept', 'w').write('1')"
    )
    found = await py(
        sandbox,
        "import builtins, sys\nprint(hasattr(builtins, 'leak'), 'leak' in sys.modules)\nprint(open('kept').read())",
    )
    assert found.stdout == b"False False\n1\n"


# ---------------------------------------------------------------- files


async def test_files_go_in_and_come_out(sandbox: Sandbox) -> None:
    """Written files are there, with directories made; missing ones are left out when reading."""
    await sandbox.write({"a.txt": b"one", "deep/er/b.txt": b"two"})
    assert (await sh(sandbox, "cat a.txt deep/er/b.txt")).stdout == b"onetwo"
    assert await sandbox.read(["deep/er/b.txt", "missing", "deep"]) == {"deep/er/b.txt": b"two"}
    assert await sandbox.listing() == {"a.txt": b"one", "deep/er/b.txt": b"two"}
    assert await sandbox.listing(4) == {"a.txt": b"one"}


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "a/../../b", "", ".", "nul\0", "x" * 300])
async def test_impossible_paths_are_refused(sandbox: Sandbox, path: str) -> None:
    """A path that could leave the workspace is the caller's mistake."""
    with pytest.raises(ValueError, match="workspace path"):
        await sandbox.write({path: b""})
    with pytest.raises(ValueError, match="workspace path"):
        await sandbox.read([path])
    assert sandbox.alive


async def test_writing_replaces_what_is_in_the_way(sandbox: Sandbox) -> None:
    """Links, directories and read-only files in the way of a written file are removed, never followed."""
    await sh(
        sandbox,
        "mkdir -p out a; echo keep > out/t; ln -s $PWD/out/t one; ln -s $PWD/out two; mkdir three; touch three/x",
    )
    await sandbox.write({"one": b"1", "two/t": b"2", "three": b"3"})
    assert (
        await sh(sandbox, "cat out/t one two/t three; test -L one || test -L two || echo plain")
    ).stdout == b"keep\n123plain\n"


async def test_reading_never_follows_or_blocks(sandbox: Sandbox) -> None:
    """Links, loops, pipes, sockets and devices are left out when reading, without a hang."""
    links = {"abs": "/etc/passwd", "rel": "../../etc/passwd", "loop": "loop", "magic": "/proc/self/fd/0", "dir": "/etc"}
    script = "mkfifo p; " + "; ".join(f"ln -s {target} {name}" for name, target in links.items())
    await sh(sandbox, script)
    begun = time.monotonic()
    assert await sandbox.read(["abs", "rel", "loop", "magic", "p", "dir/passwd"]) == {}
    assert await sandbox.listing() == {}
    assert time.monotonic() - begun < 2


async def test_workspace_survives_export_and_restore(backend: Backend, sandbox: Sandbox) -> None:
    """An exported workspace restores to the same files, modes, links and odd names, and exports to the same bytes."""
    await sh(
        sandbox,
        "mkdir -p d/e; echo x > d/f; chmod 755 d/f; ln -s f d/l; ln -s /etc/passwd bad; touch $'new\\nline' $'\\xff'",
    )
    archive = await sandbox.export()
    other = await backend.start(Want())
    try:
        await other.restore(archive)
        assert await other.export() == archive
        found = await sh(other, "cat d/l; test -x d/f && test -d d/e && test ! -e bad && ls | wc -l")
        assert found.stdout == b"x\n4\n"
    finally:
        await other.kill()


async def test_a_workspace_over_the_caps_is_refused(sandbox: Sandbox) -> None:
    """Too many bytes, too many entries and too deep a tree are named, and the sandbox goes on."""
    await sh(sandbox, "head -c 2M /dev/zero > big")
    with pytest.raises(WorkspaceTooLarge, match="size"):
        await sandbox.export()
    await sh(sandbox, "rm big; touch $(seq 60)")
    with pytest.raises(WorkspaceTooLarge, match="entries"):
        await sandbox.export()
    await sh(sandbox, "rm *; mkdir -p $(printf 'd/%.0s' $(seq 40))")
    with pytest.raises(WorkspaceTooLarge, match="depth"):
        await sandbox.export()
    assert sandbox.alive


async def test_hostile_archives_are_refused(sandbox: Sandbox) -> None:
    """An archive with a link to outside or over the caps is refused before anything is written."""
    bomb = pack([("f", 0o644, b"zeros", bytes(3 << 20))])
    with pytest.raises(ArchiveRefused, match="too large"):
        await sandbox.restore(bomb)
    with pytest.raises(ArchiveRefused, match="archive"):
        await sandbox.restore(b"not a tar at all" * 100)
    assert await sandbox.listing() == {}


# ---------------------------------------------------------------- ends


async def test_a_resting_sandbox_wakes_up(sandbox: Sandbox) -> None:
    """What rests is as it was at its next request, answers at once, and can be killed while it rests."""
    await sandbox.write({"kept": b"1"})
    for _ in range(2):
        assert await sandbox.rest()
    assert await sandbox.read(["kept"]) == {"kept": b"1"}
    assert await sandbox.rest()
    assert (await sh(sandbox, "cat kept")).stdout == b"1"
    assert await sandbox.rest()
    await sandbox.kill()
    assert not sandbox.alive
    assert not await sandbox.rest()


async def test_killed_sandbox_says_so(sandbox: Sandbox) -> None:
    """After a kill file operations raise SandboxLost, a command ends as lost, and a second kill is harmless."""
    await sandbox.kill()
    assert not sandbox.alive
    with pytest.raises(SandboxLost):
        await sandbox.read(["x"])
    assert (await sh(sandbox, "true")).outcome is Outcome.SANDBOX_LOST
    await sandbox.kill()


async def test_cancelled_command_spoils_the_sandbox(sandbox: Sandbox) -> None:
    """A cancelled command leaves a sandbox that nobody can use by mistake."""
    with anyio.move_on_after(0.3):
        await sh(sandbox, "sleep 20")
    assert not sandbox.alive


async def test_sandboxes_do_not_see_one_another(backend: Backend, sandbox: Sandbox) -> None:
    """Files of one sandbox are not in another."""
    await sandbox.write({"secret": b"x"})
    other = await backend.start(Want())
    try:
        assert await other.listing() == {}
    finally:
        await other.kill()

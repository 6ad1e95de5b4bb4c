"""The supervisor's parts: real child processes, the merged log, and what is checked before anything starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import psutil
import pytest
from support.waiting import until

from tiltyard.cli.errors import UserError
from tiltyard.cli.up import preflight
from tiltyard.cli.up.child import Child, GaveUp, backoff, cpu_seconds, describe, service_argv
from tiltyard.cli.up.disk import FULL_BYTES, ROOM_BYTES, DiskWatch
from tiltyard.cli.up.lines import MergedLog, readable
from tiltyard.cli.up.settings import SupervisorSettings

pytestmark = pytest.mark.anyio
QUICK = SupervisorSettings(restart_first_s=0.01, restart_most_s=0.05, steady_s=60.0, give_up=3, stop_s=0.3)


class Lines(list[tuple[str, str]]):
    def __call__(self, name: str, line: str) -> None:
        self.append((name, line))

    def of(self, name: str) -> list[str]:
        return [line for who, line in self if who == name]


def child(script: str, lines: Lines, settings: SupervisorSettings = QUICK) -> Child:
    return Child("svc", ["/bin/sh", "-c", script], settings, lines)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ---------------------------------------------------------------- children


async def test_a_child_that_dies_is_started_again_until_it_is_given_up() -> None:
    """It is restarted with growing delays, and given up after as many failures in a row as the settings say."""
    lines = Lines()
    dying = child("echo started; exit 3", lines)
    with pytest.raises(GaveUp, match=r"svc: ended 4 times in a row \(last status 3\)"):
        await dying.run()
    assert lines.of("svc") == ["started"] * 4
    assert [line.rsplit(" ", 2)[1] for line in lines.of("up")] == ["0.01", "0.02", "0.04"]
    assert dying.restarts == 3
    assert dying.pid is None


async def test_a_killed_child_comes_back(tmp_path: Path) -> None:
    """A child killed from outside is running again, under another process id."""
    lines = Lines()
    steady = child("echo up; exec sleep 60", lines)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(steady.run)
        await until(lambda: lines.of("svc") == ["up"])
        first = steady.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: lines.of("svc") == ["up", "up"])
        assert steady.pid not in (None, first)
        await steady.stop()
    assert "svc ended with signal 9" in lines.of("up")[0]
    assert steady.restarts == 1


async def test_a_users_mistake_is_not_tried_again() -> None:
    """Status 2 gives up at once."""
    lines = Lines()
    with pytest.raises(GaveUp, match="svc ended with status 2: bad setting"):
        await child("echo bad setting; exit 2", lines).run()
    assert lines.of("svc") == ["bad setting"]


async def test_stop_asks_first() -> None:
    """A child that handles TERM ends by itself, and is not started again."""
    lines = Lines()
    polite = child("trap 'echo drained; exit 0' TERM; echo up; while :; do sleep 0.02; done", lines)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(polite.run)
        await until(lambda: "up" in lines.of("svc"))
        await polite.stop()
    assert lines.of("svc") == ["up", "drained"]
    assert lines.of("up") == []


async def test_stop_kills_what_ignores_term() -> None:
    """A child that ignores TERM is killed after the deadline; when `stop` returns it is gone."""
    lines = Lines()
    # Python, not a shell: nothing of it may survive to hold the pipe
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    stubborn = Child("svc", [sys.executable, "-S", "-c", code], QUICK, lines)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stubborn.run)
        await until(lambda: "up" in lines.of("svc"))
        pid = stubborn.pid
        assert pid is not None
        with anyio.fail_after(5):
            await stubborn.stop()
        assert not alive(pid)
    assert lines.of("up") == ["svc did not stop within 0.3 s; killed"]


async def test_killing_is_for_good() -> None:
    """A child that is killed at once is not started again."""
    lines = Lines()
    steady = child("echo up; exec sleep 60", lines)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(steady.run)
            await until(lambda: lines.of("svc") == ["up"])
            steady.kill()
    assert (lines.of("svc"), steady.restarts, steady.pid) == (["up"], 0, None)


async def test_giving_up_repeats_what_the_child_said() -> None:
    """The last line of its log, in readable form, is the reason a person reads."""
    line = '{"event": "service_failed", "exception": [{"exc_type": "OSError", "exc_value": "No space left"}]}'
    with pytest.raises(GaveUp, match=r"it said: service_failed  OSError: No space left$"):
        await child(f"echo '{line}'; exit 1", Lines(), msgspec.structs.replace(QUICK, give_up=0)).run()


def test_a_child_ends_with_its_supervisor() -> None:
    """SIGKILL of the supervisor leaves no process of its children behind."""
    code = (
        "import anyio; from tiltyard.cli.up.child import Child; "
        "from tiltyard.cli.up.settings import SupervisorSettings; "
        "c = Child('svc', ['/bin/sh', '-c', 'echo $$; exec sleep 60'], SupervisorSettings(), "
        "lambda name, line: print(line, flush=True)); anyio.run(c.run)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as supervisor:
        assert supervisor.stdout is not None
        grandchild = psutil.Process(int(supervisor.stdout.readline()))
        supervisor.kill()
    _, left = psutil.wait_procs([grandchild], timeout=10)
    assert not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


def test_the_disk_is_watched_with_hysteresis() -> None:
    """Full is said once a minute while it lasts; room counts only well above the line, and only after it was full."""
    watch, full, room = DiskWatch(), FULL_BYTES - 1, ROOM_BYTES
    looks = [(room, 0), (full, 1), (full, 30), (full, 62), (FULL_BYTES, 70), (room - 1, 70), (room, 70), (room, 70)]
    assert [watch.look(free, now) for free, now in looks] == ["", "full", "", "full", "", "", "room", ""]


async def test_stopping_what_never_ran() -> None:
    """Stopping a child that was not started is fine."""
    await child("exit 0", Lines()).stop()


async def test_stop_while_it_is_being_started() -> None:
    """A child that is asked to stop in the moment of its restart does not run on."""
    for delay in (0, 1, 2, 3, 5, 8):
        lines = Lines()
        again = child("echo up; exec sleep 60", lines)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(again.run)
                for _ in range(delay):
                    await anyio.lowlevel.checkpoint()
                await again.stop()
        assert again.pid is None


async def test_cpu_time_is_kept_over_restarts() -> None:
    """What earlier incarnations used is added up."""
    lines = Lines()
    busy = child("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; exec sleep 60", lines)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(busy.run)
        await until(lambda: "done" in lines.of("svc"))
        busy.sample_cpu()
        used = busy.cpu_s
        assert used > 0.05
        assert busy.pid is not None
        os.kill(busy.pid, signal.SIGKILL)
        await until(lambda: busy.restarts == 1)
        assert busy.cpu_s >= used
        await busy.stop()
    assert cpu_seconds(2**22 + 1) == 0.0


async def test_a_very_long_line_does_not_stop_the_child() -> None:
    """A line over the limit is dropped or split, and later lines still come."""
    lines = Lines()
    code = "import sys; sys.stdout.write('x' * 3000000 + '\\nafter\\n'); sys.stdout.flush(); sys.exit(2)"
    with pytest.raises(GaveUp):
        await Child("svc", [sys.executable, "-S", "-c", code], QUICK, lines).run()
    assert lines.of("svc")[-1] == "after"
    assert "(a line of over 1 MiB was dropped)" in lines.of("svc")


def test_backoff_doubles_to_its_bound() -> None:
    """A tenth of a second, doubling, ten seconds at most."""
    assert [backoff(n, SupervisorSettings()) for n in (1, 2, 3, 7, 8, 50)] == [0.1, 0.2, 0.4, 6.4, 10.0, 10.0]


def test_the_command_of_a_service() -> None:
    """The same file and overrides reach every service."""
    assert service_argv("gateway", None, []) == [sys.executable, "-m", "tiltyard.gateway"]
    assert service_argv("engine", "a.toml", ["a.b=1"])[3:] == ["-c", "a.toml", "--set", "a.b=1"]
    assert (describe(-9), describe(3)) == ("signal 9", "status 3")


# ---------------------------------------------------------------- the log


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("plain text", ("info", "", "svc        plain text")),
        ("{broken", ("info", "", "svc        {broken")),
        ("[1, 2]", ("info", "", "svc        [1, 2]")),
        (
            '{"event": "step_trained", "level": "info", "loss": 0.123456, "step": 3, "timestamp": "x", "service": "t"}',
            ("info", "step_trained", "svc        step_trained loss=0.1235 step=3"),
        ),
        (
            '{"event": "e", "level": "error", "exception": [{"exc_type": "ValueError", "exc_value": "bad"}]}',
            ("error", "e", "svc        e  ValueError: bad"),
        ),
        ('{"event": "e", "exception": "text"}', ("info", "e", "svc        e  text")),
    ],
)
def test_readable_lines(line: str, expected: tuple[str, str, str]) -> None:
    """JSON becomes event and pairs; what is no JSON object stays as it is."""
    assert readable("svc", line) == expected


def test_long_values_are_cut() -> None:
    """A value of a thousand characters does not fill the terminal."""
    assert len(readable("svc", msgspec.json.encode({"event": "e", "a": "x" * 1000}).decode())[2]) < 200


def test_the_file_has_everything_the_terminal_what_matters(tmp_path: Path) -> None:
    """Every line is in the file; the terminal gets progress, warnings, errors and the supervisor's own lines."""
    shown: list[str] = []
    log = MergedLog(tmp_path / "deep/up.log", shown.append)
    lines = [
        ("engine", '{"event": "detail", "level": "info"}'),
        ("engine", '{"event": "engine_ready", "level": "info"}'),
        ("engine", '{"event": "odd", "level": "warning"}'),
        ("engine", "Traceback (most recent call last):"),
        ("up", "engine ended with signal 9"),
    ]
    for name, line in lines:
        log.line(name, line)
    log.close()
    assert (tmp_path / "deep/up.log").read_text().splitlines() == [f"{name}\t{line}" for name, line in lines]
    assert [text.split(" ", 1)[1].split()[1] for text in shown] == ["engine_ready", "odd", "Traceback", "engine"]


# ---------------------------------------------------------------- before anything starts


def test_the_disk_is_checked(tmp_path: Path) -> None:
    """A directory that can't be made and a disk with too little room are each one line with the mend."""
    preflight.check_disk(tmp_path / "new", SupervisorSettings(min_free_gib=0.0))
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"Not a directory; choose a writable directory with --set data\.root=DIR"):
        preflight.check_disk(tmp_path / "file/below", SupervisorSettings())
    with pytest.raises(UserError, match=r"GiB free, 1e\+09 needed; free some"):
        preflight.check_disk(tmp_path, SupervisorSettings(min_free_gib=1e9))


def test_one_supervisor_for_each_data_directory(tmp_path: Path) -> None:
    """A second one names the first one's process; when that is killed the lock is free; it is free after closing."""
    code = (
        "import sys, time; from pathlib import Path; from tiltyard.cli.up.preflight import take_lock; "
        f"lock = take_lock(Path({str(tmp_path)!r})); print('locked', flush=True); time.sleep(60)"
    )
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"locked\n"
            with pytest.raises(UserError, match=f"is in use by tiltyard up, pid {holder.pid}"):
                preflight.take_lock(tmp_path)
        finally:
            holder.kill()
    for _ in range(2):
        preflight.take_lock(tmp_path).close()

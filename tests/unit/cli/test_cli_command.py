"""The console command as a person calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tiltyard.cli.main import SERVICES, main, parser
from tiltyard.kit.embedded import free_port

COMMANDS = (
    *("up", "run", "publish", "provision", "credentials", "janitor", "status", "dlq"),
    *("weights", "quotas", "size", "report", "domains", "model", "doctor", "config", "sandbox"),
)
TASK: dict[str, Any] = {
    "domain": "math.arithmetic.chain_sum",
    "prompt": [{"role": "user", "content": "1 + 1?"}],
    "verification": {"kind": "last_number", "data": {"answer": "2"}},
}


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TILTYARD_")}
    return kept | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def tiltyard(*arguments: str, cwd: Path | None = None, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the command in a fresh interpreter."""
    argv = [sys.executable, "-m", "tiltyard.cli.main", *arguments]
    return subprocess.run(argv, capture_output=True, cwd=cwd, env=environment(), timeout=30, check=False, input=stdin)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_subcommand(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` ends with 0 and says what the arguments are; the list of commands names it."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert f"usage: tiltyard {command}" in said
    assert command in parser().format_help()


def test_all_subcommands_are_tested() -> None:
    """The list above is the list there is."""
    choices = next(a.choices for a in parser()._actions if isinstance(a.choices, dict))
    assert set(choices) == set(COMMANDS)


def test_help_is_quick_and_light() -> None:
    """In a fresh interpreter the help of every subcommand takes less than a second of CPU together, and loads neither
    torch nor transformers nor nats."""
    code = (
        "import sys, time\n"
        "from tiltyard.cli.main import main\n"
        f"for command in {COMMANDS!r}:\n"
        "    try: main([command, '--help'])\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'transformers', 'nats', 'duckdb', 'aiohttp'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert time.process_time() < 1, time.process_time()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(), timeout=30, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("run", "nonsense"),
        ("status", "--nonsense"),
        ("sandbox", "exec", "--wall", "-3", "--", "true"),
        ("sandbox", "exec", "--wall", "nan", "--", "true"),
        ("sandbox", "bench", "-n", "0"),
        ("sandbox", "top", "--every", "0"),
    ],
)
def test_wrong_arguments_end_with_two(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """What argparse refuses is status 2 with the usage."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: tiltyard" in capsys.readouterr().err


@pytest.mark.parametrize("service", SERVICES)
def test_a_services_mistake_is_one_line(service: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`tiltyard run SERVICE` checks its settings before anything heavy, and ends with 2 and one line."""
    assert main(["run", service, "--set", f"{service}.nonsense=1"]) == 2
    said = capsys.readouterr().err
    assert f"--set {service}.nonsense=1: [{service}]: Object contains unknown field `nonsense`" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("command", [("status",), ("status", "--json"), ("publish", "-"), ("provision",)])
def test_without_a_bus_one_clear_line(command: tuple[str, ...]) -> None:
    """A command that needs a bus says in one line that there is none and how to get one, and ends with 2."""
    url = f"nats://127.0.0.1:{free_port()}"
    done = tiltyard(*command, "--set", f'bus.servers=["{url}"]', stdin=msgspec.json.encode(TASK))
    assert (done.returncode, done.stdout) == (2, b"")
    said = done.stderr.decode()
    assert said.count("\n") == 1, said
    assert f"no bus at {url}: start one with `tiltyard up`" in said


def test_against_a_real_bus(nats_server: Any, tmp_path: Path) -> None:
    """Before provisioning status says what is missing; then tasks are published once, and status shows them."""
    server = ("--set", f'bus.servers=["{nats_server.url}"]', "--set", f"data.root={tmp_path}")
    bare = tiltyard("status", *server)
    assert bare.returncode == 2
    assert b"run `tiltyard provision`" in bare.stderr
    assert tiltyard("provision", *server).returncode == 0
    file = tmp_path / "tasks.jsonl"
    file.write_bytes(b"\n".join(msgspec.json.encode(TASK | {"value": float(i)}) for i in range(3)))
    assert tiltyard("publish", str(file), *server).stdout == b"3 tasks published, 0 were there already\n"
    assert tiltyard("publish", str(file), *server).stdout == b"0 tasks published, 3 were there already\n"
    shown = tiltyard("status", "--json", *server)
    assert (shown.returncode, shown.stderr) == (0, b"")
    state = msgspec.json.decode(shown.stdout)
    stages = {row["stage"]: row for row in state["stages"]}
    assert stages["task"]["stored"] == 3
    assert (stages["generate"]["waiting"], stages["generate"]["in_flight"]) == (0, 0)
    assert state["runs"] == []
    assert b"task" in tiltyard("status", *server).stdout


def test_a_reader_that_leaves_is_no_traceback() -> None:
    """`tiltyard config | head -1` ends quietly."""
    line = f"{sys.executable} -m tiltyard.cli.main config | head -1"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, env=environment(), timeout=30, check=False)
    assert done.stderr == b""
    assert done.stdout.count(b"\n") == 1

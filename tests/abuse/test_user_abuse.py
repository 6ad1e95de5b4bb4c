"""What a person can get wrong with the command: each mistake is one line that says what, where and how to mend it."""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import hostile

from tiltyard.cli.errors import UserError
from tiltyard.cli.main import main
from tiltyard.cli.publish import read_tasks
from tiltyard.cli.sections import check_all
from tiltyard.cli.up import preflight
from tiltyard.cli.up.lines import MergedLog
from tiltyard.cli.up.run import write_summary
from tiltyard.cli.up.summary import Summary
from tiltyard.kit.embedded import EmbeddedError, launch_server
from tiltyard.kit.settings import DataSettings, read_source
from tiltyard.policy.tiny import make_random
from tiltyard.sandbox.settings import SandboxSettings

pytestmark = pytest.mark.anyio
TRAIN = ("--set", 'run.train={"code.python.functions"={tasks=5}}')
TASK: dict[str, Any] = {
    "domain": "math.arithmetic.chain_sum",
    "prompt": [{"role": "user", "content": "1 + 1?"}],
    "verification": {"kind": "last_number", "data": {"answer": "2"}},
}


def nothing(_: str) -> None:
    """Where progress lines go."""


# ---------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (bytes(range(256)), "not valid TOML"),
        ("[run]\nsteps = 1\n".encode("utf-16"), "not valid TOML"),
        (b"[run]\ntrain = " + b"[" * 5000, "nested too deeply"),
        (b"#" * (5 << 20), "more than 4 MiB"),
        (None, "Is a directory"),
    ],
)
def test_a_file_that_is_no_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, said: str
) -> None:
    """Status 2, one line that names the file, and nothing is started or written."""
    file, root = tmp_path / "a.toml", tmp_path / "data"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    assert main(["up", "-c", str(file), "--set", f"data.root={root}", *TRAIN]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"tiltyard up: {file}: ")
    assert said in error
    assert error.count("\n") == 1
    assert not root.exists()


def test_an_endless_file_is_not_read_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    """`-c /dev/zero` is refused at once instead of filling the memory."""
    assert main(["up", "-c", "/dev/zero"]) == 2
    assert "this is no configuration file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        "engine.max_running_requests=0", "gateway.busy_wait_s=-1", "sandbox.slots=0", "sandbox.pool={python=-1}",
        "sandbox.starts=0", "sandbox.backend=podman", "sandbox.backend=process", "sandbox.platform=magic",
        "verifier.slots=-1", "aggregator.archive_every_s=0", "aggregator.min_members=0", "sampler.forget=2",
        "sampler.forget=nan", "sampler.tick_s=0", "trainer.lr=nan", "trainer.lr=inf", "trainer.beta1=2",
        "trainer.device=mars", "supervisor.give_up=-1", "supervisor.stop_s=-1", "supervisor.min_free_gib=nan",
        "bus.replicas=0", "data.root=", "service.log_format=xml", "run.model=", "run.seed=-1",
    ],
)  # fmt: skip
def test_a_number_or_name_that_cannot_work(capsys: pytest.CaptureFixture[str], change: str) -> None:
    """The line names the override, the table and the key."""
    assert main(["up", *TRAIN, "--set", change]) == 2
    error = capsys.readouterr().err
    table, key = change.split("=")[0].split(".")
    assert error.startswith(f"tiltyard up: --set {change.strip()}")
    assert f"[{table}]" in error
    assert re.search(rf"\b{key}\b", error.split("]", 1)[1])
    assert error.count("\n") == 1


# ---------------------------------------------------------------- tasks


@pytest.mark.parametrize("name", hostile.REFUSED)
def test_a_task_nobody_can_work_on_is_refused(name: str) -> None:
    """It is refused before anything is published, with its line number and the key."""
    change, said = hostile.REFUSED[name]
    lines = [msgspec.json.encode(TASK), msgspec.json.encode(TASK | change)]
    with pytest.raises(UserError) as caught:
        read_tasks(lines, "f")
    assert str(caught.value).startswith("nothing was published:\nf:2: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        *(body for name, body in hostile.GARBAGE.items() if body),
        b"[1]",
        b'"x"',
        msgspec.json.encode(TASK).replace(b"1 + 1", b"\xff\xfe"),
        msgspec.json.encode(TASK).replace(b"1 + 1", b"\\ud800"),
        msgspec.json.encode(TASK).replace(b'"2"', b"[" * 5000 + b"]" * 5000),
        msgspec.json.encode(TASK).replace(b'"domain"', b'"value":1e999,"domain"'),
    ],
)
def test_a_line_that_is_no_task(line: bytes) -> None:
    """Whatever the bytes, the person reads one line with the place."""
    with pytest.raises(UserError, match=r"nothing was published:\nf:1: "):
        read_tasks([line], "f")


# ---------------------------------------------------------------- prerequisites


async def test_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sandboxes need root, and the line says so with the mend."""
    monkeypatch.setattr("os.geteuid", lambda: 65534)
    with pytest.raises(UserError, match="sandboxes need root: run with sudo"):
        await preflight.check_sandbox(SandboxSettings(), DataSettings(), nothing)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (SandboxSettings(runsc="/nonexistent"), "no runsc at /nonexistent"),
        (SandboxSettings(runsc="/bin/false"), "mend: get a working runsc"),
        (SandboxSettings(image={"python": "/nonexistent"}), "build it with `tiltyard sandbox images build python`$"),
        (SandboxSettings(pool={"python": 1, "nope": 2}), r"\[sandbox\] pool: no profile 'nope'"),
    ],
)
async def test_a_sandbox_that_cannot_start(settings: SandboxSettings, said: str) -> None:
    """A missing or broken runsc, and a missing image, are each named with what mends them."""
    with pytest.raises(UserError, match=said):
        await preflight.check_sandbox(settings, DataSettings(), nothing)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda d: (d / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (lambda d: (d / "model.safetensors").unlink(), "holds no weights"),
        (lambda d: (d / "model.safetensors").write_bytes(b"x" * 500), "model.safetensors is damaged"),
        (lambda d: (d / "config.json").write_text("not json"), "config.json is not valid JSON"),
        (lambda d: shutil.rmtree(d), "neither a directory with a config.json nor a built-in model"),
    ],
)
async def test_a_model_that_is_not_whole(tmp_path: Path, spoil: Any, said: str) -> None:
    """It is found before any service starts."""
    model = make_random(tmp_path / "model")
    data = DataSettings(cache=str(tmp_path / "cache"))
    assert await preflight.check_model(str(model), data, nothing) == model
    spoil(model)
    with pytest.raises(UserError, match=said):
        await preflight.check_model(str(model), data, nothing)


@pytest.mark.parametrize("taken", ["engine", "metrics"])
def test_a_taken_port(taken: str) -> None:
    """The engine's port, and every port that metrics will use, are looked at before anything starts."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        changes = {"engine": [f"engine.port={port}"], "metrics": ["engine.port=0", f"service.metrics_port={port - 2}"]}
        sections = check_all(read_source(None, changes[taken], {}))
        with pytest.raises(UserError, match=rf"{port}\b.* taken.*--set "):
            preflight.check_ports(sections)


def test_a_bus_on_another_machine_is_not_started_here(tmp_path: Path) -> None:
    """An embedded server on an address that is not ours says what to change, and is not called a taken port."""
    with pytest.raises(EmbeddedError, match=r"can't listen on 192\.0\.2\.1:4222 .*bus\.embedded=false"):
        launch_server(tmp_path, "192.0.2.1", 4222)


def test_results_that_cannot_be_written_are_said_first(tmp_path: Path) -> None:
    """Better now than when the run has ended."""
    preflight.check_results(tmp_path / "deep" / "results.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--results .*/file/results\.json: "):
        preflight.check_results(tmp_path / "file" / "results.json")


# ---------------------------------------------------------------- a full disk


def test_a_log_on_a_full_disk_goes_on_in_the_terminal(tmp_path: Path) -> None:
    """The file's loss is said once, every line is still shown, and the summary's loss ends nothing."""
    (tmp_path / "up.log").symlink_to("/dev/full")
    (tmp_path / "summary.json.new").symlink_to("/dev/full")
    shown: list[str] = []
    log = MergedLog(tmp_path / "up.log", shown.append)
    for number in range(3):
        log.line("up", f"line {number}")
    write_summary(tmp_path / "summary.json", Summary(run="x"), log)
    log.close()
    texts = [text.split(" ", 1)[1] for text in shown]
    assert [text.split()[-2:] for text in texts if text.startswith("up")] == [["line", str(n)] for n in range(3)]
    assert sum("its lines are lost" in text for text in texts) == 1
    assert "summary.json can't be written: No space left on device" in texts[-1]

"""`tiltyard weights` as a person calls it, on a real bus, and what running services make of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from support.secured import Secured

from tiltyard.cli import connection
from tiltyard.cli.main import main
from tiltyard.kit import weights
from tiltyard.kit.bus import Bus
from tiltyard.kit.errors import Forbidden
from tiltyard.kit.flows import FlowSource
from tiltyard.kit.provision import provision
from tiltyard_proto.topology import EXECUTE, GENERATE, WEIGHTS_BUCKET

pytestmark = pytest.mark.anyio
Command = Callable[..., Any]
A, B = "code.python.functions", "math.test"


class Called(msgspec.Struct, frozen=True):
    status: int
    out: str
    err: str


@pytest.fixture
def command(
    nats_server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Call `tiltyard weights ...` against the test's bus, off the test's event loop and without a log of its own."""
    monkeypatch.setattr(connection.log_setup, "setup", lambda *_, **__: None)

    async def call(*arguments: str) -> Called:
        where = ["--set", f'bus.servers=["{nats_server.url}"]', "--set", f"data.root={tmp_path}"]
        capsys.readouterr()
        status = await anyio.to_thread.run_sync(main, ["weights", *arguments, *where])
        said = capsys.readouterr()
        return Called(status, said.out, said.err)

    return call


async def test_set_list_and_unset(bus: Bus, command: Command) -> None:
    """Weights are set at every shared stage or at one, kept beside those that are there, listed, and taken back."""
    assert (await command("ls")).out.split() == ["domain", "generate", "execute", "every", "other", "1", "1"]
    assert (await command("set", f"{A}=2", f"{B}=0.5")).status == 0
    assert (await command("set", f"{B}=3", "--stage", "execute")).status == 0
    assert await weights.read(bus, "generate") == {A: 2.0, B: 0.5}
    assert await weights.read(bus, "execute") == {A: 2.0, B: 3.0}
    rows = [line.split() for line in (await command("ls")).out.splitlines()]
    assert [A, "2", "2"] in rows
    assert [B, "0.5", "3"] in rows
    said = msgspec.json.decode((await command("ls", "--json", "--stage", "execute")).out)
    assert said == {"execute": {A: 2.0, B: 3.0}}
    assert (await command("unset", A)).status == 0
    assert await weights.read(bus, "generate") == {B: 0.5}
    assert (await command("set", "--only", f"{A}=4")).status == 0
    assert await weights.read(bus, "execute") == {A: 4.0}


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("nonsense", "'nonsense': expected DOMAIN=WEIGHT"),
        (f"{A}=much", "expected DOMAIN=WEIGHT"),
        (f"{A}=0", "expected a number of at least 0.01, got 0"),
        (f"{A}=-1", "at least 0.01, got -1"),
        (f"{A}=nan", "got nan"),
        (f"{A}=inf", "got inf"),
        ("No Domain=1", "No Domain"),
    ],
)
async def test_a_weight_that_can_not_be_is_refused(bus: Bus, command: Command, argument: str, said: str) -> None:
    """One line says what is wrong, and nothing is written, not even the sound weights beside it."""
    called = await command("set", f"{B}=2", argument)
    assert (called.status, called.err.count("\n")) == (2, 1)
    assert said in called.err
    assert await weights.read(bus, "generate") == {}
    assert (await command("set", f"{B}=1", f"{B}=2")).err == f"tiltyard weights: {B} is named twice\n"


async def test_an_entry_that_can_not_be_read_is_said_and_can_be_replaced(bus: Bus, command: Command) -> None:
    """Garbage in the bucket is one line with the way out, and `--only` is that way."""
    await bus.kv(WEIGHTS_BUCKET).put("generate", b"\xc1garbage")
    for arguments in (("ls",), ("set", f"{A}=2"), ("unset", A)):
        called = await command(*arguments)
        assert called.status == 2
        assert "the weights of stage generate can't be read" in called.err
        assert "set --only DOMAIN=WEIGHT" in called.err
    assert (await command("set", "--only", f"{A}=2")).status == 0
    assert await weights.read(bus, "generate") == {A: 2.0}


async def test_two_people_who_set_weights_both_win(bus: Bus) -> None:
    """Changes made at the same time are all there afterwards."""
    async with anyio.create_task_group() as tasks:
        for index in range(12):
            tasks.start_soon(weights.change, bus, "generate", {f"math.d{index}": 1.0 + index})
    assert await weights.read(bus, "generate") == {f"math.d{index}": 1.0 + index for index in range(12)}


@pytest.mark.parametrize("stage", [GENERATE, EXECUTE], ids=lambda stage: str(stage.name))
async def test_a_running_service_takes_them_up(bus: Bus, command: Command, stage: Any) -> None:
    """What serves a stage has the weights within seconds, by the token of the domain."""
    source = FlowSource(bus, stage, list)
    async with anyio.create_task_group() as tasks:
        await source.start(tasks)
        await command("set", f"{A}=2.5")
        with anyio.fail_after(10):
            while source._scheduler.weights != {"code__python__functions": 2.5}:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        await source.stop()


async def test_only_people_set_weights(tmp_path: Path) -> None:
    """On a secured bus the command's user may write them, and the services that read them may not."""
    server = Secured(tmp_path)
    try:
        async with server.bus("supervisor") as operator:
            await provision(operator)
        async with server.bus("cli") as bus:
            await weights.change(bus, "generate", {A: 2.0})
        for user in ("gateway", "sandbox"):
            async with server.bus(user) as bus:
                assert await weights.read(bus, "generate") == {A: 2.0}
                with pytest.raises(Forbidden):
                    await weights.change(bus, "generate", {A: 9.0})
    finally:
        server.stop()

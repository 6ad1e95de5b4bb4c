"""The engine as a process: it starts from settings, serves, and ends cleanly on SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from tiltyard.kit.embedded import free_port
from tiltyard.policy.tiny import make_random

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]


async def start(*arguments: str) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TILTYARD_")}
    environment |= {"PYTHONPATH": f"{ROOT}/services:{ROOT}/proto", "OMP_NUM_THREADS": "1"}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tiltyard.engine", *arguments),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def test_it_serves_until_sigterm(tmp_path: Path) -> None:
    """Started with a model and a port it answers there, and exits with 0 on SIGTERM even while it computes."""
    model, port = make_random(tmp_path / "m"), free_port()
    process = await start("--model", str(model), "--port", str(port), "--set", "engine.threads=1")
    assert process.stdout is not None
    try:
        async with aiohttp.ClientSession(base_url=f"http://127.0.0.1:{port}") as session:
            while b"engine_serves" not in (line := await process.stdout.readline()):
                assert line, "the engine ended before it served"
            body = {"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}}
            async with session.post("/generate", json=body) as reply:
                assert len((await reply.json())["output_ids"]) == 4
            body["sampling_params"] = {"max_new_tokens": 500, "ignore_eos": True}
            long = asyncio.create_task(session.post("/generate", json=body))
            await asyncio.sleep(0)
            process.send_signal(signal.SIGTERM)
            await process.communicate()
            assert process.returncode == 0
            await asyncio.gather(long, return_exceptions=True)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "engine.portt=1"), "known keys: host, port"),
        (("--set", "engine.port=99999"), "port: expected 0 to 65535"),
        (("--model", "/no/such/model"), "neither a directory with a config.json nor a built-in model"),
    ],
)
async def test_mistakes_are_one_line(arguments: tuple[str, ...], message: str) -> None:
    """A wrong setting or model ends the process with an error and one line that says so."""
    process = await start(*arguments)
    output, _ = await process.communicate()
    assert process.returncode not in (0, None)
    assert message in output.decode()
    assert "Traceback" not in output.decode()

"""A stand-in for the service: opens a back-end, starts busy sandboxes, says so, waits for its end. Run by path.

Arguments: home, runsc, image, number of sandboxes. Prints the instance id, then `ready`.
"""

from __future__ import annotations

import sys

import anyio

from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits


async def main(*arguments: str) -> None:
    home, runsc, image, count = arguments
    backend = GVisorBackend.open(SandboxSettings(home=home, runsc=runsc, image={"python": image}))
    print(backend.instance.id, flush=True)
    busy = Command(argv=("bash", "-c", "setsid sleep 600 & while :; do sleep 0.1; done"), limits=ExecLimits(wall_s=600))
    at_once, started = anyio.Semaphore(4), anyio.Event()
    left = int(count)

    async def one() -> None:
        nonlocal left
        async with at_once:
            sandbox = await backend.start(Want())
        left -= 1
        if not left:
            started.set()
        await sandbox.run(busy)

    async with anyio.create_task_group() as tasks:
        for _ in range(left):
            tasks.start_soon(one)
        await started.wait()
        print("ready", flush=True)
        await anyio.sleep_forever()


anyio.run(main, *sys.argv[1:], backend_options={"use_uvloop": True})

"""A service with busy sandboxes that is there to be killed. Arguments: settings as JSON, how many. Run by path.

Prints its instance id, then `ready`.
"""

from __future__ import annotations

import sys

import anyio
import msgspec

from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits

BUSY = Command(argv=("bash", "-c", "setsid sleep 600 & while :; do sleep 0.2; done"), limits=ExecLimits(wall_s=600))


async def main(settings: str, count: int) -> None:
    backend = GVisorBackend.open(msgspec.json.decode(settings, type=SandboxSettings))
    print(backend.instance.id, flush=True)
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon((await backend.start(Want())).run, BUSY)
        print("ready", flush=True)
        await anyio.sleep_forever()


anyio.run(main, sys.argv[1], int(sys.argv[2]), backend_options={"use_uvloop": True})

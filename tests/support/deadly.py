"""A worker that one of its messages kills: `python -m support.deadly URL BLOBS DEADLY_ROLLOUT`.

It waits until it has all four messages in hand, or for a moment where it has fewer; then the deadly one kills the
process with SIGKILL, and the others end only where the deadly one is not in hand.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
from support.letters import bury, done

from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.serve import serve
from tiltyard_proto.messages import Rollout
from tiltyard_proto.topology import GENERATE, VERIFY

SLOTS = 4
TOGETHER_S = 0.4


async def main(url: str, blobs: str, deadly: str) -> None:
    in_hand: set[str] = set()

    async def handler(rollout: Rollout) -> Sequence[Out]:
        in_hand.add(rollout.id)
        with anyio.move_on_after(TOGETHER_S):
            while len(in_hand) < SLOTS:  # noqa: ASYNC110  (any of the four)
                await anyio.sleep(0.01)
        if rollout.id == deadly:
            print("held", len(in_hand), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        while deadly in in_hand:  # noqa: ASYNC110  (until it kills)
            await anyio.sleep(0.01)
        in_hand.remove(rollout.id)
        return [(VERIFY, done(rollout))]

    bus = await Bus.connect(url, BlobStore(Path(blobs)), "gateway")
    await serve(bus, GENERATE, handler, slots=SLOTS, stop=anyio.Event(), bury=bury)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])

"""A lost session of a real gVisor sandbox is rebuilt by replay on another node, with its shell and its jobs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support import build

from tiltyard.domains.interfaces import parse_action
from tiltyard.kit.blobs import BlobStore
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker
from tiltyard_proto.messages import Environment, ExecLimits, Rollout

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(pool={})


async def act(worker: Worker, rollout: Rollout, text: str) -> Rollout:
    turn = build.turn(command=parse_action(rollout.task, text))
    hop = await worker.turn(msgspec.structs.replace(rollout, turns=(*rollout.turns, turn)))
    assert isinstance(hop.message, Rollout)
    return hop.message


async def test_another_node_goes_on_where_one_was_lost(tmp_path: Path) -> None:
    """What a second service shows is what the first would have shown: directory, variables, functions, jobs, files."""
    limits = ExecLimits(wall_s=20.0, cpu_s=20.0)
    environment = Environment(interface="shell", shell="persistent", rebuild="replay", limits=limits)
    rollout = build.rollout(build.task(environment=environment, turns=9))
    script = "mkdir -p w/x; cd w; n=1; next() { n=$((n+1)); echo $n; }\nsleep 600 &\nnext; seq 3 > file; ls /nowhere"
    shown = []
    for _ in range(2):  # the second service has nothing of the first but the rollout and the blobs
        backend = GVisorBackend.open(SETTINGS)
        try:
            worker = Worker(SETTINGS, Pool(backend, SETTINGS), BlobStore(tmp_path))
            if not rollout.turns:
                rollout = await act(worker, rollout, script)
                assert "exit status 2" in rollout.turns[-1].observation
            after = await act(worker, rollout, "next; pwd; cat file; jobs -r | wc -l; cd x; kill -0 $! && echo alive")
            shown.append((after.attempt, after.turns[-1].observation))
            await worker.sessions.close()
        finally:
            await backend.close()
        assert backend.leaked == 0
    assert shown[0] == shown[1] == (0, "3\n/workspace/w\n1\n2\n3\n1\nalive")

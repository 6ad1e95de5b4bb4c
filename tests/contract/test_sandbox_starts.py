"""Set-ups on real gVisor: all members of a group begin from one state, and without snapshots from one each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest
from support import build

from tiltyard.kit.blobs import BlobStore
from tiltyard.sandbox.backend import Sandbox, SnapshotFailed
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.handler import BadMessage
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker
from tiltyard_proto.messages import Command, Environment, Rollout

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(pool={"python": 0})
SET_UP = "echo $RANDOM-$(date +%N) > state; mkdir deep; echo /tmp/$(cat given) > /tmp/kept"
LOOK = "cat state given /tmp/kept; ls -d deep; head -c 8 /dev/urandom | od -An -tx1 > mine; cat mine"


@pytest.fixture
async def backend() -> AsyncIterator[GVisorBackend]:
    opened = GVisorBackend.open(SETTINGS)
    yield opened
    await opened.close()
    assert opened.leaked == 0


@pytest.fixture
async def worker(backend: GVisorBackend, tmp_path: Path) -> AsyncIterator[Worker]:
    made = Worker(SETTINGS, Pool(backend, SETTINGS), BlobStore(tmp_path))
    yield made
    await made.sessions.close()
    assert not backend._live, "a sandbox was neither kept nor killed"


def member(number: int, size: int = 3, action: str = LOOK, **environment: object) -> Rollout:
    """A rollout of the group whose first action runs `action`."""
    place = Environment(interface="shell", files={"given": b"given"}, setup=SET_UP)
    task = build.task("code.test", turns=3, environment=msgspec.structs.replace(place, **environment))
    shell = environment.get("shell", place.shell)
    command = Command(argv=("bash", "-c", action), shell=shell == "persistent")
    return build.rollout(task, member=number, size=size, turns=(build.turn(command=command),))


async def seen(worker: Worker, rollouts: list[Rollout]) -> list[str]:
    """What each of them was shown, run at the same time."""
    found: dict[str, str] = {}

    async def one(rollout: Rollout) -> None:
        following = (await worker.turn(rollout)).message
        assert isinstance(following, Rollout)
        found[rollout.id] = following.turns[-1].observation

    async with anyio.create_task_group() as tasks:
        for rollout in rollouts:
            tasks.start_soon(one, rollout)
    return [found[rollout.id] for rollout in rollouts]


async def test_a_group_begins_from_one_state(worker: Worker, backend: GVisorBackend) -> None:
    """The set-up runs once: all members find its files, and draw different random numbers; nothing of it is kept."""
    shown = await seen(worker, [member(number) for number in range(3)])
    assert len({text.splitlines()[0] for text in shown}) == 1
    assert all(text.splitlines()[1:3] == ["given/tmp/given", "deep"] for text in shown)
    assert len({text.splitlines()[3] for text in shown}) == 3
    assert len(backend.branches) == 0


async def test_a_shell_and_its_jobs_are_part_of_the_state(worker: Worker) -> None:
    """A persistent shell's variables and jobs, made by the set-up, go on in every member."""
    set_up = "STATE=$RANDOM; cd /tmp; (while :; do date +%s%N > new; mv new beat; sleep 0.05; done) &"
    wait = "until a=$(cat beat 2>/dev/null); do sleep 0.05; done; sleep 0.5; b=$(cat beat)"
    look = f"echo $STATE; pwd; {wait}; test $a != $b && echo beats"
    shown = await seen(worker, [member(n, 2, look, setup=set_up, shell="persistent") for n in range(2)])
    assert shown[0] == shown[1]
    assert shown[0].splitlines()[1:] == ["/tmp", "beats"]


async def test_without_snapshots_each_sets_up_itself(
    worker: Worker, backend: GVisorBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no snapshot can be taken every member runs the set-up; where one has gone, those that come after."""
    taken = backend.snapshot

    async def refused(sandbox: Sandbox) -> str:
        raise SnapshotFailed("not today")

    monkeypatch.setattr(backend, "snapshot", refused)
    shown = await seen(worker, [member(number) for number in range(3)])
    assert len({text.splitlines()[0] for text in shown}) == 3
    await worker.sessions.close()

    async def gone(sandbox: Sandbox) -> str:
        name = await taken(sandbox)
        await backend.forget_snapshot(name)
        return name

    monkeypatch.setattr(backend, "snapshot", gone)
    shown = await seen(worker, [member(number) for number in range(2)])
    assert len({text.splitlines()[0] for text in shown}) == 2


async def test_a_set_up_that_fails_is_the_tasks_fault(worker: Worker) -> None:
    """A set-up that does not end with 0 is named, for every member, and leaves nothing."""
    for number in range(2):
        with pytest.raises(BadMessage, match=r"environment.setup: exit status 3: why"):
            await worker.turn(member(number, 2, setup="echo why >&2; exit 3"))


async def test_a_turn_after_the_first_needs_no_set_up(worker: Worker) -> None:
    """A session that is gone goes on from its workspace, which has the set-up's files already."""
    following = (await worker.turn(member(0, 2))).message
    assert isinstance(following, Rollout)
    await worker.sessions.close()
    again = build.turn(command=Command(argv=("bash", "-c", "cat state; test -e /tmp/kept || echo no kept")))
    second = (await worker.turn(msgspec.structs.replace(following, turns=(*following.turns, again)))).message
    assert isinstance(second, Rollout)
    first = following.turns[-1].observation.splitlines()[0]
    assert second.turns[-1].observation == f"{first}\nno kept"

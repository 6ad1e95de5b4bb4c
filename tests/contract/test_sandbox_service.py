"""The sandbox service on a real bus with real gVisor: rollouts and grading jobs in, their successors out."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import msgspec
import pytest
from support import build

from tiltyard.kit.bus import Bus
from tiltyard.kit.serve import serve
from tiltyard.sandbox.app import Service, bury
from tiltyard.sandbox.backends import open_backend
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker
from tiltyard_proto.messages import Command, Environment, Graded, Job, Message, Rollout, Verdict
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import EXECUTE, GENERATE, VERDICT, VERIFY, Stage

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(pool={"python": 1})


@pytest.fixture
async def service(bus: Bus) -> AsyncIterator[Worker]:
    """The service, serving stage execute."""
    backend = open_backend(SETTINGS)
    pool, stop = Pool(backend, SETTINGS), anyio.Event()
    worker = Worker(SETTINGS, pool, bus.blobs)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.serve, stop)
        tasks.start_soon(worker.guard.serve)
        handle = Service(worker).handle
        tasks.start_soon(lambda: serve(bus, EXECUTE, handle, slots=2, stop=stop, bury=bury))
        yield worker
        stop.set()
        tasks.cancel_scope.cancel()
    await worker.sessions.close()
    await backend.close()
    assert backend.leaked == 0


async def arrives(bus: Bus, stage: Stage[Message], like: Message) -> Message:
    """The message that has the key of `like`, waited for."""
    with anyio.fail_after(20):
        while True:
            found = await bus.get(stage, stage.subject(like))
            if found is not None:
                return found
            await anyio.sleep(0.02)


def rollout(source: str, interface: str = "python", turns: int = 2) -> Rollout:
    command = Command(argv=("python3", "main.py"), files={"main.py": source.encode()})
    task = build.task("code.test", turns=turns, environment=Environment(interface=interface))
    return build.rollout(task, turns=(build.turn(command=command),))


async def test_turns_and_grading_over_the_bus(bus: Bus, service: Worker) -> None:
    """A failing turn goes back to be sampled, a clean one to be verified, and a grading job sees its workspace."""
    first = rollout("raise SystemExit('not yet')")
    await bus.publish(EXECUTE, first)
    again = await arrives(bus, GENERATE, first)
    assert isinstance(again, Rollout)
    assert again.turns[0].observation == "[exit status 1]\nstderr:\nnot yet"
    second = build.turn(command=Command(argv=("python3", "-c", "open('answer', 'w').write('42')")))
    await bus.publish(EXECUTE, msgspec.structs.replace(again, turns=(*again.turns, second)))
    ended = await arrives(bus, VERIFY, again)
    assert isinstance(ended, Rollout)
    assert (ended.outcome, len(ended.turns)) == (Outcome.FINISHED, 2)
    check = Command(argv=("bash", "-c", "test $(cat answer) = 42"))
    job = Job(rollout=ended, command=check, profile="python", workspace=ended.turns[-1].workspace, collect=("answer",))
    await bus.publish(EXECUTE, job)
    execution = ended.turns[-1].execution
    assert execution is not None
    graded = await arrives(bus, VERIFY, Graded(rollout=ended, execution=execution))
    assert isinstance(graded, Graded)
    assert (graded.execution.outcome, graded.files) == (Outcome.FINISHED, {"answer": b"42"})
    assert len(service.sessions) == 0


async def test_a_bad_message_closes_its_group(bus: Bus, service: Worker) -> None:
    """A rollout that asks for nothing to be run is a dead letter, and its group hears of it."""
    bad = build.rollout(build.task("code.test"), turns=(build.turn(),))
    await bus.publish(EXECUTE, bad)
    found = await arrives(bus, VERDICT, Verdict(rollout=bad, outcome=Outcome.POISON, score=None))
    assert isinstance(found, Verdict)
    assert (found.outcome, found.score) == (Outcome.POISON, None)
    assert "no command" in found.reasons[0]


def test_unknown_back_ends_are_refused() -> None:
    """The name of the back-end is checked, and the plain one needs an explicit word."""
    with pytest.raises(ValueError, match="gvisor"):
        open_backend(SandboxSettings(backend="podman"))
    with pytest.raises(ValueError, match="isolates nothing"):
        open_backend(SandboxSettings(backend="process"))

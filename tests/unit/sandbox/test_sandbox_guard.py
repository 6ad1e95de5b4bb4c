"""What stands between work and sandboxes, over the plain back-end: abuse, quotas, leases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest
from support import build

from tiltyard.kit.blobs import BlobStore
from tiltyard.sandbox.admission import Quota
from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.guard import Shed
from tiltyard.sandbox.housekeeping import take_over
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.process import ProcessBackend
from tiltyard.sandbox.remote import RemoteSandbox
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker
from tiltyard_proto.flow import unanswered
from tiltyard_proto.messages import Command, Environment, ExecLimits, GroupRef, Job, Purpose, Rollout, Verdict
from tiltyard_proto.outcomes import Outcome

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(
    backend="process",
    allow_untrusted_process=True,
    pool={},
    abuse_task=4.0,
    abuse_group=3.0,
    abuse_open_s=10.0,
    queue_s=0.2,
    tenants={"small": Quota(sandboxes=2)},
)
FLOOD = "print('x' * (64 << 20))"


class Clock:
    """A clock that tests move."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    backend = ProcessBackend(SETTINGS)
    made = Worker(SETTINGS, Pool(backend, SETTINGS), BlobStore(tmp_path))
    yield made
    await made.sessions.close()
    assert not backend.live
    await backend.close()


def test_a_refusal_is_an_answer() -> None:
    """A group of refusals counts towards its step, so that a refused task never keeps the sampler asking for ever."""
    assert not unanswered([build.verdict(score=None, outcome=Outcome.REFUSED)] * 2)


def act(source: str, *, group: str = "run-a-0", text: str = "a", run: str = "run", **fields: object) -> Rollout:
    task = build.task(turns=3, text=text, environment=Environment(interface="shell"))
    command = Command(argv=("python3", "-c", source), limits=ExecLimits(output_bytes=64, wall_s=60.0))
    return build.rollout(task, group=group, turns=(build.turn(command=command),), **{"run": run, **fields})


async def ending(worker: Worker, rollout: Rollout) -> Outcome | None:
    """How the last turn's execution ended, or the rollout."""
    message = (await worker.turn(rollout)).message
    if isinstance(message, Verdict):
        assert message.score is None
        return message.outcome
    assert isinstance(message, Rollout)
    execution = message.turns[-1].execution
    return execution.outcome if execution else None


async def test_an_abusive_group_is_refused_then_its_task(worker: Worker) -> None:
    """The endings that open the breaker are graded; then the group, later the task is not run; others are untouched."""
    clock = worker.guard.clock = Clock()
    found = [await ending(worker, act(FLOOD)) for _ in range(4)]
    assert found == [Outcome.OUTPUT_LIMIT] * 3 + [Outcome.REFUSED]
    assert await ending(worker, act("print(1)", group="run-a-1")) is Outcome.FINISHED
    assert await ending(worker, act(FLOOD, group="run-a-1")) is Outcome.OUTPUT_LIMIT
    assert await ending(worker, act("print(1)", group="run-a-2")) is Outcome.REFUSED
    assert await ending(worker, act("print(1)", text="b", group="run-b-0")) is Outcome.FINISHED
    clock.now += 11
    assert await ending(worker, act("print(1)", group="run-a-2")) is Outcome.FINISHED
    assert await ending(worker, act("print(1)", group="run-a-2")) is Outcome.FINISHED


async def test_a_trial_that_fails_is_not_graded(worker: Worker) -> None:
    """It ran with tighter limits than the task's, so it says nothing; the breaker opens for longer."""
    clock = worker.guard.clock = Clock()
    for _ in range(3):
        await ending(worker, act(FLOOD))
    clock.now += 11
    hop = await worker.turn(act(FLOOD))
    assert isinstance(hop.message, Verdict)
    assert hop.message.outcome is Outcome.REFUSED
    assert "trial with tighter limits" in hop.message.reasons[0]
    clock.now += 11
    assert await ending(worker, act("print(1)")) is Outcome.REFUSED
    clock.now += 10
    assert await ending(worker, act("print(1)")) is Outcome.FINISHED


async def test_measurements_are_never_refused(worker: Worker) -> None:
    """Evaluations and admissions run whatever happened, and open nothing."""
    for purpose in (Purpose.EVAL, Purpose.ADMIT):
        group = GroupRef(id="run-a-0", size=2, deadline=0.0, purpose=purpose)
        for _ in range(5):
            rollout = msgspec.structs.replace(act(FLOOD), group=group)
            assert await ending(worker, rollout) is Outcome.OUTPUT_LIMIT
    assert await ending(worker, act("print(1)")) is Outcome.FINISHED


async def test_grading_jobs_are_refused_too(worker: Worker) -> None:
    """A job of a refused task gets an answer that grades nothing; one that only looks is answered."""
    for _ in range(3):
        await ending(worker, act(FLOOD))
    job = Job(rollout=act("pass"), command=Command(argv=("python3", "-c", "print(1)")), profile="python")
    assert (await worker.job(job)).execution.outcome is Outcome.REFUSED
    look = msgspec.structs.replace(job, command=Command(argv=("true",)))
    assert (await worker.job(look)).execution.outcome is Outcome.FINISHED


async def test_a_full_quota_ends_idle_sessions_first(worker: Worker) -> None:
    """A run with its quota used up by waiting sessions gets on: the oldest goes, and its next turn finds its files."""
    first = [act(f"open('mine', 'w').write('{n}')", group=f"run-{n}-0", run="small") for n in range(3)]
    hops = [await worker.turn(rollout) for rollout in first]
    assert len([entry for entry in worker.guard.live if entry.owner.tenant == "small"]) == 2
    command = Command(argv=("python3", "-c", "print(open('mine').read())"))
    for number, hop in enumerate(hops):
        assert isinstance(hop.message, Rollout)
        following = msgspec.structs.replace(hop.message, turns=(*hop.message.turns, build.turn(command=command)))
        again = (await worker.turn(following)).message
        assert isinstance(again, Rollout)
        assert again.turns[-1].observation == str(number)


async def test_a_full_quota_hands_back(worker: Worker) -> None:
    """With both its sandboxes busy a run's third message goes back to the bus, and another run's does not."""
    async with anyio.create_task_group() as tasks:
        for number in range(2):
            tasks.start_soon(worker.turn, act("import time; time.sleep(50)", group=f"run-{number}-0", run="small"))
        with anyio.fail_after(30):
            while [entry.lease > 0 for entry in worker.guard.live] != [True, True]:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        with pytest.raises(Shed):
            await worker.turn(act("print(1)", group="run-3-0", run="small"))
        assert await ending(worker, act("print(1)", group="run-4-0", run="large")) is Outcome.FINISHED
        tasks.cancel_scope.cancel()
    await worker.sessions.close()
    assert list(worker.guard.live) == []
    assert not worker.guard.admission.running


async def test_what_outstays_its_time_is_killed(worker: Worker) -> None:
    """A sandbox past its lease or lifetime is killed, whoever forgot it, and leaves the counts."""
    clock = Clock()
    worker.guard.clock = worker.guard.live.clock = clock
    forgotten = await worker.guard.claim(act("pass"), Want())
    worker.guard.live.begin(forgotten.id, "busy", 30.0)
    assert await worker.guard.end_overdue() == 0
    clock.now += 31
    assert await worker.guard.end_overdue() == 1
    assert not forgotten.alive
    old = await worker.guard.claim(act("pass"), Want())
    clock.now += SETTINGS.lifetime_s + 1
    assert await worker.guard.end_overdue() == 1
    assert not old.alive
    assert list(worker.guard.live) == []
    assert not worker.guard.admission.running


async def test_quotas_from_the_bucket(worker: Worker) -> None:
    """Readable ones replace those of the settings, unreadable ones change nothing, none brings the settings back."""
    admission = worker.guard.admission
    settings = dict(admission.quotas)
    take_over(admission, settings, b'{"domains": {"code": {"sandboxes": 3}}}')
    changed = {"tenant": {}, "domain": {"code": Quota(sandboxes=3)}}
    assert admission.quotas == changed
    for bad in (b"{", b'{"domains": 3}', b'{"domains": {"code": {"sandboxes": -1}}}'):
        take_over(admission, settings, bad)
        assert admission.quotas == changed
    take_over(admission, settings, b"")
    assert admission.quotas == settings


async def test_a_session_that_waits_rests(worker: Worker) -> None:
    """A second after its turn it rests; one in which something goes on is looked at again, ever more seldom."""
    clock = Clock()
    worker.guard.clock = worker.guard.live.clock = clock
    await worker.turn(act("pass"))
    (entry,) = worker.guard.live
    assert isinstance(entry.sandbox, RemoteSandbox)
    job = (await entry.sandbox.run(Command(argv=("sleep", "60"), background=True))).job
    looked = []
    for _ in range(80):
        looked.append(len(worker.guard.live.waiting()))
        clock.now += 0.5
    assert [at / 2 for at, count in enumerate(looked) if count] == [1, 2, 4, 8, 16, 32]
    await worker.guard.rest()
    assert not entry.sandbox.resting
    await entry.sandbox.signal(job, 9)
    with anyio.fail_after(10):
        while (await entry.sandbox.jobs())[0].running:  # noqa: ASYNC110  (asked for)
            await anyio.sleep(0.02)
    clock.now += 100
    await worker.guard.rest()
    assert entry.sandbox.resting
    assert (await entry.sandbox.run(Command(argv=("echo", "awake")))).stdout == b"awake\n"
    assert not entry.sandbox.resting

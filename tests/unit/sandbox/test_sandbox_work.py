"""Pool, sessions and work over the plain back-end and a real blob store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest
from support import build

from tiltyard.kit.blobs import BlobStore
from tiltyard.sandbox.backend import Sandbox, StartFailed, Want
from tiltyard.sandbox.guard import Shed
from tiltyard.sandbox.handler import BadMessage
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.process import ProcessBackend
from tiltyard.sandbox.sessions import Sessions
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker
from tiltyard_proto.flow import Hop
from tiltyard_proto.messages import BlobRef, Command, Environment, Job, Rollout, Verdict
from tiltyard_proto.outcomes import Outcome

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(
    backend="process", allow_untrusted_process=True, pool={"python": 2}, workspace_bytes=1 << 20, sessions=4
)


class Flaky(ProcessBackend):
    """The plain back-end, of which the next `failures` starts fail."""

    failures = 0

    async def start(self, want: Want):  # type: ignore[no-untyped-def]
        if self.failures:
            self.failures -= 1
            raise StartFailed("no room")
        return await super().start(want)


@pytest.fixture
async def backend() -> AsyncIterator[Flaky]:
    made = Flaky(SETTINGS)
    yield made
    await made.close()
    assert not made.live


@pytest.fixture
async def worker(backend: Flaky, tmp_path: Path) -> AsyncIterator[Worker]:
    made = Worker(SETTINGS, Pool(backend, SETTINGS), BlobStore(tmp_path), clock=lambda: 100.0)
    yield made
    await made.sessions.close()
    assert not backend.live, "a sandbox was neither kept nor killed"


def act(source: str, rollout: Rollout | None = None, *, interface: str = "shell", turns: int = 5) -> Rollout:
    """A rollout whose last action runs a script."""
    command = Command(argv=("python3", "main.py"), files={"main.py": source.encode()})
    if rollout is None:
        files = {"given.txt": b"given"}
        rollout = build.rollout(build.task(turns=turns, environment=Environment(interface=interface, files=files)))
    return msgspec.structs.replace(rollout, turns=(*rollout.turns, build.turn(command=command)))


def running(hop: Hop) -> Rollout:
    assert isinstance(hop.message, Rollout)
    return hop.message


async def test_a_session_goes_over_turns(worker: Worker) -> None:
    """Files given by the task and written in one turn are there in the next, in the same sandbox."""
    first = running(await worker.turn(act("print(open('given.txt').read()); open('mine', 'w').write('1')")))
    assert first.turns[-1].observation == "given"
    assert len(worker.sessions) == 1
    starts = worker.pool.backend._count  # type: ignore[attr-defined]
    second = running(await worker.turn(act("print(open('mine').read())", first)))
    assert second.turns[-1].observation == "1"
    assert worker.pool.backend._count == starts  # type: ignore[attr-defined]


async def test_a_session_that_is_gone_is_rebuilt(worker: Worker) -> None:
    """Without its session a turn starts from the carried workspace, on any node."""
    first = running(await worker.turn(act("open('mine', 'w').write('1')")))
    await worker.sessions.close()
    again = running(await worker.turn(act("import os; print(sorted(os.listdir()))", first)))
    assert again.turns[-1].observation == "['given.txt', 'main.py', 'mine']"


async def test_a_message_that_comes_twice_runs_on_the_same_files(worker: Worker) -> None:
    """A turn delivered again does not run in a sandbox in which it has already run."""
    first = running(await worker.turn(act("open('log', 'a').write('x')")))
    turn = act("open('log', 'a').write('y'); print(open('log').read())", first)
    seen = [running(await worker.turn(turn)).turns[-1] for _ in range(2)]
    assert [one.observation for one in seen] == ["xy", "xy"]
    assert seen[0].workspace == seen[1].workspace


async def test_the_end_of_a_rollout_ends_its_session(worker: Worker, backend: Flaky) -> None:
    """A rollout that goes to be verified leaves no sandbox behind, and its workspace in the store."""
    hop = await worker.turn(act("print(1)", interface="python"))
    assert hop.stage == "verify"
    assert running(hop).outcome is Outcome.FINISHED
    workspace = running(hop).turns[-1].workspace
    assert workspace is not None
    assert worker.blobs.get(workspace)
    assert not backend.live


async def test_a_workspace_over_the_caps_is_put_back(worker: Worker) -> None:
    """A workspace too large to carry on is the policy's doing; the next turn sees the files of before."""
    first = running(await worker.turn(act("open('small', 'w').write('1')")))
    second = running(await worker.turn(act("open('big', 'wb').write(bytes(2 << 20))", first)))
    execution = second.turns[-1].execution
    assert execution is not None
    assert execution.outcome is Outcome.DISK_LIMIT
    assert second.turns[-1].workspace == first.turns[-1].workspace
    third = running(await worker.turn(act("import os; print(os.path.exists('big'), os.path.exists('small'))", second)))
    assert third.turns[-1].observation == "False True"


def others_start(worker: Worker) -> None:
    """Enough sandboxes have started well that a few failures are no trouble of the back-end."""
    for _ in range(12):
        worker.guard.count_backend("python", 0.0)


async def test_failures_of_the_infrastructure_start_a_new_attempt(worker: Worker, backend: Flaky) -> None:
    """No sandbox: a new attempt, then a verdict without a score. One failure is covered by a second try."""
    backend.failures = 1
    assert running(await worker.turn(act("print(1)"))).turns[-1].observation == "1"
    others_start(worker)
    backend.failures = 2
    again = running(await worker.turn(act("print(1)")))
    assert (again.attempt, again.turns) == (1, ())
    backend.failures = 2
    last = msgspec.structs.replace(act("print(1)"), attempt=2)
    hop = await worker.turn(last)
    assert isinstance(hop.message, Verdict)
    assert (hop.message.outcome, hop.message.score) == (Outcome.SANDBOX_START_FAILED, None)


async def test_a_backend_in_trouble_hands_messages_back(worker: Worker, backend: Flaky) -> None:
    """When starts keep failing no attempt is used up: the message goes back, nothing is pulled, until one starts."""
    backend.failures = 3
    for _ in range(2):
        with pytest.raises(Shed, match="no room"):
            await worker.turn(act("print(1)"))
    assert not worker.guard.may_pull
    assert not worker.guard.may_refill("python")
    assert backend.failures == 1
    with anyio.fail_after(30):
        while not worker.guard.may_pull:
            await anyio.sleep(0.1)
            await worker.guard.probe()
    assert running(await worker.turn(act("print(1)"))).turns[-1].observation == "1"


async def test_a_missing_workspace_is_the_infrastructures_fault(worker: Worker) -> None:
    """A workspace that is not in the store starts a new attempt."""
    first = running(await worker.turn(act("pass")))
    await worker.sessions.close()
    lost = msgspec.structs.replace(first.turns[-1], workspace=BlobRef(uri="sha256:0", size=1, sha256="0" * 64))
    broken = msgspec.structs.replace(first, turns=(*first.turns[:-1], lost))
    assert running(await worker.turn(act("pass", broken))).attempt == 1


async def test_impossible_messages_are_bad(worker: Worker) -> None:
    """A message without a command or with files outside the workspace is refused and leaves nothing running."""
    with pytest.raises(BadMessage):
        await worker.turn(build.rollout())
    command = Command(argv=("true",), files={"../up": b""})
    with pytest.raises(ValueError, match="workspace path"):
        await worker.turn(build.rollout(turns=(build.turn(command=command),)))


# ---------------------------------------------------------------- grading


def job(source: str, workspace: BlobRef | None = None, **fields: object) -> Job:
    command = Command(argv=("python3", "check.py"), files={"check.py": source.encode()})
    base = Job(rollout=build.rollout(), command=command, profile="python", workspace=workspace)
    return msgspec.structs.replace(base, **fields)


async def test_grading_sees_a_copy_of_the_workspace(worker: Worker) -> None:
    """A grading job runs on what the rollout left, and what it writes is in nobody's way."""
    hop = await worker.turn(act("open('answer.txt', 'w').write('42')", interface="python"))
    workspace = running(hop).turns[-1].workspace
    source = "print(open('answer.txt').read()); open('answer.txt', 'w').write('changed')"
    for _ in range(2):
        found = await worker.job(job(source, workspace, collect=("answer.txt", "missing"), snapshot=True))
        assert found.execution.stdout == b"42\n"
        assert found.files["answer.txt"] == b"changed"
        assert set(found.files) == {"answer.txt", "check.py", "given.txt", "main.py"}


async def test_looking_needs_no_sandbox(worker: Worker, backend: Flaky) -> None:
    """A job that runs nothing gives what a sandbox would give, from the archive, without starting one."""
    source = (
        "import os; open('a', 'w').write('1'); os.mkdir('d'); open('d/b', 'w').write('22'); os.symlink('a', 'link')"
    )
    workspace = running(await worker.turn(act(source, interface="python"))).turns[-1].workspace
    starts = backend._count
    seen = []
    for argv in (("true",), ("sh", "-c", ":")):
        command = Command(argv=argv)
        wanted = msgspec.structs.replace(job("", workspace), command=command, collect=("d/b", "link", "no"))
        listed = msgspec.structs.replace(wanted, snapshot=True, collect=())
        seen.append([(await worker.job(one)).files for one in (wanted, listed)])
        assert backend._count - starts == (0 if argv == ("true",) else 2)
    assert seen[0] == seen[1]
    assert seen[0][0] == {"d/b": b"22"}
    missing = BlobRef(uri="sha256:0", size=1, sha256="0" * 64)
    gone = msgspec.structs.replace(job("", missing), command=Command(argv=("true",)))
    assert (await worker.job(gone)).execution.outcome is Outcome.BLOB_MISSING


async def test_identical_deterministic_jobs_run_once(worker: Worker) -> None:
    """Identical jobs marked deterministic share a run; others do not."""
    seen = [(await worker.job(job("import time; print(time.time_ns())", deterministic=True))) for _ in range(2)]
    assert seen[0].execution.stdout == seen[1].execution.stdout
    assert [one.execution.cached for one in seen] == [False, True]
    apart = [(await worker.job(job("import time; print(time.time_ns())"))) for _ in range(2)]
    assert apart[0].execution.stdout != apart[1].execution.stdout


async def test_grading_failures_are_reported_not_scored(worker: Worker, backend: Flaky) -> None:
    """A grading job that can't run says so, with an outcome that grades nothing, and is not kept."""
    others_start(worker)
    backend.failures = 2
    failed = await worker.job(job("print(1)", deterministic=True))
    assert (failed.execution.outcome, failed.execution.detail) == (Outcome.SANDBOX_START_FAILED, "no room")
    assert (await worker.job(job("print(1)", deterministic=True))).execution.stdout == b"1\n"
    missing = BlobRef(uri="sha256:0", size=1, sha256="0" * 64)
    assert (await worker.job(job("print(1)", missing))).execution.outcome is Outcome.BLOB_MISSING


async def test_a_cancelled_job_leaves_nothing(worker: Worker, backend: Flaky) -> None:
    """A job cut off by the end of the service takes its sandbox with it."""
    with anyio.move_on_after(0.5):
        await worker.job(job("import time; time.sleep(30)"))
    assert not backend.live


# ---------------------------------------------------------------- pool and sessions


async def test_pool_hands_out_each_sandbox_once(backend: Flaky) -> None:
    """Claims take ready sandboxes, each once, and the background makes new ones."""
    pool, stop = Pool(backend, SETTINGS), anyio.Event()

    async def ready(count: int) -> None:
        with anyio.fail_after(10):
            while len(pool.shelves[Want()].idle) < count:  # noqa: ASYNC110  (the pool announces it to nobody else)
                await anyio.sleep(0.01)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.serve, stop)
        await ready(2)
        await pool.shelves[Want()].idle[0].kill()
        claimed: list[Sandbox] = [await pool.claim(Want()) for _ in range(3)]
        assert len({sandbox.id for sandbox in claimed}) == 3
        assert all(sandbox.alive for sandbox in claimed)
        await ready(2)
        stop.set()
    assert len(backend.live) == 3
    for sandbox in claimed:
        await sandbox.kill()


async def test_pool_tells_of_a_failing_back_end(backend: Flaky) -> None:
    """While starts fail, the pool is not ready and says why; afterwards it is."""
    pool = Pool(backend, SETTINGS)
    backend.failures = 1
    with pytest.raises(StartFailed, match="no room"):
        await pool.claim(Want())
    assert pool.problem == "no room"
    sandbox = await pool.claim(Want())
    assert pool.problem is None
    await sandbox.kill()


async def test_sessions_are_bounded_and_expire(backend: Flaky) -> None:
    """The least recently used session goes when there are too many; idle ones go with time."""
    sessions = Sessions(limit=2)
    made = [await backend.start(Want(disk_bytes=1)) for _ in range(3)]
    for index, sandbox in enumerate(made):
        await sessions.keep((f"r{index}", 0), sandbox, 1, float(index))
    assert [sandbox.alive for sandbox in made] == [False, True, True]
    assert await sessions.take(("r1", 0), 2) is None
    assert not made[1].alive
    assert await sessions.expire(3.0) == 1
    assert not made[2].alive
    assert len(sessions) == 0


async def test_plain_back_end_must_be_allowed() -> None:
    """Running code without a sandbox needs an explicit word."""
    with pytest.raises(StartFailed, match="allow_untrusted_process"):
        ProcessBackend(SandboxSettings())

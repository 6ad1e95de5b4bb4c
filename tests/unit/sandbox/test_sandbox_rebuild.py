"""Sessions that were lost: from their files, by replay, or not at all; on the plain back-end and a real blob store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from support import build

from tiltyard.domains.interfaces import parse_action
from tiltyard.kit.blobs import BlobStore
from tiltyard.sandbox import handler
from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.process import ProcessBackend
from tiltyard.sandbox.sessions import Sessions
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker
from tiltyard_proto.messages import BlobRef, Command, Environment, Execution, Rollout
from tiltyard_proto.outcomes import Outcome

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(
    backend="process", allow_untrusted_process=True, pool={}, workspace_bytes=1 << 20, session_s=100.0
)


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    backend = ProcessBackend(SETTINGS)
    made = Worker(SETTINGS, Pool(backend, SETTINGS), BlobStore(tmp_path), clock=lambda: 100.0)
    yield made
    await made.sessions.close()
    assert not backend.live, "a sandbox was neither kept nor killed"
    await backend.close()


class Session:
    """A rollout of interface 'shell' that goes on, one action after another."""

    def __init__(self, worker: Worker, rebuild: str, shell: str = "persistent") -> None:
        files = {"given": b"1"}
        environment = Environment(interface="shell", rebuild=rebuild, shell=shell, files=files)
        self.worker = worker
        self.rollout = build.rollout(build.task(turns=20, environment=environment))

    async def act(self, text: str) -> str:
        """Run an action; what is shown, or '' when a new attempt begins."""
        command = parse_action(self.rollout.task, text)
        turns = (*self.rollout.turns, build.turn(command=command))
        hop = await self.worker.turn(msgspec.structs.replace(self.rollout, turns=turns))
        assert isinstance(hop.message, Rollout)
        self.rollout = hop.message
        return self.rollout.turns[-1].observation if self.rollout.turns else ""

    async def lose(self) -> None:
        """Lose every sandbox, as with a node."""
        await self.worker.sessions.close()


async def test_a_persistent_shell_goes_over_turns(worker: Worker) -> None:
    """Where the environment asks for it, directory and variables of a turn are there in the next; else they aren't."""
    for shell, seen in (("persistent", "d 5"), ("fresh", "no")):
        session = Session(worker, "workspace", shell)
        await session.act("mkdir d; cd d; x=5")
        assert (await session.act("test -d d && echo no || echo ${PWD##*/} $x")) == seen


async def test_replay_brings_back_what_files_do_not(worker: Worker) -> None:
    """A lost session is rebuilt with its directory, variables, functions and jobs by running its actions again."""
    session = Session(worker, "replay")
    await session.act("mkdir d; cd d; x=5; f() { echo f$1; }; sleep 99 &")
    assert await session.act("f 1; echo more > file; false") == "[exit status 1]\nf1"
    await session.lose()
    assert await session.act("echo ${PWD##*/} $x; f 2; cat file; jobs | wc -l") == "d 5\nf2\nmore\n1"
    assert session.rollout.attempt == 0


async def test_a_replay_that_differs_is_a_new_attempt(worker: Worker) -> None:
    """An action that doesn't give again what it gave ends the attempt as a lost sandbox, and nothing is left."""
    session = Session(worker, "replay")
    await session.act("cat /proc/sys/kernel/random/uuid > id; cat id")
    await session.lose()
    assert await session.act("cat id") == ""
    assert (session.rollout.attempt, session.rollout.turns) == (1, ())
    assert len(worker.sessions) == 0


async def test_replay_goes_on_from_the_last_restart(worker: Worker) -> None:
    """What ran before the policy ended its sandbox isn't replayed: the files of that time are where it starts."""
    session = Session(worker, "replay")
    await session.act("date +%N > once; x=1")
    shown = await session.act("head -c 2M /dev/zero > big")
    assert "the sandbox was restarted" in shown
    assert session.rollout.turns[-1].execution.restarted  # type: ignore[union-attr]
    before = await session.act("ls; cat once; echo ${x-lost}; y=2")
    assert before.endswith("lost")
    await session.lose()
    assert await session.act("echo $y; ls big 2>&1 | wc -l; cat once") == f"2\n1\n{before.split()[-2]}"


@pytest.mark.parametrize(("mode", "shown"), [("workspace", "file\ngiven\nlost"), ("none", "")])
async def test_without_replay(worker: Worker, mode: str, shown: str) -> None:
    """By files the shell's state is gone and the files are there; 'none' starts a new attempt."""
    session = Session(worker, mode)
    await session.act("x=5; echo 1 > file")
    await session.lose()
    assert await session.act("ls; echo ${x-lost}") == shown
    assert session.rollout.attempt == (0 if shown else 1)


async def test_the_end_of_a_shell_is_shown(worker: Worker) -> None:
    """The policy is told that its shell ended."""
    session = Session(worker, "workspace")
    assert "the shell ended; the next command runs in a new one" in await session.act("echo 1; exit 3")


def test_what_is_rebuilt_is_a_pure_decision() -> None:
    """First turns start from the task's files, whatever the mode; without executed turns there is nothing to replay."""
    for mode in ("workspace", "replay", "none", "of a later release"):
        task = build.task(environment=Environment(rebuild=mode, files={"a": b"1"}))
        first = build.rollout(task, turns=(build.turn(command=Command(argv=("true",))),))
        plan = handler.rebuild(first)
        assert plan == handler.Rebuild(how="start", files={"a": b"1"})
    ref = BlobRef(uri="u", size=1, sha256="0")
    done = build.turn(command=Command(argv=("true",)), execution=Execution(outcome=Outcome.FINISHED), workspace=ref)
    plan = handler.rebuild(msgspec.structs.replace(first, turns=(done, done)))
    assert plan == handler.Rebuild(how="workspace", workspace=ref)


async def test_sessions_have_a_lifetime(worker: Worker) -> None:
    """A session that is too old ends, however lately it was used: when it is kept again, and with time."""
    backend = ProcessBackend(SETTINGS)
    sessions = Sessions(limit=2, life_s=50.0)
    made = [await backend.start(Want()) for _ in range(2)]
    for sandbox, name in zip(made, "ab", strict=True):
        await sessions.keep((name, 0), sandbox, 1, 100.0)
    assert await sessions.take(("a", 0), 1) is made[0]
    await sessions.keep(("a", 0), made[0], 2, 140.0)
    assert await sessions.take(("a", 0), 2) is made[0]
    await sessions.keep(("a", 0), made[0], 3, 151.0)
    assert [sandbox.alive for sandbox in made] == [False, True]
    assert await sessions.expire(0.0, 101.0) == 1
    assert not made[1].alive
    await backend.close()

"""What tries to get past the service rather than the sandbox: archives, abuse again and again, forged results."""

from __future__ import annotations

import gzip
import io
import tarfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from support import build
from support.abuse import Finding
from support.grading import KINDS, rollout_of

from tiltyard.domains import load
from tiltyard.kit.blobs import BlobStore
from tiltyard.sandbox.backend import ArchiveRefused, Sandbox, SandboxError
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker
from tiltyard_proto.messages import Command, Environment, ExecLimits, Job, Rollout, Verdict
from tiltyard_proto.outcomes import Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("case")]
SETTINGS = SandboxSettings(pool={}, abuse_task=10.0, abuse_group=10.0, abuse_open_s=20.0)


@pytest.fixture
async def worker(gvisor: GVisorBackend, case: Finding, tmp_path: Path) -> AsyncIterator[Worker]:
    made = Worker(SETTINGS, Pool(gvisor, SETTINGS), BlobStore(tmp_path))
    yield made
    await made.sessions.close()


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        for info, data in members:
            file.addfile(info, io.BytesIO(data) if data else None)
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


HOSTILE = {
    "link outside": archive((member("a", tarfile.SYMTYPE, "/etc/passwd"), b"")),
    "link up": archive((member("a", tarfile.SYMTYPE, "../../etc"), b"")),
    "link then through it": archive((member("a", tarfile.SYMTYPE, "/etc"), b""), (member("a/passwd", size=1), b"x")),
    "hard link": archive((member("a", tarfile.LNKTYPE, "/etc/passwd"), b"")),
    "absolute": archive((member("/etc/passwd", size=1), b"x")),
    "up": archive((member("../x", size=1), b"x")),
    "device": archive((member("a", tarfile.CHRTYPE), b"")),
    "block device": archive((member("a", tarfile.BLKTYPE), b"")),
    "pipe": archive((member("a", tarfile.FIFOTYPE), b"")),
    "too large": archive((member("a", size=20 << 20), bytes(20 << 20))),
    "too many": archive(*[(member(f"f{number}"), b"") for number in range(2100)]),
    "bomb": gzip.compress(archive((member("a", size=64 << 20), bytes(64 << 20)))),
    "cut off": archive((member("a", size=4096), bytes(4096)))[:1000],
    "claims more than it has": archive((member("a", size=0), b"")).replace(b"00000000000\0", b"77777777777\0", 1),
    "no archive": b"\xff" * 5000,
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_23_hostile_archives(sandbox: Sandbox, name: str) -> None:
    """Each is refused at once, with nothing of it unpacked and the sandbox as before."""
    begun = time.monotonic()
    with pytest.raises((ArchiveRefused, SandboxError, ValueError)):
        await sandbox.restore(HOSTILE[name])
    assert time.monotonic() - begun < 3
    found = await sandbox.run(Command(argv=("sh", "-c", "ls -A; head -c 5 /etc/passwd")))
    assert found.stdout == b"root:", found


async def test_23_a_name_twice(sandbox: Sandbox) -> None:
    """A name that is there twice is refused, or the last one wins: never both, never outside."""
    twice = archive((member("a", size=1), b"1"), (member("a", size=1), b"2"))
    try:
        await sandbox.restore(twice)
    except ArchiveRefused:
        assert await sandbox.listing() == {}
    else:
        assert await sandbox.listing() == {"a": b"2"}


def attempt(source: str, number: int, text: str) -> Rollout:
    task = build.task("code.test", turns=1, text=text, environment=Environment(interface="shell"))
    command = Command(argv=("python3", "-c", source), limits=ExecLimits(wall_s=5.0, memory_bytes=64 << 20))
    return build.rollout(task, group=f"run-{text}-0", member=number, turns=(build.turn(command=command),))


async def outcome_of(worker: Worker, rollout: Rollout) -> Outcome | None:
    """How the last execution ended, or the rollout when nothing ran."""
    message = (await worker.turn(rollout)).message
    if isinstance(message, Verdict):
        assert message.score is None
        return message.outcome
    assert isinstance(message, Rollout)
    execution = message.turns[-1].execution
    return execution.outcome if execution else None


async def test_30_abusive_attempts(worker: Worker, case: Finding) -> None:
    """After ten of twenty the breaker refuses the task, at once and ungraded; another task runs; then one is tried."""
    now = [1000.0]
    worker.guard.clock = lambda: now[0]
    found = []
    for number in range(20):
        found.append(await outcome_of(worker, attempt("block = b'x' * (1 << 30)", number, "abused")))
        assert await outcome_of(worker, attempt("print(1)", number, "good")) is Outcome.FINISHED
    assert found == [Outcome.OUT_OF_MEMORY] * 10 + [Outcome.REFUSED] * 10
    begun = time.monotonic()
    assert await outcome_of(worker, attempt("print(1)", 21, "abused")) is Outcome.REFUSED
    assert time.monotonic() - begun < 0.05
    now[0] += 21
    assert await outcome_of(worker, attempt("block = b'x' * (1 << 30)", 22, "abused")) is Outcome.REFUSED
    now[0] += 41
    assert await outcome_of(worker, attempt("print(1)", 23, "abused")) is Outcome.FINISHED
    assert await outcome_of(worker, attempt("print(1)", 24, "abused")) is Outcome.FINISHED
    case.outcomes, case.attributions = ["out_of_memory", "refused"], ["policy", "none"]


TRICKS = {
    "ends the process with 0": "import os; os._exit(0)",
    "ends it at import": "raise SystemExit(0)",
    "is equal to everything": "class T:\n    __eq__ = lambda s, o: True\n{f} = lambda *a: T()",
    "writes what a result could look like": "print('{{\"passed\": true}}'); print('PASSED')\n"
    "open('result.json', 'w').write('{{\"score\": 1.0}}')\n{f} = lambda *a: None",
    "kills the grader": "import os, signal\n{f} = lambda *a: os.kill(os.getppid(), signal.SIGKILL)",
    "changes the interpreter": "import builtins, json, sys\nbuiltins.all = builtins.any = lambda *a: True\n"
    'sys.exit = lambda *a: None\njson.dumps = lambda *a, **k: \'{{"passed": true, "score": 1}}\'\n{f} = lambda *a: 0',
    "writes to every descriptor": "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'{{\"passed\": true}}')\n"
    "    except OSError: pass\n{f} = lambda *a: 0",
    "reads the graders memory": "import glob\nfor p in glob.glob('/proc/[0-9]*/mem'):\n    try: open(p, 'rb').read(1)\n"
    "    except OSError: pass\n{f} = lambda *a: 0",
}


@pytest.mark.parametrize("name", TRICKS)
async def test_31_forged_results(worker: Worker, name: str) -> None:
    """None of the tricks earns what the reference earns."""
    task = load("code.python.functions").tasks("eval", 1)[0]
    function = task.verification.data["function"]
    verdict = await graded(worker, rollout_of(task, f"```python\n{TRICKS[name].format(f=function)}\n```"))
    assert not verdict.passed, verdict
    assert verdict.score is None or verdict.score < 0.5


async def test_31_a_prepared_workspace(worker: Worker) -> None:
    """Files that test runners and interpreters load by themselves, left in the workspace, change no verdict."""
    planted = {
        "conftest.py": b"import os; os._exit(0)",
        "sitecustomize.py": b"import os; os._exit(0)",
        "usercustomize.py": b"import os; os._exit(0)",
        "json.py": b"raise SystemExit(0)",
        "pytest.ini": b"[pytest]\naddopts = --collect-only\n",
        "result.json": b'{"passed": true, "score": 1.0}',
    }
    task = load("code.python.functions").tasks("eval", 1)[0]
    buffer = archive(*[(member(path, size=len(data)), data) for path, data in planted.items()])
    workspace = worker.blobs.put(buffer)
    wrong = f"```python\ndef {task.verification.data['function']}(*a): return 'nope'\n```"
    for text, passes in ((wrong, False), (task.reference, True)):
        kind = KINDS[task.verification.kind]
        rollout = rollout_of(task, text, workspace=workspace)
        planned = kind.plan(task, rollout)
        assert isinstance(planned, Job)
        verdict = kind.judge(task, await worker.job(msgspec.structs.replace(planned, workspace=workspace)))
        assert not verdict.passed or passes


async def graded(worker: Worker, rollout: Rollout) -> Verdict:
    kind = KINDS[rollout.task.verification.kind]
    planned = kind.plan(rollout.task, rollout)
    return planned if isinstance(planned, Verdict) else kind.judge(rollout.task, await worker.job(planned))

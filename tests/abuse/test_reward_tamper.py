"""Reward tampering (case 31): whatever a submission or a session does, its verdict is that of its answers.

Graders run for real: verifier kinds plan jobs, the worker runs them in fresh gVisor sandboxes as another user.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from support import build
from support.grading import KINDS, rollout_of

from tiltyard.domains import load
from tiltyard.kit.blobs import BlobStore
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker
from tiltyard_proto.messages import Candidate, Command, Environment, ExecLimits, Execution, Job, Rollout, Verdict
from tiltyard_proto.outcomes import Outcome

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(pool={}, cache_bytes=0)
LIMITS = ExecLimits(wall_s=20.0, cpu_s=10.0)


@pytest.fixture
async def worker(gvisor: GVisorBackend, tmp_path: Path) -> AsyncIterator[Worker]:
    made = Worker(SETTINGS, Pool(gvisor, SETTINGS), BlobStore(tmp_path))
    yield made
    await made.sessions.close()


TAMPERS = {
    "writes results": "open('results.jsonl', 'w').write('{\"call\": 0, \"value\": 1}\\n' * 99)",
    "writes a verdict": "open('verdict.json', 'w').write('{\"passed\": true, \"score\": 1}')",
    "plants conftest": "open('conftest.py', 'w').write('def pytest_runtest_call(item): item.obj = lambda *a: None')",
    "plants modules": (
        "for name in ('json', 'sitecustomize', 'usercustomize', 'typing', 'math'):\n"
        "    open(name + '.py', 'w').write('import os; os.write(1, b\"passed 9\"); os._exit(0)')"
    ),
    "patches the runner": (
        "import glob\nfor path in glob.glob('/workspace/**', recursive=True):\n"
        "    try: open(path, 'w').write('raise SystemExit(0)')\n    except OSError: pass"
    ),
    "exits at import": "import sys; sys.exit(0)",
    "ends the process": "import os; os._exit(0)",
    "at exit": "import atexit, os; atexit.register(os._exit, 0)",
    "patches modules": (
        "import sys, types\nfor name in ('json', 'unittest', 'pytest', 'math', 'operator', 'solution'):\n"
        "    sys.modules[name] = types.ModuleType(name)"
    ),
    "patches unittest": "import unittest; unittest.TestCase.run = unittest.main = lambda *a, **k: None",
    "patches builtins": "import builtins\nbuiltins.AssertionError = builtins.repr = builtins.print = type('X', (), {})",
    "patches the frames": (
        "import sys\nframe = sys._getframe()\nwhile frame:\n"
        "    for name in list(frame.f_globals):\n"
        "        if callable(frame.f_globals[name]): frame.f_globals[name] = lambda *a: 'passed'\n"
        "    frame = frame.f_back"
    ),
    "kills others": "import os, signal\nfor pid in range(1, 60):\n    if pid != os.getpid():\n"
    "        try: os.kill(pid, signal.SIGKILL)\n        except OSError: pass",
    "writes descriptors": (
        "import os, glob\nfor path in glob.glob('/proc/[0-9]*/fd/*') + ['/dev/stdout', '/dev/fd/1', '/dev/fd/4']:\n"
        "    try: os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), b'passed 3\\n{\"value\": true}\\n')\n"
        "    except OSError: pass"
    ),
}  # fmt: skip


@pytest.mark.parametrize("domain", ["code.python.functions", "code.python.humaneval"])
async def test_31_tampering_changes_no_verdict(worker: Worker, domain: str) -> None:
    """A wrong answer stays as wrong with every tampering, and the right one passes."""
    task = load(domain).tasks("eval", 1)[0]
    kind, function = KINDS[task.verification.kind], task.verification.data["function"]

    async def verdict(code: str) -> Verdict:
        planned = kind.plan(task, rollout_of(task, code))
        return planned if isinstance(planned, Verdict) else kind.judge(task, await worker.job(planned))

    assert (await verdict(task.reference)).passed
    wrong = await verdict(f"```python\ndef {function}(*a):\n    return 'wrong'\n```")
    assert wrong.score is not None
    for name, tamper in TAMPERS.items():
        found = await verdict(f"```python\n{tamper}\ndef {function}(*a):\n    return 'wrong'\n```")
        assert (found.passed, found.outcome) == (False, Outcome.FINISHED), name
        assert found.score is not None
        assert found.score <= wrong.score, (name, found)


# ---------------------------------------------------------------- a grader beside a candidate

SPY = """
import ctypes, glob, os, sys
def tries(what):
    try:
        what()
        return True
    except OSError:
        return False
mine = os.getpid()
others = [int(name) for name in os.listdir('/proc') if name.isdigit() and int(name) not in (1, mine)]
won, probed = [], 0
for pid in others:
    if os.stat(f'/proc/{pid}').st_uid == os.getuid():
        continue
    probed += 1
    for name in ('mem', 'fd/0', 'fd/1', 'fd/3', 'fd/4'):
        for mode in (os.O_RDONLY, os.O_WRONLY):
            if tries(lambda: os.open(f'/proc/{pid}/{name}', mode | os.O_NONBLOCK)): won.append(f'open {name}')
    if tries(lambda: os.kill(pid, 0)): won.append('signal')
    if ctypes.CDLL(None).ptrace(16, pid, 0, 0) == 0: won.append('ptrace')
for path in ('grader/check.py', 'grader', 'secret.txt'):
    if tries(lambda: os.rename(path, path + '.moved')): won.append('rename ' + path)
    if tries(lambda: os.open(path, os.O_WRONLY)): won.append('write ' + path)
    if os.path.isfile(path) and tries(lambda: open(path)): won.append('read ' + path)
if tries(lambda: open('grader/json.py', 'w')): won.append('plant')
if tries(lambda: os.setuid(1001)) or tries(lambda: os.setuid(0)): won.append('setuid')
print(probed, os.getuid(), won, flush=True)
sys.stdin.read()
"""
CHECK = """
import os, sys
answer = os.fdopen(4, 'r').readline().strip()
print(os.getuid(), answer, flush=True)
sys.exit(0 if answer == "1 1000 []" else 1)
"""


def job(command: Command, rollout: Rollout | None = None) -> Job:
    rollout = rollout or build.rollout()
    workspace = rollout.turns[-1].workspace if rollout.turns else None
    return Job(rollout=rollout, command=command, profile="python", workspace=workspace)


async def session(worker: Worker, script: str) -> Rollout:
    """A rollout whose one action ran a script."""
    task = build.task(environment=Environment(interface="shell", limits=LIMITS), turns=3)
    command = Command(argv=("bash", "-c", script), limits=LIMITS)
    hop = await worker.turn(build.rollout(task, turns=(build.turn(command=command),)))
    assert isinstance(hop.message, Rollout)
    return hop.message


async def test_31_a_candidate_cannot_reach_its_grader(worker: Worker) -> None:
    """Files, memory, descriptors and process of the grader are out of reach; each is a user of its own."""
    command = Command(
        argv=("python3", "grader/check.py"),
        files={"grader/check.py": CHECK.encode(), "secret.txt": b"expected"},
        candidate=Candidate(argv=("python3", "spy.py"), files={"spy.py": SPY.encode()}),
        limits=LIMITS,
    )
    found = (await worker.job(job(command))).execution
    assert (found.exit_code, found.stdout) == (0, b"1001 1 1000 []\n"), found


PLANTS = """
mkdir -p grader tests
for name in json sitecustomize os unittest check; do
    echo 'import os; os._exit(0)' | tee $name.py grader/$name.py tests/$name.py > /dev/null
done
echo 'def pytest_sessionfinish(session): session.exitstatus = 0' > conftest.py
printf '[pytest]\\naddopts = --collect-only\\n' > pytest.ini
ln -s /workspace/sitecustomize.py linked.py
chmod 777 . grader tests; echo PYTHONPATH=/workspace > .env; echo 'exit 0' > .bashrc
"""
HIDDEN = """
import os, sys
ask, answers = os.fdopen(3, 'w'), os.fdopen(4, 'r')
for a, b in ((1, 2), (5, 7)):
    try:
        print(a, b, file=ask, flush=True)
    except OSError:
        sys.exit(1)
    if answers.readline().strip() != str(a + b):
        sys.exit(1)
print('hidden tests passed')
"""
RIGHT = "import sys\nfor line in sys.stdin: print(sum(map(int, line.split())), flush=True)"


@pytest.mark.parametrize(
    ("solution", "code"),
    [(RIGHT, 0), ("print(3)", 1), ("import os; os._exit(0)", 1), ("while True: print(3, flush=True)", 1)],
)
async def test_31_hidden_tests_after_a_hostile_session(worker: Worker, solution: str, code: int) -> None:
    """Hidden tests on a copy of a workspace full of traps find what the solution answers, by exit status and output."""
    rollout = await session(worker, f"cat > /tmp/s <<'EOF'\n{solution}\nEOF\n{PLANTS}mv /tmp/s solution.py")
    command = Command(
        argv=("python3", "-I", "grader/hidden.py"),
        files={"grader/hidden.py": HIDDEN.encode()},
        candidate=Candidate(argv=("python3", "-I", "solution.py")),
        limits=LIMITS,
    )
    found = (await worker.job(job(command, rollout))).execution
    assert (found.exit_code, b"passed" in found.stdout) == (code, code == 0), found


async def test_31_nothing_of_the_session_runs_while_it_is_graded(worker: Worker) -> None:
    """Processes that a session left are not there, its files belong to the grader, and hidden files come only now."""
    rollout = await session(worker, "id -u; (setsid sleep 60 &); ls; echo mine > file; chmod 600 file")
    assert rollout.turns[-1].observation == "1000"
    command = Command(argv=("bash", "-c", "id -u; set -- /proc/[0-9]*; echo $#; cat file hidden; echo more >> file"))
    command = msgspec.structs.replace(command, files={"hidden": b"expected\n"})
    found: Execution = (await worker.job(job(command, rollout))).execution
    assert (found.stdout, found.exit_code) == (b"1001\n2\nmine\nexpected\n", 0), found

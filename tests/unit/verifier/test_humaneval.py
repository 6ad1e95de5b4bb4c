"""Kind humaneval: the check program judges a submission that lives in another process."""

from __future__ import annotations

import json

import msgspec
import pytest
from support.grading import KINDS, grade, rollout_of, run_job

from tiltyard.verifier.kinds.sandboxed import nonce
from tiltyard_proto.messages import Execution, Graded, Job, Task, Verdict, Verification
from tiltyard_proto.outcomes import Outcome

KIND = KINDS["humaneval"]
PROMPT = (
    "from typing import List\n\n\ndef helper(x):\n    return x\n\n\n"
    'def total(v: List[int]) -> int:\n    """Sum of v."""\n'
)
CHECK = (
    "def check(candidate):\n"
    "    assert candidate([1, 2]) == 3\n"
    "    assert candidate([]) == 0\n"
    "    assert candidate([helper(5)]) == 5, 'a secret'\n"
    "    assert True\n"
)
TASK = Task(
    id="t",
    domain="code.test",
    prompt=(),
    verification=Verification(kind="humaneval", data={"function": "total", "prompt": PROMPT, "check": CHECK}),
)


@pytest.mark.parametrize(
    "text",
    [
        "    return sum(v)",
        "return sum(v)",
        "```python\ndef total(v):\n    return sum(helper(x) for x in v)\n```",
        "```python\nfrom typing import List\n\ndef total(v: List[int]):\n    print('noise')\n    return sum(v)\n```",
    ],
)
def test_right_completions_pass(text: str) -> None:
    """A whole function or only its body passes, with the prompt's imports and helpers in reach."""
    verdict = grade(TASK, text)
    assert (verdict.score, verdict.passed) == (1.0, True)
    assert verdict.components == {"calls": 3.0}


HOSTILE = {
    "exit at load": "import os\nos._exit(0)\ndef total(v): return 0",
    "sys.exit": "def total(v):\n    import sys; sys.exit(0)",
    "os._exit": "def total(v):\n    import os; os._exit(0)",
    "equal to everything": "class T:\n    __eq__ = lambda s, o: True\ndef total(v): return T()",
    "int equal to everything": "class T(int):\n    __eq__ = lambda s, o: True\ndef total(v): return T(3)",
    "prints success": "def total(v):\n    print('passed 3'); import os; os.write(1, b'passed 3'); return 9",
    "kills its parent": "import os\nos.kill(os.getppid(), 9)\ndef total(v): return 0",
    "patched builtins": "import builtins\nbuiltins.AssertionError = BaseException\ndef total(v): return 0",
    "reads files": "import glob\ndef total(v):\n    return [open(p).read() for p in glob.glob('*')]",
    "reads standard input": "import sys\ndef total(v):\n    return sys.stdin.read()",
    "answers ahead": (
        "import os\nfor fd in range(3, 20):\n"
        "    try: os.write(fd, b'{\"value\": 3}\\n' * 9)\n    except OSError: pass\n"
        "def total(v): return 0"
    ),
    "garbles its answers": (
        "import os\nfor fd in range(3, 20):\n"
        "    try: os.write(fd, b'\\xff[' * 99 + b'\\n')\n    except OSError: pass\n"
        "def total(v): return 0"
    ),
    "constant": "def total(v): return 3",
    "recursion": "def total(v): return total(v)",
    "syntax error": "def total(v) return",
    "none": "def total(v): pass",
    "empty": "",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_bad_completions_fail(name: str) -> None:
    """Wrong and hostile completions score 0, with a reason."""
    verdict = grade(TASK, f"```python\n{HOSTILE[name]}\n```")
    assert (verdict.score, verdict.passed) == (0.0, False)
    assert verdict.reasons


def test_an_endless_loop_fails() -> None:
    """A run that had to be killed is a wrong answer."""
    assert grade(TASK, "    while True: pass", wall_s=1.5).score == 0.0


def test_secrets_come_on_standard_input_only() -> None:
    """Neither the check nor the nonce lies in a file that the submission could read."""
    job = KIND.plan(TASK, rollout_of(TASK, "    return 1"))
    assert isinstance(job, Job)
    files = msgspec.msgpack.encode(job.command.files)
    assert b"a secret" not in files
    secret = json.loads(job.command.stdin)["nonce"]
    assert secret.encode() not in files
    assert not job.deterministic


def test_runs_through_runpy() -> None:
    """The runner works in an interpreter that runs it with runpy."""
    job = KIND.plan(TASK, rollout_of(TASK, "    return sum(v)"))
    assert isinstance(job, Job)
    verdict = KIND.judge(TASK, run_job(job, through_runpy=True))
    assert verdict.passed, verdict.reasons


@pytest.mark.parametrize(
    "stdout",
    [
        b"",
        b"passed 3",
        b"0" * 32 + b" passed 3",
        b"\xff\xfe",
        b"KEY passed",
        b"KEY passed 0",
        b"KEY passed -1",
        b"KEY failed x",
        b"KEYpassed 3",
    ],
)
def test_only_the_nonce_counts(stdout: bytes) -> None:
    """Output without this rollout's nonce, or without calls, passes nothing."""
    rollout = rollout_of(TASK, "    return 1")
    out = stdout.replace(b"KEY", nonce("humaneval", rollout).encode())
    verdict = KIND.judge(TASK, Graded(rollout=rollout, execution=Execution(outcome=Outcome.FINISHED, stdout=out)))
    assert isinstance(verdict, Verdict)
    assert verdict.score == 0.0

"""Kind repository: hidden tests in one process, the repository in another."""

from __future__ import annotations

import pytest
from support.grading import KINDS, rollout_of, run_job

from tiltyard.verifier.kinds.base import BrokenTask
from tiltyard.verifier.kinds.sandboxed import nonce
from tiltyard_proto.messages import BlobRef, Environment, Execution, Graded, Job, Task, Verdict, Verification
from tiltyard_proto.outcomes import Outcome

KIND = KINDS["repository"]
WORKSPACE = BlobRef(uri="x", size=1, sha256="0")
GOOD = b"""
class Odd(ValueError):
    pass


class Box:
    def __init__(self, size):
        self.size, self.items = size, []

    def put(self, item):
        if len(self.items) >= self.size:
            raise Odd(f"full at {self.size}")
        self.items.append(item)

    def __len__(self):
        return len(self.items)


def mean(values):
    return sum(values) / len(values)
"""
TESTS = """
import pytest
from kit.box import Box, Odd, mean
from kit import box


def test_mean():
    assert mean([1, 2]) == pytest.approx(1.5)
    assert box.mean([3.0]) == 3.0
    with pytest.raises(ZeroDivisionError):
        mean([])


def test_box():
    b = Box(1)
    b.put('x')
    assert len(b) == 1 and list(b.items) == ['x'] and b.size == 1 and 'x' in b.items
    with pytest.raises(Odd, match='full at 1'):
        b.put('y')
    with pytest.raises(ValueError):
        b.put('y')


@pytest.mark.parametrize('n, twice', [(1, 2), (2, 4)], ids=['one', 'two\\nlines'])
def test_many(n, twice):
    assert mean([twice, 0]) == n
"""
IDS = ("t.py::test_mean", "t.py::test_box", "t.py::test_many[one]", "t.py::test_many[two\nlines]")


def task(partial: float = 0.0, **data: object) -> Task:
    whole = {
        "tests": {"t.py": TESTS},
        "packages": ["kit"],
        "fail_to_pass": list(IDS[:2]),
        "pass_to_pass": list(IDS[2:]),
    }
    verification = Verification(kind="repository", data={**whole, **data}, options={"partial": partial})
    return Task(
        id="t", domain="code.test", prompt=(), verification=verification, environment=Environment(interface="shell")
    )


def judged(code: bytes, more: dict[str, bytes] | None = None, partial: float = 0.0) -> Verdict:
    one = task(partial)
    job = KIND.plan(one, rollout_of(one, "x", workspace=WORKSPACE))
    assert isinstance(job, Job)
    return KIND.judge(one, run_job(job, {"kit/__init__.py": b"", "kit/box.py": code, **(more or {})}))


def test_a_right_repository_passes() -> None:
    """Functions, classes, exceptions of the repository and odd names of tests work through the stand-ins."""
    verdict = judged(GOOD)
    assert verdict.passed, verdict.reasons
    assert verdict.components == {"fail_to_pass": 1.0, "pass_to_pass": 1.0}


@pytest.mark.parametrize(
    "code",
    [
        GOOD.replace(b"/ len(values)", b"/ 2"),
        GOOD.replace(b"ValueError", b"Exception"),
        GOOD.replace(b">= self.size", b"> self.size"),
        b"",
        b"def mean(",
        GOOD + b"\nimport os\nos._exit(0)\n",
        GOOD + b"\nraise SystemExit(0)\n",
        GOOD + b"\nclass Same:\n    __eq__ = lambda s, o: True\n    __bool__ = __eq__\nmean = lambda v: Same()\n",
        GOOD + b"\nclass Same(float):\n    def __eq__(s, o): return True\nmean = lambda v: Same()\n",
        GOOD + b"\nimport os\nfor fd in range(3, 12):\n    try: os.write(fd, b'1}\\n' * 40)\n    except OSError: 0\n",
        GOOD + b"\ndef mean(v): raise ZeroDivisionError\n",
        GOOD + b"\nimport sys, types\nsys.modules['pytest'] = types.ModuleType('pytest')\ndef mean(v): return None\n",
    ],
)  # fmt: skip
def test_wrong_and_forged_repositories_fail(code: bytes) -> None:
    """Nothing that the repository does to its own process decides a test."""
    verdict = judged(code)
    assert not verdict.passed
    assert verdict.score == 0.0
    assert verdict.reasons


def test_files_of_test_frameworks_are_not_read() -> None:
    """Configuration and modules that shadow others change nothing, in either direction."""
    more = {
        "conftest.py": b"raise SystemExit(0)",
        "pytest.ini": b"[pytest]\naddopts = --co\n",
        "pytest.py": b"raise SystemExit(0)",
        "json.py": b"raise SystemExit(0)",
        "select.py": b"raise SystemExit(0)",
        "t.py": b"def test_mean(): pass",
    }
    assert judged(GOOD, more).passed
    assert not judged(GOOD.replace(b"/ len(values)", b"/ 9"), more).passed


def test_partial_credit_needs_what_worked_to_work() -> None:
    """Credit for some of fail_to_pass is paid only while all of pass_to_pass passes."""
    assert judged(GOOD.replace(b">= self.size", b"> self.size"), partial=0.4).score == pytest.approx(0.2)
    assert judged(GOOD.replace(b"/ len(values)", b"/ 9"), partial=0.4).score == 0.0


@pytest.mark.parametrize(
    "said", ["", "{}", '{"passed": [0, 1, 2, 3, 4, 5, -1]}', '{"passed": "all"}', "[" * 3000, "passed"]
)
def test_hostile_results_are_no_credit(said: str) -> None:
    """A line without the nonce counts for nothing, one that can't be read neither; unknown numbers are left out."""
    one = task()
    rollout = rollout_of(one, "x", workspace=WORKSPACE)
    for key in ("0" * 32, nonce("repository", rollout)):
        stdout = f'{key} {said}\n{{"passed": [0, 1, 2, 3]}}'.encode()
        verdict = KIND.judge(one, Graded(rollout=rollout, execution=Execution(outcome=Outcome.FINISHED, stdout=stdout)))
        assert verdict.passed is (key != "0" * 32 and "-1" in said)


@pytest.mark.parametrize(
    "data",
    [{"fail_to_pass": []}, {"packages": []}, {"pass_to_pass": ["t.py::test_mean"]}, {"fail_to_pass": ["x.py::test"]}],
)
def test_broken_tasks(data: dict[str, object]) -> None:
    """Ids that name no file, or stand in both lists, are the task's fault."""
    one = task(**data)
    with pytest.raises(BrokenTask):
        KIND.plan(one, rollout_of(one, "x", workspace=WORKSPACE))


def test_the_tests_never_lie_on_the_disk() -> None:
    """Hidden tests reach the grader by its standard input only, in a folder that nobody could foresee."""
    one = task()
    job = KIND.plan(one, rollout_of(one, "x", workspace=WORKSPACE))
    assert isinstance(job, Job)
    assert job.command.candidate is not None
    files = {**job.command.files, **job.command.candidate.files}
    assert not any(b"test_mean" in content for content in files.values())
    assert b"test_mean" in job.command.stdin

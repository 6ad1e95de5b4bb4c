"""Kind python_calls: good, bad and hostile submissions."""

from __future__ import annotations

import msgspec
import pytest
from support.grading import KINDS, grade, rollout_of, run_job

from tiltyard.verifier.kinds.base import BrokenTask
from tiltyard_proto.messages import Execution, Graded, Job, Task, Verdict, Verification
from tiltyard_proto.outcomes import Outcome

KIND = KINDS["python_calls"]
ADD = (("add(1, 2)", "3"), ("add(-1, 1)", "0"), ("add(10, 5)", "15"))
CREDIT = {"definition": 0.1, "calls": 0.15}
RIGHT = "def add(a, b):\n    return a + b"


def task(
    calls: tuple[tuple[str, str], ...] = ADD, function: str = "add", options: dict[str, float] | None = None
) -> Task:
    data = {"function": function, "calls": [{"call": call, "expect": value} for call, value in calls]}
    verification = Verification(kind="python_calls", data=data, options=options or {})
    return Task(id="t", domain="code.test", prompt=(), verification=verification)


@pytest.mark.parametrize(
    "text",
    [
        RIGHT,
        f"```python\n{RIGHT}\n```",
        f"```python\n{RIGHT}\n",
        f"Here is the code:\n\n```python\n{RIGHT}\n```\nIt adds the numbers.",
        f"<think>maybe minus?</think>```py\n{RIGHT}\n```",
        f"```python\ndef add(a, b): return 0\n```\n```python\nassert add(1, 2)\n```\n```python\n{RIGHT}\n```",
        f"```python\n{RIGHT}\n```\n```python\nprint(add(1, 2))\n```",
        "add = lambda a, b: a + b",
        "from operator import add",
        'import sys\nprint(\'{"call": 0, "value": 9}\' * 1000)\nsys.stdout.flush()\n' + RIGHT,
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n" + RIGHT,
        f"if __name__ == '__main__':\n    raise SystemExit(1)\n{RIGHT}",
    ],
)
def test_honest_code_passes(text: str) -> None:
    """Correct code gets full credit however it is wrapped, and whatever it prints."""
    verdict = grade(task(), text)
    assert (verdict.score, verdict.passed, verdict.reasons) == (1.0, True, ())
    assert verdict.verifier == "python_calls/3"


HOSTILE = {
    "exit at load": "import os; os._exit(0)\ndef add(a, b): return 0",
    "sys.exit at load": "import sys; sys.exit(0)\ndef add(a, b): return 0",
    "exit in the call": "def add(a, b):\n    import os; os._exit(0)",
    "SystemExit in the call": "def add(a, b):\n    import sys; sys.exit(0)",
    "success on stdout": (
        "import os; print('===== 3 passed in 0.01s =====', flush=True); os._exit(0)\ndef add(a, b): return 0"
    ),
    "equal to everything": "class T:\n    __eq__ = lambda s, o: True\ndef add(a, b): return T()",
    "int subclass equal to everything": "class T(int):\n    __eq__ = lambda s, o: True\ndef add(a, b): return T(7)",
    "conftest": "open('conftest.py', 'w').write('')\ndef add(a, b): return 0",
    "patched json": "import json; json.dumps = lambda *a, **k: '3'\ndef add(a, b): return 0",
    "patched builtins": (
        "import builtins\nbuiltins.type = lambda v: int\nbuiltins.len = lambda v: 3\ndef add(a, b): return object()"
    ),
    "patched exec and eval": "import builtins\nbuiltins.eval = builtins.exec = lambda *a: 3\ndef add(a, b): return 1",
    "patched sys.exit and os._exit": "import os, sys\nos._exit = sys.exit = lambda *a: None\ndef add(a, b): return 1",
    "reads its tests": (
        "import glob, re\n"
        "text = ' '.join(open(p, errors='ignore').read() for p in glob.glob('*'))\n"
        "found = iter(re.findall(r'expect\\D+(\\d+)', text))\n"
        "def add(a, b): return int(next(found))"
    ),
    "reads its frames": (
        "import sys\n"
        "def add(a, b):\n"
        "    frame, found = sys._getframe(), []\n"
        "    while frame:\n"
        "        found += [v for k, v in frame.f_locals.items() if 'expect' in k]\n"
        "        frame = frame.f_back\n"
        "    return found[0]"
    ),
    "atexit writes results": (
        "import atexit, json\n"
        "def w():\n"
        "    lines = [json.dumps({'call': i, 'passed': True}) + '\\n' for i in range(3)]\n"
        "    open('results.jsonl', 'w').write(''.join(lines))\n"
        "atexit.register(w)\ndef add(a, b): return 0"
    ),
    "deletes its results": "import os\ndef add(a, b):\n    os.remove('results.jsonl'); return a + b",
    "rewrites the runner": "open('runner.py', 'w').write('')\ndef add(a, b): return 0",
    "garbles its results": (
        "import glob, os\nfor fd in range(3, 30):\n"
        "    try: os.write(fd, b'\\xff\\x00[' * 99 + b'\\n')\n    except OSError: pass\n"
        "def add(a, b): return 0"
    ),
    "recursion": "def add(a, b): return add(a, b)",
    "deep result": "def add(a, b):\n    v = 3\n    for _ in range(10000): v = [v]\n    return v",
    "result that holds itself": "def add(a, b):\n    v = []\n    v.append(v)\n    return v",
    "huge result": "def add(a, b): return 'x' * 10**7",
    "huge integer": "def add(a, b): return 10 ** 30000",
    "generator": "def add(a, b):\n    yield a + b",
    "coroutine": "async def add(a, b): return a + b",
    "exception with a hostile text": (
        "class E(Exception):\n    def __str__(self): raise RuntimeError\ndef add(a, b): raise E"
    ),
    "raises the right answer": "def add(a, b): raise ValueError(a + b)",
    "bool for int": "def add(a, b): return a + b == 3 or a + b",
    "float for int": "def add(a, b): return float(a + b)",
    "string for int": "def add(a, b): return str(a + b)",
    "constant": "def add(a, b): return 3",
    "def inside a class": "class Solution:\n    def add(self, a, b): return a + b",
    "wrong name": "def plus(a, b): return a + b",
    "exotic definition": "globals()['add'] = lambda a, b: a + b",
    "empty": "",
    "only a fence": "```python\n```",
    "prose": "To add two numbers, use the plus sign.",
    "does not parse": "def add(a, b) return a + b",
    "brackets": "(" * 1500,
    "signs": "-" * 1500 + "1",
    "dots": "add" + ".a" * 900,
    "NUL": "def add(a, b):\n    return a + b\0",
    "lone surrogate": "def add(a, b):\n    return '\ud800'",
    "unclosed thinking": "<think>" + RIGHT,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_bad_code_fails(name: str) -> None:
    """Wrong and hostile code gets no full credit, gives a verdict with a reason and never an exception."""
    verdict = grade(task(), HOSTILE[name])
    assert verdict.score is not None
    assert verdict.score < 0.3
    assert not verdict.passed
    assert verdict.reasons
    msgspec.msgpack.encode(verdict.reasons)


@pytest.mark.parametrize("text", ["while True: pass\ndef add(a, b): pass", "def add(a, b):\n    while True: pass"])
def test_endless_loops_fail(text: str) -> None:
    """A run that had to be killed is a wrong answer, not a fault of the verifier."""
    verdict = grade(task(options={"definition": 0.1}), text, wall_s=1.5)
    assert verdict.score == 0.1
    assert "wall_limit" in verdict.reasons[0]


def test_a_crash_keeps_earlier_results() -> None:
    """Calls answered before the process died count towards partial credit."""
    text = "def add(a, b):\n    if a == 10:\n        import os; os.kill(os.getpid(), 9)\n    return a + b"
    verdict = grade(task(options=CREDIT), text)
    assert verdict.score == pytest.approx(0.1 + 0.15 * 2 / 3)
    assert verdict.components == {"definition": 1.0, "calls": pytest.approx(2 / 3)}


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (RIGHT, 1.0),
        ("def add(a, b): return 3", 0.15),
        ("def add(a, b): return 99", 0.1),
        ("def plus(a, b): return a + b", 0.0),
    ],
)
def test_partial_credit(text: str, score: float) -> None:
    """Partial credit: a definition that parses, then shares for single calls, far below full credit."""
    assert grade(task(options=CREDIT), text).score == pytest.approx(score)


@pytest.mark.parametrize(
    ("expect", "returned", "right"),
    [
        ("0.3", "0.1 + 0.2", True),
        ("0.3", "0.31", False),
        ("[1, 2]", "(1, 2)", False),
        ("(1, [2.0, None])", "(1, [2.0, None])", True),
        ("{'a': 1, 2: (3,)}", "{2: (3,), 'a': 1}", True),
        ("{'a': 1}", "{'a': True}", False),
        ("{1: 2}", "{True: 2}", False),
        ("1", "True", False),
        ("True", "1", False),
        ("None", "0", False),
        ("''", "None", False),
        ("'ä\\n\"\U0001f600'", "'ä\\n\"\U0001f600'", True),
        (str(2**80), "2 ** 80", True),
        ("[1, 2, 3]", "(x for x in [1, 2, 3])", False),
        ("{1, 2}", "{1, 2}", False),
        ("1e999", "float('inf')", True),
    ],
)
def test_values_are_compared_by_type(expect: str, returned: str, right: bool) -> None:
    """Results are right only with the exact type, floats within the tolerance; sets aren't results."""
    assert grade(task((("f(0)", expect),), "f"), f"def f(x): return {returned}").passed is right


def test_expected_values_never_enter_the_sandbox() -> None:
    """A job carries the calls but not what they must return, and is the same for the same submission."""
    hidden = task((("f(1)", "'a-secret-value'"),), "f")
    job = KIND.plan(hidden, rollout_of(hidden, "def f(x): return x"))
    assert isinstance(job, Job)
    assert job.deterministic
    assert b"a-secret-value" not in msgspec.msgpack.encode(job.command)
    again = KIND.plan(hidden, rollout_of(hidden, "def f(x): return x"))
    assert msgspec.msgpack.encode(again) == msgspec.msgpack.encode(job)


def test_verdicts_are_deterministic() -> None:
    """The same submission gives byte-identical verdicts."""
    text = "def add(a, b): return a"
    assert msgspec.msgpack.encode(_bare(grade(task(), text))) == msgspec.msgpack.encode(_bare(grade(task(), text)))


def _bare(verdict: Verdict) -> Verdict:
    return msgspec.structs.replace(verdict, grading=None)


def test_runs_through_runpy() -> None:
    """The runner works in an interpreter that runs it with runpy, without site packages and any run name."""
    job = KIND.plan(task(), rollout_of(task(), RIGHT))
    assert isinstance(job, Job)
    assert KIND.judge(task(), run_job(job, through_runpy=True)).passed


def test_long_code_goes_to_the_sandbox_unparsed() -> None:
    """Code longer than what is parsed here is left to the sandbox, and passes when it's right."""
    long = "# " + "x" * 3000 + "\n" + RIGHT
    assert grade(task(), f"```python\n{long}\n```").passed


@pytest.mark.parametrize(
    "results",
    [
        b"",
        b"\xff\xfe\n" * 50,
        b'{"call": 0, "value": 3}\n' * 3,
        b'{"call": true, "value": 3}\n{"call": 1, "value": 0}\n{"call": 2, "value": 15}',
        b'{"call": 0, "value": {"tuple": 3}}\n[]\n7\n',
        b'{"call": 0, "value": {"dict": [[[], 1]]}}\n',
        b'{"call": 0, "value": {"int": []}}\n',
        b'{"call": 0, "value": ' + b"[" * 100_000,
        b'{"call": 99, "value": 3}\n{"call": -5, "value": 3}\n',
        b"x" * 5_000_000,
        b'{"call": 0, "value": 1e400}\n{"call": 1, "value": 123456789012345678901234567890}\n',
    ],
)
def test_hostile_results_are_wrong_answers(results: bytes) -> None:
    """Whatever the sandbox hands back, the judge gives a verdict without full credit."""
    graded = Graded(
        rollout=rollout_of(task(), RIGHT),
        execution=Execution(outcome=Outcome.FINISHED),
        files={"results.jsonl": results},
    )
    verdict = KIND.judge(task(), graded)
    assert verdict.score is not None
    assert not verdict.passed


@pytest.mark.parametrize(
    "calls",
    [(("sub(1, 2)", "3"),), (("add(x)", "3"),), (("add(", "3"),), (("add(**{})", "3"),), (("add(*[1])", "3"),), ()],
)
def test_broken_tasks_are_told_apart(calls: tuple[tuple[str, str], ...]) -> None:
    """Verification data that can't be used raises BrokenTask instead of scoring the policy."""
    with pytest.raises(BrokenTask):
        KIND.plan(task(calls), rollout_of(task(calls), RIGHT))


def test_unknown_options_are_refused() -> None:
    """A misspelt option names its key."""
    with pytest.raises(BrokenTask, match="tolerence"):
        grade(task(options={"tolerence": 0.1}), RIGHT)

"""Kinds program_runs, c_calls and javascript_calls: what counts as right, and what hostile results are worth."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from support.grading import KINDS, grade, rollout_of

from tiltyard.verifier.kinds.base import BrokenTask
from tiltyard.verifier.kinds.c_calls.data import Data
from tiltyard.verifier.kinds.c_calls.harness import harness
from tiltyard_proto.messages import Execution, Graded, Job, Task, Verdict, Verification
from tiltyard_proto.outcomes import Outcome


def task(kind: str, data: dict[str, Any], **options: Any) -> Task:
    return Task(id="t", domain="code.test", prompt=(), verification=Verification(kind=kind, data=data, options=options))


SUM = task("program_runs", {"runs": [{"stdin": "3 4\n", "stdout": "7\n"}, {"stdin": "1 1\n", "stdout": "2"}]}, runs=0.2)
TOP_CALLS = [{"args": [[3, 9]], "expect": 9}, {"args": [[-4]], "expect": -4}]
TOP = task("c_calls", {"function": "top", "takes": ["ints"], "returns": "int", "calls": TOP_CALLS})
HALF_CALLS = [{"args": [4], "expect": 2}, {"args": [{"a": 1}], "expect": None}]
HALF = task("javascript_calls", {"function": "half", "calls": HALF_CALLS})


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("read a b; echo $((a + b))", 1.0),
        ("Like this:\n```bash\nread a b\necho $((a + b))\n```\nBye", 1.0),
        ("read a b; printf $((a + b))", 1.0),
        ("echo 7", 0.1),
        ("read a b; echo $((a + b)); exit 3", 0.0),
        ("cat ../job.txt", 0.0),
        ("", 0.0),
        ("\0", 0.0),
    ],
)
def test_programs_are_judged_by_what_they_print(text: str, score: float) -> None:
    """Each hidden run must print what is right and end with the right status; some right runs share the credit."""
    verdict = grade(SUM, text)
    assert verdict.score == pytest.approx(score)
    assert verdict.passed is (score == 1.0)


def test_a_program_without_end_stops_the_other_runs() -> None:
    """After a run that used up its CPU time no other is tried."""
    verdict = grade(SUM, "while :; do :; done")
    assert verdict.score == 0.0
    assert "more than 1 s of CPU" in verdict.reasons[0]
    assert "there is no result" in verdict.reasons[1]


def judged(one: Task, results: bytes) -> Verdict:
    graded = Graded(
        rollout=rollout_of(one, "x"), execution=Execution(outcome=Outcome.FINISHED), files={"results.jsonl": results}
    )
    return KINDS[one.verification.kind].judge(one, graded)


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps({"call": i, "value": value}).encode() + b"\n" for i, value in enumerate(values))


def ran(status: int, stdout: str) -> dict[str, Any]:
    return {"dict": [["status", status], ["stdout", stdout]]}


@pytest.mark.parametrize(
    ("first", "second", "right"),
    [
        (ran(0, "9\n"), ran(0, "-4\n"), True),
        (ran(0, "9\n"), ran(0, "-4\n-4\n"), False),
        (ran(0, "9.0\n"), ran(0, "-4\n"), False),
        (ran(0, "9\n"), ran(-11, "-4\n"), False),
        (ran(0, "9\n"), ran(0, "\u0665\n"), False),
        (ran(0, "9\n"), {"dict": []}, False),
        (9, -4, False),
    ],
)
def test_results_of_c_are_read_strictly(first: Any, second: Any, right: bool) -> None:
    """A result is one number in plain digits of a process that ended well; anything else is wrong."""
    assert judged(TOP, lines(first, second)).passed is right


@pytest.mark.parametrize(
    ("first", "second", "right"),
    [
        ({"float": "2"}, None, True),
        ({"float": "2.0000000000001"}, None, True),
        ({"float": "2.1"}, None, False),
        (2, None, False),
        ("2", None, False),
        (True, None, False),
        ({"float": "2"}, {"undefined": ""}, False),
        ({"float": "2"}, {"dict": [[["x"], 1]]}, False),
    ],
)
def test_results_of_javascript_are_compared_by_type(first: Any, second: Any, right: bool) -> None:
    """A number is a tagged double; text, booleans and unknown tags are something else."""
    assert judged(HALF, lines(first, second)).passed is right


@pytest.mark.parametrize("one", [SUM, TOP, HALF])
@pytest.mark.parametrize(
    "raw", [b"", b"\xff\xfe\n", b"[" * 9000, b'{"call": 0}\n' * 50, b'{"call": -1, "error": "x"}\n', lines(*[[[]]] * 9)]
)
def test_hostile_results_are_wrong_answers(one: Task, raw: bytes) -> None:
    """What can't be read is no result, and never an error."""
    verdict = judged(one, raw)
    assert (verdict.score, verdict.passed) == (0.0, False)
    assert verdict.reasons


@pytest.mark.parametrize("one", [SUM, TOP, HALF])
def test_expected_values_never_enter_the_sandbox(one: Task) -> None:
    """A job has the inputs only."""
    marked = msgspec.structs.replace(one, verification=msgspec.structs.replace(one.verification, data=_marked(one)))
    kind = KINDS[one.verification.kind]
    job = kind.plan(marked, rollout_of(marked, "top half () { }"))
    assert isinstance(job, Job)
    assert b"987654" not in msgspec.msgpack.encode(job.command)


def _marked(one: Task) -> dict[str, Any]:
    data = msgspec.json.decode(msgspec.json.encode(one.verification.data))
    for call in data.get("calls", []):
        call["expect"] = 987654
    for run in data.get("runs", []):
        run["stdout"] = "987654"
    return dict(data)


def test_text_reaches_c_as_it_is() -> None:
    """Quotes, backslashes, line ends and trigraphs are escaped; arrays may be empty."""
    call = {"args": ['a"\\\n??=', [], 1], "expect": "x"}
    takes = ["text", "ints", "real"]
    data = msgspec.convert({"function": "f", "takes": takes, "returns": "text", "calls": [call]}, Data)
    source = harness(data)
    assert "a\\042\\134\\012\\077\\077\\075" in source
    assert "int a1[] = {0};" in source
    assert "f(a0, a1, 0, 1.0)" in source


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("c_calls", {"function": "f", "takes": ["int"], "returns": "int", "calls": [{"args": ["1"], "expect": 1}]}),
        ("c_calls", {"function": "f", "takes": [], "returns": "ints", "calls": [{"args": [], "expect": [1]}]}),
        ("c_calls", {"function": "f x", "takes": [], "returns": "int", "calls": [{"args": [], "expect": 1}]}),
        ("javascript_calls", {"function": "f()", "calls": [{"args": [], "expect": 1}]}),
        ("javascript_calls", {"function": "f", "calls": []}),
        ("program_runs", {"runs": []}),
        ("program_runs", {"runs": [{"stdin": "x", "stdout": ""}]}),
        ("program_runs", {"runs": [{"stdout": "x", "files": {"../x": ""}}]}),
    ],
)
def test_broken_tasks(kind: str, data: dict[str, Any]) -> None:
    """Data that no submission could be judged by is the task's fault."""
    one = task(kind, data)
    with pytest.raises(BrokenTask):
        KINDS[kind].plan(one, rollout_of(one, "x"))

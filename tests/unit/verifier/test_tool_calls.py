"""Kind tool_calls: strict reading, schemas, matching, broken references."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from support.grading import grade

from tiltyard.verifier.kinds.base import BrokenTask, canonical
from tiltyard_proto.messages import Task, Verification

TOOL: dict[str, Any] = {
    "name": "area",
    "parameters": {
        "type": "object",
        "properties": {
            "base": {"type": "integer"},
            "label": {"type": "string"},
            "unit": {"type": "string", "default": "m"},
        },
        "required": ["base"],
    },
}
CALL: dict[str, Any] = {"name": "area", "arguments": {"base": 10, "label": "a - b"}}


def task(calls: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, **options: Any) -> Task:
    data = {"tools": tools or [TOOL], "calls": calls}
    return Task(
        id="t", domain="tools.test", prompt=(), verification=Verification(kind="tool_calls", data=data, options=options)
    )


def call(**arguments: Any) -> dict[str, Any]:
    return {"name": "area", "arguments": arguments}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([CALL]),
        json.dumps(CALL),
        f"```json\n{json.dumps(CALL)}\n```",
        f"<tool_call>{json.dumps(CALL)}</tool_call>",
        json.dumps(
            {
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {**CALL, "arguments": json.dumps(CALL["arguments"])}}
                ]
            }
        ),
        json.dumps(call(base=10.0, label="a  - b ", unit="m")),
        json.dumps({"name": "area", "parameters": CALL["arguments"]}),
    ],
)
def test_the_same_call_passes_however_it_is_wrapped(text: str) -> None:
    """Lists, objects, fences, tags and the wrapping of chat interfaces."""
    assert grade(task([CALL]), text).passed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "area(base=10)",
        "[]",
        "[1]",
        json.dumps([CALL, CALL]),
        json.dumps(call(base="10", label="a - b")),
        json.dumps(call(base=10)),
        json.dumps(call(base=True, label="a - b")),
        json.dumps(call(base=10, label="ab")),
        json.dumps(call(base=10, label="A - B")),
        json.dumps(call(base=10, label="a - b", unit="cm")),
        json.dumps(call(base=10, label="a - b", zzz=1)),
        '{"name": "area"}',
        json.dumps({**CALL, "name": "volume"}),
        json.dumps({**CALL, "tool": "area"}),
        '{"name": "area", "arguments": {"base": 10, "base": 10}}',
        '{"name": "area", "arguments": {"base": NaN}}',
        "[" * 60_000,
        '{"name": "area", "arguments": "{"}',
        "<tool_call>{}",
        '"\ud800"',
        '{"name": "area", "arguments": {"base": ' + "9" * 5000 + "}}",
        json.dumps([CALL] * 65),
        json.dumps({"name": ["area"]}),
    ],
)
def test_other_calls_score_nothing(text: str) -> None:
    """Wrong types, names, values, numbers of calls, and what isn't strict JSON; each with a reason."""
    verdict = grade(task([CALL]), text)
    assert verdict.score == 0.0
    assert not verdict.passed
    assert verdict.reasons


def test_order_counts_only_where_declared() -> None:
    """Turned calls pass, unless the domain says that their order counts."""
    calls = [call(base=1), call(base=2)]
    assert grade(task(calls), json.dumps(calls[::-1])).passed
    assert not grade(task(calls, ordered=True), json.dumps(calls[::-1])).passed
    assert grade(task(calls, ordered=True), json.dumps(calls)).passed


def test_overlapping_alternatives_are_assigned() -> None:
    """The first wanted call takes 1 or 2, the second 2 only: both orders pass."""
    wanted = [{**call(base=1), "others": {"base": [2]}}, call(base=2)]
    assert grade(task(wanted), json.dumps([call(base=2), call(base=1)])).passed
    assert grade(task(wanted), json.dumps([call(base=2), call(base=2)])).passed
    assert not grade(task(wanted), json.dumps([call(base=1), call(base=1)])).passed


def test_optional_arguments_may_be_left_out_but_not_be_wrong() -> None:
    """Left out or right passes, wrong doesn't."""
    wanted = [{**CALL, "optional": ["label"]}]
    assert grade(task(wanted), json.dumps(call(base=10))).passed
    assert not grade(task(wanted), json.dumps(call(base=10, label="zz"))).passed


def test_no_call_is_an_answer_that_must_be_given() -> None:
    """An empty list says that no tool fits; silence doesn't, and a sentence only where the domain takes one."""
    assert grade(task([]), "[]").passed
    assert not grade(task([]), "").passed
    assert not grade(task([]), "None of the tools fits.").passed
    assert grade(task([], refusal="prose"), "None of the tools fits.").passed
    assert not grade(task([], refusal="prose"), json.dumps(CALL)).passed
    assert not grade(task([], refusal="prose"), "I would call area(base=1).").passed


@pytest.mark.parametrize(
    ("calls", "tools"),
    [
        ([call(base="10")], None),
        ([{"name": "volume", "arguments": {}}], None),
        ([call(base=1, zzz=1)], None),
        ([call(base=1)], [TOOL, TOOL]),
        ([call(base=1)], [{"name": "area", "parameters": {"type": 5}}]),
        ([{**call(base=1), "others": {"base": ["2"]}}], None),
        ([{**call(base=1), "optional": ["base"]}], None),
    ],
)
def test_a_reference_that_its_tools_refuse_is_the_tasks_fault(calls: Any, tools: Any) -> None:
    """Whatever is submitted: no score."""
    with pytest.raises(BrokenTask):
        grade(task(calls, tools), json.dumps(calls))


def test_the_same_submission_gives_the_same_bytes() -> None:
    """Reasons and scores don't change between verdicts, and key order doesn't change the verdict."""
    rng = random.Random(1)
    for _ in range(20):
        arguments = list(CALL["arguments"].items())
        rng.shuffle(arguments)
        text = json.dumps({"arguments": dict(arguments), "name": "area"})
        assert grade(task([CALL]), text).passed
    wrong = json.dumps(call(base=11, zz=1))
    assert canonical(grade(task([CALL]), wrong)) == canonical(grade(task([CALL]), wrong))

"""Kind tool_world: replayed calls, any way to the state, all or nothing, broken worlds."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from support.grading import grade

from tiltyard.verifier.kinds.base import BrokenTask
from tiltyard_proto.messages import Task, Verification


def action(name: str, parameters: dict[str, str], *steps: tuple[Any, ...]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in parameters.items()},
        "required": list(parameters),
    }
    made = [dict(zip(("op", "table", "key", "field", "value"), step, strict=False)) for step in steps]
    return {"tool": {"name": name, "parameters": schema}, "steps": made}


WORLD: dict[str, Any] = {
    "state": {"accounts": {"a": {"cents": 500, "tags": []}, "b": {"cents": 0, "tags": []}}, "log": {}},
    "actions": [
        action(
            "move",
            {"source": "string", "target": "string", "cents": "integer"},
            ("at_least", "accounts", "$source", "cents", "$cents"),
            ("add", "accounts", "$source", "cents", {"minus": "$cents"}),
            ("add", "accounts", "$target", "cents", "$cents"),
        ),
        action("tag", {"id": "string", "tag": "string"}, ("append", "accounts", "$id", "tags", "$tag")),
        action("open", {"id": "string"}, ("insert", "accounts", "$id", "", {"cents": 0, "tags": []})),
        action("close", {"id": "string"}, ("is", "accounts", "$id", "cents", [0]), ("delete", "accounts", "$id")),
        action("double", {"id": "string"}, ("add", "accounts", "$id", "cents", {"get": ["accounts", "$id", "cents"]})),
    ],
}
MOVE = {"name": "move", "arguments": {"source": "a", "target": "b", "cents": 200}}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def task(calls: list[dict[str, Any]], options: dict[str, Any] | None = None, **data: Any) -> Task:
    verification = Verification(kind="tool_world", data={**WORLD, "calls": calls, **data}, options=options or {})
    return Task(id="t", domain="tools.test", prompt=(), verification=verification)


def passed(submission: list[dict[str, Any]], *wanted: dict[str, Any], **more: Any) -> bool:
    return grade(task(list(wanted), **more), json.dumps(submission)).passed


def test_any_way_to_the_state_passes() -> None:
    """In one call, in parts, with a detour, with a row that comes and goes."""
    parts = [call("move", source="a", target="b", cents=each) for each in (50, 150)]
    assert passed([MOVE], MOVE)
    assert passed(parts, MOVE)
    assert passed([call("open", id="c"), MOVE, call("close", id="c")], MOVE)


def test_independent_calls_commute() -> None:
    """All orders of calls that don't touch each other reach the same state."""
    calls = [MOVE, call("tag", id="a", tag="x"), call("open", id="c")]
    assert all(passed(list(order), *calls) for order in itertools.permutations(calls))
    assert not passed(
        [call("tag", id="a", tag="y"), call("tag", id="a", tag="x")],
        call("tag", id="a", tag="x"),
        call("tag", id="a", tag="y"),
    )


@pytest.mark.parametrize(
    "calls",
    [
        [],
        [call("move", source="a", target="b", cents=199)],
        [MOVE, call("open", id="c")],
        [call("move", source="a", target="b", cents=501)],
        [call("move", source="b", target="a", cents=1)],
        [call("move", source="a", target="c", cents=200)],
        [{"name": "nope"}],
        [call("move", source="a", target="b", cents="200")],
        [MOVE] * 31,
        [call("double", id="a")] * 25,
    ],
)
def test_other_states_score_nothing(calls: list[dict[str, Any]]) -> None:
    """Too little, too much, elsewhere, nothing, and more calls than any plan needs."""
    verdict = grade(task([MOVE]), json.dumps(calls))
    assert verdict.score == 0.0
    assert verdict.reasons


def test_a_call_changes_all_or_nothing() -> None:
    """Money that leaves one account but can't reach the other hasn't left."""
    lost = call("move", source="a", target="nowhere", cents=200)
    assert passed([lost, MOVE], MOVE)
    assert not passed([lost, MOVE], MOVE, options={"failures": "wrong"})


def test_only_compared_tables_count() -> None:
    """A table that isn't compared may end as it likes."""
    write = action("write", {"id": "string"}, ("insert", "log", "$id", "", {"text": "x"}))
    actions = [*WORLD["actions"], write]
    assert passed([MOVE, call("write", id="1")], MOVE, actions=actions, compared=["accounts"])
    assert not passed([MOVE, call("write", id="1")], MOVE, actions=actions)


@pytest.mark.parametrize(
    ("calls", "more"),
    [
        ([call("move", source="b", target="a", cents=1)], {}),
        ([call("move", source="a", target="b", cents=0)], {}),
        ([MOVE], {"facts": [{"table": "accounts", "key": "b", "field": "cents", "value": 300}]}),
        ([MOVE], {"facts": [{"table": "accounts", "key": "c"}]}),
        ([MOVE], {"compared": ["nope"]}),
        ([call("bad")], {"actions": [action("bad", {}, ("set", "nope", "a", "x", 1))]}),
        ([call("bad")], {"actions": [action("bad", {}, ("add", "accounts", "a", "nope", 1))]}),
        ([MOVE], {"actions": WORLD["actions"] * 2}),
    ],
)
def test_broken_references_and_worlds_are_the_tasks_fault(calls: Any, more: Any) -> None:
    """A reference that fails, does nothing or misses what the text demands, and steps that make no sense."""
    with pytest.raises(BrokenTask):
        grade(task(calls, **more), json.dumps(calls))


def test_facts_that_hold_are_fine() -> None:
    """A row that must be there and a value that must be reached."""
    facts = [
        {"table": "accounts", "key": "b", "field": "cents", "value": 200},
        {"table": "accounts", "key": "z", "value": False},
    ]
    assert passed([MOVE], MOVE, facts=facts)


def test_nothing_to_do_wants_an_explicit_empty_plan() -> None:
    """A task whose right plan is empty passes with [] and not with silence."""
    assert grade(task([]), "[]").passed
    assert not grade(task([]), "").passed
    assert not passed([MOVE])

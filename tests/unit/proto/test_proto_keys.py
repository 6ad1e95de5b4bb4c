"""Keys: one per effect, each a subject token."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import build
from support.examples import EXAMPLES, ROLLOUT, TASK

from tiltyard_proto import keys
from tiltyard_proto.messages import Graded, Job, Policy, Purpose, Rollout, Verdict
from tiltyard_proto.outcomes import Outcome


def accepted(domain: str) -> bool:
    try:
        return bool(keys.check_domain(domain))
    except ValueError:
        return False


runs = st.from_regex(r"[a-z][a-z0-9_]{0,39}", fullmatch=True)


def rollout(turns: int = 0, **fields: Any) -> Rollout:
    return build.rollout(turns=(build.turn(),) * turns, **fields)


def test_each_effect_of_a_rollout_has_its_own_key() -> None:
    """Generating, executing, grading and verifying of every attempt and turn never share a subject."""
    found = []
    for attempt, turns in itertools.product(range(3), range(3)):
        of = rollout(turns, attempt=attempt)
        found.append(("generate", keys.generate_key(of)))
        if turns:
            found.append(("execute", keys.execute_key(of)))
    for attempt in range(3):
        of = rollout(1, attempt=attempt, outcome=Outcome.FINISHED)
        job, graded = EXAMPLES["job"], EXAMPLES["graded"]
        assert isinstance(job, Job)
        assert isinstance(graded, Graded)
        found.append(("execute", keys.execute_key(msgspec.structs.replace(job, rollout=of))))
        found.append(("verify", keys.verify_key(of)))
        found.append(("verify", keys.verify_key(msgspec.structs.replace(graded, rollout=of))))
    assert len(set(found)) == len(found)


def test_keys_say_what_they_are() -> None:
    """The keys as they stand on the wire."""
    of = rollout(2, attempt=1)
    assert keys.generate_key(of) == "run-t-0-0-a1-t2"
    assert keys.execute_key(of) == "run-t-0-0-a1-t1"
    assert keys.verify_key(of) == "run-t-0-0-a1"
    assert keys.policy_key(Policy(run="run", version=7, path="/w")) == "run-7"


def test_the_verdict_key_has_no_attempt() -> None:
    """Verdicts of two attempts of a rollout share their key, so that the first wins."""
    example = EXAMPLES["verdict"]
    assert isinstance(example, Verdict)
    verdicts = [
        msgspec.structs.replace(example, rollout=msgspec.structs.replace(ROLLOUT, attempt=attempt))
        for attempt in (0, 1)
    ]
    assert {keys.verdict_key(verdict) for verdict in verdicts} == {ROLLOUT.id}


@given(
    places=st.lists(
        st.tuples(runs, st.sampled_from(list(Purpose)), st.integers(0, 99), st.integers(0, 30), st.integers(0, 99)),
        max_size=30,
    )
)
def test_ids_are_injective_and_tokens(places: list[tuple[str, Purpose, int, int, int]]) -> None:
    """Run, purpose, index, version of an evaluation, and member can be told from a rollout's id."""
    seen: dict[str, object] = {}
    for run, purpose, index, version, member in places:
        group = keys.group_id(run, purpose, index, version)
        name = keys.rollout_id(group, member)
        assert keys.check_token(name, "id") == name
        place = (run, purpose, index, version if purpose is Purpose.EVAL else None, member)
        assert seen.setdefault(name, place) == place


def test_domain_tokens_are_injective() -> None:
    """No two of all accepted domains of up to seven characters share a token, and each token can stand in a subject."""
    spelled = ("".join(letters) for length in range(1, 8) for letters in itertools.product("a_.", repeat=length))
    found = [domain for domain in spelled if accepted(domain)]
    tokens = {keys.domain_token(domain) for domain in found}
    assert len(tokens) == len(found) > 50
    assert all(keys.check_token(token, "domain") for token in tokens)


@pytest.mark.parametrize(
    "name", ["", "Code", "code.", ".code", "a..b", "a b", "a__b", "a_.b", "a._b", "a.*", "a.>", "ä", "a" * 101, "a\n"]
)
def test_bad_domains_are_refused(name: str) -> None:
    """What can't be one subject token, or would collide, is the user's mistake."""
    with pytest.raises(ValueError, match="expected dotted lower-case words"):
        keys.check_domain(name)


@pytest.mark.parametrize("name", ["", "Run", "a-b", "1a", "a.b", "a" * 41, "a\n"])
def test_bad_runs_are_refused(name: str) -> None:
    """A run's name holds no separator of keys."""
    with pytest.raises(ValueError, match="expected a lower-case letter"):
        keys.check_run(name)


@pytest.mark.parametrize("value", ["", "a.b", "*", ">", "a b", "x" * 129, "é", "a\n"])
def test_bad_tokens_are_refused(value: str) -> None:
    """Wildcards, dots and spaces never get into a subject."""
    with pytest.raises(ValueError, match="expected 1 to 128"):
        keys.check_token(value, "key")


def test_a_tasks_id_is_its_content() -> None:
    """The id depends on everything but itself, and not on the order of dictionary entries."""
    named = keys.with_id(TASK)
    assert keys.task_id(named) == keys.task_id(TASK) == named.id
    assert keys.check_token(named.id, "id")
    assert len(named.id) == 20
    swapped = msgspec.structs.replace(TASK, labels=dict(reversed({"a": "1", "b": "2"}.items())))
    straight = msgspec.structs.replace(TASK, labels={"a": "1", "b": "2"})
    assert keys.task_id(swapped) == keys.task_id(straight) != keys.task_id(TASK)
    for change in ({"prompt": ()}, {"split": "train"}, {"value": 3.0}, {"reference": ""}, {"template": "other"}):
        assert keys.task_id(msgspec.structs.replace(TASK, **change)) != named.id

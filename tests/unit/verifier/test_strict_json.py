"""Strict JSON: one value, nothing that readers take differently, linear in time."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiltyard.verifier.kinds import strict_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_what_json_writes_is_read_back(value: object) -> None:
    """Every plain value comes back as it was."""
    assert strict_json.loads(json.dumps(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        "[NaN]",
        "[Infinity]",
        "[-Infinity]",
        "[1e999]",
        "[" + "9" * 61 + "]",
        "[1,]",
        "{'a': 1}",
        "[1] [2]",
        "[" * 101 + "]" * 101,
        "[" * 60_000,
        '{"a":' * 20_000,
        '["\ud800"]',
        '["\\ud800"]',
        '["\\udc00\\ud800"]',
        '["a',
        "",
        "text",
    ],
)
def test_what_is_no_plain_json_is_refused(text: str) -> None:
    """Twice-given keys, numbers out of range, depth, halves of pairs, and what isn't JSON."""
    with pytest.raises(strict_json.Unreadable):
        strict_json.find(text)


def test_depth_counts_outside_of_texts_only() -> None:
    """A hundred levels are fine, and brackets within texts are no levels."""
    assert strict_json.loads("[" * 100 + "]" * 100)
    assert strict_json.loads(json.dumps(["[" * 500, '\\"[' * 500]))


@pytest.mark.parametrize("text", ['"\\' * 30_000, '["' * 30_000, '["\\"' * 15_000, "{" + '"a":1,' * 9_000])
def test_hostile_texts_are_read_in_linear_time(text: str) -> None:
    """No text of the greatest length takes long."""
    before = time.process_time()
    with pytest.raises(strict_json.Unreadable):
        strict_json.find(text)
    assert time.process_time() - before < 1.0


def test_pairs_of_surrogates_are_letters() -> None:
    """An escaped pair is the letter that it stands for."""
    assert strict_json.loads('["\\ud83d\\ude00"]') == ["\U0001f600"]

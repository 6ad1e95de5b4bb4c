"""When a generation ends, and what its text shows."""

from __future__ import annotations

from typing import Any

from tiltyard.engine.handler import Generation
from tiltyard.engine.stopping import Stopper, trimmed
from tiltyard.policy.sampling_settings import Sampling

TABLE = [b"", b"a", b"`", b"``", b"b`", b"``c", "é".encode()[:1], "é".encode()[1:]]


def generation(**more: Any) -> Generation:
    defaults: dict[str, Any] = {"rid": "r", "input_ids": (1,), "sampling": Sampling(), "max_new_tokens": 9}
    return Generation(**(defaults | more))


def ends(tokens: list[int], **more: Any) -> tuple[int, Any]:
    """After how many tokens, and why, the sequence ends; (0, None) when it does not."""
    stopper = Stopper(generation(**more), TABLE)
    for count, token in enumerate(tokens, start=1):
        if (finish := stopper.push(token)) is not None:
            return count, finish
    return 0, None


def test_a_stop_string_over_three_tokens_is_found_as_it_completes() -> None:
    """A string that spans tokens, or ends inside one, ends the sequence in that step."""
    assert ends([1, 2, 2, 2, 1], stop=(b"```",)) == (4, {"type": "stop", "matched": "```"})
    assert ends([4, 5], stop=(b"```",)) == (2, {"type": "stop", "matched": "```"})


def test_a_one_byte_stop_string_works() -> None:
    """The shortest string needs no memory of earlier bytes."""
    assert ends([2, 1], stop=(b"a",)) == (2, {"type": "stop", "matched": "a"})


def test_a_stop_string_split_inside_a_character_is_found() -> None:
    """Bytes are searched, so a character split over two tokens is no obstacle."""
    assert ends([6, 7], stop=("é".encode(),)) == (2, {"type": "stop", "matched": "é"})


def test_length_comes_first() -> None:
    """At the last allowed token the reason is length, whatever the token is."""
    assert ends([1, 1], max_new_tokens=2, stop_ids=frozenset({1})) == (1, {"type": "stop", "matched": 1})
    assert ends([2, 1], max_new_tokens=2, stop_ids=frozenset({1})) == (2, {"type": "length", "length": 2})


def test_min_new_tokens_keeps_strings_off() -> None:
    """Before the minimum neither strings nor tokens end the sequence."""
    assert ends([1, 1, 1], min_new_tokens=3, stop=(b"a",)) == (3, {"type": "stop", "matched": "a"})


def test_trimming_cuts_at_the_stop_string() -> None:
    """The text ends before the stop string unless it is to be kept."""
    finish = {"type": "stop", "matched": "```"}
    assert trimmed(b"code\n```x", finish, generation(stop=(b"```",))) == b"code\n"
    assert trimmed(b"code\n```x", finish, generation(stop=(b"```",), no_stop_trim=True)) == b"code\n```x"
    assert trimmed(b"code", {"type": "length", "length": 1}, generation()) == b"code"

"""SGLang's shapes: requests, replies, refusals."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiltyard.gateway.wire import (
    EngineBusy,
    EngineError,
    EngineFault,
    PromptTooLong,
    RequestRefused,
    error_text,
    generate_body,
    parse_generate,
    sampling_params,
    version_spans,
)
from tiltyard_proto.messages import Sampling, VersionSpan


def reply(ids: list[int], finish: Any, **meta: Any) -> dict[str, Any]:
    entries = [[-0.25, token, None] for token in ids]
    return {
        "text": "",
        "output_ids": ids,
        "meta_info": {"finish_reason": finish, "output_token_logprobs": entries, **meta},
    }


def encode(body: Any) -> bytes:
    return msgspec.json.encode(body)


def test_every_sampling_parameter_is_sent() -> None:
    """No default of an engine decides how the policy acts, and the salt keeps caches of versions apart."""
    params = sampling_params(Sampling(temperature=0.7, stop=("```",)), 5, {9, 2})
    assert params == {
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": -1,
        "max_new_tokens": 5,
        "stop_token_ids": [2, 9],
        "skip_special_tokens": False,
        "no_stop_trim": True,
        "stop": ["```"],
    }
    body = generate_body([1, 2], params, "r", "run-v3")
    assert (body["input_ids"], body["rid"], body["extra_key"], body["return_logprob"]) == ([1, 2], "r", "run-v3", True)


def test_a_finished_reply() -> None:
    """Ids, log-probabilities and spans of a plain reply."""
    got = parse_generate(
        200,
        encode(
            reply(
                [5, 6],
                {"type": "stop", "matched": 6},
                weight_versions=[{"version": "2", "start": 0, "end": 1}, {"version": "3", "start": 1, "end": 2}],
                prompt_tokens=7,
                cached_tokens=3,
            )
        ),
        0,
    )
    assert (got.ids, got.logprobs, got.finish) == ((5, 6), (-0.25, -0.25), "stop")
    assert got.spans == (VersionSpan(version=2, start=0, end=1), VersionSpan(version=3, start=1, end=2))
    assert (got.prompt_tokens, got.cached_tokens) == (7, 3)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (
            400,
            {"error": {"message": "The input (600 tokens) is longer than the model's context length"}},
            PromptTooLong,
        ),
        (400, {"error": "unknown sampling parameter 'x'"}, RequestRefused),
        (400, {"object": "error", "message": "bad json", "type": "Bad Request", "code": 400}, RequestRefused),
        (503, {"object": "error", "message": "The request queue is full.", "type": "503", "code": 503}, EngineBusy),
        (429, b"slow down", EngineBusy),
        (500, b"Internal Server Error", EngineFault),
        (502, b"", EngineFault),
        (401, {"error": "Unauthorized"}, EngineFault),
        (200, {"error": {"message": "bad", "type": "invalid_request_error", "code": 400}}, RequestRefused),
        (200, b'data: {"error":{"message":"bad","code":400,"retryable":false}}\n\ndata: [DONE]\n\n', RequestRefused),
        (200, reply([], {"type": "abort", "message": "queue full", "status_code": 503}), EngineBusy),
        (200, reply([4], {"type": "abort", "message": "boom", "status_code": 500}), EngineFault),
        (200, b"<html>", EngineFault),
        (200, {}, EngineFault),
        (200, reply([], {"type": "stop"}), EngineFault),
        (200, reply([4], None), EngineFault),
        (200, {**reply([4], {"type": "stop"}), "output_ids": [4, 5]}, EngineFault),
        (200, {**reply([4], {"type": "stop"}), "output_ids": [5]}, EngineFault),
        (200, reply([4], {"type": "stop"}, output_token_logprobs=[[None, 4, None]]), EngineFault),
    ],
)
def test_every_way_of_saying_no(status: int, body: Any, error: type[EngineError]) -> None:
    """Refusals, back-pressure and faults are told apart in all error shapes, also inside a 200."""
    with pytest.raises(EngineError) as caught:
        parse_generate(status, body if isinstance(body, bytes) else encode(body), 0)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        (reply([4, 5], {"type": "abort", "message": "Aborted", "status_code": None}), (4, 5)),
        ({"text": "", "meta_info": {"finish_reason": {"type": "abort", "message": "Abort in waiting queue"}}}, ()),
        ({**reply([4], {"type": "abort"}), "output_ids": [4, 5]}, ()),
    ],
)
def test_an_aborted_reply_keeps_what_belongs_together(body: dict[str, Any], ids: tuple[int, ...]) -> None:
    """Partial tokens are kept, absent meta fields are tolerated, tokens out of step are dropped."""
    got = parse_generate(200, encode(body), 3)
    assert (got.finish, got.ids, len(got.logprobs)) == ("abort", ids, len(ids))
    assert sum(span.end - span.start for span in got.spans) == len(ids)


@given(
    st.one_of(
        st.none(),
        st.lists(
            st.fixed_dictionaries(
                {
                    "version": st.one_of(st.integers(0, 5).map(str), st.just("default")),
                    "start": st.integers(0, 6),
                    "end": st.integers(0, 6),
                }
            ),
            max_size=4,
        ),
    ),
    st.one_of(st.none(), st.just("default"), st.just("4")),
    st.integers(0, 6),
)
def test_spans_always_cover_the_tokens(given_spans: Any, version: str | None, tokens: int) -> None:
    """Whatever an engine reports about versions, each token gets exactly one."""
    meta = {"weight_versions": given_spans, "weight_version": version}
    spans = version_spans(meta, tokens, 1)
    assert [i for span in spans for i in range(span.start, span.end)] == list(range(tokens))


@given(
    st.recursive(
        st.one_of(st.none(), st.integers(), st.text(max_size=5)),
        lambda c: (
            st.lists(c, max_size=3)
            | st.dictionaries(
                st.sampled_from(["error", "message", "object", "meta_info", "output_ids", "finish_reason", "type"]),
                c,
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
    st.sampled_from([200, 400, 500, 503]),
)
def test_no_reply_breaks_the_parser(body: Any, status: int) -> None:
    """Any JSON is either a sample or an engine error."""
    try:
        got = parse_generate(status, encode(body), 0)
    except EngineError:
        return
    assert len(got.ids) == len(got.logprobs)


def test_a_good_reply_is_no_error() -> None:
    """Success bodies hold no error text; a refused update does."""
    assert error_text({"success": True, "message": "ok"}) is None
    assert error_text({"success": False, "message": "no such path"}) == "no such path"

"""SGLang's native HTTP shapes, both ways: the generate request, its reply, and the ways it says no.

Pure. Written against SGLang 0.5.23 and tolerant where servers differ: meta fields may be missing, an error may come
as an object, a string, an OpenAI-style object or plain text, with status 200 inside a stream, or as a finish reason.
Invariants: a `Sample` has as many log-probabilities as ids and version spans that cover them without gaps.
Left out: input log-probabilities, batches and `n`, which the gateway never asks for.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, Literal

import msgspec

from tiltyard_proto.messages import Sampling, VersionSpan

Finish = Literal["stop", "length", "abort"]
_TOO_LONG = ("longer than", "context length", "context window", "maximum allowed length", "exceeds the max", "too long")


class EngineError(Exception):
    """Base of what can go wrong with an engine."""


class RequestRefused(EngineError):
    """The engine says that the request itself is wrong (4xx): the same request is never sent again."""


class PromptTooLong(RequestRefused):
    """Prompt and answer don't fit the engine's context."""


class EngineBusy(EngineError):
    """Queue full (429, 503): back-pressure, not a fault."""


class EngineFault(EngineError):
    """Transport error, other 5xx, or a reply that makes no sense."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What one generate call sampled; empty when it was cut short before the first token."""

    ids: tuple[int, ...] = ()
    """[T], the stop token included."""
    logprobs: tuple[float, ...] = ()
    """[T], natural log, at the sampling temperature, before top-k and top-p."""
    spans: tuple[VersionSpan, ...] = ()
    finish: Finish = "abort"
    prompt_tokens: int = 0
    cached_tokens: int = 0


def sampling_params(sampling: Sampling, max_new: int, eos_ids: Collection[int]) -> dict[str, Any]:
    """Every parameter explicit: an engine's own defaults must not decide how the policy acts."""
    params: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "max_new_tokens": max_new,
        "stop_token_ids": sorted(eos_ids),
        "skip_special_tokens": False,
        "no_stop_trim": True,
    }
    if sampling.stop:
        params["stop"] = list(sampling.stop)
    return params


def generate_body(input_ids: Sequence[int], params: dict[str, Any], rid: str, salt: str) -> dict[str, Any]:
    """The body of `POST /generate`. `salt` keeps prefix caches of different weights apart."""
    return {
        "rid": rid,
        "input_ids": list(input_ids),
        "sampling_params": params,
        "return_logprob": True,
        "stream": False,
        "extra_key": salt,
    }


def error_text(body: Any) -> str | None:
    """The message of an error body in any of its shapes; None when it is no error."""
    if not isinstance(body, dict):
        return str(body)[:500] if body else "empty reply"
    error = body.get("error")
    if isinstance(error, dict):
        return str(error.get("message", error))[:500]
    if error is not None:
        return str(error)[:500]
    if body.get("object") == "error" or body.get("success") is False:
        return str(body.get("message", body))[:500]
    return None


def error_code(body: Any) -> int | None:
    """The status inside an error body, where it has one."""
    if not isinstance(body, dict):
        return None
    inner = body.get("error")
    code = inner.get("code") if isinstance(inner, dict) else body.get("code")
    return int(code) if isinstance(code, (int, str)) and str(code).isdigit() else None


def classify(status: int, text: str) -> EngineError:
    """The error that a status means."""
    detail = f"{status}: {text}"
    if status in (429, 503):
        return EngineBusy(detail)
    if status in (401, 403, 404, 408) or status >= 500:
        return EngineFault(detail)
    if any(phrase in text.lower() for phrase in _TOO_LONG):
        return PromptTooLong(detail)
    return RequestRefused(detail)


def read_body(raw: bytes) -> Any:
    """A reply's JSON, the last event of a stream, or its text."""
    if raw.lstrip().startswith(b"data:"):
        events = [line[5:].strip() for line in raw.splitlines() if line.startswith(b"data:")]
        events = [event for event in events if event != b"[DONE]"]
        raw = events[-1] if events else b""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw.decode("utf-8", "replace").strip()


def parse_generate(status: int, raw: bytes, fallback_version: int) -> Sample:
    """The sample in a reply to `/generate`; raises the `EngineError` that it stands for.

    `fallback_version` marks the tokens when the engine doesn't name a version.
    """
    body = read_body(raw)
    if status != 200:
        raise classify(status, error_text(body) or str(body)[:500])
    if isinstance(body, list) and len(body) == 1:
        body = body[0]
    if not isinstance(body, dict) or "error" in body or body.get("object") == "error":
        raise classify(error_code(body) or 502, error_text(body) or f"unreadable reply: {str(body)[:200]}")
    meta = body.get("meta_info")
    meta = meta if isinstance(meta, dict) else {}
    finish = _finish(meta)
    ids, logprobs = _tokens(body, meta, lenient=finish == "abort")
    return Sample(
        ids=ids,
        logprobs=logprobs,
        spans=version_spans(meta, len(ids), fallback_version),
        finish=finish,
        prompt_tokens=_count(meta.get("prompt_tokens")),
        cached_tokens=_count(meta.get("cached_tokens")),
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _finish(meta: dict[str, Any]) -> Finish:
    reason = meta.get("finish_reason")
    kind = reason.get("type") if isinstance(reason, dict) else reason
    if kind in ("stop", "length"):
        return "stop" if kind == "stop" else "length"
    if kind != "abort":
        raise EngineFault(f"finish reason {reason!r}")
    status = reason.get("status_code") if isinstance(reason, dict) else None
    if isinstance(status, int) and status >= 400:
        raise classify(status, str(reason.get("message", "aborted")) if isinstance(reason, dict) else "aborted")
    return "abort"


def _tokens(body: dict[str, Any], meta: dict[str, Any], *, lenient: bool) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Ids and log-probabilities that belong together. Of an aborted request a half that doesn't fit is dropped."""
    try:
        ids = tuple(int(i) for i in body.get("output_ids") or ())
        entries = meta.get("output_token_logprobs") or ()
        logprobs = tuple(float(entry[0]) for entry in entries)
        named = tuple(int(entry[1]) for entry in entries)
    except (TypeError, ValueError, IndexError) as error:
        ids, logprobs, named = (), (), (-1,)
        detail = f"unreadable tokens: {error}"
    else:
        detail = f"{len(ids)} ids and {len(logprobs)} log-probabilities that don't belong together"
    if ids == named and all(math.isfinite(value) and value <= 1e-3 for value in logprobs) and (ids or lenient):
        return ids, logprobs
    if lenient:
        return (), ()
    raise EngineFault(detail if ids or named else "finished without a token")


def _version(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else None


def version_spans(meta: dict[str, Any], tokens: int, fallback: int) -> tuple[VersionSpan, ...]:
    """Spans over `tokens` output tokens, from `weight_versions`, else from `weight_version`, else `fallback`."""
    if tokens == 0:
        return ()
    spans = _given_spans(meta.get("weight_versions"), tokens)
    if spans is not None:
        return spans
    version = _version(meta.get("weight_version"))
    return (VersionSpan(version=fallback if version is None else version, start=0, end=tokens),)


def _given_spans(given: Any, tokens: int) -> tuple[VersionSpan, ...] | None:
    """The engine's own spans if they cover [0, tokens) in order without gaps; None otherwise."""
    if not isinstance(given, list):
        return None
    spans: list[VersionSpan] = []
    position = 0
    for entry in given:
        version = _version(entry.get("version")) if isinstance(entry, dict) else None
        if version is None or entry.get("start") != position or not isinstance(entry.get("end"), int):
            return None
        if entry["end"] > position:
            spans.append(VersionSpan(version=version, start=position, end=entry["end"]))
        elif entry["end"] < position:
            return None
        position = entry["end"]
    return tuple(spans) if position == tokens else None

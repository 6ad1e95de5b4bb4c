"""What a request asks for: the body of `/generate` checked and split into single generations. Pure: no I/O, no clock.

Field names, defaults, limits and the four error shapes are those of SGLang 0.5.23. Stricter than the original in one
thing: a token id outside the vocabulary is a 400 here (there it ends the server). What this engine cannot do
(penalties, grammars, several log-probabilities per position) is refused, never ignored; unknown top-level fields are
ignored, as there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tiltyard.policy.sampling_settings import Sampling

MAX_STOP_STRINGS = 32


class Refused(ValueError):
    """The request cannot be served as it is; `status` and `body` are the HTTP reply."""

    def __init__(self, message: str, *, status: int = 400, body: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.body: Any = {"error": {"message": message}} if body is None else body


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the model allows; in tokens."""

    vocab_size: int
    context_length: int
    row_tokens: int
    """Prompt and answer of one row that the engine's memory holds."""
    eos_ids: frozenset[int]


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence to generate, or to score when `max_new_tokens` is 0."""

    rid: str
    input_ids: tuple[int, ...]
    sampling: Sampling
    max_new_tokens: int
    min_new_tokens: int = 0
    stop: tuple[bytes, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    """Includes the model's own end tokens; empty when they are to be ignored."""
    seed: int | None = None
    extra_key: str = ""
    return_logprob: bool = False
    logprob_start: int = -1
    """Position from which input log-probabilities are wanted; -1: none."""
    skip_special_tokens: bool = True
    no_stop_trim: bool = False
    text_in_logprobs: bool = False
    return_prompt_ids: bool = False


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The generations of one body, in the order of the reply; `single`: the reply is one object, not a list."""

    generations: tuple[Generation, ...]
    single: bool
    stream: bool


_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0, None),
    "presence_penalty": (0, None),
    "repetition_penalty": (1, None),
    "stop_regex": (None, []),
    "json_schema": (None,),
    "regex": (None,),
    "ebnf": (None,),
    "structural_tag": (None,),
    "logit_bias": (None, {}),
    "custom_params": (None,),
    "beam_width": (None, 1),
    "watermark": (None, False),
    "choice": (None,),
    "spaces_between_special_tokens": (True, False, None),
    "stream_interval": None,  # type: ignore[dict-item]
}
_KNOWN = {
    *("max_new_tokens", "stop", "stop_token_ids", "temperature", "top_p", "top_k", "min_p", "min_new_tokens", "n"),
    *("ignore_eos", "skip_special_tokens", "no_stop_trim", "sampling_seed"),
    *_NEUTRAL,
}


def parse_generate(
    body: Mapping[str, Any], limits: Limits, encode: Callable[[str], list[int]], new_rid: Callable[[], str]
) -> Request:
    """Checks a body of `/generate`. `encode` turns `text` into ids; `new_rid` names requests that bring no `rid`.

    Raises `Refused` with the reply that SGLang gives.
    """
    prompts, single = _prompts(body, encode)
    params = _params_per_prompt(body.get("sampling_params"), len(prompts))
    rids = _rids(body.get("rid"), len(prompts), new_rid)
    if body.get("top_logprobs_num") or body.get("token_ids_logprob"):
        raise Refused("top_logprobs_num and token_ids_logprob are not supported: only the sampled tokens are reported.")
    generations: list[Generation] = []
    copies = 1
    for prompt, given, rid in zip(prompts, params, rids, strict=True):
        copies = _integer(given, "n", 1, 1)
        base = _generation(body, prompt, given, rid, limits)
        if copies == 1:
            generations.append(base)
            continue
        for copy in range(copies):
            seed = None if base.seed is None else base.seed + copy
            generations.append(msgspec.structs.replace(base, rid=f"{rid}_{copy}" if copy else rid, seed=seed))
    return Request(
        generations=tuple(generations), single=single and copies == 1, stream=bool(body.get("stream", False))
    )


def _prompts(body: Mapping[str, Any], encode: Callable[[str], list[int]]) -> tuple[list[list[int]], bool]:
    text, ids = body.get("text"), body.get("input_ids")
    if isinstance(text, str):
        return [encode(text)], True
    if isinstance(text, list) and all(isinstance(one, str) for one in text) and text:
        return [encode(one) for one in text], False
    if text is not None or (ids is not None and not isinstance(ids, list)):
        raise Refused("text must be a string or a list of strings, input_ids a list of ids or a list of such lists.")
    if ids is None:
        raise Refused("Either text, input_ids or input_embeds should be provided.")
    if not ids:
        raise Refused("input_ids cannot be empty.")
    if isinstance(ids[0], list):
        return ids, False
    return [ids], True


def _params_per_prompt(given: Any, count: int) -> list[Mapping[str, Any]]:
    many = given if isinstance(given, list) else [given or {}] * count
    if len(many) != count or not all(isinstance(one, Mapping) for one in many):
        raise Refused(f"sampling_params must be one object, or a list of {count} of them.")
    return many


def _rids(given: Any, count: int, new_rid: Callable[[], str]) -> list[str]:
    if given is None:
        return [new_rid() for _ in range(count)]
    if isinstance(given, str):
        return [given] if count == 1 else [f"{given}_{number}" for number in range(count)]
    if not isinstance(given, list) or len(given) != count or not all(isinstance(one, str) for one in given):
        raise Refused(f"rid must be a string, or a list of {count} strings.")
    if len(set(given)) != count:
        raise Refused("Duplicate request ID in the batch.")
    return given


def _generation(
    body: Mapping[str, Any], prompt: list[int], given: Mapping[str, Any], rid: str, limits: Limits
) -> Generation:
    unknown = sorted(set(given) - _KNOWN)
    if unknown:
        text = f"Unexpected keyword argument {unknown[0]!r} in sampling_params; allowed: {', '.join(sorted(_KNOWN))}"
        raise Refused(text, body={"error": text})
    for name, neutral in _NEUTRAL.items():
        if neutral is not None and name in given and given[name] not in neutral:
            raise Refused(f"sampling_params.{name} is not supported by this engine, remove it.")
    max_new = _integer(given, "max_new_tokens", 128, 0)
    _check_prompt(prompt, max_new, limits)
    stop_ids = frozenset(_ids(given, "stop_token_ids")) | limits.eos_ids
    start = _logprob_start(body, len(prompt))
    return Generation(
        rid=rid,
        input_ids=tuple(prompt),
        sampling=_sampling(given),
        max_new_tokens=max_new,
        min_new_tokens=_integer(given, "min_new_tokens", 0, 0),
        stop=_stop_strings(given),
        stop_ids=frozenset() if given.get("ignore_eos") else stop_ids,
        seed=None if given.get("sampling_seed") is None else _integer(given, "sampling_seed", 0, None),
        extra_key=f"{_text(body, 'extra_key')}\x00{_text(body, 'cache_salt')}",
        return_logprob=bool(body.get("return_logprob", False)),
        logprob_start=start,
        skip_special_tokens=bool(given.get("skip_special_tokens", True)),
        no_stop_trim=bool(given.get("no_stop_trim", False)),
        text_in_logprobs=bool(body.get("return_text_in_logprobs", False)),
        return_prompt_ids=bool(body.get("return_prompt_token_ids", False)),
    )


def _check_prompt(prompt: list[int], max_new: int, limits: Limits) -> None:
    if not isinstance(prompt, list) or not prompt:
        raise Refused("input_ids cannot be empty.")
    for token in prompt:
        if not isinstance(token, int) or isinstance(token, bool):
            raise Refused(f"input_ids must hold integers, found {token!r}.")
        if not 0 <= token < limits.vocab_size:
            raise Refused(f"Token id {token} is outside the vocabulary of {limits.vocab_size}.")
    length, context = len(prompt), limits.context_length
    if length >= context:
        raise Refused(f"The input ({length} tokens) is longer than the model's context length ({context} tokens).")
    if length + max_new > context:
        raise Refused(
            f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested"
            f" {length + max_new} tokens: {length} in the input and {max_new} for the completion."
        )
    if length + max_new > limits.row_tokens:
        raise Refused(
            f"The request needs {length + max_new} tokens of memory, the engine has {limits.row_tokens} per row."
        )


def _sampling(given: Mapping[str, Any]) -> Sampling:
    sampling = Sampling(
        temperature=_number(given, "temperature", 1.0),
        top_k=_integer(given, "top_k", -1, -1),
        top_p=_number(given, "top_p", 1.0),
        min_p=_number(given, "min_p", 0.0),
    )
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        raise Refused(f"temperature must be a non-negative finite number, got {sampling.temperature}.")
    if not 0 < sampling.top_p <= 1:
        raise Refused(f"top_p must be in (0, 1], got {sampling.top_p}.")
    if not 0 <= sampling.min_p <= 1:
        raise Refused(f"min_p must be in [0, 1], got {sampling.min_p}.")
    if sampling.top_k < 1 and sampling.top_k != -1:
        raise Refused(f"top_k must be -1 (disable), or at least 1, got {sampling.top_k}.")
    return sampling


def _stop_strings(given: Mapping[str, Any]) -> tuple[bytes, ...]:
    stop = given.get("stop")
    many = [stop] if isinstance(stop, str) else (stop or [])
    if not isinstance(many, list) or not all(isinstance(one, str) for one in many):
        raise _mistyped("stop", "a string or a list of strings")
    if len(many) > MAX_STOP_STRINGS:
        raise Refused(f"At most {MAX_STOP_STRINGS} stop strings are allowed, got {len(many)}.")
    return tuple(one.encode() for one in many if one)


def _logprob_start(body: Mapping[str, Any], length: int) -> int:
    start = body.get("logprob_start_len")
    if start is None or start == -1 or not body.get("return_logprob"):
        return -1
    if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start < length:
        raise Refused(f"logprob_start_len must be -1 or a position of the input (0 to {length - 1}), got {start!r}.")
    return start


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise Refused(f"{name} must be a string.")
    return value or ""


def _ids(given: Mapping[str, Any], name: str) -> list[int]:
    value = given.get(name) or []
    if not isinstance(value, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        raise _mistyped(name, "a list of integers")
    return value


def _integer(given: Mapping[str, Any], name: str, default: int, least: int | None) -> int:
    value = given.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise _mistyped(name, "an integer")
    if least is not None and value < least:
        raise Refused(f"{name} must be at least {least}, got {value}.")
    return value


def _number(given: Mapping[str, Any], name: str, default: float) -> float:
    value = given.get(name)
    if value is None:
        return default
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _mistyped(name, "a number")
    return float(value)


def _mistyped(name: str, expected: str) -> Refused:
    text = f"sampling_params.{name}: expected {expected}"
    return Refused(text, body={"error": text})

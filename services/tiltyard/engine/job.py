"""One generation on its way through the scheduler, and the reply made from it in SGLang's field names.

Invariants: ids, log-probabilities and version spans grow together, one token at a time, and survive a retraction.
Loads no torch; written by the scheduler's thread alone, read by others once it is finished (or through a snapshot
while streaming).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tiltyard.engine.backend import Row
from tiltyard.engine.handler import Generation
from tiltyard.engine.stopping import Finish, Stopper, trimmed
from tiltyard.policy.token_bytes import TokenBytes


class Job:
    """See the module. The scheduler's thread calls `notify` with the reply per streamed token, and at the end."""

    def __init__(
        self,
        asked: Generation,
        tokens: TokenBytes,
        notify: Callable[[dict[str, Any], bool], None],
        *,
        stream: bool,
        now: float,
    ) -> None:
        self.asked, self.stream, self.notify = asked, stream, notify
        self.created = now
        self.first_token: float | None = None
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.spans: list[dict[str, Any]] = []
        self.input_logprobs: list[float | None] | None = None
        self.cached_tokens = 0
        self.retractions = 0
        self.was_running = False
        self.finish: Finish | None = None
        self._tokens = tokens
        self._stopper = Stopper(asked, tokens.table)

    def row(self, key: int) -> Row:
        """What the backend is given, continuing after the tokens there are."""
        asked = self.asked
        return Row(
            key=key,
            ids=(*asked.input_ids, *self.ids),
            budget=asked.max_new_tokens - len(self.ids),
            sampling=asked.sampling,
            extra_key=asked.extra_key,
            seed=asked.seed,
            position=len(self.ids),
            forbidden=asked.stop_ids,
            forbidden_until=asked.min_new_tokens if asked.stop_ids else 0,
        )

    def push(self, token: int, logprob: float, version: str, now: float) -> Finish | None:
        """Takes a sampled token; the reason why the sequence is over, or None."""
        if self.first_token is None:
            self.first_token = now
        if not self.spans or self.spans[-1]["version"] != version:
            self.spans.append({"version": version, "start": len(self.ids), "end": len(self.ids)})
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.spans[-1]["end"] = len(self.ids)
        self.finish = self._stopper.push(token)
        return self.finish

    def reply(self, version: str, now: float) -> dict[str, Any]:
        """The object that `/generate` answers with, as far as the generation has come."""
        asked = self.asked
        joined = self._tokens.join(self.ids, skip_special=asked.skip_special_tokens)
        kept = joined if asked.no_stop_trim else self._without_stop(joined)
        reply: dict[str, Any] = {
            "text": kept.decode("utf-8", errors="replace"),
            "output_ids": list(self.ids),
            "meta_info": self._meta(version, now),
        }
        if asked.return_prompt_ids:
            reply["prompt_token_ids"] = list(asked.input_ids)
        return reply

    def _without_stop(self, joined: bytes) -> bytes:
        """The text does not show the end token or stop string that ended it."""
        if self.finish is None or self.finish["type"] != "stop":
            return joined
        if isinstance(self.finish["matched"], int):
            return self._tokens.join(self.ids[:-1], skip_special=self.asked.skip_special_tokens)
        return trimmed(joined, self.finish, self.asked)

    def _meta(self, version: str, now: float) -> dict[str, Any]:
        asked = self.asked
        meta: dict[str, Any] = {
            "id": asked.rid,
            "finish_reason": self.finish,
            "prompt_tokens": len(asked.input_ids),
            "completion_tokens": len(self.ids),
            "reasoning_tokens": 0,
            "weight_version": version,
            "weight_versions": [dict(span) for span in self.spans],
            "dp_rank": None,
            "e2e_latency": now - self.created,
        }
        if self.was_running:
            meta |= {
                "cached_tokens": self.cached_tokens,
                "cached_tokens_details": {"device": self.cached_tokens, "host": 0},
                "num_retractions": self.retractions,
            }
        if asked.return_logprob:
            meta["output_token_logprobs"] = self._triples(self.logprobs, self.ids)
            meta["output_token_logprobs_length"] = len(self.ids)
            meta["input_token_logprobs"] = []
            if self.input_logprobs is not None:
                meta["input_token_logprobs"] = self._triples(
                    self.input_logprobs, asked.input_ids[asked.logprob_start :]
                )
        return meta

    def _triples(self, logprobs: list[Any], ids: Any) -> list[list[Any]]:
        if self.asked.text_in_logprobs:
            return [[lp, i, self._tokens.text([i], skip_special=False)] for lp, i in zip(logprobs, ids, strict=True)]
        return [[lp, i, None] for lp, i in zip(logprobs, ids, strict=True)]

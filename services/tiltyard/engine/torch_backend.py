"""The real backend: a Llama model in torch, spread over one lane per core.

Each core runs a whole forward pass for its share of the rows with one compute thread: on two cores this gives about
twice the tokens of one pass with two threads, which pays a barrier in each of its several hundred operations.

Invariants: rows that share a prompt stay together in blocks; new lanes are opened only when the others hold enough
rows; the prefix cache is cleared with every change of weights. Left out: GPUs.
"""

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch

from tiltyard.engine.backend import Admitted, Drawn, Row, Usage
from tiltyard.engine.lane import Lane
from tiltyard.engine.prefix_cache import Entry, PrefixCache
from tiltyard.engine.settings import Dtype
from tiltyard.policy.config import LlamaConfig, read_config
from tiltyard.policy.kv import BLOCK_ROWS, Prefix
from tiltyard.policy.llama import Llama
from tiltyard.policy.sampling import token_logprobs

T = TypeVar("T")
_SCORE_CHUNK = 64


class TorchBackend:
    """See the module; the methods' contract is `Backend`."""

    def __init__(
        self,
        model_dir: Path,
        *,
        dtype: Dtype = "auto",
        threads: int = 1,
        lane_rows: int = 64,
        max_total_tokens: int = 65536,
        prefix_cache_tokens: int = 16384,
        seed: int = 0,
    ) -> None:
        self._dtype = _choose(dtype, read_config(model_dir))
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="engine-lane", initializer=_one_thread)
        self._model = self._run(lambda: Llama.load(model_dir, self._dtype))
        self._lanes = [Lane(self._model, seed * 1009 + number) for number in range(threads)]
        self._lane_rows, self._limit = lane_rows, max_total_tokens
        self._cache = PrefixCache(prefix_cache_tokens)

    @property
    def config(self) -> LlamaConfig:
        """Sizes of the model."""
        return self._model.config

    @property
    def dtype(self) -> str:
        """Name of the dtype in use."""
        return str(self._dtype).removeprefix("torch.")

    def close(self) -> None:
        """Ends the compute threads."""
        self._pool.shutdown()

    def load(self, model_dir: Path) -> None:
        """Takes new weights of the same shape; on ValueError the old ones stay."""
        config = read_config(model_dir)
        if _shape(config) != _shape(self._model.config):
            raise ValueError(f"{model_dir} has another shape than the model being served")
        self._model = self._run(lambda: Llama.load(model_dir, self._dtype))
        self._cache.clear()

    @property
    def row_tokens(self) -> int:
        """One lane's share of the token limit."""
        return self._limit // len(self._lanes)

    def room(self, rows: Sequence[Row]) -> int:
        """How many of the rows find a lane."""
        return len(self._place(rows))

    def admit(self, rows: Sequence[Row]) -> list[Admitted]:
        """Computes prompts that are new, spreads the rows over the lanes and draws their first tokens."""
        entries, cached = self._prompts(rows)
        places = self._place(rows)
        assert len(places) == len(rows), "the scheduler admits no more than there is room for"
        shares = [[n for n, place in enumerate(places) if place == lane] for lane in range(len(self._lanes))]
        works = [
            self._admission(lane, [rows[n] for n in share], [entries[n] for n in share])
            for lane, share in zip(self._lanes, shares, strict=True)
            if share
        ]
        drawn = {one.key: one for lane_drawn in self._each_lane(works) for one in lane_drawn}
        return [Admitted(drawn[row.key], hit) for row, hit in zip(rows, cached, strict=True)]

    def step(self) -> list[Drawn]:
        """Draws one more token for every row, all lanes at once."""
        busy = [lane for lane in self._lanes if len(lane)]
        results = self._each_lane([functools.partial(lane.step, self._model) for lane in busy])
        return [drawn for lane_drawn in results for drawn in lane_drawn]

    def drop(self, keys: Sequence[int]) -> None:
        """Removes rows from their lanes."""
        with torch.inference_mode():
            for key in keys:
                any(lane.drop(key) for lane in self._lanes)

    def score(self, ids: Sequence[int], start: int) -> list[float | None]:
        """Log-probabilities at temperature 1 of ids[start:], computed afresh (the cache keeps no hidden states)."""

        def compute() -> list[float]:
            hidden, _ = self._model.prefill(list(ids), keep_from=start)
            parts = []
            for begin in range(0, len(ids) - start - 1, _SCORE_CHUNK):
                end = min(begin + _SCORE_CHUNK, len(ids) - start - 1)
                targets = torch.tensor(ids[start + begin + 1 : start + end + 1])
                parts += token_logprobs(self._model.logits(hidden[begin:end]), targets).tolist()
            return parts

        return [None, *self._run(compute)] if start < len(ids) else []

    def flush(self) -> None:
        """Empties the prefix cache."""
        self._cache.clear()

    def usage(self) -> Usage:
        """What lanes and cache hold."""
        return Usage(sum(lane.batch.reserved.tokens for lane in self._lanes), self._cache.tokens)

    @staticmethod
    def _admission(lane: Lane, rows: list[Row], entries: list[Entry]) -> Callable[[], list[Drawn]]:
        def admit() -> list[Drawn]:
            return lane.admit(rows, [entry.prefix for entry in entries], torch.cat([entry.logits for entry in entries]))

        return admit

    def _place(self, rows: Sequence[Row]) -> list[int]:
        """A lane for each row, from the first on, until one finds no room.

        Rows of a prompt stay together in blocks. A new block goes to the first lane that is not filled yet, else to
        the one with the fewest rows.
        """
        taken = [lane.batch.reserved for lane in self._lanes]
        last: tuple[str, tuple[int, ...]] | None = None
        places: list[int] = []
        lane, in_block = 0, 0
        for row in rows:
            same = (row.extra_key, row.ids) == last and in_block < BLOCK_ROWS
            grown = [held.with_row(len(row.ids), row.budget, new_block=not same) for held in taken]
            roomy = [n for n in range(len(taken)) if grown[n].tokens <= self.row_tokens]
            if not roomy:
                break
            if not same or lane not in roomy:
                unfilled = [n for n in roomy if taken[n].rows < self._lane_rows]
                lane = unfilled[0] if unfilled else min(roomy, key=lambda n: taken[n].rows)
                in_block = 0
            taken[lane], last, in_block = grown[lane], (row.extra_key, row.ids), in_block + 1
            places.append(lane)
        return places

    def _prompts(self, rows: Sequence[Row]) -> tuple[list[Entry], list[int]]:
        """The computed prompt of each row, and how many of its tokens were there already."""
        entries: dict[tuple[str, tuple[int, ...]], Entry] = {}
        hits: dict[int, int] = {}
        missing: dict[tuple[str, tuple[int, ...]], Row] = {}
        for row in rows:
            key = (row.extra_key, row.ids)
            hits[row.key] = len(row.ids) - 1
            if key in entries or key in missing:
                continue
            found = self._cache.exact(row.ids, row.extra_key)
            if found is None:
                missing[key] = row
            else:
                entries[key] = found
        new = list(missing.values())
        for begin in range(
            0, len(new), len(self._lanes)
        ):  # one prompt per core at a time: the next may share their start
            wave = new[begin : begin + len(self._lanes)]
            pasts = [self._cache.longest(row.ids, row.extra_key) for row in wave]
            computed = self._each_lane(list(map(self._prefill, wave, pasts)))
            for row, past, (prefix, logits) in zip(wave, pasts, computed, strict=True):
                entries[(row.extra_key, row.ids)] = self._cache.add(row.ids, row.extra_key, prefix, logits)
                hits[row.key] = past.length if past else 0
        return [entries[(row.extra_key, row.ids)] for row in rows], [hits[row.key] for row in rows]

    def _prefill(self, row: Row, past: Prefix | None) -> Callable[[], tuple[Prefix, torch.Tensor]]:
        def compute() -> tuple[Prefix, torch.Tensor]:
            hidden, prefix = self._model.prefill(list(row.ids), past)
            return prefix, self._model.logits(hidden)

        return compute

    def _run(self, work: Callable[[], T]) -> T:
        return self._pool.submit(_without_gradients, work).result()

    def _each_lane(self, works: Sequence[Callable[[], T]]) -> list[T]:
        return [future.result() for future in [self._pool.submit(_without_gradients, work) for work in works]]


def _without_gradients(work: Callable[[], T]) -> T:
    with torch.inference_mode():
        return work()


def _one_thread() -> None:
    torch.set_num_threads(1)


def _shape(config: LlamaConfig) -> LlamaConfig:
    """The configuration without what may differ between two sets of weights of one model."""
    return LlamaConfig(
        **{
            field: getattr(config, field)
            for field in LlamaConfig.__struct_fields__
            if field not in ("torch_dtype", "eos_token_ids")
        },
        eos_token_ids=(),
    )


def _choose(dtype: Dtype, config: LlamaConfig) -> torch.dtype:
    if dtype != "auto":
        return torch.float32 if dtype == "float32" else torch.bfloat16
    wants = config.torch_dtype == "bfloat16"
    return torch.bfloat16 if wants and torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32

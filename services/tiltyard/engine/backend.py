"""What computes: a model that turns rows of tokens into next tokens, and a fake one that needs no weights.

Invariants of every backend: it is driven by one thread; `admit` gives each row its first token and `step` each
admitted row one more; a row dropped is gone before the next step; prompts computed under one set of weights are never
reused under another. The fake keeps the same contract (one test suite runs against both). Loads no torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from tiltyard.policy.config import LlamaConfig, read_config
from tiltyard.policy.sampling_settings import Sampling


class Row(NamedTuple):
    """One sequence to extend: `ids` is everything so far, `budget` the tokens it may still get."""

    key: int
    ids: tuple[int, ...]
    budget: int
    sampling: Sampling
    extra_key: str = ""
    seed: int | None = None
    position: int = 0
    """Tokens generated before `ids` was put together (after a retraction)."""
    forbidden: frozenset[int] = frozenset()
    """Ids that may not be sampled while fewer than `forbidden_until` tokens were generated."""
    forbidden_until: int = 0


class Drawn(NamedTuple):
    """One sampled token of a row and its log-probability at the sampling temperature."""

    key: int
    token: int
    logprob: float


class Admitted(NamedTuple):
    """A row's first token, and how many tokens of its prompt came from the prefix cache."""

    drawn: Drawn
    cached_tokens: int


class Usage(NamedTuple):
    """Tokens of keys and values held: by running rows (with padding) and by the prefix cache."""

    running_tokens: int
    cached_tokens: int


class Backend(Protocol):
    """A model behind the scheduler."""

    @property
    def config(self) -> LlamaConfig:
        """Sizes of the model."""

    def load(self, model_dir: Path) -> None:
        """Takes new weights, forgets cached prompts; rows keep what they hold. ValueError if unfit: nothing changes."""

    @property
    def row_tokens(self) -> int:
        """Tokens (prompt and answer) of the largest row that fits when nothing else runs."""

    def room(self, rows: Sequence[Row]) -> int:
        """How many of these rows, from the first on, can be admitted now beside those that are running."""

    def admit(self, rows: Sequence[Row]) -> list[Admitted]:
        """Computes the prompts and draws the first token of each row, in order."""

    def step(self) -> list[Drawn]:
        """Draws one more token for every row held, in any order."""

    def drop(self, keys: Sequence[int]) -> None:
        """Forgets rows; an unknown key is ignored."""

    def score(self, ids: Sequence[int], start: int) -> list[float | None]:
        """Log-probabilities at temperature 1 of ids[start:]; the first, which has no predictor here, is None."""

    def flush(self) -> None:
        """Empties the prefix cache."""

    def usage(self) -> Usage:
        """What is held now."""


class FakeBackend:
    """Continues a sequence by arithmetic: the next id is a function of the last id, the length and the weights' name.

    The log-probability names the weights too, so that tests see which ones a token came from. Temperature is ignored.
    """

    def __init__(self, model_dir: Path, *, max_total_tokens: int = 4096) -> None:
        self._config = read_config(model_dir)
        self._limit = max_total_tokens
        self._salt = _salt(model_dir)
        self._rows: dict[int, Row] = {}
        self._cache: set[tuple[str, tuple[int, ...]]] = set()

    @property
    def config(self) -> LlamaConfig:
        """Sizes of the model."""
        return self._config

    def load(self, model_dir: Path) -> None:
        """Takes the directory's name as the new weights."""
        if read_config(model_dir) != self._config:
            raise ValueError(f"{model_dir} has another shape than the model being served")
        if not list(model_dir.glob("*.safetensors")):
            raise ValueError(f"{model_dir} holds no .safetensors file")
        self._salt = _salt(model_dir)
        self._cache.clear()

    @property
    def row_tokens(self) -> int:
        """The limit it was made with."""
        return self._limit

    def room(self, rows: Sequence[Row]) -> int:
        """How many rows' tokens fit beside those held."""
        held = self.usage().running_tokens
        for count, row in enumerate(rows):
            held += len(row.ids) + row.budget
            if held > self._limit:
                return count
        return len(rows)

    def admit(self, rows: Sequence[Row]) -> list[Admitted]:
        """Draws the first token of each row."""
        admitted = []
        for row in rows:
            known = (row.extra_key, row.ids) in self._cache
            self._cache.add((row.extra_key, row.ids))
            self._rows[row.key] = row
            admitted.append(Admitted(self._extend(row.key), len(row.ids) - 1 if known else 0))
        return admitted

    def step(self) -> list[Drawn]:
        """Draws one more token for every row."""
        return [self._extend(key) for key in self._rows]

    def drop(self, keys: Sequence[int]) -> None:
        """Forgets rows."""
        for key in keys:
            self._rows.pop(key, None)

    def score(self, ids: Sequence[int], start: int) -> list[float | None]:
        """The same log-probability everywhere."""
        return [None, *[self._logprob() for _ in ids[start + 1 :]]] if start < len(ids) else []

    def flush(self) -> None:
        """Empties the prefix cache."""
        self._cache.clear()

    def usage(self) -> Usage:
        """Tokens of rows and cached prompts."""
        running = sum(len(row.ids) + row.budget for row in self._rows.values())
        return Usage(running, sum(len(ids) for _, ids in self._cache))

    def _extend(self, key: int) -> Drawn:
        row = self._rows[key]
        token = (row.ids[-1] * 31 + len(row.ids) * 7 + self._salt) % self._config.vocab_size
        while row.position < row.forbidden_until and token in row.forbidden:
            token = (token + 1) % self._config.vocab_size
        self._rows[key] = row._replace(ids=(*row.ids, token), budget=row.budget - 1, position=row.position + 1)
        return Drawn(key, token, self._logprob())

    def _logprob(self) -> float:
        return -math.log(2 + self._salt)


def _salt(model_dir: Path) -> int:
    return sum(model_dir.name.encode()) % 97

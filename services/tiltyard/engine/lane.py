"""One core's batch of rows: their keys and values, their last tokens, and the draw of the next ones.

Invariants: a lane is stepped by one thread at a time, with one compute thread of its own; rows sit in the slots of its
`KVBatch`, so that slot i of the batch is row i here. Left out: which row goes to which lane.
"""

import torch
from torch import Tensor

from tiltyard.engine.backend import Drawn, Row
from tiltyard.policy.kv import KVBatch, Prefix
from tiltyard.policy.llama import Llama
from tiltyard.policy.sampling import sample
from tiltyard.policy.sampling_settings import seeded_uniform


class _Held:
    """A row in the batch."""

    __slots__ = ("count", "row", "token")

    def __init__(self, row: Row) -> None:
        self.row, self.count, self.token = row, row.position, 0


class Lane:
    """See the module."""

    def __init__(self, model: Llama, seed: int) -> None:
        self.batch = KVBatch(model.config, model.dtype)
        self._rows: list[_Held] = []
        self._slot_of: dict[int, int] = {}
        self._generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return len(self._rows)

    def admit(self, rows: list[Row], prefixes: list[Prefix], logits_BV: Tensor) -> list[Drawn]:
        """Adds rows behind computed prompts and draws their first tokens from the prompts' last logits."""
        fresh = [_Held(row) for row in rows]
        for held, prefix in zip(fresh, prefixes, strict=True):
            self._slot_of[held.row.key] = self.batch.add(prefix, held.row.budget)
            self._rows.append(held)
        return self._draw(fresh, logits_BV)

    def step(self, model: Llama) -> list[Drawn]:
        """Draws one more token for every row."""
        hidden = model.decode(torch.tensor([held.token for held in self._rows]), self.batch)
        return self._draw(self._rows, model.logits(hidden))

    def drop(self, key: int) -> bool:
        """Removes a row; False when it is not here."""
        slot = self._slot_of.pop(key, None)
        if slot is None:
            return False
        self.batch.remove(slot)
        last = self._rows.pop()
        if slot < len(self._rows):
            self._rows[slot] = last
            self._slot_of[last.row.key] = slot
        return True

    def _draw(self, rows: list[_Held], logits_BV: Tensor) -> list[Drawn]:
        uniforms = torch.rand(len(rows), generator=self._generator)
        for number, held in enumerate(rows):
            if held.row.seed is not None:
                uniforms[number] = seeded_uniform(held.row.seed, held.count)
        tokens, logprobs = sample(_without_forbidden(rows, logits_BV), [held.row.sampling for held in rows], uniforms)
        for held, token in zip(rows, tokens, strict=True):
            held.token = token
            held.count += 1
        return [Drawn(h.row.key, token, lp) for h, token, lp in zip(rows, tokens, logprobs, strict=True)]


def _without_forbidden(rows: list[_Held], logits_BV: Tensor) -> Tensor:
    early = [number for number, held in enumerate(rows) if held.count < held.row.forbidden_until]
    if not early:
        return logits_BV
    masked = logits_BV.clone()
    for number in early:
        masked[number, sorted(rows[number].row.forbidden)] = float("-inf")
    return masked

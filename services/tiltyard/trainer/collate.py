"""Packed rows as tensors, and the attention that suits them.

Invariants: padding attends to itself only and is attended by none; the mask is additive in the model's dtype, so
every Hugging Face attention takes it. Left out: sequence-parallel or variable-length kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .batch import Row

DENSE = "tiltyard_dense"
"""Name under which `dense_attention` is registered with transformers."""


@dataclass(frozen=True, kw_only=True)
class Packed:
    """One micro-batch: B rows of up to L tokens, P points and N targets in all of them, targets in order of points."""

    ids: Tensor
    """[B, L] int64"""
    positions: Tensor
    """[B, L] int64"""
    mask: Tensor
    """[B, 1, L, L] additive: 0 for a token's ancestors and itself, the dtype's least value elsewhere."""
    sources: Tensor
    """[P] int64 indices into B*L"""
    temperatures: Tensor
    """[P] float32"""
    points: Tensor
    """[N] int64 indices into P, ascending"""
    targets: Tensor
    """[N] int64"""
    sampled: Tensor
    """[N] float32 the sampler's log-probabilities"""
    advantages: Tensor
    """[N] float32"""
    current: Tensor
    """[N] bool: sampled by the version being trained"""

    def targets_of(self, first: int, end: int) -> slice:
        """The targets that points [first, end) predict."""
        bounds = torch.searchsorted(self.points, torch.tensor([first, end], device=self.points.device)).tolist()
        return slice(*bounds)


def ancestry(row: Row, length: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """[length, length] bool: whether the token in the row attends to the one in the column."""
    seen = np.eye(length, dtype=np.bool_)
    for index, parent in enumerate(row.parents):
        if parent >= 0:
            seen[index] |= seen[parent]
    return seen


def collate(rows: Sequence[Row], *, version: int, dtype: torch.dtype, device: torch.device) -> Packed:
    """One micro-batch of rows, padded to the longest."""
    length = max(map(len, rows))
    seen = torch.from_numpy(np.stack([ancestry(row, length) for row in rows]))[:, None].to(device)
    mask = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, torch.finfo(dtype).min)

    def padded(lists: Sequence[list[int]]) -> Tensor:
        return torch.tensor([values + [0] * (length - len(values)) for values in lists], device=device)

    def joined(lists: Iterable[list[Any]], kind: torch.dtype) -> Tensor:
        return torch.tensor([value for values in lists for value in values], dtype=kind, device=device)

    starts = [0, *accumulate(len(row.sources) for row in rows)]
    points, order = joined(
        [[start + at for at in row.points] for start, row in zip(starts, rows, strict=False)], torch.int64
    ).sort(stable=True)
    return Packed(
        ids=padded([row.ids for row in rows]),
        positions=padded([row.positions for row in rows]),
        mask=mask,
        sources=joined([[at + number * length for at in row.sources] for number, row in enumerate(rows)], torch.int64),
        temperatures=joined((row.temperatures for row in rows), torch.float32),
        points=points,
        targets=joined((row.targets for row in rows), torch.int64)[order],
        sampled=joined((row.logprobs for row in rows), torch.float32)[order],
        advantages=joined((row.advantages for row in rows), torch.float32)[order],
        current=joined(([made == version for made in row.versions] for row in rows), torch.bool)[order],
    )


def dense_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **extra: Any,
) -> tuple[Tensor, None]:
    """Attention as three matrix products, for a dense mask and short rows, forward and backward.

    `query` [B, H, L, D], `key` and `value` [B, G, L, D] with H a multiple of G; the result is [B, L, H, D]. The query
    heads of one key head are stacked as rows, so keys and values are never repeated. Memory grows with L squared.
    """
    assert attention_mask is not None
    assert not dropout
    batch, heads, length, width = query.shape
    groups = key.shape[1]
    stacked = query.reshape(batch * groups, -1, width) * (width**-0.5 if scaling is None else scaling)
    keys, values = key.reshape(batch * groups, length, width), value.reshape(batch * groups, length, -1)
    scores = torch.bmm(stacked, keys.transpose(1, 2)).view(batch, heads, length, length) + attention_mask
    weights = torch.softmax(scores, dim=-1).view(batch * groups, -1, length)
    mixed = torch.bmm(weights, values).view(batch, heads, length, -1)
    return mixed.transpose(1, 2).contiguous(), None

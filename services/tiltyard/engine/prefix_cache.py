"""Prompts already computed, for reuse by the next request that starts the same way.

Invariants: an entry is found only under the same `extra_key`; the owner clears everything when the weights change, so
nothing crosses a version; at most `capacity` tokens are kept, least recently used out first. A prompt that matches in
part gives its common beginning. Left out: what rows generated (a later turn recomputes it with its prompt).
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tiltyard.policy.kv import Prefix


class Entry(NamedTuple):
    """A computed prompt: its keys and values, and the logits [1, V] that follow it."""

    ids: npt.NDArray[np.int32]
    prefix: Prefix
    logits: Tensor


class PrefixCache:
    """Entries by extra key and ids."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[tuple[str, bytes], Entry] = OrderedDict()
        self.tokens = 0

    def exact(self, ids: Sequence[int], extra_key: str) -> Entry | None:
        """The entry of exactly these ids."""
        key = (extra_key, np.asarray(ids, np.int32).tobytes())
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def longest(self, ids: Sequence[int], extra_key: str) -> Prefix | None:
        """Keys and values of the longest beginning shared with an entry, short of all the ids; None without any."""
        wanted = np.asarray(ids, np.int32)
        best, best_length = None, 0
        for (key, _), entry in self._entries.items():
            if key != extra_key:
                continue
            compared = min(len(wanted) - 1, len(entry.ids))
            differs = np.flatnonzero(wanted[:compared] != entry.ids[:compared])
            length = int(differs[0]) if len(differs) else compared
            if length > best_length:
                best, best_length = entry, length
        return None if best is None else Prefix(best.prefix.kv[:, :, :, :best_length])

    def add(self, ids: Sequence[int], extra_key: str, prefix: Prefix, logits: Tensor) -> Entry:
        """Keeps a computed prompt if the capacity allows, and returns its entry."""
        array = np.asarray(ids, np.int32)
        entry = Entry(array, prefix, logits)
        if len(array) > self._capacity:
            return entry
        self._entries[(extra_key, array.tobytes())] = entry
        self.tokens += len(array)
        while self.tokens > self._capacity:
            _, oldest = self._entries.popitem(last=False)
            self.tokens -= len(oldest.ids)
        return entry

    def clear(self) -> None:
        """Forgets everything."""
        self._entries.clear()
        self.tokens = 0

"""Keys and values of the running rows: a prompt's once per group, what each row generated in its own slot.

Shapes: L layers, N key/value heads, D head size, P prompt tokens, T generated tokens, B rows, G blocks, R rows of a
block, Q query heads per key/value head.

A block is one prompt and up to `BLOCK_ROWS` rows that share it: their queries meet the prompt's keys in one matrix
product. Rows sit in slots 0..B-1 without gaps; a row that leaves is replaced by the last one, so that no step
computes on the dead. Blocks are kept in the same way. Memory is `tokens` = G * P + B * T, padded to the longest
prompt and the longest answer.

Left out: sharing of prompts that are equal only in part (the prefix cache copies the common part instead).
"""

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

from tiltyard.policy.config import LlamaConfig

BLOCK_ROWS = 8
_ROUND = 16


_serial = itertools.count()


class Prefix:
    """The keys and values of a prompt: `kv` is [L, 2, N, P, D]. `serial` is never used twice in a process."""

    __slots__ = ("kv", "serial")

    def __init__(self, kv: Tensor) -> None:
        self.kv = kv
        self.serial = next(_serial)

    @property
    def length(self) -> int:
        """Tokens in the prompt."""
        return int(self.kv.shape[3])


class Reserved(NamedTuple):
    """Room that a batch takes: blocks padded to the longest prompt, rows padded to the largest budget."""

    blocks: int
    prompt: int
    rows: int
    budget: int

    @property
    def tokens(self) -> int:
        """Tokens of keys and values."""
        return self.blocks * self.prompt + self.rows * self.budget

    def with_row(self, prompt: int, budget: int, *, new_block: bool) -> "Reserved":
        """The same with one row more."""
        blocks = self.blocks + new_block
        return Reserved(blocks, max(self.prompt, prompt), self.rows + 1, max(self.budget, budget))


class Plan(NamedTuple):
    """Index tensors of one step over B rows in G blocks, shared by all layers.

    `gather` [G * R] holds the row in each place of each block (0 where the place is empty), `scatter` [B] the place
    of each row, `columns` [B] the token column each row writes, `positions` [B] its place in the sequence. `mask` [B,
    N * Q, P + T] is 0 where a row may look and -inf elsewhere: P columns of prompt, then T of generated tokens. P and
    T are the whole length of the memory, rounded up: contiguous keys multiply faster than a shorter slice of them.
    """

    rows: int
    blocks: int
    block_rows: int
    prompt: int
    generated: int
    gather: Tensor
    scatter: Tensor
    slots: Tensor
    columns: Tensor
    positions: Tensor
    mask: Tensor


class _Block:
    """A prompt in the batch and the slots of the rows that share it."""

    __slots__ = ("length", "rows", "serial")

    def __init__(self, prefix: Prefix) -> None:
        self.length, self.serial = prefix.length, prefix.serial
        self.rows: list[int] = []


class KVBatch:
    """The key/value memory of one batch of rows."""

    def __init__(self, config: LlamaConfig, dtype: torch.dtype) -> None:
        self._config, self._dtype = config, dtype
        self.prompts = self._empty(0, 0)
        self.answers = self._empty(0, 0)
        self._blocks: list[_Block] = []
        self._block_of: list[_Block] = []
        self._open: dict[int, _Block] = {}
        self._budgets: list[int] = []
        self.generated: list[int] = []

    def __len__(self) -> int:
        return len(self._block_of)

    @property
    def reserved(self) -> "Reserved":
        """What the batch holds when every row has used its budget."""
        return Reserved(len(self._blocks), self._longest(), len(self), max(self._budgets, default=0))

    def add(self, prefix: Prefix, budget: int) -> int:
        """Adds a row behind this prompt, to get at most `budget` tokens; returns its slot (always the last)."""
        block = self._open.get(prefix.serial)
        if block is None or len(block.rows) >= BLOCK_ROWS:
            block = self._add_block(prefix)
        slot = len(self._block_of)
        block.rows.append(slot)
        self._block_of.append(block)
        self.generated.append(0)
        self._budgets.append(budget)
        self._reserve_answers(len(self), 1)
        return slot

    def remove(self, slot: int) -> None:
        """Frees a slot; the row in the last slot, if another, moves into it."""
        block, last = self._block_of[slot], len(self) - 1
        block.rows.remove(slot)
        if slot != last:
            length = self.generated[last]
            self.answers[:, :, slot, :, :length] = self.answers[:, :, last, :, :length]
            moved = self._block_of[last]
            moved.rows[moved.rows.index(last)] = slot
            self._block_of[slot], self.generated[slot], self._budgets[slot] = moved, length, self._budgets[last]
        for per_row in (self._block_of, self.generated, self._budgets):
            per_row.pop()
        if not block.rows:
            self._remove_block(block)
        self.answers = self._shrunk(self.answers, len(self), max(self.generated, default=-1) + 1)

    def plan(self) -> Plan:
        """Makes room for one more token per row and returns the indices of the step that will write it."""
        self._reserve_answers(len(self), max(self.generated) + 1)
        block_rows = max(len(block.rows) for block in self._blocks)
        gather, scatter = [0] * (block_rows * len(self._blocks)), [0] * len(self)
        for number, block in enumerate(self._blocks):
            for place, slot in enumerate(block.rows, start=number * block_rows):
                gather[place], scatter[slot] = slot, place
        prompts = torch.tensor([block.length for block in self._block_of])
        lengths = torch.tensor(self.generated)
        prompt, generated = self.prompts.shape[4], self.answers.shape[4]
        heads = self._config.num_attention_heads
        keys = torch.arange(prompt + generated)
        hidden = (keys >= prompts[:, None]) & (keys < prompt) | (keys - prompt > lengths[:, None])
        mask = torch.zeros(hidden.shape, dtype=self._dtype).masked_fill_(hidden, float("-inf"))
        return Plan(
            rows=len(self),
            blocks=len(self._blocks),
            block_rows=block_rows,
            prompt=prompt,
            generated=generated,
            gather=torch.tensor(gather),
            scatter=torch.tensor(scatter),
            slots=torch.arange(len(self)),
            columns=lengths,
            positions=prompts + lengths,
            mask=mask[:, None].expand(-1, heads, -1).contiguous(),
        )

    def advance(self) -> None:
        """Counts the token that the step has just written in every row."""
        self.generated = [length + 1 for length in self.generated]

    def _longest(self) -> int:
        return max((block.length for block in self._blocks), default=0)

    def _empty(self, slots: int, tokens: int) -> Tensor:
        config = self._config
        shape = (config.num_hidden_layers, 2, slots, config.num_key_value_heads, tokens, config.head_dim)
        return torch.empty(shape, dtype=self._dtype)

    def _add_block(self, prefix: Prefix) -> _Block:
        number, block = len(self._blocks), _Block(prefix)
        self.prompts = self._grown(self.prompts, number, number + 1, prefix.length)
        self.prompts[:, :, number, :, : prefix.length] = prefix.kv
        self.prompts[:, :, number, :, prefix.length :] = 0
        self._blocks.append(block)
        self._open[prefix.serial] = block
        return block

    def _remove_block(self, block: _Block) -> None:
        number, last = self._blocks.index(block), len(self._blocks) - 1
        if number != last:
            self.prompts[:, :, number] = self.prompts[:, :, last]
            self._blocks[number] = self._blocks[last]
        self._blocks.pop()
        if self._open.get(block.serial) is block:
            del self._open[block.serial]
        self.prompts = self._shrunk(self.prompts, len(self._blocks), self._longest())

    def _reserve_answers(self, slots: int, tokens: int) -> None:
        self.answers = self._grown(self.answers, slots, slots, tokens)

    def _grown(self, memory: Tensor, used: int, slots: int, tokens: int) -> Tensor:
        """The same contents with room for that many slots and tokens; zeros elsewhere, so that weight 0 gives 0."""
        have_slots, have_tokens = memory.shape[2], memory.shape[4]
        if slots <= have_slots and tokens <= have_tokens:
            return memory
        slots = have_slots if slots <= have_slots else max(slots, 2 * have_slots, 8)
        wanted = have_tokens if tokens <= have_tokens else max(tokens, have_tokens * 5 // 4)
        grown = self._empty(slots, _rounded(wanted)).zero_()
        kept = min(used, have_slots)
        grown[:, :, :kept, :, :have_tokens] = memory[:, :, :kept]
        return grown

    def _shrunk(self, memory: Tensor, used: int, tokens: int) -> Tensor:
        """The used slots with as many tokens as are needed, where the memory is far longer; nothing when unused."""
        if not used:
            return self._empty(0, 0)
        if memory.shape[4] <= 2 * max(tokens, 4 * _ROUND):
            return memory
        small = self._empty(used, _rounded(tokens))
        return small.copy_(memory[:, :, :used, :, : small.shape[4]])


def _rounded(tokens: int) -> int:
    return -(-tokens // _ROUND) * _ROUND

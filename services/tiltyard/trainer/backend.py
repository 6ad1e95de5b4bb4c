"""The trainer's outside world: the learner that owns the weights, and the streams it reads and writes.

`Learner` is the seam for training beyond one process: a sharded learner (FSDP2 under torchrun) keeps the same four
calls, with rank 0 talking to the bus; it is left out for now. `learner.TorchLearner` is the real one here,
`FakeLearner` a two-line policy for tests of what lies around it.
Invariants of a learner: `step` either updates the weights and returns or raises and leaves them as they were;
after `load` of what `save` wrote it goes on exactly as the one that saved; `export` is what the engine must serve.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import anyio
import msgspec

from tiltyard.kit.bus import Bus
from tiltyard.kit.jetstream import BusUnavailable
from tiltyard_proto.messages import Group, Policy
from tiltyard_proto.topology import GROUP, POLICY

from .batch import Batch

STEP_METRICS = (
    "loss",
    "entropy",
    "mismatch_kl",
    "mismatch_tokens",
    "ratio_max",
    "clipped",
    "grad_norm",
    "lr",
    "skipped",
    "seconds",
    "cpu_forward_s",
    "cpu_backward_s",
    "cpu_optimizer_s",
    "cpu_s",
)
"""What `Learner.step` returns, all floats; zeros where nothing was trained."""


class StepAbandoned(Exception):
    """The step was given up before the weights were touched, because the caller asked for it."""


class CheckpointDamaged(Exception):
    """A checkpoint is incomplete or not what was written."""


class Weights(msgspec.Struct, frozen=True):
    """The weights file of a policy directory."""

    sha256: str
    size: int


class Learner(Protocol):
    """Owner of the weights and the optimizer. Calls come from one thread at a time."""

    vocab_size: int

    def step(self, batch: Batch, lr: float, abandon: Callable[[], bool]) -> dict[str, float]:
        """One update; the metrics of STEP_METRICS. StepAbandoned when `abandon()` turned true before the update."""
        ...

    def save(self, directory: Path) -> None:
        """Write everything that the next step depends on into an existing directory."""
        ...

    def load(self, directory: Path) -> None:
        """Take up what `save` wrote; CheckpointDamaged when it can't be read, ValueError when it is another model's."""
        ...

    def export(self, directory: Path) -> Weights:
        """Write a Hugging Face model (weights, configuration, tokenizer) into an existing directory."""
        ...


class FakeLearner:
    """A policy of one number per token id, moved by the advantages of that token. Fake of `Learner`."""

    def __init__(self, vocab_size: int, *, remember: bool = True) -> None:
        self.vocab_size = vocab_size
        self.weights: dict[int, float] = {}
        self.remember = remember
        self.seen: list[Batch] = []
        """All batches, where somebody will ask."""

    def step(self, batch: Batch, lr: float, abandon: Callable[[], bool]) -> dict[str, float]:
        if abandon():
            raise StepAbandoned
        if self.remember:
            self.seen.append(batch)
        for row in batch.rows:
            for token, advantage in zip(row.targets, row.advantages, strict=True):
                self.weights[token] = self.weights.get(token, 0.0) + lr * advantage / batch.normalizer
        return dict.fromkeys(STEP_METRICS, 0.0) | {"lr": lr}

    def save(self, directory: Path) -> None:
        (directory / "fake.json").write_text(json.dumps(sorted(self.weights.items())))

    def load(self, directory: Path) -> None:
        try:
            self.weights = dict(json.loads((directory / "fake.json").read_text()))
        except (OSError, ValueError) as error:
            raise CheckpointDamaged(str(error)) from error

    def export(self, directory: Path) -> Weights:
        body = json.dumps(sorted(self.weights.items())).encode()
        (directory / "config.json").write_text("{}")
        (directory / "model.safetensors").write_bytes(body)
        return Weights(hashlib.sha256(body).hexdigest(), len(body))


class Streams(Protocol):
    """The two streams of the trainer."""

    def groups(self, after: int) -> AsyncIterator[tuple[int, Group]]:
        """All groups in order from the one after position `after`, then live, for ever."""
        ...

    async def publish(self, policy: Policy) -> Policy:
        """Publish a version; what stands under its key now: `policy`, or the one that was there first."""
        ...


class BusStreams:
    """`Streams` on the bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def groups(self, after: int) -> AsyncIterator[tuple[int, Group]]:
        return self._bus.follow(GROUP, after=after)

    async def publish(self, policy: Policy) -> Policy:
        if await self._bus.publish(POLICY, policy):
            return policy
        while True:
            try:
                stands = await self._bus.get(POLICY, POLICY.subject(policy))
            except BusUnavailable:
                stands = None
            if stands is not None:
                return stands
            await anyio.sleep(0.1)  # the bus is away, or the replica that was asked does not have it yet


class MemoryStreams:
    """Fake of `Streams`: one process, nothing kept."""

    def __init__(self) -> None:
        self.policies: dict[int, Policy] = {}
        self._groups: list[Group] = []
        self._changed = anyio.Event()

    def add(self, group: Group) -> int:
        """A closed group; its position."""
        self._groups.append(group)
        self._notify()
        return len(self._groups)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def groups(self, after: int) -> AsyncIterator[tuple[int, Group]]:
        position = after
        while True:
            while position < len(self._groups):
                position += 1
                yield position, self._groups[position - 1]
            await self._changed.wait()

    async def publish(self, policy: Policy) -> Policy:
        await anyio.lowlevel.checkpoint()
        found = self.policies.setdefault(policy.version, policy)
        self._notify()
        return found

    async def version(self, version: int) -> Policy:
        """Wait until a version is published."""
        while version not in self.policies:
            await self._changed.wait()
        return self.policies[version]

"""What a step measures: sums over action tokens, and CPU and wall time by phase.

Invariants: sums are over the tokens that were computed, so rollouts without advantage are not in them; nothing here
carries a gradient. Left out: what is known before training (rewards, staleness), which `batch` counts.
"""

from __future__ import annotations

import time

from torch import Tensor

from .collate import Packed
from .loss import TokenLoss


class Clock:
    """CPU seconds of the process by phase, and wall seconds."""

    def __init__(self) -> None:
        self._wall = time.monotonic()
        self._cpu = self._start = time.process_time()
        self._phases = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}

    def lap(self, phase: str) -> None:
        """Count the CPU time since the last lap to `phase`."""
        now = time.process_time()
        self._phases[phase] += now - self._cpu
        self._cpu = now

    def metrics(self) -> dict[str, float]:
        """seconds, cpu_s and cpu_<phase>_s."""
        return {
            "seconds": time.monotonic() - self._wall,
            "cpu_s": self._cpu - self._start,
            **{f"cpu_{phase}_s": value for phase, value in self._phases.items()},
        }


class Sums:
    """Sums over the action tokens of a step."""

    def __init__(self) -> None:
        self._tokens = self._clipped = self._current = 0
        self._loss = self._surprise = self._divergence = self._ratio_max = 0.0

    def add(self, loss: Tensor, logprobs: Tensor, packed: Packed, part: slice, terms: TokenLoss) -> None:
        """One chunk of targets: its summed loss, the trainer's log-probabilities and the loss terms."""
        logprobs = logprobs.detach()
        self._tokens += len(logprobs)
        self._loss += float(loss.detach())
        self._surprise -= float(logprobs.sum())
        self._clipped += int(terms.clipped.sum())
        self._ratio_max = max(self._ratio_max, float(terms.ratio.max()))
        current = packed.current[part]
        gap = (logprobs - packed.sampled[part])[current]
        self._current += len(gap)
        self._divergence += float((gap.clamp(max=20.0).exp() - 1 - gap).sum())

    def metrics(self, normalizer: float) -> dict[str, float]:
        """loss, entropy (mean -log p of sampled tokens), mismatch_kl (k3, tokens of that version), ratio, clip."""
        count = max(1, self._tokens)
        return {
            "loss": self._loss / normalizer,
            "entropy": self._surprise / count,
            "mismatch_kl": self._divergence / max(1, self._current),
            "mismatch_tokens": float(self._current),
            "ratio_max": self._ratio_max,
            "clipped": self._clipped / count,
        }

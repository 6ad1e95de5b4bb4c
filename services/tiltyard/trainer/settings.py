"""Settings of the trainer.

Defaults are those that made a 135 M model learn on two cores (20 steps of 8 groups of 8). The learning rate is the
touchy one: 3e-5 is slow, 1e-4 spends the entropy in a few steps.
Left out: steps, groups per step and wall-time budget, which the whole run shares (`[run]`).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from tiltyard.kit.ranges import Above0, Amount, Positive, Share, Whole

LossKind = Literal["tis", "clip", "cispo"]


class TrainerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Table `[trainer]`."""

    learner: Literal["torch", "fake"] = "torch"
    """'torch' trains; 'fake' counts tokens instead, for load tests of everything around it."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of the weights in the forward and backward pass, and of published weights; the optimizer always keeps float32."""
    device: Annotated[str, msgspec.Meta(pattern="^(cpu|mps|(cuda|xpu)(:[0-9]+)?)$")] = "cpu"
    """Torch device: 'cpu', 'cuda', 'cuda:0'."""
    threads: int = 2
    """Torch threads; 0 leaves torch's own choice."""
    attention: Literal["dense", "sdpa", "eager"] = "dense"
    """'dense': plain matrix products, cheapest for rows below some 500 tokens; 'sdpa': less memory for long rows."""

    loss: LossKind = "tis"
    """'tis': importance ratio truncated above; 'clip': PPO; 'cispo': importance ratio clamped on both sides."""
    tis_cap: Above0 = 2.0
    """Upper bound of the importance ratio of 'tis'."""
    clip_low: Share = 0.2
    """'clip': the ratio counts down to 1 - clip_low."""
    clip_high: Amount = 0.28
    """'clip': the ratio counts up to 1 + clip_high."""
    dual_clip: Above0 = 3.0
    """'clip': bound of ratio times |advantage| for negative advantages; must exceed 1."""
    cispo_low: Amount = 0.0
    """'cispo': lower bound of the ratio."""
    cispo_high: Above0 = 5.0
    """'cispo': upper bound of the ratio."""
    full_step_share: Amount = 0.5
    """A step with fewer groups than this share of `run.groups_per_step` is scaled down in proportion."""
    max_staleness: int = 4
    """Rollouts whose generation began more policy versions ago than this are left out."""

    lr: Above0 = 5e-5
    """Peak learning rate."""
    warmup_steps: Whole = 3
    """Steps of linear warm-up."""
    decay_share: Share = 1 / 3
    """Last share of the planned steps in which the learning rate falls linearly; 0 keeps it constant."""
    beta1: Share = 0.9
    """AdamW: decay of the first moment."""
    beta2: Share = 0.99
    """AdamW: decay of the second moment."""
    weight_decay: Amount = 0.0
    """AdamW: decoupled weight decay."""
    clip_norm: Amount = 1.0
    """Bound of the gradient's global norm; 0 for none."""

    micro_batch_tokens: Positive = 1500
    """Padded tokens of one forward pass; bounds memory."""
    logit_rows: int = 512
    """Positions whose logits are held at once (times the vocabulary, in float32)."""

    checkpoint_every: int = 5
    """Steps between checkpoints; one is also made at the end and on shutdown."""
    keep_checkpoints: int = 2
    """Newest checkpoints kept; the older one is the fall-back for a damaged newer one."""
    keep_policies: int = 3
    """Newest weight directories kept; at least 2."""
    keep_policies_s: Amount = 300.0
    """A weight directory younger than this many seconds is kept too: an engine may still be loading it."""

    def __post_init__(self) -> None:
        for key in ("lr", "tis_cap", "cispo_high"):
            if getattr(self, key) <= 0:
                raise ValueError(f"{key}: expected more than 0")
        for key, least in _LEAST.items():
            if getattr(self, key) < least:
                raise ValueError(f"{key}: expected at least {least}")
        if not 0 <= self.decay_share <= 1:
            raise ValueError("decay_share: expected 0 to 1")
        if self.dual_clip <= 1:
            raise ValueError("dual_clip: expected more than 1")


_LEAST: dict[str, int] = {
    "threads": 0,
    "full_step_share": 0,
    "max_staleness": 0,
    "warmup_steps": 0,
    "clip_norm": 0,
    "micro_batch_tokens": 16,
    "logit_rows": 1,
    "checkpoint_every": 1,
    "keep_checkpoints": 1,
    "keep_policies": 2,
}

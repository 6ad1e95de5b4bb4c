"""Policy-gradient losses per token, against the sampler's own log-probabilities.

The sampler's log-probabilities are the anchor: no second forward pass, and the weight corrects both staleness and
the numerical gap between sampler and trainer. Inputs are [N] over action tokens; the caller sums and normalizes.
Left out: a KL penalty to a reference policy (no gain seen in practice), and ratios over whole sequences.
Sources: TIS (truncated importance sampling of off-policy policy gradients), PPO with an asymmetric clip (DAPO) and
the dual clip, CISPO (MiniMax-M1).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .settings import TrainerSettings


class TokenLoss(NamedTuple):
    """Loss and diagnostics per token, [N] each."""

    loss: Tensor
    """Differentiable in the trainer's log-probabilities."""
    ratio: Tensor
    """exp(trainer - sampler), detached."""
    clipped: Tensor
    """Bool: the token's ratio was bounded, detached."""


def token_loss(logprobs: Tensor, sampled: Tensor, advantages: Tensor, settings: TrainerSettings) -> TokenLoss:
    """The loss of each token.

    `logprobs` [N] are the trainer's at the sampling temperature and carry the gradient, `sampled` [N] the sampler's,
    `advantages` [N] those of the rollouts the tokens belong to; all float32.
    """
    ratio = torch.exp((logprobs - sampled).clamp(max=20.0))
    if settings.loss == "clip":
        return _clip(ratio, advantages, settings)
    low, high = (0.0, settings.tis_cap) if settings.loss == "tis" else (settings.cispo_low, settings.cispo_high)
    fixed = ratio.detach()
    weight = fixed.clamp(low, high)
    return TokenLoss(-weight * advantages * logprobs, fixed, weight != fixed)


def _clip(ratio: Tensor, advantages: Tensor, settings: TrainerSettings) -> TokenLoss:
    bounded = ratio.clamp(1.0 - settings.clip_low, 1.0 + settings.clip_high)
    gain = torch.minimum(ratio * advantages, bounded * advantages)
    dual = torch.maximum(gain, settings.dual_clip * advantages)
    gain = torch.where(advantages < 0, dual, gain)
    return TokenLoss(-gain, ratio.detach(), gain.detach() != (ratio * advantages).detach())

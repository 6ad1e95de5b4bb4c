"""Log-probabilities of a few tokens per row out of logits over the whole vocabulary, at the cost of few passes.

The logits are the largest tensors of a step (rows times vocabulary), so they are turned into their own gradient in
place. Invariants: the result is `log_softmax(logits / temperature)[points, targets]`, in float32; `backward` can run
once. Left out: a fused kernel with the output layer, which would not be model-agnostic.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Selected(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, logits_PV: Tensor, temperatures_P: Tensor, points_N: Tensor, targets_N: Tensor) -> Tensor:
        scaled = logits_PV.float() if logits_PV.dtype != torch.float32 else logits_PV.clone()
        if bool((temperatures_P != 1).any()):
            scaled.div_(temperatures_P[:, None])
        normalizers = torch.logsumexp(scaled, dim=-1)
        ctx.saved = (scaled, normalizers, temperatures_P, points_N, targets_N)
        ctx.dtype = logits_PV.dtype
        return scaled[points_N, targets_N] - normalizers[points_N]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient_N,) = gradients
        scaled, normalizers, temperatures_P, points_N, targets_N = ctx.saved
        ctx.saved = None
        weights_N = gradient_N / temperatures_P[points_N]
        sums_P = torch.zeros_like(normalizers).index_add_(0, points_N, weights_N)
        scaled.sub_(normalizers[:, None]).exp_().mul_(-sums_P[:, None])
        scaled.index_put_((points_N, targets_N), weights_N, accumulate=True)
        return scaled.to(ctx.dtype), None, None, None


def selected_logprobs(logits_PV: Tensor, temperatures_P: Tensor, points_N: Tensor, targets_N: Tensor) -> Tensor:
    """Log-probability [N] of token `targets_N` at row `points_N` of `logits_PV` divided by `temperatures_P`; float32.

    Differentiable in the logits, once.
    """
    found: Tensor = _Selected.apply(logits_PV, temperatures_P, points_N, targets_N)
    return found

"""Choosing the next token: temperature, top-k, top-p, min-p or greedy, by inverse CDF from one uniform number per row.

Shapes: B rows, V vocabulary. Invariants: the log-probability returned is log-softmax of logits / temperature over the
whole vocabulary, before any truncation (greedy: temperature 1), as SGLang reports it; the same seed gives the same
tokens. Rows without truncation, the usual case in training, never sort: the vocabulary is summed in blocks, the
uniform number picks a block and then a token inside it. Left out: penalties, grammars.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tiltyard.policy.sampling_settings import Sampling

_BLOCK = 256
_ROWS_AT_ONCE = 8


def sample(logits_BV: Tensor, how: Sequence[Sampling], uniforms_B: Tensor) -> tuple[list[int], list[float]]:
    """Draws one token per row.

    `logits_BV` may be bf16 or float32 and is not changed; `uniforms_B` is float32 in [0, 1). Returns token ids and
    log-probabilities. Raises ValueError when a row holds no finite logit.
    """
    tokens: list[int] = []
    logprobs: list[float] = []
    for begin in range(0, len(how), _ROWS_AT_ONCE):
        some = slice(begin, begin + _ROWS_AT_ONCE)
        theirs = _sample_some(logits_BV[some], how[some], uniforms_B[some])
        tokens += theirs[0].tolist()
        logprobs += theirs[1].tolist()
    return tokens, logprobs


def _sample_some(logits_BV: Tensor, how: Sequence[Sampling], uniforms_B: Tensor) -> tuple[Tensor, Tensor]:
    """The same for few enough rows that the copies of their logits stay in the CPU's cache."""
    scaled = _scaled(logits_BV, how)
    top = scaled.amax(-1, keepdim=True)
    if not bool(torch.isfinite(top).all()):
        raise ValueError("the model gave logits that are not finite: its weights are damaged or its training diverged")
    weights = torch.sub(scaled, top).exp_()
    padding = -weights.shape[1] % _BLOCK
    padded = torch.nn.functional.pad(weights, (0, padding)) if padding else weights
    blocks = padded.view(len(how), -1, _BLOCK)
    cumulative = blocks.sum(-1).cumsum(-1)
    tokens = _inverse_cdf(blocks, cumulative, uniforms_B[:, None])
    _replace(tokens, [row for row, s in enumerate(how) if s.greedy], lambda rows: scaled[rows].argmax(-1))
    cut = [row for row, s in enumerate(how) if s.truncates]
    _replace(tokens, cut, lambda rows: _truncated(weights[rows], [how[row] for row in cut], uniforms_B[rows]))
    logprobs = scaled.gather(1, tokens[:, None]) - top - cumulative[:, -1:].log()
    return tokens, logprobs[:, 0]


def token_logprobs(logits_TV: Tensor, tokens_T: Tensor) -> Tensor:
    """Log-probabilities [T] of given tokens at temperature 1, in float32."""
    logits = logits_TV.float()
    return logits.gather(1, tokens_T[:, None])[:, 0] - logits.logsumexp(-1)


def _scaled(logits_BV: Tensor, how: Sequence[Sampling]) -> Tensor:
    temperatures = [1.0 if s.greedy else s.temperature for s in how]
    logits = logits_BV.float()
    if all(value == 1.0 for value in temperatures):
        return logits
    return logits / torch.tensor(temperatures)[:, None]


def _inverse_cdf(blocks: Tensor, cumulative: Tensor, uniforms: Tensor) -> Tensor:
    """The token where the running sum of the weights [B, blocks, 256] passes the uniform share of their total."""
    target = uniforms * cumulative[:, -1:]
    last = cumulative.shape[1] - 1
    block = torch.searchsorted(cumulative, target, right=True).clamp_(max=last)
    below = torch.where(block > 0, cumulative.gather(1, (block - 1).clamp_(min=0)), 0.0)
    inside = blocks[torch.arange(len(blocks)), block[:, 0]]
    place = torch.searchsorted(inside.cumsum(-1), target - below, right=True)
    heaviest = inside.argmax(-1, keepdim=True)  # where rounding carried the target past the block's end
    chosen = torch.where(place < _BLOCK, place, heaviest)
    chosen = torch.where(inside.gather(1, chosen) > 0, chosen, heaviest)
    return (block * _BLOCK + chosen)[:, 0]


def _truncated(weights_BV: Tensor, how: Sequence[Sampling], uniforms_B: Tensor) -> Tensor:
    """Samples among the tokens left by top-k, then top-p, then min-p, as SGLang's torch sampler orders them."""
    ordered, order = weights_BV.sort(-1, descending=True)
    shares = ordered / ordered.sum(-1, keepdim=True)
    vocabulary = shares.shape[1]
    rank = torch.arange(vocabulary)
    top_k = torch.tensor([s.top_k if s.top_k > 0 else vocabulary for s in how])[:, None]
    top_p, min_p = (torch.tensor(values)[:, None] for values in ([s.top_p for s in how], [s.min_p for s in how]))
    before = shares.cumsum(-1) - shares
    kept = shares * ((rank < top_k) & (before <= top_p) & (shares >= shares[:, :1] * min_p))
    running = kept.cumsum(-1)
    place = torch.searchsorted(running, uniforms_B[:, None] * running[:, -1:], right=True)
    place = torch.minimum(place, (kept > 0).sum(-1, keepdim=True) - 1)
    return order.gather(1, place)[:, 0]


def _replace(tokens: Tensor, rows: list[int], choose: Callable[[Tensor], Tensor]) -> None:
    if rows:
        index = torch.tensor(rows)
        tokens[index] = choose(index)

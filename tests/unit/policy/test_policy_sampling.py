"""Sampling: the distribution that was asked for, and the log-probability of the untruncated one."""

import math

import pytest
import torch

from tiltyard.policy.sampling import sample
from tiltyard.policy.sampling_settings import Sampling, seeded_uniform

V = 700


@pytest.fixture(scope="module")
def logits() -> torch.Tensor:
    return torch.randn(V, generator=torch.Generator().manual_seed(3)) * 2


def draw(logits: torch.Tensor, how: Sampling, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token counts [V] and log-probabilities of `count` draws at evenly spread uniforms."""
    tokens: list[int] = []
    logprobs: list[float] = []
    for begin in range(0, count, 1000):
        uniforms = (torch.arange(begin, begin + 1000) + 0.5) / count
        more, theirs = sample(logits.expand(1000, -1), [how] * 1000, uniforms)
        tokens += more
        logprobs += theirs
    return torch.bincount(torch.tensor(tokens), minlength=V), torch.tensor(logprobs)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_frequencies_are_the_softmax(logits: torch.Tensor, temperature: float) -> None:
    """Over evenly spread uniforms each token is drawn as often as its probability says, to within rounding."""
    counts, _ = draw(logits, Sampling(temperature=temperature), 20_000)
    expected = (logits / temperature).softmax(-1) * 20_000
    assert (counts - expected).abs().max() <= 2.1


@pytest.mark.parametrize(
    "how", [Sampling(top_k=5), Sampling(top_p=0.5), Sampling(min_p=0.2), Sampling(0.8, top_k=40, top_p=0.7, min_p=0.05)]
)
def test_truncation_draws_only_the_kept_tokens(logits: torch.Tensor, how: Sampling) -> None:
    """Truncated sampling draws the renormalised kept tokens and no others."""
    probabilities = (logits / how.temperature).softmax(-1)
    ordered, order = probabilities.sort(descending=True)
    kept = torch.ones(V, dtype=torch.bool)
    if how.top_k > 0:
        kept[how.top_k :] = False
    kept &= ordered.cumsum(-1) - ordered <= how.top_p
    kept &= ordered >= how.min_p * ordered[0]
    expected = torch.zeros(V).scatter(0, order, torch.where(kept, ordered, 0.0))
    expected *= 10_000 / expected.sum()
    counts, _ = draw(logits, how, 10_000)
    assert counts[expected == 0].sum() == 0
    assert (counts - expected).abs().max() <= 2.1


def test_logprob_is_before_truncation(logits: torch.Tensor) -> None:
    """The log-probability is that of logits / temperature over the whole vocabulary, truncated or not."""
    tokens, logprobs = sample(logits[None], [Sampling(temperature=0.7, top_k=1)], torch.tensor([0.3]))
    assert tokens == [int(logits.argmax())]
    assert logprobs[0] == pytest.approx((logits / 0.7).log_softmax(-1).max().item(), abs=1e-5)


def test_greedy_takes_the_best_at_temperature_one(logits: torch.Tensor) -> None:
    """Temperature 0 takes the most likely token and reports its log-probability at temperature 1."""
    tokens, logprobs = sample(logits[None], [Sampling(temperature=0.0)], torch.tensor([0.99]))
    assert tokens == [int(logits.argmax())]
    assert logprobs[0] == pytest.approx(logits.log_softmax(-1).max().item(), abs=1e-5)


def test_rows_are_sampled_each_in_its_own_way(logits: torch.Tensor) -> None:
    """Rows with different settings in one batch do not influence each other."""
    hows = [Sampling(), Sampling(temperature=0.0), Sampling(top_k=3), Sampling(temperature=2.0, top_p=0.4)]
    uniforms = torch.tensor([0.1, 0.5, 0.9, 0.7])
    together = sample(logits.expand(4, -1), hows, uniforms)
    alone = [sample(logits[None], [how], uniforms[n : n + 1]) for n, how in enumerate(hows)]
    assert together[0] == [tokens[0] for tokens, _ in alone]
    assert together[1] == pytest.approx([logprobs[0] for _, logprobs in alone], abs=1e-5)


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2**-24])
def test_extreme_uniforms_give_possible_tokens(uniform: float) -> None:
    """The ends of the unit interval never pick a token of probability zero."""
    logits = torch.full((1, V), float("-inf"))
    logits[0, [10, 300, 600]] = 0.0
    tokens, logprobs = sample(logits, [Sampling()], torch.tensor([uniform]))
    assert tokens[0] in (10, 300, 600)
    assert logprobs[0] == pytest.approx(-math.log(3), abs=1e-5)


def test_damaged_logits_are_refused() -> None:
    """A row of NaN is an error, never a token."""
    with pytest.raises(ValueError, match="not finite"):
        sample(torch.full((1, V), float("nan")), [Sampling()], torch.tensor([0.5]))


def test_seeded_uniforms_repeat() -> None:
    """The same seed and position give the same number, others another, all in [0, 1)."""
    numbers = [seeded_uniform(7, position) for position in range(1000)]
    assert numbers == [seeded_uniform(7, position) for position in range(1000)]
    assert len(set(numbers)) > 990
    assert all(0 <= number < 1 for number in numbers)
    assert 0.45 < sum(numbers) / 1000 < 0.55

"""Losses against references written out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tiltyard.trainer.logprobs import selected_logprobs
from tiltyard.trainer.loss import token_loss
from tiltyard.trainer.settings import TrainerSettings

NEW = [-1.0, -0.2, -3.0, -0.5, -2.0]
OLD = [-1.0, -1.5, -1.0, -0.6, -0.1]
ADVANTAGES = [1.0, 1.0, -1.0, -1.0, -2.0]


def run(**fields: Any) -> tuple[list[float], list[float], list[bool]]:
    """Loss per token, gradient with respect to the trainer's log-probabilities, clipped or not."""
    logprobs = torch.tensor(NEW, requires_grad=True)
    terms = token_loss(logprobs, torch.tensor(OLD), torch.tensor(ADVANTAGES), TrainerSettings(**fields))
    terms.loss.sum().backward()
    assert logprobs.grad is not None
    return terms.loss.tolist(), logprobs.grad.tolist(), terms.clipped.tolist()


def ratios() -> list[float]:
    return [math.exp(new - old) for new, old in zip(NEW, OLD, strict=True)]


def test_tis_weighs_by_the_truncated_ratio_and_differentiates_the_log_probability_only() -> None:
    """loss = -min(ratio, cap) A log p, and its gradient is -min(ratio, cap) A."""
    loss, gradient, clipped = run(loss="tis", tis_cap=2.0)
    weights = [min(ratio, 2.0) for ratio in ratios()]
    assert loss == pytest.approx([-w * a * p for w, a, p in zip(weights, ADVANTAGES, NEW, strict=True)])
    assert gradient == pytest.approx([-w * a for w, a in zip(weights, ADVANTAGES, strict=True)])
    assert clipped == [False, True, False, False, False]


def test_cispo_clamps_the_ratio_on_both_sides_and_keeps_every_tokens_gradient() -> None:
    """No token loses its gradient; weights lie between the bounds."""
    _, gradient, clipped = run(loss="cispo", cispo_low=0.5, cispo_high=1.2)
    weights = [min(max(ratio, 0.5), 1.2) for ratio in ratios()]
    assert gradient == pytest.approx([-w * a for w, a in zip(weights, ADVANTAGES, strict=True)])
    assert clipped == [False, True, True, False, True]


def clip_reference(ratio: float, advantage: float) -> float:
    bounded = min(max(ratio, 0.8), 1.28)
    gain = min(ratio * advantage, bounded * advantage)
    if advantage < 0:
        gain = max(gain, 3.0 * advantage)
    return -gain


def test_clip_is_ppo_with_an_asymmetric_range() -> None:
    """The loss is PPO's; tokens whose ratio left the range in the advantage's direction have no gradient."""
    loss, gradient, clipped = run(loss="clip")
    assert loss == pytest.approx([clip_reference(r, a) for r, a in zip(ratios(), ADVANTAGES, strict=True)])
    assert gradient[1] == 0  # ratio 3.7, positive advantage
    assert gradient[2] == 0  # ratio 0.14, negative advantage
    assert gradient[0] == pytest.approx(-1.0)
    assert clipped == [False, True, True, False, True]


def test_dual_clip_bounds_the_loss_of_a_bad_token_that_became_much_likelier() -> None:
    """A ratio of e^2 with a negative advantage costs at most three times the advantage."""
    logprobs = torch.tensor([-0.5], requires_grad=True)
    terms = token_loss(logprobs, torch.tensor([-2.5]), torch.tensor([-1.0]), TrainerSettings(loss="clip"))
    assert terms.loss.item() == pytest.approx(3.0)
    assert terms.clipped.item()


@pytest.mark.parametrize("kind", ["tis", "clip", "cispo"])
def test_an_absurd_ratio_stays_finite(kind: str) -> None:
    """A token that the sampler held impossible gives a finite loss and gradient."""
    logprobs = torch.tensor([-0.1], requires_grad=True)
    terms = token_loss(logprobs, torch.tensor([-300.0]), torch.tensor([1.0]), TrainerSettings(loss=kind))  # type: ignore[arg-type]
    terms.loss.sum().backward()
    assert logprobs.grad is not None
    assert torch.isfinite(terms.loss).all()
    assert torch.isfinite(logprobs.grad).all()


@pytest.mark.parametrize("temperatures", [[1.0, 1.0, 1.0], [0.5, 1.0, 2.0]])
def test_selected_log_probabilities_and_their_gradient_are_those_of_log_softmax(temperatures: list[float]) -> None:
    """Several targets at one point, none at another: values and gradients equal the plain formula's."""
    torch.manual_seed(0)
    logits, scale = torch.randn(3, 7), torch.tensor(temperatures)
    points, targets = torch.tensor([0, 0, 0, 2]), torch.tensor([1, 1, 5, 6])
    weights = torch.tensor([1.0, -0.5, 2.0, 3.0])
    results = []
    for fast in (True, False):
        leaf = logits.clone().requires_grad_()
        if fast:
            found = selected_logprobs(leaf, scale, points, targets)
        else:
            found = torch.log_softmax(leaf / scale[:, None], -1)[points, targets]
        (found * weights).sum().backward()
        results.append((found.detach(), leaf.grad))
        assert torch.equal(leaf.detach(), logits)
    torch.testing.assert_close(results[0], results[1])

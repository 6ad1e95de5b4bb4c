"""The torch learner: packed equals plain, the update is the gradient's, and it learns."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support import training
from torch import Tensor
from transformers import AutoModelForCausalLM

from tiltyard.trainer.batch import Batch, Limits, Row, Trajectory, build, micro_batches, pack, trajectory
from tiltyard.trainer.collate import ancestry, collate
from tiltyard.trainer.learner import TorchLearner, check_packing
from tiltyard.trainer.settings import TrainerSettings
from tiltyard_proto.messages import Group, Rollout

LIMITS = Limits(max_staleness=4, row_cap=1000, vocab_size=training.VOCAB, full_groups=0.0)
CPU = torch.device("cpu")


def settings(**fields: Any) -> TrainerSettings:
    return TrainerSettings(**{"dtype": "float32", "threads": 1, "lr": 1e-2, "warmup_steps": 0, **fields})


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return training.tiny_model(tmp_path_factory.mktemp("model"))


def never() -> bool:
    return False


def mixed_group() -> Group:
    """Five members: two turns, shared beginnings, equal rollouts, one of a single token."""
    prompt = [2, 3, 4, 5]
    pieces = [
        [(prompt, [10, 11, 12]), ([13, 14], [15, 16])],
        [(prompt, [10, 11, 30])],
        [(prompt, [10, 11, 12]), ([13, 14], [15, 17, 18])],
        [(prompt, [10, 11, 30])],
        [(prompt, [40])],
    ]
    made = [
        training.member(i, "run-t-0", training.turns(piece, logprob=-1.0 - i), float(i), i - 1.9)
        for i, piece in enumerate(pieces)
    ]
    return training.group(made)


def plain_logprobs(model: Any, rollout: Rollout, temperature: float = 1.0) -> Tensor:
    """Log-probabilities of the action tokens from one unpacked forward pass."""
    item = trajectory(rollout, 1.0, training.VOCAB)
    logits = model(input_ids=torch.tensor([item.ids])).logits[0] / temperature
    return torch.log_softmax(logits, -1)[[i - 1 for i in item.targets], [item.ids[i] for i in item.targets]]


def packed_logprobs(learner: TorchLearner, rows: list[Row]) -> Tensor:
    packed = collate(rows, version=0, dtype=torch.float32, device=CPU)
    hidden = learner.hidden(packed).flatten(0, 1)[packed.sources]
    got = learner.logprobs(hidden, packed)
    starts = [sum(len(row.sources) for row in rows[:i]) for i in range(len(rows))]
    points = torch.tensor([start + at for start, row in zip(starts, rows, strict=True) for at in row.points])
    return got[points.argsort(stable=True).argsort()]  # from the order of points back to that of the rows


@pytest.mark.parametrize("attention", ["dense", "sdpa", "eager"])
def test_packed_log_probabilities_equal_those_of_each_rollout_alone(source: Path, attention: str) -> None:
    """In float32, packed and padded with another row, every token's log-probability is the plain one to 1e-5."""
    learner = TorchLearner(source, settings(attention=attention))
    group = mixed_group()
    rollouts = [member.verdict.rollout for member in group.members]
    rows = pack([trajectory(rollout, 1.0, training.VOCAB) for rollout in rollouts], 1000)
    rows += pack([trajectory(rollouts[4], 1.0, training.VOCAB)], 1000)
    assert len(rows) == 2
    assert len(rows[0]) < sum(len(trajectory(r, 1.0, training.VOCAB).ids) for r in rollouts) / 2
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    with torch.no_grad():
        got = packed_logprobs(learner, rows)
        wanted = torch.cat([plain_logprobs(model, rollout) for rollout in [*rollouts, rollouts[4]]])
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)


def test_a_token_attends_to_its_ancestors_and_itself() -> None:
    """Members see the prompt and themselves, never one another; padding sees only itself."""
    row = Row(ids=[1, 2, 3, 4], parents=[-1, 0, 0, 2], positions=[0, 1, 1, 2])
    assert ancestry(row, 5).astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 0, 1, 1, 0],
        [0, 0, 0, 0, 1],
    ]


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.6])
def test_log_probabilities_are_taken_at_the_sampling_temperature(source: Path, temperature: float) -> None:
    """Logits are divided by the temperature that the rollout was sampled with."""
    learner = TorchLearner(source, settings())
    rollout = mixed_group().members[0].verdict.rollout
    item = trajectory(rollout, 1.0, training.VOCAB)
    (row,) = pack([item], 1000)
    row.temperatures = [temperature] * len(row.sources)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    with torch.no_grad():
        got, wanted = packed_logprobs(learner, [row]), plain_logprobs(model, rollout, temperature)
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("cap", "logit_rows"), [(1000, 512), (16, 3)])
def test_the_update_follows_the_gradient_of_the_plain_loss(source: Path, cap: int, logit_rows: int) -> None:
    """However it is cut into micro-batches and chunks, the gradient is that of the loss over all rollouts."""
    learner = TorchLearner(source, settings(micro_batch_tokens=cap, logit_rows=logit_rows, clip_norm=0.0, lr=1e-3))
    group = mixed_group()
    batch = build([group], 0, dataclasses.replace(LIMITS, row_cap=min(cap, 8)))
    assert len(batch.rows) > 1
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    total = torch.zeros(())
    for member in group.members:
        item = trajectory(member.verdict.rollout, member.advantage, training.VOCAB)
        logprobs = plain_logprobs(model, member.verdict.rollout)
        weight = torch.exp(logprobs.detach() - torch.tensor(item.logprobs)).clamp(max=2.0)
        total = total - (weight * member.advantage * logprobs).sum()
    (total / batch.normalizer).backward()
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))
    metrics = learner.step(batch, 1e-3, never)
    assert metrics["grad_norm"] == pytest.approx(float(norm), rel=1e-4)
    assert metrics["loss"] == pytest.approx(float(total.detach()) / batch.normalizer, rel=1e-4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0)
    optimizer.step()
    wanted = dict(model.named_parameters())
    for name, got in learner._model.named_parameters():
        near = (got - wanted[name]).abs() < 1e-5
        assert near.float().mean() > 0.99, name  # Adam's first step is a sign: near-zero gradients may flip


def test_an_empty_batch_changes_nothing(source: Path) -> None:
    """A step without rows leaves weights and optimizer alone and says so in numbers."""
    learner = TorchLearner(source, settings())
    before = {name: value.clone() for name, value in learner._model.state_dict().items()}
    metrics = learner.step(build([], 0, LIMITS), 1e-2, never)
    assert metrics["grad_norm"] == metrics["lr"] == metrics["loss"] == 0
    for name, value in learner._model.state_dict().items():
        assert torch.equal(value, before[name])


def test_mismatch_counts_only_tokens_of_the_version_trained(source: Path) -> None:
    """mismatch_kl is 0 where the sampler's log-probabilities are the trainer's own, and stale tokens don't enter it."""
    learner = TorchLearner(source, settings())
    rows = list(build([mixed_group()], 0, LIMITS).rows)
    with torch.no_grad():
        rows[0].logprobs = packed_logprobs(learner, rows).tolist()
    rows[0].versions[0], rows[0].logprobs[0] = 3, -9.0
    metrics = learner.step(Batch(version=0, rows=tuple(rows), normalizer=10.0, metrics={}), 0.0, never)
    assert abs(metrics["mismatch_kl"]) < 1e-6
    assert metrics["mismatch_tokens"] == len(rows[0].targets) - 1
    assert metrics["ratio_max"] > 2
    assert metrics["entropy"] > 0


def test_a_gradient_that_is_not_finite_is_not_applied(source: Path) -> None:
    """An infinite advantage costs the step, not the weights."""
    learner = TorchLearner(source, settings())
    before = {name: value.clone() for name, value in learner._model.state_dict().items()}
    (row,) = build([mixed_group()], 0, LIMITS).rows
    row.advantages = [float("inf")] * len(row.advantages)
    metrics = learner.step(Batch(version=0, rows=(row,), normalizer=1.0, metrics={}), 1e-2, never)
    assert metrics["skipped"] == 1
    assert all(torch.equal(value, before[name]) for name, value in learner._model.state_dict().items())


@pytest.mark.parametrize("loss", ["tis", "clip", "cispo"])
def test_the_rewarded_token_becomes_likelier_within_a_few_steps(source: Path, loss: str) -> None:
    """A bandit: one answer is rewarded; sampling from the policy, its probability rises above 0.8."""
    learner = TorchLearner(source, settings(loss=loss, lr=1e-2))
    generator = torch.Generator().manual_seed(1)
    start = answer_probability(learner)
    for step in range(12):
        learner.step(build([sampled_group(learner, generator, step)], step, LIMITS), 1e-2, never)
    assert start < 0.2
    assert answer_probability(learner) > 0.8


PROMPT, ANSWER = [2, 3, 4], 7


def distribution(learner: TorchLearner) -> Tensor:
    item = Trajectory([*PROMPT, ANSWER], [3], [0.0], [0], 1.0, 1.0)
    packed = collate(pack([item], 10), version=0, dtype=torch.float32, device=CPU)
    with torch.no_grad():
        return torch.softmax(learner._head(learner.hidden(packed)[0, -1]), -1)


def answer_probability(learner: TorchLearner) -> float:
    return float(distribution(learner)[ANSWER])


def sampled_group(learner: TorchLearner, generator: torch.Generator, version: int) -> Group:
    probabilities = distribution(learner)
    ids = [*torch.multinomial(probabilities, 63, replacement=True, generator=generator).tolist(), ANSWER]
    rewards = [float(token == ANSWER) for token in ids]
    mean = sum(rewards) / len(rewards)
    members = [
        training.member(
            i,
            "run-t-0",
            training.turns([(PROMPT, [token])], version=version, logprob=float(probabilities[token].log())),
            reward,
            reward - mean,
        )
        for i, (token, reward) in enumerate(zip(ids, rewards, strict=True))
    ]
    return training.group(members)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_exported_policy_is_a_hugging_face_directory_of_the_trained_weights(
    tmp_path: Path, dtype: str, tied: bool
) -> None:
    """Weights, configuration and tokenizer files load with transformers and are the learner's, bit for bit."""
    learner = TorchLearner(training.tiny_model(tmp_path / "source", tied=tied), settings(dtype=dtype))
    learner.step(build([mixed_group()], 0, LIMITS), 1e-2, never)
    target = tmp_path / "policy"
    target.mkdir()
    learner.export(target)
    assert (target / "tokenizer.json").read_bytes() == (tmp_path / "source" / "tokenizer.json").read_bytes()
    assert json.loads((target / "config.json").read_text())["dtype"] == dtype
    assert ("lm_head.weight" in load_file(target / "model.safetensors")) is not tied
    loaded = AutoModelForCausalLM.from_pretrained(target)
    assert loaded.dtype == getattr(torch, dtype)
    for name, value in learner._model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def test_small_updates_add_up_in_bfloat16(source: Path) -> None:
    """Updates far below bfloat16's resolution are kept in the float32 weights and show after some steps."""
    learner = TorchLearner(source, settings(dtype="bfloat16"))
    before = learner._model.model.norm.weight.detach().clone()
    for _ in range(40):
        learner.step(build([mixed_group()], 0, LIMITS), 1e-4, never)
    assert not torch.equal(before, learner._model.model.norm.weight)


def test_a_model_that_is_not_the_same_packed_is_refused(source: Path) -> None:
    """A model that ignores the given positions would be trained wrongly, so loading it is a ValueError."""
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager")
    check_packing(model, CPU, torch.float32)
    original = model.model.rotary_emb.forward
    model.model.rotary_emb.forward = lambda x, position_ids: original(x, torch.arange(x.shape[1])[None])
    with pytest.raises(ValueError, match="packed rows"):
        check_packing(model, CPU, torch.float32)


def test_micro_batches_do_not_depend_on_the_order_of_groups() -> None:
    """Rows of one length class go together whatever order they came in."""
    rows = [Row(ids=[0] * n) for n in (3, 9, 3, 9)]
    assert [[len(r) for r in b] for b in micro_batches(rows, 18)] == [[9, 9], [3, 3]]

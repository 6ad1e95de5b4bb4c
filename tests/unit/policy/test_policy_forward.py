"""The fast path agrees with transformers, whatever mixture of prompts and rows is in the batch."""

from pathlib import Path

import pytest
import torch

from tiltyard.policy.config import read_config
from tiltyard.policy.kv import KVBatch, Prefix
from tiltyard.policy.llama import Llama
from tiltyard.policy.reference import forward, load_parameters
from tiltyard.policy.sampling import sample, token_logprobs
from tiltyard.policy.sampling_settings import Sampling
from tiltyard.policy.tiny import make_random

PROMPTS = ([5, 6, 7, 8, 9, 10, 11], [5, 6, 7, 30, 31], [100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111])
ROWS_PER_PROMPT = (10, 1, 3)


@pytest.fixture(scope="module", params=[2, 4], ids=["grouped-query", "all-heads"])
def model_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_random(tmp_path_factory.mktemp("forward") / "m", kv_heads=request.param, scale=0.2)


def transformers_logits(model_dir: Path, ids: list[int]) -> torch.Tensor:
    transformers = pytest.importorskip("transformers", reason="transformers is the yardstick")
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([ids])).logits[0]
    return logits


def test_reference_equals_transformers(model_dir: Path) -> None:
    """The plain forward pass gives the logits of transformers."""
    config, parameters = read_config(model_dir), load_parameters(model_dir, torch.float32)
    ours = forward(config, parameters, torch.tensor([PROMPTS[2]]))[0]
    torch.testing.assert_close(ours, transformers_logits(model_dir, PROMPTS[2]), atol=2e-4, rtol=1e-4)


def generate(model: Llama, steps: int, *, drop_at: int) -> list[tuple[list[int], list[int], list[float]]]:
    """Samples rows behind shared and unshared prompts; every third row leaves at step `drop_at`."""
    batch = KVBatch(model.config, model.dtype)
    live: list[tuple[list[int], list[int], list[float]]] = []
    finished: list[tuple[list[int], list[int], list[float]]] = []
    generator = torch.Generator().manual_seed(1)
    for prompt, rows in zip(PROMPTS, ROWS_PER_PROMPT, strict=True):
        hidden, prefix = model.prefill(prompt)
        logits = model.logits(hidden).expand(rows, -1)
        tokens, logprobs = sample(logits, [Sampling()] * rows, torch.rand(rows, generator=generator))
        for token, logprob in zip(tokens, logprobs, strict=True):
            batch.add(prefix, steps)
            live.append((prompt, [token], [logprob]))
    for step in range(steps):
        if step == drop_at:
            for slot in range(len(live) - 1, -1, -3):
                batch.remove(slot)
                finished.append(live[slot])
                live[slot] = live[-1]
                live.pop()
        hidden = model.decode(torch.tensor([row[1][-1] for row in live]), batch)
        uniforms = torch.rand(len(live), generator=generator)
        tokens, logprobs = sample(model.logits(hidden), [Sampling()] * len(live), uniforms)
        for row, token, logprob in zip(live, tokens, logprobs, strict=True):
            row[1].append(token)
            row[2].append(logprob)
    return finished + live


def test_decode_logprobs_equal_a_full_forward(model_dir: Path) -> None:
    """In float32, sampled log-probabilities are those of one full pass: mean below 1e-4, maximum below 1e-3."""
    with torch.inference_mode():
        rows = generate(Llama.load(model_dir, torch.float32), 40, drop_at=9)
    assert len(rows) == sum(ROWS_PER_PROMPT)
    config, parameters = read_config(model_dir), load_parameters(model_dir, torch.float32)
    differences = []
    for prompt, ids, logprobs in rows:
        logits = forward(config, parameters, torch.tensor([prompt + ids]))[0, len(prompt) - 1 : -1]
        differences.append((token_logprobs(logits, torch.tensor(ids)) - torch.tensor(logprobs)).abs())
    together = torch.cat(differences)
    assert together.mean() < 1e-4
    assert together.max() < 1e-3


def test_decode_logprobs_equal_transformers(model_dir: Path) -> None:
    """The same against transformers, for one row of each prompt."""
    with torch.inference_mode():
        rows = generate(Llama.load(model_dir, torch.float32), 12, drop_at=99)
    for wanted in PROMPTS:
        prompt, ids, logprobs = next(row for row in rows if row[0] == wanted)
        logits = transformers_logits(model_dir, prompt + ids)[len(prompt) - 1 : -1]
        assert (token_logprobs(logits, torch.tensor(ids)) - torch.tensor(logprobs)).abs().max() < 1e-3


def test_prefill_continues_a_cached_beginning(model_dir: Path) -> None:
    """A prompt computed behind a cached beginning gives the hidden states of the whole."""
    with torch.inference_mode():
        model = Llama.load(model_dir, torch.float32)
        whole, all_kv = model.prefill(PROMPTS[2], keep_from=5)
        _, beginning = model.prefill(PROMPTS[2][:5])
        continued, kv = model.prefill(PROMPTS[2], Prefix(beginning.kv), keep_from=5)
    torch.testing.assert_close(continued, whole, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(kv.kv, all_kv.kv, atol=1e-4, rtol=1e-4)


def test_bf16_stays_near_float32(model_dir: Path) -> None:
    """bf16 log-probabilities differ from float32 by rounding only."""
    with torch.inference_mode():
        hidden, _ = (model := Llama.load(model_dir, torch.bfloat16)).prefill(PROMPTS[0])
        ours = model.logits(hidden).float().log_softmax(-1)
        hidden, _ = (model := Llama.load(model_dir, torch.float32)).prefill(PROMPTS[0])
        exact = model.logits(hidden).log_softmax(-1)
    assert (ours - exact).abs().max() < 0.5
    assert (ours.exp() - exact.exp()).abs().sum() < 0.1


def test_missing_tensors_are_named(model_dir: Path, tmp_path: Path) -> None:
    """A weights file that lacks a tensor is refused by name."""
    from safetensors.torch import save_file

    broken = make_random(tmp_path / "m")
    parameters = load_parameters(broken, torch.float32)
    del parameters["model.layers.1.mlp.up_proj.weight"]
    save_file(parameters, str(broken / "model.safetensors"))
    with pytest.raises(ValueError, match=r"lacks the tensor 'model\.layers\.1\.mlp\.up_proj\.weight'"):
        Llama.load(broken, torch.float32)


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    """A model whose training diverged is refused by the name of the damaged tensor."""
    from safetensors.torch import save_file

    broken = make_random(tmp_path / "m")
    parameters = load_parameters(broken, torch.float32)
    parameters["model.norm.weight"][3] = float("nan")
    save_file(parameters, str(broken / "model.safetensors"))
    with pytest.raises(ValueError, match=r"'model\.norm\.weight' holds values that are not finite"):
        Llama.load(broken, torch.float32)

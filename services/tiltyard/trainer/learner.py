"""The real learner: any Hugging Face causal language model, full fine-tuning, one process.

A step is: forward over packed micro-batches, logits only where an action token was sampled and a few hundred rows at
a time, backward, one AdamW update. Invariants: dropout is off, so log-probabilities are the sampler's; the model is
checked at load to give the same logits packed as plain, so a model that does something of its own with masks,
positions or logits is refused instead of trained wrongly; on one thread in float32 a step is bit-reproducible.
Left out: sharding over processes (see `backend.Learner`), adapters (they save a tenth of the time here, no more).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.utils import logging

from .backend import CheckpointDamaged, StepAbandoned, Weights
from .batch import Batch, Row, micro_batches
from .collate import DENSE, Packed, collate, dense_attention
from .files import WEIGHTS, copy_companions, sha256
from .logprobs import selected_logprobs
from .loss import token_loss
from .meter import Clock, Sums
from .optim import MasterAdamW
from .settings import TrainerSettings

STATE = "state.safetensors"
log = structlog.get_logger()


class TorchLearner:
    """A model directory being trained; `backend.Learner` says what the calls do."""

    def __init__(self, source: Path, settings: TrainerSettings) -> None:
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self._source = source
        self._settings = settings
        self._device = torch.device(settings.device)
        self._dtype: torch.dtype = getattr(torch, settings.dtype)
        self._model = _load_model(source, self._dtype, settings.attention).to(self._device)
        self._head: nn.Module = self._model.get_output_embeddings()
        self.vocab_size = int(self._model.get_input_embeddings().num_embeddings)
        check_packing(self._model, self._device, self._dtype)
        self._optimizer = MasterAdamW(self._model.named_parameters(), settings)

    # ------------------------------------------------------------ one step

    def step(self, batch: Batch, lr: float, abandon: Callable[[], bool]) -> dict[str, float]:
        clock, sums = Clock(), Sums()
        for rows in micro_batches(batch.rows, self._settings.micro_batch_tokens):
            if abandon():
                self._optimizer.free_gradients()
                raise StepAbandoned
            self._accumulate(rows, batch, clock, sums)
        if abandon():
            self._optimizer.free_gradients()
            raise StepAbandoned
        norm, done = self._optimizer.step(lr) if batch.rows else (0.0, False)
        clock.lap("optimizer")
        if batch.rows and not done:
            log.error("step_skipped", version=batch.version, grad_norm=norm, reason="gradient is not finite")
        return {
            **sums.metrics(batch.normalizer),
            **clock.metrics(),
            "grad_norm": norm if done else 0.0,
            "lr": lr if done else 0.0,
            "skipped": float(bool(batch.rows) and not done),
        }

    def _accumulate(self, rows: list[Row], batch: Batch, clock: Clock, sums: Sums) -> None:
        packed = collate(rows, version=batch.version, dtype=self._dtype, device=self._device)
        hidden = self.hidden(packed)
        clock.lap("forward")
        wanted = hidden.flatten(0, 1).index_select(0, packed.sources)
        leaf = wanted.detach().requires_grad_()
        for first in range(0, len(leaf), self._settings.logit_rows):
            end = min(first + self._settings.logit_rows, len(leaf))
            part = packed.targets_of(first, end)
            logprobs = self.logprobs(leaf[first:end], packed, first)
            terms = token_loss(logprobs, packed.sampled[part], packed.advantages[part], self._settings)
            total = terms.loss.sum()
            (total / batch.normalizer).backward()
            sums.add(total, logprobs, packed, part, terms)
        wanted.backward(leaf.grad)
        clock.lap("backward")

    def hidden(self, packed: Packed) -> Tensor:
        """The model's last hidden states [B, L, D], before the output layer."""
        return _hidden(self._model, packed)

    def logprobs(self, hidden: Tensor, packed: Packed, first: int = 0) -> Tensor:
        """Log-probabilities of the targets of points `first` and on, from the points' hidden states [p, D]."""
        end = first + len(hidden)
        part = packed.targets_of(first, end)
        points = packed.points[part] - first
        return selected_logprobs(self._head(hidden), packed.temperatures[first:end], points, packed.targets[part])

    # ------------------------------------------------------------ files

    def save(self, directory: Path) -> None:
        tensors = self._optimizer.tensors() | {"random": torch.get_rng_state()}
        save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, directory / STATE)

    def load(self, directory: Path) -> None:
        try:
            with safe_open(directory / STATE, framework="pt", device=str(self._device)) as saved:
                shapes = {name: tuple(saved.get_slice(name).get_shape()) for name in saved.keys()}  # noqa: SIM118
                self._optimizer.restore(shapes, saved.get_tensor)
                torch.set_rng_state(saved.get_tensor("random").cpu())
        except (OSError, SafetensorError) as error:
            raise CheckpointDamaged(f"{STATE}: {error}") from error

    def export(self, directory: Path) -> Weights:
        copy_companions(self._source, directory, self._settings.dtype)
        owners = _without_aliases(self._model.state_dict())
        weights = {name: value.detach().cpu().contiguous() for name, value in owners.items()}
        path = directory / WEIGHTS
        save_file(weights, path, metadata={"format": "pt"})
        return Weights(sha256(path), path.stat().st_size)


def _load_model(source: Path, dtype: torch.dtype, attention: str) -> Any:
    logging.disable_progress_bar()
    AttentionInterface.register(DENSE, dense_attention)
    model = AutoModelForCausalLM.from_pretrained(
        source, dtype=dtype, attn_implementation=DENSE if attention == "dense" else attention, local_files_only=True
    )
    return model.eval()


def _hidden(model: Any, packed: Packed) -> Tensor:
    output = model.base_model(
        input_ids=packed.ids, attention_mask=packed.mask, position_ids=packed.positions, use_cache=False
    )
    found: Tensor = output.last_hidden_state
    return found


def check_packing(model: Any, device: torch.device, dtype: torch.dtype) -> None:
    """ValueError when the model's logits for a packed pair of sequences are not those of each sequence alone."""
    vocab = model.get_input_embeddings().num_embeddings
    stem, tails = [1 % vocab, 2 % vocab, 3 % vocab], ([4 % vocab, 5 % vocab], [6 % vocab, 7 % vocab])
    row = Row(ids=[*stem, *tails[0], *tails[1]], parents=[-1, 0, 1, 2, 3, 2, 5], positions=[0, 1, 2, 3, 4, 3, 4])
    packed = collate([row], version=0, dtype=dtype, device=device)
    with torch.no_grad():
        got = model.get_output_embeddings()(_hidden(model, packed))[0].float()
        mine = model.config._attn_implementation
        model.set_attn_implementation("eager")
        plain = [model(input_ids=torch.tensor([[*stem, *tail]], device=device)).logits[0].float() for tail in tails]
        model.set_attn_implementation(mine)
    apart = float((got - torch.cat([plain[0], plain[1][len(stem) :]])).abs().max() / (plain[0].std() + 1e-6))
    tolerance = 1e-3 if dtype == torch.float32 else 0.25
    if not apart <= tolerance:
        raise ValueError(
            f"[run] model: {type(model).__name__} gives other logits for packed rows than for plain ones "
            f"(off by {apart:.2g} standard deviations): its masks, positions or output layer are not supported"
        )


def _without_aliases(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """One name for tensors that share their memory (tied weights): the first, as the Hugging Face layout has it."""
    owners: dict[int, str] = {}
    for name, value in tensors.items():
        owners.setdefault(value.data_ptr(), name)
    return {name: tensors[name] for name in owners.values()}

"""AdamW that keeps float32 weights and moments beside the weights the model computes with.

Updates of 5e-5 vanish in bfloat16, so the float32 copies are the truth and the model's weights are their rounding.
With a float32 model the two are the same tensors. Invariants: a step with a gradient that is not finite changes
nothing. Left out: sharding and offload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from .settings import TrainerSettings

STATE = ("step", "exp_avg", "exp_avg_sq")


class MasterAdamW:
    """AdamW over named parameters, with gradients clipped to a global norm."""

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], settings: TrainerSettings) -> None:
        self._working = {name: parameter for name, parameter in named if parameter.requires_grad}
        self._masters = {
            name: parameter if parameter.dtype == torch.float32 else nn.Parameter(parameter.detach().float())
            for name, parameter in self._working.items()
        }
        self._clip = settings.clip_norm
        self._optimizer = torch.optim.AdamW(
            list(self._masters.values()),
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=True,
        )

    def step(self, lr: float) -> tuple[float, bool]:
        """One update from the gradients of the model's weights, which are freed; norm, and whether it was done."""
        norm = self._norm()
        done = norm < float("inf")
        if done:
            scale = min(1.0, self._clip / (norm + 1e-6)) if self._clip else 1.0
            self._hand_over(scale)
            for group in self._optimizer.param_groups:
                group["lr"] = lr
            self._optimizer.step()
            self._round()
        self.free_gradients()
        return norm, done

    def _norm(self) -> float:
        """Global norm of all gradients, in float32; infinite when there is none or one is not finite."""
        gradients = [p.grad for p in self._working.values() if p.grad is not None]
        if not gradients:
            return float("inf")
        norms = [torch.linalg.vector_norm(gradient, dtype=torch.float32) for gradient in gradients]
        norm = float(torch.linalg.vector_norm(torch.stack(norms)))
        return norm if norm == norm else float("inf")

    def _hand_over(self, scale: float) -> None:
        """Gradients go to the float32 weights, scaled, one by one so that both never stand in memory together."""
        for name, working in self._working.items():
            master = self._masters[name]
            if working.grad is not None:
                gradient = working.grad.float().mul_(scale)
                working.grad = None
                master.grad = gradient

    def _round(self) -> None:
        for name, working in self._working.items():
            if working is not self._masters[name]:
                working.data.copy_(self._masters[name].data)

    def free_gradients(self) -> None:
        """Drop all gradients."""
        for parameters in (self._working, self._masters):
            for parameter in parameters.values():
                parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """Everything the next step depends on, by name: weights, moments and step counts, float32."""
        found: dict[str, Tensor] = {}
        for name, master in self._masters.items():
            found[f"weight.{name}"] = master.detach()
            for kind, value in self._optimizer.state.get(master, {}).items():
                found[f"{kind}.{name}"] = value
        return found

    def restore(self, shapes: Mapping[str, tuple[int, ...]], read: Callable[[str], Tensor]) -> None:
        """Take up what `tensors` gave, read one by one; ValueError, before anything is read, for another model's."""
        for name, master in self._masters.items():
            saved = shapes.get(f"weight.{name}")
            if saved != tuple(master.shape):
                shape = "absent" if saved is None else f"of shape {saved}"
                raise ValueError(
                    f"checkpoint: weight {name} is {shape}, the model's is {tuple(master.shape)}; "
                    "it was made with another [run] model: restore that or choose another run name"
                )
        for name, master in self._masters.items():
            master.data.copy_(read(f"weight.{name}"))
            state = {kind: read(f"{kind}.{name}").clone() for kind in STATE if f"{kind}.{name}" in shapes}
            self._optimizer.state.pop(master, None)
            if state:
                self._optimizer.state[master] = state
        self._round()

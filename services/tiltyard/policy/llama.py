"""Llama inference on the CPU: prompt prefill, and batched decoding with a prompt shared by the rows of a group.

Shapes: B rows, P prompt tokens, T generated tokens, H hidden, N key/value heads, Q query heads per key/value head, D
head size, G blocks of R rows (see `kv`).

Invariants: weights are read once and packed for the CPU's matrix kernels; a step runs with gradients off and touches
only live rows; the log-probabilities agree with a full forward pass to float32 rounding when the dtype is float32.

What makes it quick: fused QKV and gate/up products, pre-packed weights, residual additions inside the product, rotary
tables with the sign folded in, prompt attention once per block with R * Q query rows, and one softmax over prompt and
answer. Left out: gradients, rope scaling, attention biases.
"""

from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tiltyard.policy.config import LlamaConfig, read_config
from tiltyard.policy.kv import KVBatch, Plan, Prefix
from tiltyard.policy.reference import load_parameters, rope_tables, rotate

_PACK_ROWS = 64  # the batch size the packed layout is chosen for
_PREFILL_CHUNK = 512


class Linear:
    """A matrix without bias, packed for oneDNN where that is available."""

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.backends.mkldnn.is_available()
        weight = weight.contiguous()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _PACK_ROWS) if self._packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        """`x @ weight.T` for x [rows, in]."""
        if not self._packed:
            return F.linear(x, self._weight)
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, None, "none", [], "")
        return result

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """`residual + x @ weight.T`."""
        if not self._packed:
            return residual + F.linear(x, self._weight)
        result: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._weight, None, "add")
        return result


class _Layer(NamedTuple):
    attention_norm: Tensor
    qkv: Linear
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class Llama:
    """A model ready to sample from. Not safe for two threads that share a `KVBatch`; the weights are only read."""

    def __init__(self, config: LlamaConfig, parameters: dict[str, Tensor], dtype: torch.dtype) -> None:
        self.config, self.dtype = config, dtype
        self._embedding = parameters["model.embed_tokens.weight"]
        tied = config.tie_word_embeddings
        self._head = Linear(self._embedding if tied else parameters["lm_head.weight"])
        self._norm = parameters["model.norm.weight"]
        self._layers = [_layer(parameters, f"model.layers.{number}.") for number in range(config.num_hidden_layers)]
        self._cos, self._sin = rope_tables(config, config.max_position_embeddings, dtype)
        self._scale = config.head_dim**-0.5

    @classmethod
    def load(cls, model_dir: Path, dtype: torch.dtype) -> "Llama":
        """Reads a Hugging Face directory. Raises ValueError when it is incomplete, damaged or not a supported model."""
        config, parameters = read_config(model_dir), load_parameters(model_dir, dtype)
        for name, tensor in parameters.items():
            if not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"{model_dir}: the tensor {name!r} holds values that are not finite")
        try:
            return cls(config, parameters, dtype)
        except KeyError as error:
            raise ValueError(f"{model_dir} lacks the tensor {error.args[0]!r}") from None

    def logits(self, hidden_BH: Tensor) -> Tensor:
        """Logits [B, V] in the model's dtype from hidden states [B, H]."""
        return self._head(self._normed(hidden_BH, self._norm))

    def prefill(
        self, ids: list[int], past: Prefix | None = None, *, keep_from: int | None = None
    ) -> tuple[Tensor, Prefix]:
        """Runs a prompt, reusing `past` (keys and values of its first tokens).

        Returns the hidden states of the positions from `keep_from` on (default: the last one only), [K, H], and the
        whole prompt's keys and values. `keep_from` must not lie inside `past`; `past` must be shorter than the
        prompt.
        """
        config = self.config
        start = past.length if past else 0
        shape = (config.num_hidden_layers, 2, config.num_key_value_heads, len(ids), config.head_dim)
        kv = torch.empty(shape, dtype=self.dtype)
        if past:
            kv[:, :, :, :start] = past.kv
        keep_from = len(ids) - 1 if keep_from is None else keep_from
        kept: list[Tensor] = []
        for begin in range(start, len(ids), _PREFILL_CHUNK):
            end = min(begin + _PREFILL_CHUNK, len(ids))
            hidden = self._prefill_chunk(ids[begin:end], kv, begin, end)
            kept.append(hidden[max(keep_from - begin, 0) :])
        return torch.cat(kept), Prefix(kv)

    def _prefill_chunk(self, ids: list[int], kv: Tensor, begin: int, end: int) -> Tensor:
        x = self._embedding[torch.tensor(ids)]
        cos, sin = self._cos[begin:end, None], self._sin[begin:end, None]
        mask = None
        if begin:
            mask = torch.ones(end - begin, end, dtype=torch.bool).tril_(begin)
        for number, layer in enumerate(self._layers):
            q, k, v = self._qkv(layer, x, cos, sin)
            kv[number, 0, :, begin:end] = k.transpose(0, 1)
            kv[number, 1, :, begin:end] = v.transpose(0, 1)
            keys, values = kv[number, 0, :, :end].unsqueeze(0), kv[number, 1, :, :end].unsqueeze(0)
            attended = F.scaled_dot_product_attention(
                q.transpose(0, 1).unsqueeze(0), keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=True
            )
            x = layer.output.plus(attended.squeeze(0).transpose(0, 1).reshape(end - begin, -1), x)
            x = self._mlp(layer, x)
        return x

    def decode(self, tokens_B: Tensor, batch: KVBatch) -> Tensor:
        """One step: writes the keys and values of `tokens_B` for every row; returns hidden states [B, H]."""
        plan = batch.plan()
        x = self._embedding[tokens_B]
        cos, sin = self._cos[plan.positions, None], self._sin[plan.positions, None]
        for number, layer in enumerate(self._layers):
            q, k, v = self._qkv(layer, x, cos, sin)
            answers, prompts = batch.answers[number], batch.prompts[number]
            answers[0, plan.slots, :, plan.columns] = k
            answers[1, plan.slots, :, plan.columns] = v
            x = layer.output.plus(self._attend(q, answers, prompts, plan), x)
            x = self._mlp(layer, x)
        batch.advance()
        return x

    def _qkv(self, layer: _Layer, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values: [rows, heads, D] each."""
        config = self.config
        heads = layer.qkv(self._normed(x, layer.attention_norm)).view(x.shape[0], -1, config.head_dim)
        turned = config.num_attention_heads + config.num_key_value_heads
        rotated = rotate(heads[:, :turned], cos, sin)
        return rotated[:, : config.num_attention_heads], rotated[:, config.num_attention_heads :], heads[:, turned:]

    def _mlp(self, layer: _Layer, x: Tensor) -> Tensor:
        gate, up = layer.gate_up(self._normed(x, layer.mlp_norm)).chunk(2, -1)
        return layer.down.plus(F.silu(gate).mul_(up), x)

    def _attend(self, q: Tensor, answers: Tensor, prompts: Tensor, plan: Plan) -> Tensor:
        """Attention of every row over its prompt and its own tokens: [B, heads * D]."""
        config = self.config
        n, d, per = config.num_key_value_heads, config.head_dim, config.queries_per_kv
        b, g, r, p, t = plan.rows, plan.blocks, plan.block_rows, plan.prompt, plan.generated
        q = q.reshape(b, n * per * d) * self._scale
        own_keys, own_values = (answers[part, :b, :, :t].view(b * n, t, d) for part in (0, 1))
        prompt_keys, prompt_values = (prompts[part, :g, :, :p].view(g * n, p, d) for part in (0, 1))
        by_block = q.index_select(0, plan.gather).view(g, r, n, per * d).transpose(1, 2).reshape(g * n, r * per, d)
        scores = torch.bmm(by_block, prompt_keys.transpose(1, 2)).view(g, n, r, per * p).transpose(1, 2)
        prompt_scores = scores.reshape(g * r, n * per * p).index_select(0, plan.scatter).view(b, n * per, p)
        own_scores = torch.bmm(q.view(b * n, per, d), own_keys.transpose(1, 2)).view(b, n * per, t)
        weights = torch.softmax(torch.cat((prompt_scores, own_scores), -1).add_(plan.mask), -1)
        prompt_weights = weights[:, :, :p].reshape(b, n * per * p).index_select(0, plan.gather)
        by_block = prompt_weights.view(g, r, n, per * p).transpose(1, 2).reshape(g * n, r * per, p)
        found = torch.bmm(by_block, prompt_values).view(g, n, r, per * d).transpose(1, 2).reshape(g * r, n * per * d)
        own = torch.bmm(weights[:, :, p:].reshape(b * n, per, t), own_values).view(b, n * per * d)
        return own.add_(found.index_select(0, plan.scatter))

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (self.config.hidden_size,), weight, self.config.rms_norm_eps)


def _layer(parameters: dict[str, Tensor], prefix: str) -> _Layer:
    def fused(*names: str) -> Linear:
        return Linear(torch.cat([parameters[f"{prefix}{name}.weight"] for name in names]))

    return _Layer(
        attention_norm=parameters[f"{prefix}input_layernorm.weight"],
        qkv=fused("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        output=fused("self_attn.o_proj"),
        mlp_norm=parameters[f"{prefix}post_attention_layernorm.weight"],
        gate_up=fused("mlp.gate_proj", "mlp.up_proj"),
        down=fused("mlp.down_proj"),
    )

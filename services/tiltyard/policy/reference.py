"""The plain forward pass over Hugging Face parameter names: short, differentiable, with no cache and no fused weights.

It trains the tiny model and is the yardstick of the fast path. Shapes: B sequences, T tokens, H hidden, V vocabulary.
Left out: attention masks (right padding needs none under causal attention) and dropout.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tiltyard.policy.config import LlamaConfig


def load_parameters(model_dir: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    """All tensors of a Hugging Face directory, by name, in `dtype`. ValueError: there are none, or one is damaged."""
    files = sorted(model_dir.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{model_dir} holds no .safetensors file")
    parameters: dict[str, Tensor] = {}
    for file in files:
        try:
            parameters.update({name: tensor.to(dtype) for name, tensor in load_file(file).items()})
        except SafetensorError as error:
            raise ValueError(f"{file} is damaged: {error}") from error
    return parameters


def rope_tables(config: LlamaConfig, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of positions 0..length-1, each [length, head_dim]; the first half of the sines is negated.

    With the sign folded in, rotating is `x * cos + roll(x, head_dim / 2) * sin`.
    """
    half = config.head_dim // 2
    inverse = config.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.arange(length, dtype=torch.float32)[:, None] * inverse
    return torch.cat((angles.cos(),) * 2, -1).to(dtype), torch.cat((-angles.sin(), angles.sin()), -1).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of [..., head_dim] with tables that broadcast against it."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def forward(config: LlamaConfig, parameters: Mapping[str, Tensor], ids_BT: Tensor) -> Tensor:
    """Logits [B, T, V] of token ids [B, T]."""
    x = F.embedding(ids_BT, parameters["model.embed_tokens.weight"])
    tables = rope_tables(config, ids_BT.shape[1], x.dtype)
    for layer in range(config.num_hidden_layers):
        x = _layer(config, parameters, f"model.layers.{layer}.", x, tables)
    x = F.rms_norm(x, (config.hidden_size,), parameters["model.norm.weight"], config.rms_norm_eps)
    tied = config.tie_word_embeddings
    return F.linear(x, parameters["model.embed_tokens.weight" if tied else "lm_head.weight"])


def _layer(
    config: LlamaConfig, parameters: Mapping[str, Tensor], prefix: str, x: Tensor, tables: tuple[Tensor, Tensor]
) -> Tensor:
    width, eps = (config.hidden_size,), config.rms_norm_eps
    weight = {name: parameters[f"{prefix}{name}.weight"] for name in _LINEAR_AND_NORM}
    h = F.rms_norm(x, width, weight["input_layernorm"], eps)
    q, k, v = (_heads(F.linear(h, weight[f"self_attn.{name}_proj"]), config.head_dim) for name in "qkv")
    attended = F.scaled_dot_product_attention(
        rotate(q, *tables), rotate(k, *tables), v, is_causal=True, enable_gqa=True
    )
    x = x + F.linear(attended.transpose(1, 2).flatten(2), weight["self_attn.o_proj"])
    h = F.rms_norm(x, width, weight["post_attention_layernorm"], eps)
    gated = F.silu(F.linear(h, weight["mlp.gate_proj"])) * F.linear(h, weight["mlp.up_proj"])
    return x + F.linear(gated, weight["mlp.down_proj"])


def _heads(x: Tensor, head_dim: int) -> Tensor:
    """[B, T, heads * head_dim] to [B, heads, T, head_dim]."""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


_LINEAR_AND_NORM = (
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "post_attention_layernorm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)

"""The shape of a Llama-family model, read from the `config.json` of a Hugging Face directory.

Only what changes the forward pass is kept. A setting that this package would silently get wrong (rope scaling,
attention biases, another architecture or activation) is refused instead. Loads no torch.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec


class LlamaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and constants of one model; counts are in elements, `max_position_embeddings` in tokens."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...]
    torch_dtype: str = "float32"

    @property
    def queries_per_kv(self) -> int:
        """How many query heads share one key/value head."""
        return self.num_attention_heads // self.num_key_value_heads

    @property
    def kv_width(self) -> int:
        """Elements of the keys (or of the values) of one token in one layer."""
        return self.num_key_value_heads * self.head_dim


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ValueError naming the file when it is absent or not an object."""
    try:
        value = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: {path.parent} is not a complete Hugging Face model directory") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object")
    return value


def read_config(model_dir: Path) -> LlamaConfig:
    """Reads `config.json`, and the end tokens of `generation_config.json`. ValueError for an unsupported model."""
    raw = read_json(model_dir / "config.json")
    _refuse_unsupported(raw, model_dir)
    generation = model_dir / "generation_config.json"
    eos = read_json(generation).get("eos_token_id") if generation.exists() else None
    heads = int(raw["num_attention_heads"])
    return LlamaConfig(
        hidden_size=int(raw["hidden_size"]),
        intermediate_size=int(raw["intermediate_size"]),
        num_hidden_layers=int(raw["num_hidden_layers"]),
        num_attention_heads=heads,
        num_key_value_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=int(raw.get("head_dim") or int(raw["hidden_size"]) // heads),
        vocab_size=int(raw["vocab_size"]),
        max_position_embeddings=int(raw["max_position_embeddings"]),
        rms_norm_eps=float(raw["rms_norm_eps"]),
        rope_theta=_rope_theta(raw),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        eos_token_ids=_as_ids(eos if eos is not None else raw.get("eos_token_id")),
        torch_dtype=str(raw.get("dtype") or raw.get("torch_dtype") or "float32"),
    )


def hf_config(config: LlamaConfig, *, bos_token_id: int, pad_token_id: int) -> dict[str, Any]:
    """The `config.json` of a model of this shape, in the spelling Hugging Face transformers reads."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tie_word_embeddings,
        "bos_token_id": bos_token_id,
        "eos_token_id": config.eos_token_ids[0],
        "pad_token_id": pad_token_id,
        "torch_dtype": config.torch_dtype,
    }


def _refuse_unsupported(raw: Mapping[str, Any], model_dir: Path) -> None:
    if raw.get("model_type") != "llama":
        raise ValueError(f"{model_dir}: model_type is {raw.get('model_type')!r}, but only 'llama' models are supported")
    if raw.get("attention_bias") or raw.get("mlp_bias"):
        raise ValueError(f"{model_dir}: attention_bias and mlp_bias are not supported, both must be false")
    if raw.get("hidden_act", "silu") != "silu":
        raise ValueError(f"{model_dir}: hidden_act is {raw['hidden_act']!r}, but only 'silu' is supported")
    scaling = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
        raise ValueError(f"{model_dir}: rope scaling {kind!r} is not supported, only plain rotary embeddings are")


def _rope_theta(raw: Mapping[str, Any]) -> float:
    theta = raw.get("rope_theta")
    if theta is None:
        theta = (raw.get("rope_parameters") or {}).get("rope_theta", 10_000.0)
    return float(theta)


def _as_ids(value: int | list[int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)

"""A Llama GGUF file to a Hugging Face model directory: weights in bf16, tokenizer, template and configuration.

Invariants: the directory written loads in transformers and gives the same logits as this package's forward pass; the
rows of Q and K go back from the interleaved rotary order of llama.cpp to the half-split order of transformers. Values
carry the rounding of the GGUF's quantisation. Loads no torch: bf16 is made by rounding float32 to its upper half.
"""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, dequantize

from tiltyard.policy.config import LlamaConfig, hf_config

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_CONTROL = 3  # llama.cpp's token type of control tokens


def import_gguf(gguf_path: Path, target: Path, *, note: str) -> None:
    """Writes the model in `gguf_path` as a Hugging Face directory into the empty directory `target`.

    `note` becomes its README. Raises ValueError when the file is not a Llama model with a byte-level BPE tokenizer.
    """
    reader = GGUFReader(str(gguf_path))
    fields: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
    if fields.get("general.architecture") != "llama" or fields.get("tokenizer.ggml.model") != "gpt2":
        raise ValueError(f"{gguf_path} is not a Llama model with a byte-level BPE tokenizer")
    config = _config(fields, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
    tensors = {_hf_name(tensor.name): _weights(tensor, config) for tensor in reader.tensors}
    _write_safetensors(target / "model.safetensors", tensors)
    bos, pad = int(fields["tokenizer.ggml.bos_token_id"]), int(fields["tokenizer.ggml.padding_token_id"])
    _write_json(target / "config.json", hf_config(config, bos_token_id=bos, pad_token_id=pad))
    generation = {"bos_token_id": bos, "eos_token_id": config.eos_token_ids[0], "pad_token_id": pad}
    _write_json(target / "generation_config.json", generation)
    _write_json(target / "tokenizer.json", _tokenizer(fields))
    _write_json(target / "tokenizer_config.json", _tokenizer_config(fields))
    (target / "README.md").write_text(note)


def _config(fields: dict[str, Any], *, tied: bool) -> LlamaConfig:
    heads, width = int(fields["llama.attention.head_count"]), int(fields["llama.embedding_length"])
    return LlamaConfig(
        hidden_size=width,
        intermediate_size=int(fields["llama.feed_forward_length"]),
        num_hidden_layers=int(fields["llama.block_count"]),
        num_attention_heads=heads,
        num_key_value_heads=int(fields["llama.attention.head_count_kv"]),
        head_dim=int(fields.get("llama.rope.dimension_count", width // heads)),
        vocab_size=len(fields["tokenizer.ggml.tokens"]),
        max_position_embeddings=int(fields["llama.context_length"]),
        rms_norm_eps=round(float(fields["llama.attention.layer_norm_rms_epsilon"]), 9),
        rope_theta=float(fields["llama.rope.freq_base"]),
        tie_word_embeddings=tied,
        eos_token_ids=(int(fields["tokenizer.ggml.eos_token_id"]),),
        torch_dtype="bfloat16",
    )


def _hf_name(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.{parts[3]}"
    return f"{_TOP_NAMES[parts[0]]}.{parts[1]}"


def _weights(tensor: Any, config: LlamaConfig) -> npt.NDArray[np.float32]:
    values = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    values = values.reshape([int(size) for size in reversed(tensor.shape)])
    if tensor.name.endswith("attn_q.weight"):
        return _half_split(values, config.num_attention_heads)
    if tensor.name.endswith("attn_k.weight"):
        return _half_split(values, config.num_key_value_heads)
    return values


def _half_split(values: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Rows of each head from (pair, part) order to (part, pair) order."""
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _bf16(values: npt.NDArray[np.float32]) -> bytes:
    """Little-endian bf16 of finite float32 values, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype("<u2").tobytes()


def _write_safetensors(path: Path, tensors: dict[str, npt.NDArray[np.float32]]) -> None:
    """Writes bf16 in the safetensors layout: header length, JSON header padded to 8 bytes, then the data.

    By hand because the library's writers want torch for bf16, or raw pointers that changed between its versions.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, values in tensors.items():
        end = offset + 2 * values.size
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [offset, end]}
        offset = end
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as stream:
        stream.write(len(encoded).to_bytes(8, "little") + encoded)
        for values in tensors.values():
            stream.write(_bf16(values))


def _tokenizer(fields: dict[str, Any]) -> dict[str, Any]:
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    kinds: list[int] = fields["tokenizer.ggml.token_type"]
    added = [
        {"id": index, "content": tokens[index], "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for index, kind in enumerate(kinds)
        if kind == _CONTROL
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in fields.get("tokenizer.ggml.merges", ())],
        },
    }


def _tokenizer_config(fields: dict[str, Any]) -> dict[str, Any]:
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[int(fields["tokenizer.ggml.bos_token_id"])],
        "eos_token": tokens[int(fields["tokenizer.ggml.eos_token_id"])],
        "pad_token": tokens[int(fields["tokenizer.ggml.padding_token_id"])],
        "unk_token": tokens[int(fields["tokenizer.ggml.unknown_token_id"])],
        "model_max_length": int(fields["llama.context_length"]),
        "clean_up_tokenization_spaces": False,
        "chat_template": fields["tokenizer.chat_template"],
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2))

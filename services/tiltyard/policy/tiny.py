"""A 0.7 M-parameter model for tests, with its own 512-token tokenizer, trained on demonstrations in seconds.

Also `make_random`, the same family with random weights and no training, made in milliseconds for tests of protocols.
Both are complete Hugging Face directories in float32. Invariant: with `steps` given, the same arguments on the same
machine give the same weights. Left out: any claim of usefulness: with clean demonstrations the model merely recites.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from tiltyard.policy.chat import ChatRenderer
from tiltyard.policy.config import LlamaConfig, hf_config
from tiltyard.policy.reference import forward, load_parameters

Demo = tuple[Sequence[tuple[str, str]], str]
"""The (role, content) messages of a prompt, and the answer."""

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_EOS = 2
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_BATCH, _WARM_UP, _LR = 32, 20, 3e-3


def make_tiny(
    out: Path,
    demos: Sequence[Demo],
    *,
    seed: int = 0,
    steps: int | None = None,
    cpu_seconds: float | None = None,
    context_length: int = 512,
) -> Path:
    """Trains tokenizer and model on demonstrations and writes them to `out`, replacing what is there.

    The loss covers the answer and the end-of-turn token after it. Training ends after `steps` updates or after
    `cpu_seconds` of this process's CPU time, exactly one of which is given. Raises ValueError for no demonstrations
    or none that fit the context.
    """
    if (steps is None) == (cpu_seconds is None):
        raise ValueError("make_tiny: give either steps or cpu_seconds")
    if not demos:
        raise ValueError("make_tiny: give at least one demonstration")
    texts = [part for messages, answer in demos for part in (*(content for _, content in messages), answer)]
    config = _config(vocab_size=512, width=128, layers=3, heads=4, ffn=384, context_length=context_length)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        directory = _write(out, config, _tokenizer(512, texts), _initial(config))
        rows = _rows(ChatRenderer(directory), demos, context_length)
        parameters = load_parameters(directory, torch.float32)
        deadline = None if cpu_seconds is None else time.process_time() + cpu_seconds
        _train(config, parameters, rows, steps, deadline)
    save_file(
        {name: p.detach() for name, p in parameters.items()}, str(directory / "model.safetensors"), {"format": "pt"}
    )
    return directory


def make_random(
    out: Path,
    *,
    seed: int = 0,
    vocab_size: int = 320,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    width: int = 64,
    context_length: int = 512,
    scale: float = 0.3,
) -> Path:
    """Writes a model with random weights (standard deviation `scale`) and a bytes-only tokenizer to `out`."""
    config = _config(
        vocab_size=vocab_size, width=width, layers=layers, heads=heads, ffn=2 * width, context_length=context_length
    )
    config = LlamaConfig(**(_fields(config) | {"num_key_value_heads": kv_heads}))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _write(out, config, _tokenizer(vocab_size, []), _initial(config, scale))


def _config(*, vocab_size: int, width: int, layers: int, heads: int, ffn: int, context_length: int) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=width,
        intermediate_size=ffn,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=width // heads,
        vocab_size=vocab_size,
        max_position_embeddings=context_length,
        rms_norm_eps=1e-5,
        rope_theta=10_000.0,
        tie_word_embeddings=True,
        eos_token_ids=(_EOS,),
    )


def _fields(config: LlamaConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in LlamaConfig.__struct_fields__}


def _tokenizer(vocab_size: int, texts: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIALS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _initial(config: LlamaConfig, scale: float = 0.02) -> dict[str, Tensor]:
    h, f, q, kv = (
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads * config.head_dim,
        config.kv_width,
    )
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (config.vocab_size, h), "model.norm": (h,)}
    for number in range(config.num_hidden_layers):
        prefix = f"model.layers.{number}."
        shapes |= {prefix + "input_layernorm": (h,), prefix + "post_attention_layernorm": (h,)}
        shapes |= {prefix + f"self_attn.{name}_proj": (kv, h) for name in "kv"}
        shapes |= {prefix + "self_attn.q_proj": (q, h), prefix + "self_attn.o_proj": (h, q)}
        shapes |= {prefix + "mlp.gate_proj": (f, h), prefix + "mlp.up_proj": (f, h), prefix + "mlp.down_proj": (h, f)}
    return {
        f"{name}.weight": torch.ones(shape) if len(shape) == 1 else torch.randn(shape) * scale
        for name, shape in shapes.items()
    }


def _write(out: Path, config: LlamaConfig, tokenizer: Tokenizer, parameters: dict[str, Tensor]) -> Path:
    """Writes all files beside `out`, then moves them into place."""
    making = out.with_name(f".{out.name}.{os.getpid()}")
    making.mkdir(parents=True)
    save_file(parameters, str(making / "model.safetensors"), {"format": "pt"})
    tokenizer.save(str(making / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIALS[1],
        "eos_token": SPECIALS[2],
        "pad_token": SPECIALS[0],
        "model_max_length": config.max_position_embeddings,
        "clean_up_tokenization_spaces": False,
        "chat_template": _TEMPLATE,
    }
    ids = {"bos_token_id": 1, "pad_token_id": 0}
    files = {
        "config.json": hf_config(config, **ids),
        "generation_config.json": ids | {"eos_token_id": _EOS},
        "tokenizer_config.json": settings,
    }
    for name, value in files.items():
        (making / name).write_text(json.dumps(value, indent=2))
    if out.exists():
        shutil.rmtree(out)
    making.rename(out)
    return out


def _rows(renderer: ChatRenderer, demos: Sequence[Demo], context_length: int) -> list[tuple[list[int], int]]:
    """(ids, length of the prompt) of every demonstration that fits."""
    rows = []
    for messages, answer in demos:
        prompt = renderer.render(messages)
        ids = [*prompt, *renderer.encode(answer), _EOS]
        if len(ids) <= context_length:
            rows.append((ids, len(prompt)))
    if not rows:
        raise ValueError(f"make_tiny: no demonstration fits the context of {context_length} tokens")
    return rows


def _batches(rows: Sequence[tuple[list[int], int]]) -> Iterator[tuple[Tensor, Tensor]]:
    """For ever: ids [B, T] padded with 0, and the mask [B, T] of the tokens that are learnt."""
    while True:
        order = torch.randperm(len(rows)).tolist()
        for begin in range(0, len(order), _BATCH):
            chosen = [rows[number] for number in order[begin : begin + _BATCH]]
            length = max(len(ids) for ids, _ in chosen)
            ids_BT = torch.tensor([ids + [0] * (length - len(ids)) for ids, _ in chosen])
            place = torch.arange(length)
            learnt = [(place >= prompt) & (place < len(ids)) for ids, prompt in chosen]
            yield ids_BT, torch.stack(learnt)


def _train(
    config: LlamaConfig,
    parameters: dict[str, Tensor],
    rows: Sequence[tuple[list[int], int]],
    steps: int | None,
    deadline: float | None,
) -> None:
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    optimizer = torch.optim.AdamW(list(parameters.values()), lr=_LR, betas=(0.9, 0.95), weight_decay=0.0)
    for step, (ids_BT, learnt_BT) in enumerate(_batches(rows)):
        if (steps is not None and step >= steps) or (deadline is not None and time.process_time() >= deadline):
            break
        for group in optimizer.param_groups:
            group["lr"] = _LR * min(1.0, (step + 1) / _WARM_UP)
        logits = forward(config, parameters, ids_BT[:, :-1])
        loss = F.cross_entropy(logits[learnt_BT[:, 1:]], ids_BT[:, 1:][learnt_BT[:, 1:]])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(parameters.values()), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    for parameter in parameters.values():
        parameter.requires_grad_(False)

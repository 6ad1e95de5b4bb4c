"""Tiny random models and groups of token sequences for the trainer's tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from support import build

from tiltyard_proto.messages import Group, Member, Purpose, Turn, VersionSpan
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.tokens import pack_floats, pack_ids

VOCAB = 48
Piece = tuple[Sequence[int], Sequence[int]]
"""Context ids and action ids of one turn."""


def tiny_model(directory: Path, *, tied: bool = True, seed: int = 0) -> Path:
    """A random two-layer Llama in the Hugging Face layout, float32, with a stand-in tokenizer file."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
        bos_token_id=0,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(directory)
    (directory / "tokenizer.json").write_text(json.dumps({"stand-in": True}))
    return directory


def turns(pieces: Sequence[Piece], *, version: int = 0, logprob: float = -1.0) -> tuple[Turn, ...]:
    """Turns with the given tokens, all sampled by one version."""
    return tuple(
        Turn(
            context_ids=pack_ids(list(context)),
            action_ids=pack_ids(list(action)),
            logprobs=pack_floats([logprob] * len(action)),
            versions=(VersionSpan(version=version, start=0, end=len(action)),),
            text="",
            finish="stop",
        )
        for context, action in pieces
    )


def member(
    index: int, group: str, made: tuple[Turn, ...], reward: float, advantage: float, trains: bool = True
) -> Member:
    """A graded member of a group."""
    of = build.rollout(member=index, group=group, turns=made, outcome=Outcome.FINISHED)
    return Member(verdict=build.verdict(of, reward), reward=reward, advantage=advantage, trains=trains)


def group(members: Sequence[Member], *, index: int = 0, run: str = "run", trainable: bool = True) -> Group:
    """A closed training group."""
    return Group(
        id=f"{run}-t-{index}",
        run=run,
        domain="math.test",
        task_id="t",
        template="one",
        purpose=Purpose.TRAIN,
        version=0,
        members=tuple(members),
        missing=0,
        trainable=trainable,
    )


def simple_group(index: int, *, version: int = 0, prompt: Sequence[int] = (2, 3, 4), run: str = "run") -> Group:
    """Two members that differ in their action: the first is right, the second wrong."""
    name = f"{run}-t-{index}"
    good = turns([(prompt, [5 + index % 7, 6, 1])], version=version)
    bad = turns([(prompt, [20 + index % 5, 21])], version=version)
    return group([member(0, name, good, 1.0, 0.5), member(1, name, bad, 0.0, -0.5)], index=index, run=run)

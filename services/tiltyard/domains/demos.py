"""Worked answers for a warm start by supervised fine-tuning, with a chosen share of wrong ones.

Invariant: a wrong answer keeps its task's signature and takes the body of a task from another template. Only domains
whose references are single Python functions have wrong answers. Left out: the training itself.
"""

from __future__ import annotations

import random
import re
from typing import Literal

from tiltyard_proto.messages import Task

from .registry import load

Demo = tuple[list[tuple[str, str]], str]


def demos(
    name: str, n: int, seed: int = 0, *, wrong: float = 0.0, split: Literal["train", "eval", "all"] = "train"
) -> list[Demo]:
    """`n` pairs of messages (role, content) and answer, drawn from a domain's tasks.

    `wrong` is the probability that an answer is wrong. `split` 'all' takes a fifth from the held-out templates.
    ValueError: the domain has too few tasks, or no wrong answers can be made for it.
    """
    domain = load(name)
    if split == "all":
        tasks = domain.tasks("train", n - n // 5, seed) + domain.tasks("eval", n // 5, seed)
    else:
        tasks = domain.tasks(split, n, seed)
    if len(tasks) < n:
        raise ValueError(f"domain {name} has {len(tasks)} tasks in split {split!r}, {n} demonstrations were asked for")
    rng = random.Random(f"demos/{name}/{seed}")
    rng.shuffle(tasks)
    return [(_messages(task), _answer(task, tasks, rng, wrong)) for task in tasks]


def _messages(task: Task) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in task.prompt]


def _answer(task: Task, tasks: list[Task], rng: random.Random, wrong: float) -> str:
    if rng.random() >= wrong:
        return task.reference
    others = [other for other in rng.sample(tasks, min(40, len(tasks))) if other.template != task.template]
    if not others or "def " not in task.reference:
        raise ValueError(f"domain {task.domain}: wrong answers need references that are Python functions")
    (head, names, _), (_, others_names, body) = _parts(task.reference), _parts(others[0].reference)
    renamed = dict(zip(others_names, names, strict=False))
    return head + re.sub(r"[A-Za-z_]+", lambda word: renamed.get(word[0], word[0]), body)


def _parts(reference: str) -> tuple[str, list[str], str]:
    """Signature with the lines before it, argument names, and body of a reference that is one function."""
    head, _, body = reference.partition("\n    ")
    return f"{head}\n    ", head.rpartition("(")[2].removesuffix("):").split(", "), body

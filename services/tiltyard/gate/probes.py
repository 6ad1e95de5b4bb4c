"""What the gate tries on a task of any kind, besides the kind's own probes.

Left out: whatever depends on what the kind reads.
"""

from __future__ import annotations

import random
from typing import Literal

from tiltyard.verifier.kinds.base import MAX_TEXT, Probe
from tiltyard.verifier.kinds.registry import AnyKind
from tiltyard_proto.messages import Task

_JUNK = ("zzz", "[]", "...", "I don't know.", "\0", "Thought process:", "?")


def solution(task: Task, kind: AnyKind) -> tuple[str, ...]:
    """The actions that must get full credit."""
    return kind.solution(task)


def variants(task: Task, kind: AnyKind) -> list[Probe]:
    """Harmless changes of the solution's last action."""
    *before, last = solution(task, kind)
    changes = {"the reference": last, "a newline at the end": f"{last}\n"}
    if task.environment.interface != "shell":
        changes["thought before"] = f"<think>\nLet me see.\n</think>\n{last}"
    found = [Probe(name=name, texts=(*before, text)) for name, text in changes.items()]
    return found + [probe for probe in kind.probes(task) if probe.wanted == "accept"]


def worthless(task: Task, kind: AnyKind) -> list[Probe]:
    """Submissions that must not earn anything, or not everything."""
    *_, last = solution(task, kind)
    nothing = "DONE" if task.environment.interface == "shell" else ""
    tried: list[tuple[str, tuple[str, ...]]] = [("no turn at all", ()), ("nothing done", (nothing,))]
    tried += [(f"junk {text!r}", (text,)) for text in _JUNK if text.strip() != last.strip()]
    tried += [("10 kB of junk", (_noise(task.id, 10_000),)), ("oversize", (_noise(task.id, MAX_TEXT + 1),))]
    if task.environment.interface == "answer":
        tried.append(("thinking that never ends", (f"<think>{last}",)))
    found = [Probe(name=name, texts=texts, wanted="reject") for name, texts in tried]
    return found + [probe for probe in kind.probes(task) if probe.wanted != "accept"]


def echo(task: Task) -> Probe:
    """The question as the answer."""
    wanted: Literal["no_accept"] = "no_accept"
    return Probe(name="the prompt itself", texts=(task.prompt[-1].content,), wanted=wanted)


def _noise(seed: str, size: int) -> str:
    """Words without meaning, the same for the same task."""
    rng = random.Random(seed)
    words: list[str] = []
    length = 0
    while length < size:
        words.append("".join(rng.choices("bcdfghjklmnpqrstvwxz", k=rng.randint(2, 9))))
        length += len(words[-1]) + 1
    return " ".join(words)[:size]

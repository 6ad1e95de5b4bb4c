"""Sums and differences of small numbers, from reasoning-gym's `chain_sum` at a level of its curriculum.

A template is a shape of the operands: number of terms and digits, the signs, and a class of the operands themselves
(their weighted sum modulo `classes`), so that held-out templates hold problems never seen in training. At level 0
there are 200 problems in all. Source: reasoning_gym 0.1.25 `ChainSumDataset`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tiltyard.domains.drafts import Draft, Request

_CHUNK = 100


def generate(request: Request) -> Iterator[Draft]:
    """Problems of the curriculum's level, endlessly. Options: `levels` (attribute to level), `classes` (default 5).

    ValueError: reasoning-gym isn't installed.
    """
    try:
        from reasoning_gym.factory import create_curriculum, create_dataset  # seconds to import: only when drawn from
    except ImportError as err:
        raise ValueError(f"math.arithmetic.chain_sum needs reasoning-gym: pip install reasoning-gym ({err})") from err
    curriculum = create_curriculum("chain_sum")
    for attribute, level in request.options.get("levels", {}).items():
        curriculum.set_attr_level(attribute, level)
    config: dict[str, Any] = vars(curriculum.generate_configuration({}))
    settings = {key: value for key, value in config.items() if key not in ("seed", "size")}
    classes = int(request.options.get("classes", 5))
    start = request.seed * 1_000_003  # item i of a data set is drawn with seed + i: keep seeds' ranges apart
    while True:
        for item in create_dataset("chain_sum", size=_CHUNK, seed=start, **settings):
            draft = _draft(item, classes)
            if request.wants(draft.template):
                yield draft
        start += _CHUNK


def _draft(item: dict[str, Any], classes: int) -> Draft:
    meta = item["metadata"]
    expression: str = meta["expression"]
    operands = [int(number) for number in re.findall(r"\d+", expression)]
    signs = "".join(re.findall(r"[+-]", expression))
    group = sum((i + 2) * x for i, x in enumerate(operands)) % classes
    return Draft(
        template=f"t{meta['num_terms']}d{meta['num_digits']}{signs.replace('+', 'p').replace('-', 'm')}c{group}",
        fields={"question": item["question"], "expression": expression},
        data={"answer": item["answer"]},
        reference=item["answer"],
        labels={"terms": str(meta["num_terms"]), "digits": str(meta["num_digits"])},
    )

"""What the entry gate tries on a task of kind `fields`."""

from __future__ import annotations

import json
from typing import Any

from tiltyard.verifier.kinds.base import Probe

from .data import Data, Field


def probes(data: Data, reference: str) -> tuple[Probe, ...]:
    """Other ways to write the reference, and objects that are wrong, doubled or beside the point."""
    answer: dict[str, Any] = {}
    for key, field in data.fields.items():
        outer, _, inner = key.partition(".")
        if inner:
            answer.setdefault(outer, {})[inner] = _right(field)
        else:
            answer[key] = _right(field)
    turned = dict(reversed(answer.items()))
    stated = {key: value for key, value in answer.items() if value is not None}
    good = [
        Probe(name="other key order", texts=(json.dumps(turned),)),
        Probe(name="indented", texts=(json.dumps(answer, indent=4),)),
        Probe(name="fenced", texts=(f"```json\n{json.dumps(answer)}\n```",)),
        Probe(name="absent fields left out", texts=(json.dumps(stated),)),
    ]
    made_up = json.dumps({**stated, "made_up_field": "7"})
    bad = [
        Probe(name="twice", texts=(f"{reference}\n{reference}",), wanted="reject"),
        Probe(name="a key twice", texts=(f'{{"k": 1, "k": 1, {json.dumps(answer)[1:]}',), wanted="reject"),
        Probe(name="a made-up field", texts=(made_up,), wanted="no_accept"),
    ]
    if any(field.value is not None or field.rows for field in data.fields.values()):
        bad.append(Probe(name="an empty object", texts=("{}",), wanted="no_accept"))
    for key, field in data.fields.items():
        if field.type == "items" and len(field.rows) > 1:
            rows = _right(field)
            if not field.ordered:
                good.append(Probe(name="items turned", texts=(json.dumps({**stated, key: rows[::-1]}),)))
            bad.append(Probe(name="an item less", texts=(json.dumps({**stated, key: rows[1:]}),), wanted="no_accept"))
            doubled = json.dumps({**stated, key: [*rows, rows[0]]})
            bad.append(Probe(name="an item twice", texts=(doubled,), wanted="no_accept"))
    return (*good, *bad)


def _right(field: Field) -> Any:
    return [dict(row) for row in field.rows] if field.type == "items" else field.value

"""What the entry gate tries on a task of kind `fields`."""

from __future__ import annotations

import json

from tiltyard.verifier.kinds.base import Probe

from .data import Data


def probes(data: Data, reference: str) -> tuple[Probe, ...]:
    """Other ways to write the reference, and objects that are wrong, doubled or beside the point."""
    answer: dict[str, str | None] = {key: field.value for key, field in data.fields.items()}
    turned = dict(reversed(answer.items()))
    stated = {key: value for key, value in answer.items() if value is not None}
    good = (
        Probe(name="other key order", texts=(json.dumps(turned),)),
        Probe(name="indented", texts=(json.dumps(answer, indent=4),)),
        Probe(name="fenced", texts=(f"```json\n{json.dumps(answer)}\n```",)),
        Probe(name="absent fields left out", texts=(json.dumps(stated),)),
    )
    made_up = json.dumps({**stated, "made_up_field": "7"})
    bad = (
        Probe(name="twice", texts=(f"{reference}\n{reference}",), wanted="reject"),
        Probe(name="a key twice", texts=(f'{{"k": 1, "k": 1, {json.dumps(answer)[1:]}',), wanted="reject"),
        Probe(name="a made-up field", texts=(made_up,), wanted="no_accept"),
        Probe(name="an empty object", texts=("{}",), wanted="no_accept"),
    )
    return good + (bad if stated else bad[:3])

"""The contract as JSON Schema: what each stage carries, for people who publish or read messages without Python.

`python -m tiltyard_proto.schema` prints it; `schema.json` beside this file is its committed output, compared by a
test. Invariant: the same types give the same bytes. Left out: subjects and keys, which are `topology`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .messages import MAJOR, GroupRecord, LetterState, RunStatus
from .topology import GROUPS_BUCKET, LETTERS_BUCKET, RUNS_BUCKET, STAGES

REF = "#/$defs/{name}"


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of every message, by stage and by bucket, with the parts under `$defs`."""
    carried: dict[str, Any] = {stage.name: stage.type for stage in STAGES}
    kept: dict[str, Any] = {GROUPS_BUCKET: GroupRecord, RUNS_BUCKET: RunStatus, LETTERS_BUCKET: LetterState}
    found, parts = msgspec.json.schema_components([*carried.values(), *kept.values()], ref_template=REF)
    schemas = iter(found)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Tiltyard messages, major {MAJOR}",
        "stages": {name: next(schemas) for name in carried},
        "buckets": {name: next(schemas) for name in kept},
        "$defs": parts,
    }


def text() -> str:
    """The schema as indented JSON with sorted keys and a final newline."""
    return msgspec.json.format(msgspec.json.encode(schema(), order="deterministic"), indent=1).decode() + "\n"


if __name__ == "__main__":
    print(text(), end="")

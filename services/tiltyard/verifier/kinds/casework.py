"""What the `cases.py` of the kinds share: a task made of a case's words."""

from __future__ import annotations

import json
from typing import Any

from tiltyard_proto.keys import with_id
from tiltyard_proto.messages import ChatMessage, Environment, RolloutLimits, Task, Verification

from .trials import Case


def task_of(
    case: Case,
    kind: str,
    data: dict[str, Any],
    *,
    options: dict[str, Any] | None = None,
    reference: str = "",
    environment: Environment = Environment(),  # noqa: B008  # frozen
    turns: int = 1,
) -> Task:
    """A task with the case's words as its prompt; its own `setup` stands over `data`, `options` and `reference`."""
    return with_id(
        Task(
            id="",
            domain=f"cases.{case.kind}",
            prompt=(ChatMessage(role="user", content=case.task or "-"),),
            verification=Verification(
                kind=kind,
                data={**data, **case.setup.get("data", {})},
                options={**(options or {}), **case.setup.get("options", {})},
            ),
            environment=environment,
            limits=RolloutLimits(turns=turns),
            reference=case.setup.get("reference", reference),
        )
    )


def text_of(value: Any) -> str:
    """A case's reference or submission as the text that a person or a policy would write."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)

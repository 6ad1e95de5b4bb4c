"""Cases about states: what words say happened is played out in a small shop.

The shop has two orders that can be returned, and each can have a note. The reference returns both; words say where it
falls short of what the text asks for, and what the submission does instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tiltyard.verifier.kinds.casework import task_of
from tiltyard.verifier.kinds.trials import Case, Ruling, Trial

CASE_KINDS = ("tool_call",)
_STATE = re.compile(r"\bstates?\b|state-graded|\breplay", re.IGNORECASE)
_BROKEN_CHECKER = re.compile(r"(?:checker|grader|verifier|replay)\s+(?:raises|fails|crashes|errors)", re.IGNORECASE)
_SHORT = re.compile(
    r"(?:leaves?|misses|forgets|without|never).*\b(?:though|but|while)\b|\bun\w+ed though", re.IGNORECASE
)
_EXTRA = re.compile(
    r"\b(?:extra|also|additional|too many|beyond|another table|side effects?|unrelated)\b", re.IGNORECASE
)
_NOTHING = re.compile(r"\b(?:nothing|no calls?|empty|does not|doesn't|only one|one of)\b", re.IGNORECASE)
_WRONG = re.compile(r"\b(?:wrong|other|different) (?:order id|state|row|value|account|final)\b", re.IGNORECASE)
_RETURNS = [{"name": "return_order", "arguments": {"order_id": each}} for each in ("o1", "o2")]
_NOTE = {"name": "write_note", "arguments": {"order_id": "o3", "text": "late"}}


def trials(case: Case) -> Sequence[Trial] | Ruling | None:
    """One task of the shop, with the calls that the submission's words tell of."""
    words = f"{case.task} {case.reference} {case.submission}"
    if _BROKEN_CHECKER.search(words):
        data = {**_shop(), "compared": ["unknown"], "calls": _RETURNS}
    elif not _STATE.search(words):
        return None
    elif _SHORT.search(str(case.reference)):
        facts = [{"table": "orders", "key": each, "field": "status", "value": "returned"} for each in ("o1", "o2")]
        data = {**_shop(), "calls": [_NOTE], "facts": facts}
    else:
        data = {**_shop(), "calls": _RETURNS}
    told = str(case.submission)
    text = told if told.strip()[:1] in ("[", "{") else json.dumps(_told(told))
    return [Trial(task=task_of(case, "tool_world", data), texts=(text,))]


def _told(words: str) -> list[dict[str, Any]]:
    """The calls that words tell of."""
    if _EXTRA.search(words):
        return [*_RETURNS, _NOTE]
    if _WRONG.search(words):
        return [_RETURNS[0], {"name": "return_order", "arguments": {"order_id": "o3"}}]
    if _NOTHING.search(words):
        return _RETURNS[:1] if "one" in words else []
    return _RETURNS[::-1]


def _shop() -> dict[str, Any]:
    key = {"order_id": {"type": "string"}}
    note = {**key, "text": {"type": "string"}}
    return {
        "state": {"orders": {each: {"status": "delivered", "note": ""} for each in ("o1", "o2", "o3")}},
        "actions": [
            {
                "tool": {"name": "return_order", "parameters": _object(key)},
                "steps": [
                    {"op": "is", "table": "orders", "key": "$order_id", "field": "status", "value": "delivered"},
                    {"op": "set", "table": "orders", "key": "$order_id", "field": "status", "value": "returned"},
                ],
            },
            {
                "tool": {"name": "write_note", "parameters": _object(note)},
                "steps": [{"op": "set", "table": "orders", "key": "$order_id", "field": "note", "value": "$text"}],
            },
        ],
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}

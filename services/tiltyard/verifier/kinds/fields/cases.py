"""Cases about documents: types, locale and identifiers are read off the words of the task and the reference."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tiltyard.verifier.kinds.casewords import expanded
from tiltyard.verifier.kinds.casework import task_of, text_of
from tiltyard.verifier.kinds.trials import Case, Ruling, Trial
from tiltyard.verifier.kinds.typed_values import checksum_holds

CASE_KINDS = ("document",)
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}")
_NAMES = r"\b(?:vendor|supplier|seller|buyer|customer|company|name)\b"
_NUMBERS = r"\b(?:total|subtotal|amount|price|balance|quantity|qty|tax|rate|sum|net|gross|number of)\b"


def trials(case: Case) -> Sequence[Trial] | Ruling | None:
    """One task; a reference that is no object is the value of its only field."""
    reference = _value(case.reference)
    single = not isinstance(reference, dict)
    if single:
        reference = {"value": reference}
    words = f"{case.task} {case.note}"
    fields = {key: _field(key if not single else "", value, words) for key, value in reference.items()}
    text = expanded(text_of(case.submission))
    if single:
        submitted = _value(case.submission) if isinstance(case.submission, str) else case.submission
        text = json.dumps(
            {"value": submitted if isinstance(submitted, dict | list) else expanded_value(case.submission)}
        )
    return [Trial(task=task_of(case, "fields", {"fields": fields}), texts=(text,))]


def expanded_value(submission: Any) -> Any:
    return expanded(submission) if isinstance(submission, str) else submission


def _value(value: Any) -> Any:
    """A reference that is an object or list written as JSON, or anything else as it is."""
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _field(key: str, value: Any, words: str) -> dict[str, Any]:
    asked = f"{key} {words}"
    if isinstance(value, list):
        items = [item if isinstance(item, dict) else {"value": item} for item in value]
        columns = {name: _column(name, each, words) for item in items for name, each in item.items()}
        rows = [{name: None if each is None else text_of(each) for name, each in item.items()} for item in items]
        return {"type": "items", "columns": columns, "rows": rows}
    field = _column(key, value, asked) | {"value": None if value is None else text_of(value)}
    return field | _scheme(field["value"] or "", asked)


def _column(key: str, value: Any, asked: str) -> dict[str, Any]:
    """How values like this one are compared."""
    european = re.search(r"\b(?:EU|UK|European|German|French|Italian|Spanish|dmy|day first)\b", asked)
    american = re.search(r"\b(?:US|American|mdy|month first)\b", asked)
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int | float) or _is_amount(key, value, asked):
        comma = re.search(r"\b(?:EU|European|German|French|Italian|Spanish|decimal comma|comma decimal)\b", asked)
        return {"type": "decimal", "mark": "," if comma else ""}
    if isinstance(value, str) and _ISO.fullmatch(value):
        return {"type": "date", "order": "dmy" if european else "mdy" if american else ""}
    if re.search(r"\b(?:IBAN|VAT|ISBN|EAN|card number|account number|tax id|reference number)\b", f"{key} {asked}"):
        return {"type": "id"}
    return {"type": "name" if re.search(_NAMES, f"{key} {asked}", re.IGNORECASE) else "text"}


def _is_amount(key: str, value: Any, asked: str) -> bool:
    """Is a text a number that the words call one?"""
    plain = isinstance(value, str) and re.fullmatch(r"-?\d+(?:\.\d+)?", value)
    return bool(plain and re.search(_NUMBERS, f"{key} {asked}", re.IGNORECASE))


def _scheme(value: str, asked: str) -> dict[str, Any]:
    for word, scheme in (("IBAN", "iban"), ("ISBN", "ean"), ("EAN", "ean"), ("card number", "luhn")):
        if word in asked and (checksum_holds(value, scheme) or re.search(r"invalid|broken|fails", asked)):
            return {"type": "id", "scheme": scheme}
    return {}

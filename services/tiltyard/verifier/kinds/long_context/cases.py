"""Cases about long contexts: the reference is one answer, several, or named parts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tiltyard.verifier.kinds.casework import task_of, text_of
from tiltyard.verifier.kinds.trials import Case, Ruling, Trial

CASE_KINDS = ("long_context",)


def trials(case: Case) -> Sequence[Trial] | Ruling | None:
    """One trial; 'all 40 keys in the text' becomes such a list."""
    data: dict[str, Any] = {"answers": [text_of(case.reference)]}
    if isinstance(case.reference, dict):
        data = {"fields": {name: text_of(value) for name, value in case.reference.items()}}
    elif isinstance(case.reference, list):
        data = {"answers": [text_of(one) for one in case.reference]}
    options = {"ordered": True} if re.search(r"\bin order\b|\bordered\b", case.task) else {}
    text = _text(text_of(case.submission), data.get("answers", [""])[0])
    return [Trial(task=task_of(case, "long_context", data, options=options), texts=(text,))]


def _text(submission: str, answer: str) -> str:
    if found := re.match(r"all (\d+) (?:keys|values|numbers|needles)\b", submission):
        return ", ".join([*(str(1000 + 37 * i) for i in range(int(found[1]) - 1)), answer])
    if re.fullmatch(r"(?:only )?the right (?:key|value|answer)", submission):
        return answer
    return submission

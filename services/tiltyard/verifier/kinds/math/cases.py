"""Cases about mathematics: the type, the unit and the tolerance are read off the words of the task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tiltyard.verifier.kinds.casework import task_of, text_of
from tiltyard.verifier.kinds.trials import Case, Ruling, Trial

CASE_KINDS = ("math",)
_TYPES = (
    (r"\binterval|\binequalit|\brange\b|\bdomain\b", "interval"),
    (r"\bequation of\b", "equation"),
    (r"\bset\b|\broots\b|\bsolutions\b", "set"),
    (r"\btuple|\bordered pair|\bpoint\b|\bcoordinates?\b|\bvector\b", "tuple"),
    (r"\byes or no\b|\btrue or false\b|\bname\b|\bday of\b|\btext answer\b", "text"),
    (r"\bas a fraction\b(?! of)", "fraction"),
)
_FORMS = (
    (r"lowest terms|simplest form|reduced|simplified fraction", "lowest"),
    (r"\bfactor(?:ed|ise|ize|ised|ized)\b", "factored"),
    (r"\bexpand", "expanded"),
    (r"slope-intercept|solved for", "solved"),
)
_UNITS = (
    (r"\bdollars?\b", "dollar"),
    (r"\beuros?\b", "euro"),
    (r"\bdegrees\b", "degree"),
    (r"\bin (cm|mm|m|km|kg|g|mg|s|seconds|minutes|hours|metres|meters|litres|liters|km/h|inches|feet)\b", r"\1"),
)


def trials(case: Case) -> Sequence[Trial] | Ruling | None:
    """One trial for each submission; a list of references has a list of submissions."""
    references = case.reference if isinstance(case.reference, list) else [case.reference]
    submissions = case.submission if isinstance(case.submission, list) else [case.submission]
    if len(references) == 1:
        references = references * len(submissions)
    words = f"{case.task} {case.note}"
    return [
        _trial(case, text_of(reference), text_of(submission), words)
        for reference, submission in zip(references, submissions, strict=True)
    ]


def _trial(case: Case, reference: str, submission: str, words: str) -> Trial:
    options = _options(case.task, words, reference)
    if re.search(r"\bformat\b", case.task):  # the form decides: what the submission says counts as right
        numbers = re.findall(r"-?\d+(?:\.\d+)?", submission)
        reference, options = (numbers or ["1"])[-1], {"boxed": True}
    return Trial(task=task_of(case, "math", {"answer": reference}, options=options), texts=(submission,))


def _options(asked: str, words: str, reference: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pattern, kind in _TYPES:
        if re.search(pattern, asked, re.IGNORECASE):
            options["type"] = kind
            break
    for pattern, form in _FORMS:
        if re.search(pattern, words, re.IGNORECASE):
            options["form"] = form
    for pattern, unit in _UNITS:
        if found := re.search(pattern, asked):
            options["unit"] = found.expand(unit)
    if "percent" in asked and not re.search("%|percent", reference):
        options["unit"] = "percent"
    return options | _closeness(words)


def _closeness(words: str) -> dict[str, Any]:
    """'to 2 decimal places', 'within 1%', 'tolerance 0.01'."""
    names = {"one": 1, "two": 2, "three": 3, "four": 4}
    if found := re.search(r"\b(\d|one|two|three|four) (?:decimal places|decimals|places)", words):
        return {"places": names.get(found[1]) or int(found[1])}
    if found := re.search(r"(?:within|tolerance(?: of)?)\s*([\d.]+(?:e-?\d+)?)\s*(%?)", words):
        return {"tolerance": float(found[1].rstrip(".")) / (100 if found[2] else 1)}
    return {}

"""Cases about instructions: the words of the task are read as rules, clause by clause; what isn't a rule is unknown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from tiltyard.verifier.kinds.casework import task_of, text_of
from tiltyard.verifier.kinds.trials import Case, Ruling, Trial

from .kind import RULES

CASE_KINDS = ("instruction",)
_SOURCE = "Under the old bridge seven quiet boats wait for the morning tide to turn"
_ANSWER = "4711"
_SAMPLES = {
    "English": f"The answer to the question is {_ANSWER}, and it was found by adding all of the parts in the list.",
    "French": f"La réponse à la question est {_ANSWER}, et elle est la somme de toutes les parties dans la liste.",
    "German": f"Die Antwort auf die Frage ist {_ANSWER}, und sie ist die Summe der Teile, die in der Liste stehen.",
    "Spanish": f"La respuesta a la pregunta es {_ANSWER}, y es la suma de todas las partes que están en la lista.",
    "Italian": f"La risposta alla domanda è {_ANSWER}, ed è la somma di tutte le parti che sono nella lista.",
}
_NAMES = {
    name: number
    for number, name in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    )
} | {"once": 1, "twice": 2, "no": 0, "a": 1, "an": 1}
_NUMBER = r"(\d[\d,]*|" + "|".join(_NAMES) + ")"
_BOUND = r"(at least|at most|exactly|no more than|fewer than|less than|more than|up to)?"
_UNITS = (
    ("distinct_words", r"(?:different|unique|distinct) words?"),
    ("capital_words", r"(?:all-caps|capital|capitali[sz]ed) words?"),
    ("words", r"words?"),
    ("sentences", r"sentences?"),
    ("paragraphs", r"paragraphs?"),
    ("bullets", r"bullets?(?: points?)?"),
    ("numbered", r"numbered (?:items?|points?)"),
    ("headings", r"head(?:ing|er)s?"),
    ("lines", r"(?:non-empty )?lines?"),
    ("characters", r"characters?"),
    ("placeholders", r"placeholders?"),
    ("bold", r"bold (?:phrases?|words?|sections?)"),
    ("commas", r"commas?"),
    ("exclamations", r"exclamation marks?"),
    ("questions", r"question marks?"),
    ("semicolons", r"semicolons?"),
    ("numbers", r"(?:numbers?|digits?)"),
)
_TOLD = (
    (r"\blower ?-?case\b", "lowercase"),
    (r"\bupper ?-?case\b|\ball (?:caps|capitals)\b|\bcapital letters only\b", "uppercase"),
    (r"\bjson\b", "json"),
    (r"\bquot(?:es|ation marks)\b", "quoted"),
    (r"\btitle\b|<<", "title"),
    (r"\bpostscript\b|p\.\s?s\.", "postscript"),
    (r"\bno word twice\b|\bno repeated words\b", "no_repeats"),
)


def trials(case: Case) -> Sequence[Trial] | Ruling | None:
    """One trial; where the submission only describes an answer, one like it is made."""
    if "rules" in case.setup.get("data", {}):
        return [Trial(task=task_of(case, "instruction", {}), texts=(text_of(case.submission),))]
    asked, said = re.sub(r"\([^)]*\)", "", case.task), re.search(r"kwargs say (\d+)", case.task)
    rules = [rule for clause in re.split(r"(?i)\s+and\s+|;", asked) for rule in _rules(clause)]
    if said and rules:
        rules[0] = {key: int(said[1]) if isinstance(value, int) else value for key, value in rules[0].items()}
    turns = re.search(r"\bturn \d", asked) is not None
    data: dict[str, Any] = {"rules": rules or [{"id": case.task[:40]}]}
    if turns:
        data["content"] = [_ANSWER]
    told = msgspec.structs.replace(case, task=asked)
    task = task_of(told, "instruction", data, options={"content_share": 0.5} if turns else {})
    return [Trial(task=task, texts=(_text(text_of(case.submission), rules),))]


def _text(submission: str, rules: Sequence[dict[str, Any]]) -> str:
    if (named := re.search(r"\b(\w+) answer\b", submission)) and named[1] in _SAMPLES:
        right = re.search(r"\b(?:right|correct)\b", submission) and "not right" not in submission
        return _SAMPLES[named[1]] if right else _SAMPLES[named[1]].replace(_ANSWER, "17")
    named_rules = {rule["id"] for rule in rules}
    found = re.fullmatch(r"the (words|characters) (\d+) to (\d+)", submission)
    if found and "copy_words" in named_rules:
        first, last = int(found[2]) - 1, int(found[3])
        return " ".join(_SOURCE.split()[first:last]) if found[1] == "words" else _SOURCE[first:last]
    if (counted := re.fullmatch(r"(\d{2,5}) words", submission)) and "words" in named_rules:
        return " ".join(["word"] * int(counted[1]))
    return submission


def _rules(clause: str) -> list[dict[str, Any]]:
    """The rule of one clause; what can't be read is a rule that nobody knows, unless it's only the question."""
    if found := re.search(r"copy words (\d+) to (\d+)", clause):
        return [{"id": "copy_words", "source": _SOURCE, "first": int(found[1]), "last": int(found[2])}]
    if found := re.search(r"\b(?:start|begin)s? with ['\"]?(.+?)['\"]?\s*$", clause):
        return [{"id": "starts_with", "phrase": found[1]}]
    if found := re.search(r"\b(?:end|finish)(?:es|s)? with ['\"]?(.+?)['\"]?\s*$", clause):
        return [{"id": "ends_with", "phrase": found[1]}]
    if found := re.search("|".join(rf"\b{name}\b" for name in _SAMPLES), clause):
        return [{"id": "language", "language": found[0]}]
    for reader in (_named, _counted):
        if rule := reader(clause):
            return [rule]
    for pattern, name in _TOLD:
        if re.search(pattern, clause, re.IGNORECASE):
            return [{"id": name}]
    if re.search(r"\b(?:question|answer)\s*$", clause):
        return []
    return [{"id": clause.strip()[:40]}] if clause.strip() not in RULES else [{"id": clause.strip()}]


def _named(clause: str) -> dict[str, Any] | None:
    """A word or a letter and how often; a word that must not be there."""
    what = r"\b(?P<kind>word|letter|keyword|character) ['\"]?(?P<what>[^\s'\"]+)['\"]?"
    if found := re.search(rf"{what}.*?{_BOUND} ?{_NUMBER}(?: times?)?\s*$", clause):
        bounds = _bounds(found[3] or "exactly", found[4])
    elif found := re.search(rf"\b(?:don't use|do not use|without|avoid|never use|no)\b.*?{what}", clause):
        bounds = {"at_most": 0}
    elif found := re.search(rf"\b(?:use|include|mention|contain)\b.*?{what}", clause):
        bounds = {"at_least": 1}
    else:
        return None
    if found["kind"] in ("letter", "character"):
        return {"id": "letter", "letter": found["what"], **bounds}
    return {"id": "keyword", "word": found["what"], **bounds}


def _counted(clause: str) -> dict[str, Any] | None:
    for name, unit in _UNITS:
        if re.search(rf"\b(?:no|without(?: any)?|avoid) {unit}\b", clause):
            return {"id": name, "at_most": 0}
        if re.search(rf"\b(?:a few|several) {unit}\b", clause):
            return {"id": name, "at_least": 3}
        if found := re.search(rf"{_BOUND} ?\b{_NUMBER} {unit}\b", clause):
            return {"id": name, **_bounds(found[1] or "exactly", found[2])}
    return None


def _bounds(bound: str, number: str) -> dict[str, int]:
    count = _NAMES[number] if number in _NAMES else int(number.replace(",", ""))
    match bound:
        case "at least":
            return {"at_least": count}
        case "more than":
            return {"at_least": count + 1}
        case "fewer than" | "less than":
            return {"at_most": max(count - 1, 0)}
        case "at most" | "no more than" | "up to":
            return {"at_most": count}
        case _:
            return {"exactly": count}

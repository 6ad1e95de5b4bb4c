"""Judge what was found in a long context: recall times precision, and nothing for a list of everything.

Candidates are the answers, the decoys, and any other token of the answer that is shaped like what was asked for (a
number where numbers were asked for). Invariant: whole words are compared, never substrings, so `74` isn't found in
`7413`. Left out: answers in other words than the document's; numbers written in words.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tiltyard.verifier.kinds.base import BrokenTask, Finding, Probe, Rule
from tiltyard_proto.messages import Task

from .data import Data, Options

_WORD = re.compile(r"\w+(?:[.,:/-]\w+)*")
_SMALL = frozenset(["a", "an", "the", "to", "is", "it", "of", "in", "on", "at", "and", "or", "that", "this"])
_ANSWER = re.compile(r"(?:final answer|answer)\s*(?:is|:)\s*", re.IGNORECASE)
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)
SENTENCE = 5
"""Words from which on a piece of an answer may do."""
MAX_JSON = 8000


class LongContext(Rule[Data, Options]):
    """The kind."""

    name = "long_context"
    version = "1"
    data = Data
    options = Options

    def refuse(self, data: Data) -> None:
        if bool(data.answers) == bool(data.fields):
            raise BrokenTask("give either answers or fields")
        wanted = [*(one for answer in data.answers for one in answer.split("||")), *data.fields.values()]
        if not all(map(_words, wanted)):
            raise BrokenTask("an answer has no word")
        if len({_key(one) for one in data.answers}) < len(data.answers):
            raise BrokenTask("an answer is there twice")
        if {_key(one) for one in wanted} & {_key(one) for one in data.decoys}:
            raise BrokenTask("an answer is a decoy too")

    def check(self, data: Data, options: Options, text: str) -> Finding:
        if data.fields:
            return _fields(data, text)
        return _answers(data, options, _last(text))

    def probes(self, task: Task) -> tuple[Probe, ...]:
        data, answer = self.data_of(task), task.reference
        wrong = " ".join(data.decoys) or "987654321"
        more = [Probe(name="a sentence", texts=(f"I found this: {answer}.",))] if data.answers else []
        if len(data.decoys) > 2 * max(1, len(data.answers)) and data.answers:
            more.append(Probe(name="everything", texts=(f"{wrong} {answer}",), wanted="reject"))
        return (Probe(name="something else", texts=(wrong,), wanted="reject"), *more)


def _answers(data: Data, options: Options, text: str) -> Finding:
    got = _words(text)
    places = [_place(answer, got, options) for answer in data.answers]
    found = [place for place in places if place is not None]
    wrong = _others(data, got)
    named = {f"{i}": float(place is not None) for i, place in enumerate(places)}
    if not found:
        return Finding(score=0.0, components=named, reasons=("nothing of what was asked for is there",))
    if len(wrong) > options.shotgun * len(data.answers):
        return Finding(score=0.0, components=named, reasons=(f"{len(wrong)} wrong candidates beside the right ones",))
    recall = len(found) / len(places)
    precision = len(found) / (len(found) + len(wrong))
    mixed = options.ordered and found != sorted(found)
    score = recall * precision * (0.5 if mixed else 1.0)
    reasons = [f"{len(found)} of {len(places)} found"] if len(found) < len(places) else []
    reasons += [f"wrong beside it: {wrong[0][:60]}"] if wrong else []
    reasons += ["the order is wrong"] if mixed else []
    components = named | {"precision": round(precision, 6)}
    return Finding(score=score, passed=score == 1.0, components=components, reasons=tuple(reasons))


def _fields(data: Data, text: str) -> Finding:
    """One part of the credit for each field; JSON, or lines like 'section: 4.2'."""
    given = _object(text)
    kept = {name: _key(given.get(name.casefold(), "")) == _key(value) for name, value in data.fields.items()}
    lacking = [name for name, held in kept.items() if not held]
    return Finding(
        score=(len(kept) - len(lacking)) / len(kept),
        passed=not lacking,
        components={name: float(held) for name, held in kept.items()},
        reasons=tuple(f"{name} is wrong or missing" for name in lacking),
    )


def _object(text: str) -> dict[str, str]:
    """The fields that the answer gives; one that is given twice with different values counts as missing."""
    fences = _FENCED.findall(text)
    inner = (fences[-1] if fences else text).strip()
    start, end = inner.find("{"), inner.rfind("}")
    found: list[tuple[str, Any]] = []
    if 0 <= start < end and end - start < MAX_JSON:
        try:
            value = json.loads(inner[start : end + 1], object_pairs_hook=list)
        except (ValueError, RecursionError):
            value = []
        found = [pair for pair in value if isinstance(pair, tuple)]
    else:
        for line in inner.splitlines():
            name, colon, value = line.partition(":")
            if colon and len(name) < 60:
                found.append((name.strip(" \t*-`"), value.strip(" \t*`")))
    given: dict[str, str] = {}
    for name, value in found:
        told = str(value) if isinstance(value, str | int | float) else ""
        same = given.get(name.casefold(), told) == told
        given[name.casefold()] = told if same else ""
    return given


def _last(text: str) -> str:
    """What stands after the last 'answer:' where there is one, else all of it."""
    marks = list(_ANSWER.finditer(text))
    rest = text[marks[-1].end() :] if marks else ""
    return rest if rest.strip() else text


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _key(text: str) -> str:
    return " ".join(_words(text))


def _at(wanted: list[str], got: list[str]) -> int | None:
    for i in range(len(got) - len(wanted) + 1):
        if got[i : i + len(wanted)] == wanted:
            return i
    return None


def _place(answer: str, got: list[str], options: Options) -> int | None:
    """Where the answer, one of its alternatives or enough of a sentence stands; None: nowhere."""
    for one in answer.split("||"):
        wanted = _words(one)
        if (place := _at(wanted, got)) is not None:
            return place
        if len(wanted) >= SENTENCE and (place := _piece(wanted, got, options.part)) is not None:
            return place
    return None


def _piece(wanted: list[str], got: list[str], part: float) -> int | None:
    """The longest end of a sentence (what it says, after its first words) is there, words without weight aside."""
    heavy = [word for word in wanted if word not in _SMALL]
    light = [word for word in got if word not in _SMALL]
    least = max(2, round(part * len(heavy)))
    for start in range(len(heavy) - least + 1):
        if (place := _at(heavy[start:], light)) is not None:
            return place
    return None


def _others(data: Data, got: list[str]) -> list[str]:
    """Distinct wrong candidates in the answer: decoys, and numbers where only numbers were asked for."""
    right = {_key(one) for answer in data.answers for one in answer.split("||")}
    wrong = {_key(one) for one in data.decoys if _at(_words(one), got) is not None}
    if all(one.isdigit() for one in right):
        width = min(map(len, right))
        wrong |= {word for word in got if word.isdigit() and len(word) >= max(2, width - 1)} - right
    else:
        coded = re.compile(r"(?=\w*\d)(?=\w*[a-z])\w+(?:-\w+)*")
        if all(coded.fullmatch(one) for one in right):
            wrong |= {word for word in got if coded.fullmatch(word)} - right
    return sorted(wrong)


KIND = LongContext()

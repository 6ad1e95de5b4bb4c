"""Finding the final answer in a text.

In order: the last box that isn't empty; the last `<answer>` tag; then, unless only boxes count, places where an answer
stands in prose (`places`), from the surest to the least sure. Invariants: thinking is cut before; a box that never
closes, and answers offered side by side, are no answer; nothing is evaluated.
"""

from __future__ import annotations

import re

from .tidy import bare, closing

MAX_ANSWER = 2000
"""Characters of an answer that are read."""
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*(?=\{)")
_OPEN_TAG, _CLOSED_TAG = re.compile("<answer>", re.IGNORECASE), re.compile("</answer>", re.IGNORECASE)
_SENTENCE = re.compile(
    r"[.!?;:]\s|\n|\b(?:wait|actually|correct\w*|instead|sorry|mis\w+|final\w*|rather|no)\b", re.IGNORECASE
)
_SAID = re.compile(
    r"(?:####\s*(?P<marked>[^\n]+))|(?:answer|result|total|value|solution|sum|product|probability|area|volume|length"
    r"|it|that|which|we get|gives|equals?)"
    r"(?:\s+(?:is|are|equals|to|be|=)|\s*:|\s*=)+\s*(?P<said>[^\n]+)",
    re.IGNORECASE,
)
_MATH = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)


class NoAnswer(ValueError):
    """There is no final answer; the message says why."""


def marked(text: str) -> str | None:
    """The answer in the last box or tag; None when there is neither. NoAnswer: it's empty, open or one of several."""
    boxes = _boxes(text)
    if boxes:
        return _last(text, boxes)
    tag = tagged(text)
    if tag == "":
        raise NoAnswer("the answer tag is empty")
    return None if tag is None else _short(tag)


def tagged(text: str) -> str | None:
    """What the last closed `<answer>` tag holds; None when there is none."""
    ends = list(_CLOSED_TAG.finditer(text))
    begins = list(_OPEN_TAG.finditer(text, 0, ends[-1].start())) if ends else []
    return text[begins[-1].end() : ends[-1].start()].strip() if begins else None


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Begin, end and content of every box; an open one has end -1."""
    found: list[tuple[int, int, str]] = []
    for box in _BOX.finditer(text):
        if found and box.start() < found[-1][1]:  # inside another
            continue
        end = closing(text, box.end())
        found.append((box.start(), end, text[box.end() + 1 : end].strip() if end >= 0 else ""))
        if end < 0:
            break
    return found


def _last(text: str, boxes: list[tuple[int, int, str]]) -> str:
    if boxes[-1][1] < 0:
        raise NoAnswer("the last box is never closed: the answer was cut off")
    full = [box for box in boxes if len(box[2]) > MAX_ANSWER or bare(box[2])]
    if not full:
        raise NoAnswer("the box is empty")
    if len(full) > 1 and _short(full[-1][2]) != full[-2][2]:
        between = text[full[-2][1] + 1 : full[-1][0]]
        if not _SENTENCE.search(between):
            raise NoAnswer("several different answers are offered side by side")
    return _short(full[-1][2])


def _short(answer: str) -> str:
    if len(answer) > MAX_ANSWER:
        raise NoAnswer(f"the answer is longer than {MAX_ANSWER} characters")
    return answer


def places(text: str) -> list[str]:
    """Where an answer may stand in unmarked text, the surest first; empty for empty text."""
    text = text.strip()
    if not text:
        return []
    found = [text] if len(text) <= MAX_ANSWER else []
    tail = text[-MAX_ANSWER:]
    said = list(_SAID.finditer(tail))
    if said:
        phrase = said[-1]["said"] or said[-1]["marked"]
        found += [phrase, re.split(r"[.!?]\s|[.!?]$", phrase)[0]]
    maths = [next(filter(None, match.groups())) for match in _MATH.finditer(tail)]
    numbers = _last_number(tail)
    lines = [line for line in tail.splitlines() if line.strip()]
    return list(dict.fromkeys([*found, *maths[-1:], *lines[-1:], *numbers]))


_NUMBER = re.compile(
    r"(?<![\w.^{(/\\])(?:[-\u2212]\s?)?(?:\\?[$€£]\s?)?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?:\s?/\s?\d+)?(?:\s?\\?%|\s?°)?"
)
_UNIT = re.compile(r"\s+(?!in\b|at\b|by\b|on\b|and\b|or\b|to\b|for\b|as\b|is\b|a\b)([A-Za-z]+(?:\^?[23²³]|/[a-z]+)?)")
_HEDGE = re.compile(r"\b(?:or|either|between|and)\b\W*(?:maybe|perhaps|possibly|even|about)?\W*$", re.IGNORECASE)


def _last_number(text: str) -> list[str]:
    """The last number of a text, with the word behind it and without; none when it's one of several to choose from."""
    last = None
    for last in _NUMBER.finditer(text):  # noqa: B007
        pass
    if last is None or re.match(r"\s?(?:\^|!|[²³]|\*\*)", text[last.end() :]) or _HEDGE.search(text[: last.start()]):
        return []
    number = last[0].rstrip(",")
    unit = _UNIT.match(text, last.end())
    return [f"{number} {unit[1]}", number] if unit else [number]


_LETTER = r"(?<![\w'])[({\[]?\s*(?P<letter>[A-Z])\s*[)}\]]?(?![\w'])"
_CHOSEN = re.compile(rf"(?:answer|choice|option)\s*(?:is|:|=)?\s*:?\s*(?:option|choice)?\s*\**{_LETTER}", re.IGNORECASE)
_LEADING = re.compile(r"^\W*(?P<letter>[A-Za-z])\s*(?:[).:\]](?![-+*/^=\d])|$)")


def chosen(text: str, letters: str) -> str:
    """The letter that an answer chooses. NoAnswer: none, or several."""
    text = re.sub(r"\\(?:text|mathrm|mathbf|textbf)\s*\{([^{}]*)\}", r"\1", text)
    text = bare(text).strip("*_ $")
    if said := [match for match in _CHOSEN.finditer(text) if match["letter"].isupper()]:
        _only(text[said[-1].end() :], letters, said[-1]["letter"])
        return _known(said[-1]["letter"], letters)
    if leading := _LEADING.match(text):
        _only(text[leading.end() :], letters, leading["letter"].upper())
        return _known(leading["letter"].upper(), letters)
    alone = {match["letter"] for match in re.finditer(_LETTER, text) if match["letter"] in letters}
    if len(alone) != 1 or len(text) > 200 or re.search(r"[+=^*/\d]", text):
        raise NoAnswer("no single choice can be found" if len(alone) != 1 else "the choice is lost in prose")
    return alone.pop()


_ALSO = re.compile(rf"^\W*(?:(?i:or|and|maybe|perhaps|possibly)\W+)*{_LETTER}")


def _only(rest: str, letters: str, letter: str) -> None:
    """Raise when another letter stands right beside the one that was found."""
    beside = _ALSO.match(rest)
    if beside is None or beside["letter"] not in letters or beside["letter"] == letter:
        return
    if not re.match(r"^\W*[.!?\n]", rest) or re.search(r"(?i)\b(?:or|and)\b", rest[: beside.end()]):
        raise NoAnswer("several choices are offered")


def _known(letter: str, letters: str) -> str:
    if letter not in letters:
        raise NoAnswer(f"{letter} is none of the choices {letters}")
    return letter

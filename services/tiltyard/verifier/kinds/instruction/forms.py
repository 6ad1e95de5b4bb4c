"""Rules about the form of the whole answer, its beginning, its end and its lines."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta

from . import text as reading
from .checks import Check, Natural, Some
from .languages import is_language


class StartsWith(Check, frozen=True):
    phrase: Some

    def holds(self, text: str) -> bool:
        return text.strip().startswith(self.phrase)

    def say(self) -> str:
        return f"Begin with exactly this: {self.phrase}"


class EndsWith(Check, frozen=True):
    phrase: Some

    def holds(self, text: str) -> bool:
        return text.strip().endswith(self.phrase)

    def say(self) -> str:
        return f"End with exactly this and nothing after it: {self.phrase}"


class Lowercase(Check, frozen=True):
    def holds(self, text: str) -> bool:
        return any(map(str.isalpha, text)) and not any(one.isupper() or one.istitle() for one in text)

    def say(self) -> str:
        return "Write in lower case only, without any capital letter."


class Uppercase(Check, frozen=True):
    def holds(self, text: str) -> bool:
        return text.isupper()

    def say(self) -> str:
        return "Write in capital letters only."


class Quoted(Check, frozen=True):
    def holds(self, text: str) -> bool:
        text = text.strip()
        return len(text) > 2 and (text[0] + text[-1]) in ('""', "“”")

    def say(self) -> str:
        return 'Put the whole answer between double quotation marks ("...").'


class Title(Check, frozen=True):
    def holds(self, text: str) -> bool:
        return any(map(str.strip, re.findall(r"<<([^<>\n]*)>>", text)))

    def say(self) -> str:
        return "Give the answer a title between double angle brackets, like <<a title>>."


class Postscript(Check, frozen=True):
    def holds(self, text: str) -> bool:
        found = reading.lines(text)
        return bool(found) and re.match(r"P\. ?S\.:? +\S", found[-1]) is not None

    def say(self) -> str:
        return "End with a postscript: a last line that starts with 'P.S.'"


class Json(Check, frozen=True):
    keys: tuple[Some, ...] = ()

    def holds(self, text: str) -> bool:
        try:
            value = reading.parsed(text)
        except ValueError:
            return False
        return not self.keys or (isinstance(value, dict) and set(self.keys) == set(value))

    def say(self) -> str:
        if not self.keys:
            return "Answer with valid JSON and nothing else."
        return f"Answer with one JSON object and nothing else; its keys are exactly: {', '.join(self.keys)}."


class Language(Check, frozen=True):
    language: Literal["English", "French", "German", "Spanish", "Italian"]

    def holds(self, text: str) -> bool:
        return is_language(text, self.language)

    def say(self) -> str:
        return f"Answer in {self.language}, in whole sentences."


class CopyWords(Check, frozen=True):
    source: Some
    first: Annotated[int, Meta(ge=1)]
    last: Annotated[int, Meta(ge=1)]

    def __post_init__(self) -> None:
        if not self.first <= self.last <= len(reading.words(self.source)):
            raise ValueError("the source has no such words")

    def holds(self, text: str) -> bool:
        return reading.words(text) == reading.words(self.source)[self.first - 1 : self.last]

    def say(self) -> str:
        return f"Copy words {self.first} to {self.last} of this text and write nothing else: {self.source}"

    def numbers(self) -> tuple[int, ...]:
        return (self.first, self.last)


class Sections(Check, frozen=True):
    mark: Some
    count: Annotated[int, Meta(ge=2, le=20)]

    def holds(self, text: str) -> bool:
        parts = re.split(rf"^[ \t]*{re.escape(self.mark)}[ \t]*$", text, flags=re.MULTILINE)
        return len(parts) == self.count and all(map(str.strip, parts))

    def say(self) -> str:
        return f"Write {self.count} parts, separated by lines that hold only {self.mark}"

    def numbers(self) -> tuple[int, ...]:
        return (self.count,)


class SentenceLength(Check, frozen=True):
    at_most: Annotated[int, Meta(ge=1)]

    def holds(self, text: str) -> bool:
        return all(len(reading.words(one)) <= self.at_most for one in reading.sentences(text))

    def say(self) -> str:
        return f"No sentence may have more than {self.at_most} words."

    def numbers(self) -> tuple[int, ...]:
        return (self.at_most,)


class WordLength(Check, frozen=True):
    at_most: Annotated[int, Meta(ge=1)]

    def holds(self, text: str) -> bool:
        return all(len(word) <= self.at_most for word in reading.words(text))

    def say(self) -> str:
        return f"No word may have more than {self.at_most} letters."

    def numbers(self) -> tuple[int, ...]:
        return (self.at_most,)


class LinesStart(Check, frozen=True):
    phrase: Some

    def holds(self, text: str) -> bool:
        found = reading.lines(text)
        return bool(found) and all(line.startswith(self.phrase) for line in found)

    def say(self) -> str:
        return f"Start every line with exactly this: {self.phrase}"


class SortedLines(Check, frozen=True):
    at_least: Annotated[int, Meta(ge=2)] = 3

    def holds(self, text: str) -> bool:
        found = [line.casefold() for line in reading.lines(text)]
        return len(found) >= self.at_least and found == sorted(found)

    def say(self) -> str:
        return f"Write at least {self.at_least} lines, in alphabetical order."

    def numbers(self) -> tuple[int, ...]:
        return (self.at_least,)


class Acrostic(Check, frozen=True):
    word: Some

    def holds(self, text: str) -> bool:
        return "".join(line[0] for line in reading.lines(text)).casefold() == self.word.casefold()

    def say(self) -> str:
        return f"The first letters of the lines, read downwards, must spell {self.word!r}; write no other lines."


class NthWord(Check, frozen=True):
    n: Annotated[int, Meta(ge=1)]
    word: Some

    def holds(self, text: str) -> bool:
        found = reading.words(text)
        return len(found) >= self.n and found[self.n - 1].casefold() == self.word.casefold()

    def say(self) -> str:
        return f"Word number {self.n} of the answer must be {self.word!r}."

    def numbers(self) -> tuple[int, ...]:
        return (self.n,)


class SameEnds(Check, frozen=True):
    def holds(self, text: str) -> bool:
        found = reading.words(text.casefold())
        return len(found) > 1 and found[0] == found[-1]

    def say(self) -> str:
        return "The first and the last word of the answer must be the same."


class NoRepeats(Check, frozen=True):
    def holds(self, text: str) -> bool:
        found = reading.words(text.casefold())
        return bool(found) and len(set(found)) == len(found)

    def say(self) -> str:
        return "Use no word twice."


class LastLine(Check, frozen=True):
    words: Natural
    """So many words stand on it."""

    def holds(self, text: str) -> bool:
        found = reading.lines(text)
        return len(found) > 1 and len(reading.words(found[-1])) == self.words

    def say(self) -> str:
        return f"Write several lines; the last line must have exactly {self.words} words."

    def numbers(self) -> tuple[int, ...]:
        return (self.words,)


RULES: dict[str, type[Check]] = {
    "starts_with": StartsWith,
    "ends_with": EndsWith,
    "lowercase": Lowercase,
    "uppercase": Uppercase,
    "quoted": Quoted,
    "title": Title,
    "postscript": Postscript,
    "json": Json,
    "language": Language,
    "copy_words": CopyWords,
    "sections": Sections,
    "sentence_length": SentenceLength,
    "word_length": WordLength,
    "lines_start": LinesStart,
    "sorted_lines": SortedLines,
    "acrostic": Acrostic,
    "nth_word": NthWord,
    "same_ends": SameEnds,
    "no_repeats": NoRepeats,
    "last_line": LastLine,
}

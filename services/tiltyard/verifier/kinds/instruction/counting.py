"""Rules that count: words, sentences, lines, marks, letters."""

from __future__ import annotations

import re

from . import text as reading
from .checks import Count, Some


class Words(Count, frozen=True):
    def measure(self, text: str) -> int:
        return len(reading.words(text))

    def unit(self) -> str:
        return "words"


class DistinctWords(Count, frozen=True):
    def measure(self, text: str) -> int:
        return len({word.casefold() for word in reading.words(text)})

    def unit(self) -> str:
        return "different words"


class Sentences(Count, frozen=True):
    def measure(self, text: str) -> int:
        return len(reading.sentences(text))

    def unit(self) -> str:
        return "sentences"


class Paragraphs(Count, frozen=True):
    def measure(self, text: str) -> int:
        return len(reading.paragraphs(text))

    def unit(self) -> str:
        return "paragraphs, separated by empty lines"


class Lines(Count, frozen=True):
    def measure(self, text: str) -> int:
        return len(reading.lines(text))

    def unit(self) -> str:
        return "lines that are not empty"


class Characters(Count, frozen=True):
    def measure(self, text: str) -> int:
        return len(text.strip())

    def unit(self) -> str:
        return "characters"


class Bullets(Count, frozen=True):
    def measure(self, text: str) -> int:
        return reading.bullets(text)

    def unit(self) -> str:
        return "bullet points, each on a line that starts with '- '"


class Numbered(Count, frozen=True):
    def measure(self, text: str) -> int:
        return reading.numbered(text)

    def unit(self) -> str:
        return "numbered items, each on a line that starts with a number and a full stop"


class Headings(Count, frozen=True):
    def measure(self, text: str) -> int:
        return len(re.findall(r"^#{1,6} +\S", text, re.MULTILINE))

    def unit(self) -> str:
        return "Markdown headings, which start with '#'"


class Bold(Count, frozen=True):
    def measure(self, text: str) -> int:
        return len(re.findall(r"\*\*[^*\n]+\*\*", text))

    def unit(self) -> str:
        return "phrases in bold, written like **this**"


class Placeholders(Count, frozen=True):
    def measure(self, text: str) -> int:
        return len(re.findall(r"\[[^\[\]\n]+\]", text))

    def unit(self) -> str:
        return "placeholders in square brackets, like [name]"


class CapitalWords(Count, frozen=True):
    def measure(self, text: str) -> int:
        return sum(len(word) > 1 and word.isupper() for word in reading.words(text))

    def unit(self) -> str:
        return "words of two or more letters in capitals only"


class Commas(Count, frozen=True):
    def measure(self, text: str) -> int:
        return text.count(",")

    def unit(self) -> str:
        return "commas"


class Exclamations(Count, frozen=True):
    def measure(self, text: str) -> int:
        return text.count("!")

    def unit(self) -> str:
        return "exclamation marks"


class Questions(Count, frozen=True):
    def measure(self, text: str) -> int:
        return text.count("?")

    def unit(self) -> str:
        return "question marks"


class Semicolons(Count, frozen=True):
    def measure(self, text: str) -> int:
        return text.count(";")

    def unit(self) -> str:
        return "semicolons"


class Brackets(Count, frozen=True):
    def measure(self, text: str) -> int:
        return len(re.findall(r"\([^()]+\)", text))

    def unit(self) -> str:
        return "remarks in round brackets"


class Numbers(Count, frozen=True):
    def measure(self, text: str) -> int:
        return len(re.findall(r"\d+(?:[.,]\d+)*", text))

    def unit(self) -> str:
        return "numbers written in digits"


class Letter(Count, frozen=True, kw_only=True):
    letter: Some
    """Any single character, letter case aside."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.letter) != 1 or self.letter.isspace():
            raise ValueError("`letter` is one character")

    def measure(self, text: str) -> int:
        return text.casefold().count(self.letter.casefold())

    def unit(self) -> str:
        return f"occurrences of the character {self.letter!r}"


class Keyword(Count, frozen=True, kw_only=True):
    word: Some

    def __post_init__(self) -> None:
        super().__post_init__()
        if not reading.words(self.word):
            raise ValueError("`word` holds no word")

    def measure(self, text: str) -> int:
        return reading.contains(text, self.word)

    def unit(self) -> str:
        return f"occurrences of {self.word!r} as a whole word"


RULES: dict[str, type[Count]] = {
    "words": Words,
    "distinct_words": DistinctWords,
    "sentences": Sentences,
    "paragraphs": Paragraphs,
    "lines": Lines,
    "characters": Characters,
    "bullets": Bullets,
    "numbered": Numbered,
    "headings": Headings,
    "bold": Bold,
    "placeholders": Placeholders,
    "capital_words": CapitalWords,
    "commas": Commas,
    "exclamations": Exclamations,
    "questions": Questions,
    "semicolons": Semicolons,
    "brackets": Brackets,
    "numbers": Numbers,
    "letter": Letter,
    "keyword": Keyword,
}

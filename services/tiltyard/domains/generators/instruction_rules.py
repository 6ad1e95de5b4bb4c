"""Rules for an answer's form, drawn with their numbers, and how a plain answer is made to keep each.

Invariant: a rule's keys are those of the verifier kind `instruction`. A maker may break a rule that was kept before:
whoever combines rules checks the whole and draws again. Order in `RULES` is the order in which makers are applied.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

Rule = dict[str, Any]
FILL = (
    "It was easy to work out.",
    "You can check it by hand.",
    "We only have to count.",
    "That is all there is.",
    "No other step is left.",
    "The way to it is short.",
    "Each part is the same.",
    "This holds for all of them.",
    "Now the list is done.",
    "Other ways lead there too.",
)
SPEECH = {
    "English": "There are {answer} of them, and that is the sum of all the parts in the list that was given.",
    "French": "Il y en a {answer} et c'est la somme de toutes les parties qui sont dans la liste que nous avons.",
    "German": "Es sind {answer} und das ist die Summe der Teile, die in der Liste stehen und zu dem Ganzen werden.",
    "Spanish": "Son {answer} y es la suma de todas las partes que están en la lista que se da para el total.",
    "Italian": "Sono {answer} ed è la somma di tutte le parti che sono nella lista, come si è detto per il totale.",
}
_THINGS = ("rain", "garden", "lamp", "river", "window", "bread")
_SPELT = ("bird", "lamp", "stone", "cloud", "river", "green")


class Maker(NamedTuple):
    draw: Callable[[random.Random, int], Rule]
    """The rule's keys at a level from 1 to 3, but for its id."""
    make: Callable[[str, Rule], str]


def _fill(count: int) -> list[str]:
    return [FILL[i % len(FILL)] for i in range(count)]


def _grown(size: Callable[[str], int]) -> Callable[[str, Rule], str]:
    def make(text: str, rule: Rule) -> str:
        for more in _fill(60):
            if size(text) >= rule["at_least"]:
                break
            text = f"{text} {more}"
        return text

    return make


def _range(low: int, high: int, room: int) -> Callable[[random.Random, int], Rule]:
    def draw(rng: random.Random, level: int) -> Rule:
        least = rng.randint(low, low + (high - low) * level // 3)
        return {"at_least": least, "at_most": least + room}

    return draw


def _least(low: int, high: int, **more: Any) -> Callable[[random.Random, int], Rule]:
    return lambda rng, level: {"at_least": rng.randint(low, low + (high - low) * level // 3), **more}


def _exact(low: int = 2, high: int = 7, key: str = "exactly") -> Callable[[random.Random, int], Rule]:
    return lambda rng, level: {key: rng.randint(low, low + (high - low) * level // 3)}


def _each(pattern: str, first: int = 0) -> Callable[[str, Rule], str]:
    """The answer with `pattern` after it as often as the rule wants; {n} counts, {fill} is a sentence."""

    def make(text: str, rule: Rule) -> str:
        count = int(rule.get("exactly") or rule.get("at_least") or rule.get("count") or 0) - first
        return text + "".join(pattern.format(n=i + 1, fill=FILL[i % len(FILL)], **rule) for i in range(count))

    return make


def _pick(key: str, *values: str) -> Callable[[random.Random, int], Rule]:
    return lambda rng, level: {key: rng.choice(values)}


def _none(rng: random.Random, level: int) -> Rule:
    return {}


def _same(text: str, rule: Rule) -> str:
    return text


def _keyword(rng: random.Random, level: int) -> Rule:
    return {"word": rng.choice(_THINGS), "exactly": rng.randint(1, 2 * level)}


def _letter(rng: random.Random, level: int) -> Rule:
    return {"letter": rng.choice("zqx"), "at_least": rng.randint(2, 3 * level)}


def _sections(rng: random.Random, level: int) -> Rule:
    return {"mark": rng.choice(("***", "~~~", "=====")), "count": rng.randint(2, level + 2)}


def _json(rng: random.Random, level: int) -> Rule:
    return {"keys": ["total", *rng.sample(("unit", "method", "checked", "remark", "author"), level)]}


def _as_json(text: str, rule: Rule) -> str:
    rest = "".join(f', "{key}": "none"' for key in rule["keys"][1:])
    return f'{{"total": "{text}"{rest}}}'


def _nth(rng: random.Random, level: int) -> Rule:
    return {"n": rng.randint(2, 5 * level), "word": rng.choice(_THINGS)}


def _as_nth(text: str, rule: Rule) -> str:
    found = " ".join([text, *_fill(4)]).split(" ")
    return " ".join([*found[: rule["n"] - 1], rule["word"], *found[rule["n"] - 1 :]])


def _acrostic(text: str, rule: Rule) -> str:
    letters = rule["word"].upper()
    return "\n".join(f"{one} is here. {text if i == 0 else FILL[i]}" for i, one in enumerate(letters))


def _sorted(text: str, rule: Rule) -> str:
    return "\n".join(sorted([text, *_fill(rule["at_least"] - 1)], key=str.casefold))


RULES: dict[str, Maker] = {
    "language": Maker(_pick("language", *SPEECH), lambda text, rule: SPEECH[rule["language"]].format(answer=text)),
    "words": Maker(_range(12, 90, 12), _grown(lambda text: len(text.split()))),
    "distinct_words": Maker(_least(8, 30), _grown(lambda text: len(set(text.casefold().replace(".", "").split())))),
    "characters": Maker(_range(40, 400, 60), _grown(len)),
    "sentences": Maker(_exact(2, 9), _each(" {fill}", 1)),
    "commas": Maker(_exact(1, 8), _each(" Yes, yes.")),
    "exclamations": Maker(_exact(1, 7), _each(" Good!")),
    "questions": Maker(_exact(1, 6), _each(" Is it clear?")),
    "semicolons": Maker(_exact(1, 5), _each(" We add; we stop.")),
    "brackets": Maker(_exact(1, 5), _each(" So be it (as said).")),
    "numbers": Maker(_exact(2, 6), _each(" Try 1.", 1)),
    "letter": Maker(_letter, _each(" Use {letter}.")),
    "keyword": Maker(_keyword, _each(" Think of {word}.")),
    "bold": Maker(_exact(1, 5), _each(" It is **sure**.")),
    "placeholders": Maker(_exact(1, 5), _each(" Ask [name].")),
    "capital_words": Maker(_least(2, 8), _each(" It is SURE.")),
    "nth_word": Maker(_nth, _as_nth),
    "same_ends": Maker(_none, lambda text, rule: f"Result: {text} This is the result."),
    "no_repeats": Maker(_none, _same),
    "sentence_length": Maker(_exact(6, 12, "at_most"), _same),
    "word_length": Maker(_exact(5, 8, "at_most"), _same),
    "sorted_lines": Maker(_least(3, 9), _sorted),
    "acrostic": Maker(_pick("word", *_SPELT), _acrostic),
    "starts_with": Maker(
        _pick("phrase", "Here we go:", "To begin with,", "My answer:", "Dear reader,"),
        lambda text, rule: f"{rule['phrase']} {text}",
    ),
    "paragraphs": Maker(_exact(2, 6), _each("\n\n{fill}", 1)),
    "headings": Maker(_exact(1, 5), _each("\n\n# Part\n{fill}")),
    "bullets": Maker(_exact(2, 8), _each("\n- {fill}")),
    "numbered": Maker(_exact(2, 8), _each("\n{n}. {fill}")),
    "lines": Maker(_exact(2, 9), _each("\n{fill}", 1)),
    "sections": Maker(_sections, _each("\n{mark}\n{fill}", 1)),
    "title": Maker(_none, lambda text, rule: f"<<The total>>\n{text}"),
    "last_line": Maker(_exact(2, 8, "words"), lambda text, rule: f"{text}\n{' '.join(['so'] * rule['words'])}"),
    "postscript": Maker(_none, lambda text, rule: f"{text}\nP.S. Well done."),
    "ends_with": Maker(
        _pick("phrase", "That is my answer.", "Over and out.", "Any more?"),
        lambda text, rule: f"{text} {rule['phrase']}",
    ),
    "lines_start": Maker(
        _pick("phrase", "> ", "| ", ":: "),
        lambda text, rule: "\n".join(rule["phrase"] + line for line in text.splitlines() if line),
    ),
    "lowercase": Maker(_none, lambda text, rule: text.lower()),
    "uppercase": Maker(_none, lambda text, rule: text.upper()),
    "quoted": Maker(_none, lambda text, rule: f'"{text}"'),
    "json": Maker(_json, _as_json),
}

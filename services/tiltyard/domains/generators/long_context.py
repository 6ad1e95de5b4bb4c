"""Things to find in long documents: one value, several, a chain of them, a value with its section, scattered pieces.

Options: `find` (a key of `_FINDS`) and `tokens`, about how long the document is.
Invariant: the document holds at least seven decoys of the same shape, so that a list of everything is no answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tiltyard.domains.drafts import Draft, Request

from .long_documents import paragraph

CHARS = 4.5
"""Characters of a token of this prose, on the safe side."""
_TOWNS = [
    "Aldmoor",
    "Brenwick",
    "Carrow",
    "Dunhithe",
    "Elmstead",
    "Fosgate",
    "Garth",
    "Hollin",
    "Ivery",
    "Kestrel",
    "Lorne",
    "Marsk",
]
_OBJECTS = [
    "lantern",
    "ledger",
    "barometer",
    "sextant",
    "violin",
    "kettle",
    "globe",
    "clock",
    "compass",
    "printing-press",
    "telescope",
    "loom",
]
_WORDING = {
    "a": ("Read the document below, then answer.", "Question:"),
    "b": ("Here is a document. A question about it follows at the end.", "Now answer this:"),
    "c": ("Someone filed this document without a summary. You need one thing from it.", "What is needed:"),
}


class Hunt(NamedTuple):
    """What stands in the document, in this order, and what is asked about it."""

    planted: Sequence[str]
    question: str
    data: dict[str, Any]
    reference: str
    options: dict[str, Any] = {}  # noqa: RUF012


def _codes(rng: random.Random, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices("BCDFGHKLMPRTVX", k=2)) + str(rng.randint(1000, 9999))] = None
    return list(found)


def _pairs(rng: random.Random, count: int) -> list[tuple[str, str]]:
    pairs = [(town, thing) for town in _TOWNS for thing in _OBJECTS]
    return rng.sample(pairs, count)


def _keys(rng: random.Random, asked: int) -> Hunt:
    total = 7 + 4 * asked
    pairs, codes = _pairs(rng, total), _codes(rng, total)
    facts = [f"The code of the {thing} in {town} is {code}." for (town, thing), code in zip(pairs, codes, strict=True)]
    named = " and ".join(f"the {thing} in {town}" for town, thing in pairs[:asked])
    what = f"What is the code of {named}?" if asked == 1 else f"What are the codes of {named}?"
    data = {"answers": codes[:asked], "decoys": codes[asked:]}
    rng.shuffle(facts)
    return Hunt(
        facts, f"{what} Write only {'the code' if asked == 1 else 'the codes'}.", data, ", ".join(codes[:asked])
    )


def one(rng: random.Random) -> Hunt:
    return _keys(rng, 1)


def several(rng: random.Random) -> Hunt:
    return _keys(rng, rng.randint(3, 5))


def chain(rng: random.Random) -> Hunt:
    """Each thing points to the next; the last one has the code."""
    total = 14
    pairs, codes = _pairs(rng, 3 * total), _codes(rng, total)
    names = [f"the {thing} in {town}" for town, thing in pairs]
    facts = []
    for i in range(total):  # every code ends a chain, so that it doesn't stand out
        first, then, last = names[i * 3 : i * 3 + 3]
        facts.append(f"Whoever looks for {first} must go to {then}.")
        facts.append(f"From {then} one is sent on to {last}.")
        facts.append(f"The label on {last} reads {codes[i]}.")
    rng.shuffle(facts)
    question = f"You look for {names[0]} and follow where you are sent. What does the label at the end read? "
    return Hunt(facts, f"{question}Write only the label.", {"answers": codes[:1], "decoys": codes[1:]}, codes[0])


def section(rng: random.Random) -> Hunt:
    """A value, and the number of the section that it stands in."""
    pairs, codes = _pairs(rng, 12), _codes(rng, 12)
    numbers = [f"{chapter}.{part}" for chapter in range(1, 5) for part in range(1, 4)]
    facts = [
        f"\n\n## Section {number}\n\nThe code of the {thing} in {town} is {code}."
        for number, (town, thing), code in zip(numbers, pairs, codes, strict=True)
    ]
    place = rng.randrange(12)
    (town, thing), answer = pairs[place], {"value": codes[place], "section": numbers[place]}
    question = (
        f"What is the code of the {thing} in {town}, and in which section does it stand? "
        "Answer with two lines, 'value: ' and 'section: ', each followed by what you found."
    )
    return Hunt(facts, question, {"fields": answer}, f"value: {answer['value']}\nsection: {answer['section']}")


def fragments(rng: random.Random) -> Hunt:
    """Pieces of one message, numbered and scattered; the order counts."""
    count = rng.randint(3, 5)
    codes = _codes(rng, count * 4)
    town, *others = rng.sample(_TOWNS, 4)
    facts = [f"Piece {i + 1} of the message from {town} is {codes[i]}." for i in range(count)]
    for k, other in enumerate(others, 1):
        facts += [f"Piece {i + 1} of the message from {other} is {codes[k * count + i]}." for i in range(count)]
    rng.shuffle(facts)
    question = f"Give the pieces of the message from {town}, in the order of their numbers. Write only the pieces."
    data = {"answers": codes[:count], "decoys": codes[count:]}
    return Hunt(facts, question, data, " ".join(codes[:count]), {"ordered": True})


_FINDS: dict[str, Callable[[random.Random], Hunt]] = {
    "one": one,
    "several": several,
    "chain": chain,
    "section": section,
    "fragments": fragments,
}


def generate(request: Request) -> Iterator[Draft]:
    """Documents with a question at their end, endlessly."""
    find, tokens = str(request.options["find"]), int(request.options["tokens"])
    rng = random.Random(f"long_context/{find}/{tokens}/{request.split}/{request.seed}")
    templates = [name for name in _WORDING if request.wants(name)]
    while templates:
        template = rng.choice(templates)
        hunt = _FINDS[find](rng)
        before, ask = _WORDING[template]
        yield Draft(
            template=template,
            fields={"question": f"{before}\n\n{_document(rng, hunt.planted, tokens)}\n\n{ask} {hunt.question}"},
            data=hunt.data,
            options=hunt.options,
            reference=hunt.reference,
            labels={"find": find, "tokens": str(tokens)},
        )


def _document(rng: random.Random, planted: Sequence[str], tokens: int) -> str:
    """Prose of about that length with the facts at random places, in their order."""
    blocks, size = [], sum(map(len, planted))
    while size < tokens * CHARS:
        blocks.append(paragraph(rng))
        size += len(blocks[-1]) + 2
    places = sorted(rng.randint(0, len(blocks)) for _ in planted)
    for place, fact in reversed(list(zip(places, planted, strict=True))):
        blocks.insert(place, fact)
    return "\n\n".join(blocks)

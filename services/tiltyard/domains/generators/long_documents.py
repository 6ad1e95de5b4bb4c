"""Plain prose and records to fill long contexts with: paragraphs about invented places, people and their days.

Invariant: no word of it is a number of more than two digits, so that what is asked for can't be there by chance.
"""

from __future__ import annotations

import random

_WHO = ("The clerk", "A gardener", "The ferryman", "An old teacher", "The baker", "A young surveyor", "The night guard")
_DID = ("wrote down", "looked for", "repaired", "forgot", "carried away", "painted", "described", "counted", "sold")
_WHAT = ("a wooden box", "the blue ledger", "three lanterns", "a map of the coast", "the garden gate", "two chairs")
_WHERE = ("in Aldmoor", "near the harbour", "behind the mill", "at the market", "on the north road", "in Tessel")
_WHEN = ("before the rain came", "late in the evening", "while the bells rang", "after lunch", "during the fair")
_WHY = (
    "because nobody else had the time",
    "although the road was closed",
    "as the council had asked for it",
    "and told the neighbours about it",
    "but kept quiet about the reason",
    "so that the work could go on",
)


def sentence(rng: random.Random) -> str:
    parts = (rng.choice(_WHO), rng.choice(_DID), rng.choice(_WHAT), rng.choice(_WHERE), rng.choice(_WHEN))
    return f"{' '.join(parts)}, {rng.choice(_WHY)}."


def paragraph(rng: random.Random, sentences: int = 6) -> str:
    return " ".join(sentence(rng) for _ in range(sentences))


def note(rng: random.Random) -> str:
    """A paragraph of about 80 words."""
    return paragraph(rng, 4)

"""Which of a few languages a text is written in, by its commonest small words.

Left out: texts of fewer than three such words are in no language; other languages aren't told apart.
"""

from __future__ import annotations

from .text import words

LANGUAGES = {
    "English": "the of and to in is that it was for on are with as this be at have from or by not but what all were",
    "French": "le la les de des du et est une un dans que qui pour pas sur au avec son il elle nous vous ce sont en à",
    "German": "der die das und ist nicht ein eine zu den von mit auf für sich dem als auch es an werden aus er hat wir",
    "Spanish": "el la los las de y que en un una es por con para no se del al lo como más pero sus le ha son está",
    "Italian": "il la di che e è un una per non in con del della sono si da le i gli come più ma anche nel alla lo",
}
_SMALL = {name: frozenset(listed.split()) for name, listed in LANGUAGES.items()}
MIN_HITS = 3


def is_language(text: str, language: str) -> bool:
    """Do the small words of that language outnumber those of every other, and are there enough of them?"""
    found = words(text.casefold())
    hits = {name: sum(word in small for word in found) for name, small in _SMALL.items()}
    best = hits.pop(language)
    return best >= MIN_HITS and best >= len(found) / 10 and all(best > other for other in hits.values())

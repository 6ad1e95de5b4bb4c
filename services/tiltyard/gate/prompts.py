"""What prompts give away: answers, repeats, and texts of evaluation sets.

Words are runs of letters and digits in lower case. A shingle is a hash of so many words in a row. Boilerplate, which
most prompts of a domain share, says nothing about two of them and is left out.
Left out: paraphrases, and answers that are derived by a step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

from tiltyard_proto.messages import Task

LEAK_CHARS = 16
"""A reference of so many letters and digits in a prompt is no chance."""
NEAR = 0.9
"""Share of shingles that two prompts of different tasks may have in common."""
OVERLAP_WORDS = 13
"""Words in a row that a prompt may not share with an evaluation set."""
_WORD, _TOKEN = re.compile(r"[^\W_]+"), re.compile(r"[^\W_]+|[^\w\s]")
FEWEST = 8
"""Shingles of its own that a prompt needs to be compared with others."""
_BASE, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1
_SAID = r"(?:answer|solution|result|expected|reference|gold)(?:\s+(?:is|are))?\s*[:=]?\s*[\"'`]?"


def text_of(task: Task) -> str:
    """The whole prompt."""
    return "\n".join(message.content for message in task.prompt)


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def shingles(text: str, size: int) -> set[int]:
    """Hashes of `size` words in a row; none when there are fewer."""
    return _shingles(words(text), size)


def _tokens(task: Task) -> list[str]:
    """Words and signs of prompt, reference, set-up and workspace: two tasks may differ in any of them."""
    texts = [text_of(task), task.reference, task.environment.setup]
    texts += [f"{path} {content.decode('utf-8', 'replace')}" for path, content in task.environment.files.items()]
    return _TOKEN.findall(" ".join(texts).lower())


def _shingles(found: list[str], size: int) -> set[int]:
    """Rolling hashes, since a prompt may be a book."""
    numbers = [_number(word) for word in found]
    rolled, power, shingles = 0, pow(_BASE, size, 1 << 64), set[int]()
    for end, number in enumerate(numbers):
        rolled = rolled * _BASE + number
        if end >= size:
            rolled -= numbers[end - size] * power
        rolled &= _MASK
        if end >= size - 1:
            shingles.add(rolled)
    return shingles


@lru_cache(1 << 16)
def _number(word: str) -> int:
    """The same in every process."""
    return int.from_bytes(blake2b(word.encode("utf-8", "replace"), digest_size=8).digest(), "big")


def leak(task: Task) -> str:
    """Where the prompt or the workspace holds the answer; '' when nowhere."""
    reference = task.reference.strip()
    if not reference:
        return ""
    asked, squeezed = text_of(task), "".join(words(reference))
    places = {"the prompt": asked, "the set-up": task.environment.setup}
    places |= {f"file {name}": content.decode("utf-8", "replace") for name, content in task.environment.files.items()}
    for place, text in places.items():
        if len(squeezed) >= LEAK_CHARS and squeezed in "".join(words(text)):
            return f"{place} holds the reference"
    last = task.prompt[-1].content
    if 2 < len(reference) < 200 and re.search(_SAID + re.escape(reference) + r"(?!\w)", last, re.IGNORECASE):
        return "the prompt names the reference as the answer"
    return ""


def near_duplicates(tasks: Sequence[Task]) -> dict[str, str]:
    """Tasks that nearly repeat an earlier one: id to the id of the earlier one."""
    own = _without_boilerplate({task.id: _shingles(_tokens(task), 3) for task in tasks})
    found: dict[str, str] = {}
    for index, task in enumerate(tasks):
        for other in tasks[:index]:
            a, b = own[task.id], own[other.id]
            if other.id not in found and min(len(a), len(b)) >= FEWEST and len(a & b) / len(a | b) > NEAR:
                found[task.id] = other.id
                break
    return found


def _without_boilerplate(sets: Mapping[str, set[int]]) -> dict[str, set[int]]:
    counts = Counter(shingle for one in sets.values() for shingle in one)
    most = max(2, len(sets) / 2)
    return {name: {shingle for shingle in one if counts[shingle] <= most} for name, one in sets.items()}


def contradictions(tasks: Sequence[Task]) -> dict[str, str]:
    """Tasks that ask what an earlier one asks and want something else: id to the id of the earlier one."""
    first: dict[tuple[str, bytes], Task] = {}
    found: dict[str, str] = {}
    for task in tasks:
        start = repr((task.environment.setup, sorted(task.environment.files.items()))).encode()
        earlier = first.setdefault((" ".join(text_of(task).split()), start), task)
        if earlier is not task:
            found[task.id] = earlier.id
    return found


def index(tasks: Iterable[Task]) -> set[int]:
    """What `overlaps` looks for: the long shingles of an evaluation set's prompts."""
    return {shingle for task in tasks for shingle in shingles(text_of(task), OVERLAP_WORDS)}


def overlaps(tasks: Sequence[Task], held: set[int]) -> list[str]:
    """Ids of training tasks whose prompts share a long run of words with an evaluation set."""
    own = _without_boilerplate({task.id: shingles(text_of(task), OVERLAP_WORDS) for task in tasks})
    return [task.id for task in tasks if own[task.id] & held]

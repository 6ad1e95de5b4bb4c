"""Items of reasoning-gym's data sets at levels of their curricula.

Options: `dataset`, `level`, and `split_by` ("question", or "seed" where drawing is slow and repeats are rare). A
quarter of all items is held out: those whose question (or seed) falls into the first of four buckets. Data sets that
are left out, and why, stand in `LEFT_OUT`. Source: reasoning-gym 0.1.25.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tiltyard.domains.drafts import Draft, Request, bucket
from tiltyard.domains.procedural import digest, draw

BUCKETS = 4
MAX_QUESTION = 8000
"""Characters; longer questions are skipped."""
_PATIENCE = 400
"""Items in a row that are too long, there already or of the other split, after which there are no more."""
LEFT_OUT = {
    "arc_agi": "the items of a public benchmark",
    "bf": "prints while drawing, and takes a quarter of a second",
    "boxnet": "no answer of its own",
    "circuit_logic": "two possible answers: guessing pays half",
    "codeio": "its programs look for files, and its prompts are long",
    "composite": "no data set of its own",
    "course_schedule": "two possible answers: guessing pays half",
    "figlet_font": "its fonts come in the order of the disk, so that items can't be drawn again elsewhere",
    "game_of_life_halting": "two possible answers, and the scorer pays for any text",
    "graph_color": "no answer of its own",
    "gsm_symbolic": "templates of a public benchmark",
    "isomorphic_strings": "two possible answers: guessing pays half",
    "jugs": "its own answer fails from the second level on, and drawing may never end",
    "knight_swap": "its levels can't be drawn, and its defaults take a second each",
    "propositional_logic": "no answer of its own, and the scorer pays for wrong ones",
    "ransom_note": "two possible answers: guessing pays half",
    "rearc": "variants of a public benchmark's items",
    "rubiks_cube": "no answer of its own",
    "rush_hour": "no answer of its own",
    "sokoban": "drawing may take longer than anybody waits",
    "syllogism": "two possible answers: guessing pays half",
}


class Undrawable(ValueError):
    """The data set gave up on an item, as some do now and then."""


def generate(request: Request) -> Iterator[Draft]:
    """Items of one data set, each question once, until there seem to be no more.

    ValueError: reasoning-gym isn't installed.
    """
    dataset, level = str(request.options["dataset"]), int(request.options["level"])
    by_seed = request.options.get("split_by") == "seed"
    seed, skipped, seen = request.seed * 1_000_003, 0, set[str]()
    while skipped < _PATIENCE:
        seed += 1
        if by_seed and not request.wants(dataset, bucket(str(seed), BUCKETS)):
            continue
        skipped += 1
        try:
            found, entry = drawn(dataset, level, seed)
        except Undrawable:
            continue
        source = bucket(str(seed) if by_seed else entry["question"], BUCKETS)
        known = digest(entry["question"]) in seen
        if len(entry["question"]) <= MAX_QUESTION and not known and request.wants(dataset, source):
            skipped = 0
            seen.add(digest(entry["question"]))
            data = data_of(dataset, level, seed, found, entry)
            yield Draft(
                template=dataset,
                source=source,
                fields={"question": entry["question"].strip()},
                data=data,
                reference=f"<answer>{data['answer']}</answer>",
                labels={"dataset": dataset},
            )


def drawn(dataset: str, level: int, seed: int) -> tuple[Any, dict[str, Any]]:
    """The data set and its item. Undrawable; ValueError: reasoning-gym isn't installed."""
    try:
        return draw(dataset, level, seed)
    except (ValueError, RuntimeError) as err:
        raise Undrawable(f"{dataset}: no item with seed {seed}: {err}") from err
    except ImportError as err:
        raise ValueError(f"reasoning.{dataset} needs reasoning-gym: pip install 'tiltyard[domains]' ({err})") from err


def data_of(dataset: str, level: int, seed: int, found: Any, entry: dict[str, Any]) -> dict[str, Any]:
    """Verification data of the item that `drawn` gave, as the verifier kind `reasoning_gym` wants it."""
    answer = "" if entry["answer"] is None else str(entry["answer"]).strip()
    data = {
        "dataset": dataset,
        "level": level,
        "seed": seed,
        "digest": digest(entry["question"]),
        "answer": answer,
        "exact": bool(answer) and not _scores(found),
    }
    if dataset in ("countdown", "puzzle24"):
        metadata = entry["metadata"]
        data |= {"numbers": [int(number) for number in metadata["numbers"]], "target": int(metadata.get("target", 24))}
    return data


def _scores(found: Any) -> bool:
    """Has the data set a scorer of its own? The inherited one pays in full for its own answer only."""
    from reasoning_gym.dataset import ProceduralDataset

    return type(found).score_answer is not ProceduralDataset.score_answer

"""One item of a reasoning-gym data set, by name, level and seed: the same wherever it is drawn.

Self-contained, since the same text also runs inside a sandbox, in front of a scorer: there nothing of ours can be
imported. Source: reasoning-gym 0.1.25. Invariant: pure in its arguments and reasoning-gym's version. A data set is made
once for a level, as some read large files then; its items depend on its seed only, but for those in `_AT_ONCE`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_AT_ONCE = ("acre", "list_functions", "gsm_symbolic", "survo")
"""They draw when they are made, or by the seed that they were made with."""
_made: "dict[tuple[str, int], Any]" = {}


def draw(dataset: str, level: int, seed: int) -> "tuple[Any, dict[str, Any]]":
    """The data set, which can score, and its item: question, answer, metadata.

    Level n sets every attribute of the data set's curriculum to its n-th value or its last; -1 takes the defaults.
    """
    found = _made.get((dataset, level))
    if found is None:
        found = _make(dataset, level, seed)
        if dataset not in _AT_ONCE:
            _made[dataset, level] = found
    found.seed = seed
    return found, found[0]


def _make(dataset: str, level: int, seed: int) -> "Any":
    from reasoning_gym.factory import create_curriculum, create_dataset

    settings = {}
    if level >= 0:
        curriculum = create_curriculum(dataset)
        for name, attribute in curriculum.attributes.items():
            curriculum.set_attr_level(name, min(level, len(attribute.levels) - 1))
        settings = dict(vars(curriculum.generate_configuration({})))
    settings.update(seed=seed, size=1)
    return create_dataset(dataset, **settings)


def digest(question: str) -> str:
    """Names a question, so that two versions of reasoning-gym can't be mixed up."""
    from hashlib import blake2b

    return blake2b(question.encode(), digest_size=8).hexdigest()

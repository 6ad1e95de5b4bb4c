"""One item of a reasoning-gym data set, by name, level and seed: the same wherever it is drawn.

Self-contained, since the same text also runs inside a sandbox, in front of a scorer: there nothing of ours can be
imported. Source: reasoning-gym 0.1.25. Invariant: pure in its arguments and reasoning-gym's version.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def draw(dataset: str, level: int, seed: int) -> "tuple[Any, dict[str, Any]]":
    """The data set, which can score, and its item: question, answer, metadata.

    Level n sets every attribute of the data set's curriculum to its n-th value or its last; -1 takes the defaults.
    """
    from reasoning_gym.factory import create_curriculum, create_dataset

    settings = {}
    if level >= 0:
        curriculum = create_curriculum(dataset)
        for name, attribute in curriculum.attributes.items():
            curriculum.set_attr_level(name, min(level, len(attribute.levels) - 1))
        settings = dict(vars(curriculum.generate_configuration({})))
    settings.update(seed=seed, size=1)
    found = create_dataset(dataset, **settings)
    return found, found[0]


def digest(question: str) -> str:
    """Names a question, so that two versions of reasoning-gym can't be mixed up."""
    from hashlib import blake2b

    return blake2b(question.encode(), digest_size=8).hexdigest()

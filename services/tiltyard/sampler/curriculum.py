"""Which task is tried next: templates whose pass rate is neither near 0 nor near 1.

A Beta posterior of each template's pass rate is kept, older results fading as the policy moves. The preference is the
expected variance of a pass under the posterior, E[p(1-p)] = ab / ((a+b)(a+b+1)): it is what a group can teach, and it
needs no threshold. Within a template the least used task is taken. Choices are derived from (seed, index), so they
can be repeated. Left out: learning progress terms (they made things worse in simulation), value and cost weights.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import msgspec

from tiltyard_proto.messages import Group, Task


class Posterior(msgspec.Struct, frozen=True):
    """Beta(passed + 1, failed + 1) of a template's pass rate."""

    passed: float = 0.0
    failed: float = 0.0

    def add(self, passed: int, failed: int, forget: float) -> Posterior:
        return Posterior(self.passed * forget + passed, self.failed * forget + failed)

    @property
    def spread(self) -> float:
        """E[p(1-p)], at most 1/4."""
        a, b = self.passed + 1, self.failed + 1
        return a * b / ((a + b) * (a + b + 1))


def uniform(seed: int, *labels: object) -> float:
    """A number in [0, 1) that depends on nothing but its arguments."""
    digest = hashlib.blake2b(repr((seed, labels)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2.0**64


class Curriculum:
    """Posteriors and use counts over the training tasks of a run."""

    def __init__(self, seed: int, forget: float, explore: float) -> None:
        self.seed = seed
        self.forget = forget
        self.explore = explore
        self.posteriors: dict[tuple[str, str], Posterior] = {}
        self.uses: Counter[str] = Counter()
        self.chosen: dict[int, str] = {}
        """Task of each group index, so that a use counts once however often it is told."""

    def learn(self, group: Group) -> None:
        """Take in what a closed group showed."""
        scored = [member.verdict for member in group.members if member.verdict.score is not None]
        passed = sum(verdict.passed for verdict in scored)
        key = (group.domain, group.template)
        known = self.posteriors.get(key, Posterior())
        self.posteriors[key] = known.add(passed, len(scored) - passed, self.forget)

    def use(self, index: int, task_id: str) -> None:
        """The group with this index tries this task (an adopted group may try another than was chosen)."""
        before = self.chosen.get(index)
        if before is not None:
            self.uses[before] -= 1
        self.chosen[index] = task_id
        self.uses[task_id] += 1

    def choose(self, tasks: Sequence[Task], index: int) -> Task:
        """The task of the group with this index; its use is counted."""
        templates = sorted({(task.domain, task.template) for task in tasks})
        weights = [self.posteriors.get(key, Posterior()).spread + self.explore for key in templates]
        point = uniform(self.seed, "template", index) * sum(weights)
        chosen = templates[-1]
        for key, weight in zip(templates, weights, strict=True):
            point -= weight
            if point < 0:
                chosen = key
                break
        members = [task for task in tasks if (task.domain, task.template) == chosen]
        task = min(members, key=lambda t: (self.uses[t.id], uniform(self.seed, "task", t.id)))
        self.use(index, task.id)
        return task

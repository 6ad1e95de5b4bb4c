"""Cases about groups: what the aggregator makes of members whose verdicts are missing.

A case says how many members there are and on how many the verifier failed, in words or by its wanted list; its group
is built and closed by the aggregator's own code. A group that may not train is quarantined.
"""

from __future__ import annotations

import re

from tiltyard.aggregator import handler as aggregator
from tiltyard.verifier.kinds.trials import Case, Ruling
from tiltyard_proto.messages import Group, GroupRecord, GroupRef, Purpose, Rollout, Task, Verdict, Verification
from tiltyard_proto.outcomes import Outcome

_SIZE = re.compile(r"\bgroup of (\d+)|\b(\d+) (?:members|samples|rollouts)\b", re.IGNORECASE)
_FAILED = re.compile(
    r"(?:verifier|grader|judge|checker)\s+(?P<how>timed out|failed|crashed|raised|errors?|unavailable)"
    r"\D{0,20}(?P<n>\d+)",
    re.IGNORECASE,
)
_SCORES = re.compile(r"(\d+) scores?\s*(?:\+|and)\s*(\d+) (?:errors?|failures?|timeouts?)", re.IGNORECASE)
_OUTCOMES = {"timed out": Outcome.VERIFIER_TIMEOUT, "unavailable": Outcome.JUDGE_UNAVAILABLE}


def rulings(case: Case) -> Ruling | None:
    """The aggregator's word on a case of kind 'aggregate'; None for other kinds."""
    if case.kind != "aggregate":
        return None
    if isinstance(case.score, list):
        members = [(score, Outcome.VERIFIER_FAILED) for score in case.score]
        group = close(members, Purpose.EVAL)
        return Ruling(verdict="list", score=[member.verdict.score for member in group.members])
    members = _members(f"{case.task} {case.reference} {case.submission}")
    group = close(members, Purpose.TRAIN)
    reasons = (f"the group does not train: {group.reason}",) if group.reason else ()
    return Ruling(verdict="accept" if group.trainable else "quarantine", reasons=reasons)


def _members(words: str) -> list[tuple[float | None, Outcome]]:
    """Scores that differ for the members that were graded, and none for those on which the verifier failed."""
    size, failed, mixed = _SIZE.search(words), _FAILED.search(words), _SCORES.search(words)
    if mixed:
        graded, missing, outcome = int(mixed[1]), int(mixed[2]), Outcome.VERIFIER_FAILED
    elif size and failed:
        missing = int(failed["n"])
        graded = int(size[1] or size[2]) - missing
        outcome = _OUTCOMES.get(failed["how"].lower(), Outcome.VERIFIER_FAILED)
    else:
        raise ValueError("it doesn't say how many members there are, and on how many the verifier failed")
    return [(float(index % 2), outcome) for index in range(graded)] + [(None, outcome)] * missing


def close(members: list[tuple[float | None, Outcome]], purpose: Purpose) -> Group:
    """The closed group of members with these scores; those without one ended as their outcome says."""
    task = Task(id="case", domain="cases.aggregate", prompt=(), verification=Verification(kind="case"))
    ref = GroupRef(id="case-t-0", size=len(members), deadline=0.0, purpose=purpose)
    verdicts = []
    for number, (score, outcome) in enumerate(members):
        rollout = Rollout(
            id=f"case-t-0-{number}", run="case", group=ref, member=number, task=task, sampling=task.sampling
        )
        ending = Outcome.FINISHED if score is not None else outcome
        verdicts.append(Verdict(rollout=rollout, outcome=ending, score=score, passed=score == 1.0))
    record = GroupRecord(
        id=ref.id,
        run="case",
        domain=task.domain,
        task_id=task.id,
        template="",
        purpose=purpose,
        version=0,
        size=len(members),
        deadline=0.0,
        opened=0.0,
        members=tuple(range(len(members))),
    )
    return aggregator.close(record, verdicts, 0.0)

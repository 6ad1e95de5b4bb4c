"""Kind reward_file: what a task's own verifier program may say, and what is no score."""

from __future__ import annotations

import pytest
from support.grading import KINDS, rollout_of

from tiltyard.verifier.kinds.base import BrokenTask, Quarantine
from tiltyard_proto.messages import BlobRef, Environment, Execution, Graded, Job, Task, Verification
from tiltyard_proto.outcomes import Outcome

KIND = KINDS["reward_file"]
TASK = Task(
    id="t",
    domain="terminal.test",
    prompt=(),
    verification=Verification(kind="reward_file", data={"files": {"test.sh": "exit 0"}}),
    environment=Environment(interface="shell", files={"a.txt": b"a"}),
)
ROLLOUT = rollout_of(TASK, "x", workspace=BlobRef(uri="x", size=1, sha256="0"))


def graded(json: bytes | None = None, text: bytes | None = None) -> Graded:
    job = KIND.plan(TASK, ROLLOUT)
    assert isinstance(job, Job)
    files = dict(zip(job.collect, (json, text), strict=True))
    found = {path: content for path, content in files.items() if content is not None}
    return Graded(rollout=ROLLOUT, execution=Execution(outcome=Outcome.NONZERO_EXIT), files=found)


@pytest.mark.parametrize(
    ("json", "text", "score"),
    [
        (None, b"1.0\n", 1.0),
        (b'{"reward": 0.5, "speed": 3}', None, 0.5),
        (b'{"a": 0.25, "b": 0.5}', None, 0.75),
        (b"1", b"1.0", 1.0),
        (b'{"reward": true}', None, 1.0),
        (None, b"0", 0.0),
    ],
)
def test_a_reward_is_the_score(json: bytes | None, text: bytes | None, score: float) -> None:
    """Either file alone, or both when they agree; the exit status says nothing."""
    verdict = KIND.judge(TASK, graded(json, text))
    assert (verdict.score, verdict.passed) == (score, score == 1.0)


@pytest.mark.parametrize(
    ("json", "text"),
    [
        (None, None),
        (b"", None),
        (None, b""),
        (None, b"nan"),
        (None, b"inf"),
        (None, b"one"),
        (None, b"\xff"),
        (None, b"2"),
        (None, b"-1"),
        (b'{"reward": "1"}', None),
        (b"{}", None),
        (b'{"reward": null}', None),
        (b"[" * 5000, None),
        (b'{"reward": 0}', b"1"),
    ],
)
def test_no_usable_reward_is_no_score(json: bytes | None, text: bytes | None) -> None:
    """Missing, empty, unreadable, not finite, out of range, or contradicting: quarantine."""
    with pytest.raises(Quarantine):
        KIND.judge(TASK, graded(json, text))


def test_the_verifier_is_where_no_session_could_be() -> None:
    """Its directory has a name of its own; a workspace that nothing ran in is the task's start."""
    job = KIND.plan(TASK, ROLLOUT)
    assert isinstance(job, Job)
    assert job.workspace is not None
    (folder,) = {path.split("/")[0] for path in job.command.files}
    assert folder.startswith(".verifier-")
    assert job.command.argv[1] == f"{folder}/tests/test.sh"
    fresh = KIND.plan(TASK, rollout_of(TASK))
    assert isinstance(fresh, Job)
    assert fresh.command.files["a.txt"] == b"a"


def test_broken_tasks() -> None:
    """A task without a verifier's files can't be judged."""
    broken = Task(id="t", domain="x.y", prompt=(), verification=Verification(kind="reward_file", data={"files": {}}))
    with pytest.raises(BrokenTask):
        KIND.plan(broken, ROLLOUT)

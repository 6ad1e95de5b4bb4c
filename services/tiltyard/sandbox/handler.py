"""Decisions of the sandbox service: which files a turn starts from, what the policy is shown, where the rollout goes
next.

Invariants: pure; an ending that is the policy's doing is shown to the policy and graded, one of the infrastructure
ends the attempt. Left out: sandboxes, blobs and the bus (`work`, `app`).
"""

from __future__ import annotations

import msgspec

from tiltyard_proto import flow
from tiltyard_proto.flow import Hop
from tiltyard_proto.messages import BlobRef, Execution, Graded, Job, Rollout
from tiltyard_proto.outcomes import Grade, Outcome, policy_for

Key = tuple[str, int]
"""A session's name: rollout id and attempt."""


class BadMessage(ValueError):
    """A message that can never be executed; the text says why."""


def session_key(rollout: Rollout) -> Key:
    return (rollout.id, rollout.attempt)


def check(rollout: Rollout) -> None:
    """BadMessage unless the rollout's last turn asks for an execution."""
    if not rollout.turns or rollout.turns[-1].command is None:
        raise BadMessage(f"rollout {rollout.id}: the last turn has no command to run")


def start_from(rollout: Rollout) -> BlobRef | None:
    """The newest workspace of the turns before the last; None: the files of the task's environment."""
    for turn in reversed(rollout.turns[:-1]):
        if turn.workspace is not None:
            return turn.workspace
    return None


def clip(text: str, limit: int) -> str:
    """`text` with its middle cut out when it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    mark = f"\n... {len(text) - limit} characters left out ...\n"
    keep = max(0, limit - len(mark))
    return text[: keep - keep // 2] + mark + (text[-(keep // 2) :] if keep // 2 else "")


def _stream(data: bytes, dropped: int) -> str:
    text = data.decode("utf-8", "replace")
    if dropped:
        half = len(text) // 2 + len(text) % 2
        text = f"{text[:half]}\n... {dropped} bytes left out ...\n{text[half:]}"
    return text.rstrip("\n")


def observation(execution: Execution, limit: int) -> str:
    """What the policy is shown, in plain text of at most `limit` characters."""
    notes: list[str] = []
    if execution.outcome in (Outcome.FINISHED, Outcome.NONZERO_EXIT):
        if execution.exit_code:
            notes.append(f"exit status {execution.exit_code}")
    else:
        notes.append(execution.detail or execution.outcome.value)
    if execution.exit_code is None and execution.signal is None and execution.outcome is not Outcome.DISK_LIMIT:
        notes.append("the sandbox was restarted; files are as they were before this command")
    head = "".join(f"[{note}]\n" for note in notes)
    stdout = _stream(execution.stdout, execution.stdout_dropped)
    stderr = _stream(execution.stderr, execution.stderr_dropped)
    body = stdout
    if stderr:
        body += ("\n" if body else "") + f"stderr:\n{stderr}"
    room = max(0, limit - len(head))
    return (head + clip(body, room)).rstrip("\n")[:limit] or "(no output)"


def settle(rollout: Rollout, execution: Execution, workspace: BlobRef | None, now: float) -> Hop:
    """The rollout with what its last turn caused, and where it goes. `workspace` None: nothing new to carry on."""
    if policy_for(execution.outcome, rollout.task.overrides).grade is not Grade.YES:
        return fail(rollout, execution.outcome, execution.detail, now)
    turn = msgspec.structs.replace(
        rollout.turns[-1],
        execution=execution,
        observation=observation(execution, rollout.task.limits.observation_chars),
        workspace=workspace or start_from(rollout),
    )
    rollout = flow.replace_last(rollout, turn)
    if rollout.task.environment.interface == "python" and execution.outcome is Outcome.FINISHED:
        rollout = flow.finish(rollout, Outcome.FINISHED)
    return flow.next_hop(rollout, now)


def fail(rollout: Rollout, outcome: Outcome, detail: str, now: float) -> Hop:
    """The rollout after a failure of the infrastructure: a new attempt while there are some, else given up."""
    return flow.next_hop(flow.finish(rollout, outcome, detail), now)


def goes_on(rollout: Rollout, hop: Hop) -> bool:
    """Will this very attempt take another turn, so that its session is worth keeping?"""
    following = hop.message
    return hop.stage == "generate" and isinstance(following, Rollout) and following.attempt == rollout.attempt


def only_looks(job: Job) -> bool:
    """Does the job run nothing, so that its workspace can be read where it lies?"""
    return job.command.argv == ("true",) and not job.command.files


def graded(job: Job, execution: Execution, files: dict[str, bytes]) -> Graded:
    """The answer to a grading job."""
    return Graded(rollout=job.rollout, execution=execution, files=files)

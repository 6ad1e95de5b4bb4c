"""Decisions of the sandbox service: which files a turn starts from, what the policy is shown, where the rollout goes
next.

Invariants: pure; an ending that is the policy's doing is shown to the policy and graded, one of the infrastructure
ends the attempt. Left out: sandboxes, blobs and the bus (`work`, `app`).
"""

from __future__ import annotations

import msgspec

from tiltyard_proto import flow
from tiltyard_proto.flow import Hop
from tiltyard_proto.messages import BlobRef, Command, Execution, Graded, Job, Rollout, Turn
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


class Rebuild(msgspec.Struct, frozen=True, kw_only=True):
    """How a session comes about that is not there: from a workspace, or from files, then by these turns' commands."""

    how: str
    """'start' (there was none), 'workspace' or 'replay'."""
    workspace: BlobRef | None = None
    files: dict[str, bytes] = {}
    replay: tuple[Turn, ...] = ()


def rebuild(rollout: Rollout) -> Rebuild | None:
    """How the session of the last turn is made anew; None where its environment wants a new attempt instead.

    A turn whose command ended the sandbox was itself followed by a restart from the files of before, so only what ran
    after the last of those is lost.
    """
    mode, before = rollout.task.environment.rebuild, rollout.turns[:-1]
    restarts = [index for index, turn in enumerate(before) if turn.execution is not None and turn.execution.restarted]
    first = restarts[-1] + 1 if restarts else 0
    lost = tuple(turn for turn in before[first:] if turn.command is not None and turn.execution is not None)
    kept = None if first == 0 else before[first - 1].workspace
    if mode == "none" and lost:
        return None
    replays = mode == "replay" and bool(lost)
    workspace = kept if replays else start_from(rollout)
    return Rebuild(
        how="replay" if replays else "workspace" if before else "start",
        workspace=workspace,
        files=rollout.task.environment.files if workspace is None else {},
        replay=lost if replays else (),
    )


def setup_command(rollout: Rollout, command: Command) -> Command | None:
    """What runs before a session's first action, in the workspace that `command` will run in; None: nothing."""
    environment = rollout.task.environment
    if not environment.setup:
        return None
    limits = msgspec.structs.replace(environment.limits, disk_bytes=command.limits.disk_bytes)
    argv = ("bash", "-c", environment.setup)
    return Command(argv=argv, files=environment.files, limits=limits, shell=environment.shell == "persistent")


def same_ending(found: Execution, recorded: Execution) -> bool:
    """Did a replayed command do what it had done, as far as the policy saw?"""
    names = ("outcome", "exit_code", "signal", "stdout", "stderr", "stdout_dropped", "stderr_dropped", "job")
    return all(getattr(found, name) == getattr(recorded, name) for name in names)


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
    lost = execution.exit_code is None and execution.signal is None and not execution.job
    if execution.restarted or (lost and execution.outcome is not Outcome.DISK_LIMIT):
        notes.append("the sandbox was restarted; files are as they were before this command")
    elif execution.shell_ended:
        notes.append("the shell ended; the next command runs in a new one")
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

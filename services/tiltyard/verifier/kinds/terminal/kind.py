"""Judge a session by the state that it left, looked at from outside after all its processes are dead.

A fresh sandbox gets a copy of the workspace, and a program of ours, as another user, says what is there; what ought to
be there stays here. Nothing that the session printed, claims, or left running is read. Score: 1 when every check holds
and no other file of the start was changed, else 0.
Left out: owners, times, and anything outside the workspace. Checks 'run' start what may be the policy's own programs:
they come last, and what the earlier ones found can't be taken back.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from tiltyard.domains.interfaces import code_of
from tiltyard.verifier.kinds.base import Kind, NoOptions, Probe, verdict
from tiltyard.verifier.kinds.guest import script
from tiltyard.verifier.kinds.sandboxed import call_results, last_workspace
from tiltyard.verifier.kinds.values import Unreadable, untag
from tiltyard_proto.messages import Command, Graded, Job, Rollout, Task, Verdict

from .compare import problem
from .data import Check, Data
from .probes import probes

RUNNER = script("terminal", after=("program_runs",))
OUTPUT = 1 << 20


class Terminal(Kind[Data, NoOptions]):
    """The kind."""

    name = "terminal"
    version = "1"
    data = Data
    options = NoOptions
    blocking = True

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        data = self.data_of(task)
        workspace = last_workspace(rollout)
        if workspace is None:
            return verdict(self, rollout, 0.0, reasons=("nothing was run, so nothing has changed",))
        asked = [_asked(check) for check in ordered(data)]
        asked += [("look", path, False) for path in _kept(task, data)]
        return Job(
            rollout=rollout,
            command=Command(
                argv=("python3", "-c", RUNNER.decode()),
                stdin=repr(asked).encode() + b"\n",
                limits=msgspec.structs.replace(task.environment.limits, output_bytes=OUTPUT),
            ),
            profile=task.environment.profile,
            workspace=workspace,
            deterministic=True,
        )

    def judge(self, task: Task, graded: Graded) -> Verdict:
        data = self.data_of(task)
        checks, kept = ordered(data), _kept(task, data)
        records, _ = call_results(graded.execution.stdout, len(checks) + len(kept))
        found = [_value(records.get(index)) for index in range(len(checks) + len(kept))]
        missed = [problem(check, one) for check, one in zip(checks, found, strict=False)]
        start = task.environment.files
        damage = [
            "" if one.get("sha256") == sha256(start[path]).hexdigest() else f"{path} was changed"
            for path, one in zip(kept, found[len(checks) :], strict=True)
        ]
        reasons = tuple(reason for reason in (*missed, *damage) if reason)
        return verdict(
            self,
            graded.rollout,
            0.0 if reasons else 1.0,
            passed=not reasons,
            components={"checks": missed.count("") / len(missed), "undamaged": float(not any(damage))},
            reasons=reasons,
            graded=graded,
        )

    def probes(self, task: Task) -> tuple[Probe, ...]:
        return probes(code_of(task.reference))


def ordered(data: Data) -> list[Check]:
    """The checks in the order in which they are made: those that start programs last."""
    return sorted(data.checks, key=lambda check: check.check == "run")


def _kept(task: Task, data: Data) -> list[str]:
    """Files of the start that must be as they were."""
    named = {check.path for check in data.checks} | set(data.free)
    return [
        path
        for path in sorted(task.environment.files)
        if path not in named and not any(path.startswith(f"{folder}/") for folder in data.free)
    ]


def _asked(check: Check) -> tuple[Any, ...]:
    """What is sent into the sandbox of a check: where to look, never what is right."""
    match check.check:
        case "archive":
            return ("archive", check.path)
        case "git":
            return ("git", check.path, list(check.args))
        case "run":
            return ("run", check.path, list(check.args), check.stdin.encode())
    return ("look", check.path, check.check == "file" and check.text is not None)


def _value(record: dict[str, object] | None) -> dict[str, Any]:
    if record is None:
        return {}
    try:
        found = untag(record.get("value"))
    except Unreadable:
        return {}
    return found if isinstance(found, dict) else {}


KIND = Terminal()

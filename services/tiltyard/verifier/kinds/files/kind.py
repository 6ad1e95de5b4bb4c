"""Judge a session by the files it left: a fresh sandbox with a copy of the workspace reports their contents.

Demands are files with given content and paths that must be gone. Files of the start that no demand names must stay as
they were. Only demands that the start doesn't already meet count as changes, so doing nothing earns nothing.
Score: 1 when every demand is met and nothing was damaged; else, undamaged, the shared partial credit.
Invariants: nothing that the session printed or claims is read; a file that can't be read is not there.
Left out: permissions, times, links and empty folders.
"""

from __future__ import annotations

from collections.abc import Mapping

from tiltyard.domains.interfaces import code_of
from tiltyard.verifier.kinds.base import BrokenTask, Kind, Probe, verdict
from tiltyard.verifier.kinds.sandboxed import last_workspace
from tiltyard_proto.messages import Command, Graded, Job, Rollout, Task, Verdict

from .data import Data, Options

MAX_FILE = 1 << 20


class Files(Kind[Data, Options]):
    """The kind."""

    name = "files"
    version = "1"
    data = Data
    options = Options

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        data = self.data_of(task)
        _demands(task, data)
        workspace = last_workspace(rollout)
        if workspace is None:
            return self._verdict(task, rollout, task.environment.files, None)
        paths = {*data.expected, *data.absent, *task.environment.files}
        return Job(
            rollout=rollout,
            command=Command(argv=("true",), limits=task.environment.limits),
            profile=task.environment.profile,
            workspace=workspace,
            deterministic=True,
            collect=tuple(sorted(paths)),
        )

    def judge(self, task: Task, graded: Graded) -> Verdict:
        return self._verdict(task, graded.rollout, graded.files, graded)

    def probes(self, task: Task) -> tuple[Probe, ...]:
        return (
            Probe(name="in a fence", texts=(f"Like this:\n```sh\n{code_of(task.reference)}\n```",)),
            Probe(name="only talk", texts=("echo done",), wanted="reject"),
            Probe(name="work by another name", texts=("touch solution.txt result.txt answer.txt",), wanted="no_accept"),
        )

    def _verdict(self, task: Task, rollout: Rollout, found: Mapping[str, bytes], graded: Graded | None) -> Verdict:
        data = self.data_of(task)
        options = self.options_of(task)
        changes, kept = _demands(task, data)
        missed = [_problem(path, want, found, data.compare) for path, want in changes.items()]
        damage = [_problem(path, want, found, data.compare) for path, want in kept.items()]
        reasons = tuple(problem for problem in (*missed, *damage) if problem)
        share = missed.count("") / len(missed)
        undamaged = not any(damage)
        passed = not reasons
        return verdict(
            self,
            rollout,
            1.0 if passed else options.partial * share * undamaged,
            passed=passed,
            components={"changes": share, "undamaged": float(undamaged)},
            reasons=reasons,
            graded=graded,
        )


Wants = dict[str, bytes | None]
"""Path to content; None: must not be there."""


def _demands(task: Task, data: Data) -> tuple[Wants, Wants]:
    """Demands that change the start, and those that keep it. BrokenTask: the start already meets all of them."""
    start = task.environment.files
    wants: Wants = {path: content for path, content in start.items() if path not in data.expected}
    wants |= {path: content.encode() for path, content in data.expected.items()}
    wants |= dict.fromkeys(data.absent)
    changes = {path: want for path, want in wants.items() if _problem(path, want, start, data.compare)}
    if not changes:
        raise BrokenTask("the initial workspace already meets every demand")
    return changes, {path: want for path, want in wants.items() if path not in changes}


def _problem(path: str, want: bytes | None, found: Mapping[str, bytes], rule: str) -> str:
    """What's wrong with one path; empty when nothing is."""
    got = found.get(path)
    if want is None:
        return "" if got is None else f"{path} is still there"
    if got is None:
        return f"{path} is missing"
    if len(got) > MAX_FILE or normal(got, rule) != normal(want, rule):
        return f"{path} holds {got[:80]!r}, right is {want[:80]!r}"
    return ""


def normal(content: bytes, rule: str) -> bytes | list[bytes]:
    """Content as it's compared; see `Data.compare`."""
    if rule == "exact":
        return content
    if rule == "words":
        return content.split()
    lines = [line.rstrip() for line in content.split(b"\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


KIND = Files()

"""Judge a workspace by the reward that a program of the task's writes: reward.json or reward.txt under REWARD_DIR.

The program runs in a fresh sandbox on a copy of the workspace, in a directory whose name the session could not know, so
what the session wrote or left running is nowhere near. Its exit status says nothing. No reward, an empty one, one that
can't be read, and two files that say different things are quarantine: the program has failed, not the submission.
Left out: a program that runs the submission in its own process can be forged by it; for such tasks prefer other kinds.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from tiltyard.verifier.kinds.base import Kind, NoOptions, Probe, Quarantine, Unsure, verdict
from tiltyard.verifier.kinds.sandboxed import last_workspace, nonce
from tiltyard_proto.messages import Command, Graded, Job, Rollout, Task, Verdict
from tiltyard_proto.outcomes import Outcome

from .data import Data

ROOT = "/workspace"


class NoReward(Quarantine):
    """The verifier program left no reward that can be read."""

    outcome = Outcome.NO_RESULT


class RewardFile(Kind[Data, NoOptions]):
    """The kind."""

    name = "reward_file"
    version = "1"
    data = Data
    options = NoOptions

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        data = self.data_of(task)
        folder = _folder(rollout)
        files = {f"{folder}/tests/{path}": text.encode() for path, text in data.files.items()}
        if (workspace := last_workspace(rollout)) is None:
            files = {**task.environment.files, **files}
        return Job(
            rollout=rollout,
            command=Command(
                argv=tuple(f"{folder}/tests/{part}" if part in data.files else part for part in data.command),
                files={**files, f"{folder}/logs/.keep": b""},
                env={"TESTS_DIR": f"{ROOT}/{folder}/tests", "REWARD_DIR": f"{ROOT}/{folder}/logs"},
                limits=task.environment.limits,
            ),
            profile=task.environment.profile,
            workspace=workspace,
            collect=(f"{folder}/logs/reward.json", f"{folder}/logs/reward.txt"),
        )

    def judge(self, task: Task, graded: Graded) -> Verdict:
        folder = _folder(graded.rollout)
        said = []
        for name, read in (("reward.json", _from_json), ("reward.txt", _from_text)):
            raw = graded.files.get(f"{folder}/logs/{name}")
            if raw is not None:
                said.append(read(raw, self.data_of(task).key))
        if not said:
            ending = graded.execution.outcome.value
            raise NoReward(f"the verifier program wrote neither reward.json nor reward.txt ({ending})")
        if len(said) == 2 and not math.isclose(said[0], said[1], abs_tol=1e-9):
            raise Unsure(f"reward.json says {said[0]:g}, reward.txt says {said[1]:g}")
        score = said[0]
        if not 0.0 <= score <= 1.0:
            raise NoReward(f"the reward is {score:g}, expected 0 to 1")
        reasons = () if score == 1.0 else (f"the verifier program's reward is {score:g}",)
        return verdict(self, graded.rollout, score, passed=score == 1.0, reasons=reasons, graded=graded)

    def probes(self, task: Task) -> tuple[Probe, ...]:
        writes = "mkdir -p logs; echo 1 > logs/reward.txt; echo 1 > reward.txt; echo '{\"reward\": 1}' > reward.json"
        loop = "nohup sh -c 'while :; do echo 1 | tee reward.txt logs/reward.txt; sleep 0.1; done' >/dev/null 2>&1 &"
        return tuple(
            Probe(name=name, texts=(text,), wanted="no_accept")
            for name, text in (("writes a reward", writes), ("a loop that writes a reward", loop))
        )


def _folder(rollout: Rollout) -> str:
    return f".verifier-{nonce('reward_file', rollout)}"


def _from_json(raw: bytes, key: str) -> float:
    try:
        found: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as err:
        raise NoReward(f"reward.json can't be read: {err}") from err
    if isinstance(found, dict) and found:
        found = found[key] if key in found else _sum(found)
    return _finite(found, "reward.json")


def _sum(found: dict[str, Any]) -> float:
    return math.fsum(_finite(value, "reward.json") for value in found.values())


def _from_text(raw: bytes, key: str) -> float:
    try:
        return _finite(float(raw.decode("ascii").strip()), "reward.txt")
    except ValueError as err:
        raise NoReward(f"reward.txt can't be read: {raw[:40]!r}") from err


def _finite(value: Any, name: str) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise NoReward(f"{name} holds {str(value)[:40]!r}, expected a finite number")
    return float(value)


KIND = RewardFile()

"""What the chaos test runs: how many rollouts, how many kills, tasks of two kinds, the configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from rig.world import World

from tiltyard_proto import keys
from tiltyard_proto.messages import ChatMessage, Environment, RolloutLimits, Sampling, Task, Verification

RUN = "chaos"
TASKS = 40
"""Of each domain."""
CONFIG = """\
[run]
name = "chaos"
model = "{{model}}"
steps = {steps}
groups_per_step = {groups}
group_size = {size}
staleness = 4
group_deadline_s = 3600
train = {{{{ "chaos.answer" = {{{{ tasks = {tasks} }}}}, "chaos.shell" = {{{{ tasks = {tasks} }}}} }}}}
[bus]
servers = ["{{bus}}"]
[data]
root = "{{root}}"
[gateway]
engines = ["{{engine}}"]
model_dir = "{{model}}"
slots = 64
probe_s = 0.5
[sandbox]
backend = "null"
slots = 16
[trainer]
learner = "fake"
checkpoint_every = 3
max_staleness = 1000
"""
ENGINE = ("--answers", "echo 1,echo 1,echo 2,echo 2,DONE", "--latency", "exponential:0.02", "--faults", "0.005")


@dataclass(kw_only=True)
class Plan:
    """How large a test is."""

    rollouts: int = 10_000
    server_kills: int = 5
    kill_every_s: float = 2.0
    kills: int = 0
    """Kills of services at most; 0: until all rollouts have their verdict."""
    lease_s: float = 20.0
    """Lease of a delivery, so the time that a message of a killed service waits."""
    seed: int = 0
    size: int = 8

    @property
    def groups(self) -> int:
        """Groups of a step."""
        return max(4, self.rollouts // self.size // 24)

    @property
    def steps(self) -> int:
        return max(1, math.ceil(self.rollouts / self.size / self.groups))

    def world(self, root: Path, model: Path) -> World:
        """The system that the test runs on."""
        config = CONFIG.format(steps=self.steps, groups=self.groups, size=self.size, tasks=TASKS)
        engine = (*ENGINE, "--seed", str(self.seed))
        return World(root=root, model=model, run=RUN, config=config, tasks=tasks(), engine=engine, lease_s=self.lease_s)


def tasks() -> list[Task]:
    """Questions that are answered at once, and ones that take up to three turns in a sandbox."""
    made: list[Task] = []
    for index in range(TASKS):
        for domain, interface, turns in (("chaos.answer", "answer", 1), ("chaos.shell", "shell", 3)):
            data = {"answer": "1"} if interface == "answer" else {"expected": {"command": "echo 1"}}
            kind = "last_number" if interface == "answer" else "files"
            task = Task(
                id="",
                domain=domain,
                prompt=(ChatMessage(role="user", content=f"Question {index}"),),
                verification=Verification(kind=kind, data=data),
                environment=Environment(interface=interface),
                sampling=Sampling(max_new_tokens=16),
                limits=RolloutLimits(turns=turns, wall_s=3600),
                template=f"t{index % 4}",
            )
            made.append(keys.with_id(task))
    return made

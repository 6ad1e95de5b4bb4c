"""What a load test asks of the system: one scenario as plain numbers, and the world that it runs on.

Left out: the list of scenarios (`catalogue`), running them (`drive`).
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
from load.inject import Orders, Phase
from rig.world import SERVICES, World

from tiltyard_proto import keys
from tiltyard_proto.messages import ChatMessage, Environment, RolloutLimits, Sampling, Task, Verification

RUN = "load"
WALL_S = 3600.0
TEXT = "def f(a, b):\n    return a + b\n# Write a function that returns the sum of two numbers.\n"
CONFIG = """\
[run]
name = "load"
model = "{{model}}"
steps = {steps}
groups_per_step = {groups}
group_size = {size}
staleness = {staleness}
group_deadline_s = {wall}
{train}
[bus]
servers = ["{{bus}}"]
embedded = false
[data]
root = "{{root}}"
[service]
breaker_window = {window}
[gateway]
engines = ["{{engine}}"]
model_dir = "{{model}}"
slots = {slots}
max_in_flight = {slots}
fair = {fair}
[sandbox]
backend = "null"
slots = 64
sessions = {sessions}
[verifier]
slots = 64
[trainer]
learner = "fake"
checkpoint_every = 1000
keep_policies = 2
keep_policies_s = 5.0
max_staleness = 1000
micro_batch_tokens = {micro}
"""


@dataclass(kw_only=True)
class Scenario:
    """One load."""

    name: str
    title: str
    rollouts: int
    """At most so many; where the sampler opens groups, about so many."""
    size: int = 8
    groups: int = 100
    """Groups of a training step; with `staleness` it bounds what is in flight."""
    staleness: int = 2
    turns: int = 1
    """More than one: every turn is a command in the null sandbox."""
    domains: int = 1
    prompt_bytes: int = 1024
    latency: str = "constant:0.02"
    tokens: int = 16
    """Of an answer."""
    context: int = 4096
    """Tokens that the engine takes."""
    slots: int = 1024
    phases: tuple[Phase, ...] = ()
    """Rates of an open loop; without any, the sampler opens groups as fast as steps are trained."""
    check_s: float = 0.5
    """Between two looks at the processes."""
    refuse: float = 0.0
    """Share of requests that the engine refuses until it is mended."""
    keep_s: float = 0.0
    """A janitor trims messages that were finished so long ago; 0: there is none."""
    limit_s: float = 600.0
    """Seconds after which a scenario that has not come to rest is given up."""

    @property
    def steps(self) -> int:
        """Training steps; those of an open loop end the test, not the run."""
        return 1_000_000 if self.phases else max(1, round(self.rollouts / (self.groups * self.size)))

    def names(self) -> list[str]:
        """Domains."""
        return [f"load.d{index}" for index in range(self.domains)]

    def tasks(self) -> list[Task]:
        """Four tasks of each domain, or one where there are many."""
        count = 1 if self.domains > 8 else 4
        return [self._task(domain, index) for domain in self.names() for index in range(count)]

    def _task(self, domain: str, index: int) -> Task:
        text = f"Question {index} of {domain}\n" + TEXT * (self.prompt_bytes // len(TEXT) + 1)
        task = Task(
            id="",
            domain=domain,
            prompt=(ChatMessage(role="user", content=text[: self.prompt_bytes]),),
            verification=Verification(kind="last_number", data={"answer": "1"}),
            environment=Environment(interface="answer" if self.turns == 1 else "shell"),
            sampling=Sampling(max_new_tokens=self.tokens + 8),
            limits=RolloutLimits(turns=self.turns, tokens=self.context, wall_s=WALL_S),
            template=f"t{index}",
        )
        return keys.with_id(task)

    def world(self, root: Path, tiny: Path, server_url: str = "") -> World:
        """The system, below `root`; `tiny` lends its tokenizer and chat template."""
        paced = bool(self.phases)
        train = "".join(f'train."{name}" = {{{{ tasks = 1 }}}}\n' for name in self.names()[: 1 if paced else None])
        config = CONFIG.format(
            steps=self.steps,
            groups=self.groups,
            size=self.size,
            staleness=self.staleness,
            train=train,
            slots=self.slots,
            fair="true",
            wall=WALL_S,
            sessions=max(64, self.groups * self.size * (self.staleness + 1)),  # none is ended for want of room
            micro=max(1500, 2 * self.context),
            window=max(50, 4 * self.slots if self.refuse else 0),  # endings of one burst come sorted by their kind
        )
        tasks = self.tasks()
        return World(
            root=root,
            model=_model(root / "model", tiny, self.context),
            run=RUN,
            config=config,
            tasks=tasks,
            services=tuple(name for name in SERVICES if name != "sampler" or not paced),
            engine=("--latency", self.latency, "--tokens", str(self.tokens), "--refuse", str(self.refuse)),
            further=self._further(root, tasks),
            server_url=server_url,
        )

    def _further(self, root: Path, tasks: list[Task]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        if self.phases:
            orders = root / "orders.json"
            orders.write_bytes(msgspec.json.encode(Orders(self.phases, tuple(tasks), self.size)))
            program = Path(__file__).with_name("inject.py")
            found["injector"] = [sys.executable, str(program), "{config}", str(orders)]
        if self.keep_s:
            janitor = [sys.executable, "-m", "tiltyard.cli.main", "janitor", "-c", "{config}"]
            found["janitor"] = [*janitor, "--set", f"janitor.keep_s={self.keep_s}", "--set", "janitor.every_s=2"]
        return found


def _model(target: Path, tiny: Path, context: int) -> Path:
    """A model directory without weights: tokenizer, chat template and a configuration with room for `context`."""
    target.mkdir()
    for path in tiny.iterdir():
        if path.suffix == ".json":
            shutil.copy(path, target)
    config = json.loads((tiny / "config.json").read_text()) | {"max_position_embeddings": context}
    (target / "config.json").write_text(json.dumps(config))
    return target

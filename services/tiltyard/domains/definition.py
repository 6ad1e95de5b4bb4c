"""What a domain is: the typed form of its tables in a TOML file.

Invariants: unknown keys and values that no task could carry are refused; a definition holds data only, so that reading
it imports no generator. Left out: files and families are `family`, drawing tasks is `domain`, finding definitions is
`registry`; a verifier kind's options are checked by whoever knows the kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tiltyard_proto import outcomes
from tiltyard_proto.keys import check_domain
from tiltyard_proto.messages import (
    ChatMessage,
    Environment,
    ExecLimits,
    RolloutLimits,
    Sampling,
    Task,
    Verification,
)
from tiltyard_proto.validity import problem

from .drafts import Split


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a definition file."""


class VerifierTable(_Table, frozen=True):
    """Who judges, and what that costs."""

    kind: str
    """A kind of `tiltyard.verifiers`."""
    options: dict[str, Any] = {}
    """The kind's own options; `tiltyard domains check` reads them as the type that the kind declares."""
    cost: float = 0.05
    """Believed CPU seconds of one verdict, the sandbox's included; budgets start from it."""
    replayable: bool = True
    """Does a stored rollout get the same verdict again? False where a model judges or the world outside is asked."""


class SamplingTable(_Table, frozen=True):
    """How the policy samples; see `tiltyard_proto.messages.Sampling`."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_new_tokens: int = 64
    stop: tuple[str, ...] = ()


class RolloutTable(_Table, frozen=True):
    """Budget of one rollout; see `tiltyard_proto.messages.RolloutLimits`."""

    turns: int = 1
    tokens: int = 4096
    wall_s: float = 600.0
    attempts: int = 3
    observation_chars: int = 2000


class ExecTable(_Table, frozen=True):
    """Limits of one execution; see `tiltyard_proto.messages.ExecLimits`."""

    wall_s: float = 10.0
    cpu_s: float = 5.0
    memory_bytes: int = 256 << 20
    processes: int = 32
    disk_bytes: int = 64 << 20
    output_bytes: int = 16 << 10
    open_files: int = 1024


class CurriculumTable(_Table, frozen=True):
    """How much of the domain is drawn, and where its difficulty is believed to lie."""

    train_tasks: int = 400
    """Tasks that a run puts into the training pool unless it asks for another number."""
    eval_tasks: int = 40
    """Held-out tasks of one evaluation."""
    prior_pass: float = 0.3
    """Believed pass rate of an untrained policy, in (0, 1); the start of every task's posterior."""
    prior_weight: float = 2.0
    """Pseudo-observations behind that belief."""
    target_low: float = 0.1
    """Below this pass rate a task is thought too hard for now."""
    target_high: float = 0.9
    """Above this pass rate a task is thought solved."""


class FailureTable(_Table, frozen=True):
    """What differs from the usual row of one outcome; see `tiltyard_proto.outcomes.Consequence`."""

    retry: bool | None = None
    grade: outcomes.Grade | None = None
    trains: bool | None = None
    flag: bool | None = None
    retire: bool | None = None


class Definition(_Table, frozen=True):
    """One domain, as its TOML file says it."""

    name: str
    title: str
    verifier: VerifierTable
    level: str = ""
    """Difficulty among the domains of its family; a label of every task."""
    source: str = ""
    """Where the tasks come from: 'generated', or package, version and file."""
    licence: str = "Apache-2.0"
    """Of the tasks, as an SPDX identifier."""
    interface: Literal["answer", "python", "shell"] = "answer"
    profile: str = "python"
    shell: Literal["fresh", "persistent"] = "fresh"
    """For interface 'shell'; see `tiltyard_proto.messages.Environment`."""
    rebuild: Literal["workspace", "replay", "none"] = "workspace"
    """What becomes of a session whose sandbox is lost; see `tiltyard_proto.messages.Environment`."""
    egress: tuple[str, ...] = ()
    """Hosts that sessions may reach, each also named by the machine's `sandbox.egress`; grading has no network."""
    setup: str = ""
    """Shell text before a session's first action; see `tiltyard_proto.messages.Environment`."""
    generator: str = ""
    """'module:function' yielding `Draft`, './file.py:function' for a file beside the definition; or else `data`."""
    data: str = ""
    """A file of drafts, one JSON object a line, relative to the definition."""
    extractive: bool = False
    """The answer stands in the prompt by design, so no leak is looked for."""
    splits: tuple[Split, ...] = ("train", "eval")
    held_out: tuple[str, ...] = ()
    """Whole templates that only the eval split draws from."""
    held_out_sources: tuple[str, ...] = ()
    """Whole sources (tables, documents, buckets) that only the eval split draws from."""
    trained: bool = True
    """Trained by default; False for evaluation only."""
    value: float = 1.0
    system: str = ""
    """System message; empty: none is sent, so the model's chat template adds its own default if it has one."""
    user: str = "{prompt}"
    """Pattern of the user message, filled from the draft's fields."""
    options: dict[str, Any] = {}
    """Options of the generator."""
    sampling: SamplingTable = SamplingTable()
    limits: RolloutTable = RolloutTable()
    exec: ExecTable = ExecTable()
    curriculum: CurriculumTable = CurriculumTable()
    failure: dict[str, FailureTable] = {}
    """The domain's own failure policy, by outcome: `[failure.out_of_memory]`; what is left out stays as usual."""

    def __post_init__(self) -> None:
        check_domain(self.name)
        if bool(self.generator) == bool(self.data):
            raise ValueError("give either `generator` or `data`")
        if "train" not in self.splits and self.trained:
            raise ValueError("`trained` needs 'train' among `splits`")
        if not 0 < self.curriculum.prior_pass < 1:
            raise ValueError("`curriculum.prior_pass` must lie between 0 and 1")
        if not 0 <= self.curriculum.target_low < self.curriculum.target_high <= 1:
            raise ValueError("`curriculum.target_low` must lie below `curriculum.target_high`, both from 0 to 1")
        if self.curriculum.train_tasks < 0 or self.curriculum.eval_tasks < 0 or self.curriculum.prior_weight < 0:
            raise ValueError("`curriculum`: `train_tasks`, `eval_tasks` and `prior_weight` must be 0 or more")
        if not self.verifier.cost >= 0:
            raise ValueError("`verifier.cost` must be 0 or more")
        if wrong := problem(self._specimen()):
            raise ValueError(wrong)

    @property
    def category(self) -> str:
        """The first part of the name."""
        return self.name.partition(".")[0]

    def overrides(self) -> dict[str, outcomes.Consequence]:
        """The rows of the table of outcomes that differ; ValueError where a domain may not have one."""
        rows: dict[str, outcomes.Consequence] = {}
        for outcome, table in self.failure.items():
            changes = {key: value for key, value in msgspec.to_builtins(table).items() if value is not None}
            try:
                rows[outcome] = outcomes.override(outcome, changes)
            except ValueError as error:
                raise ValueError(f"`failure.{outcome}`: {error}") from error
        return rows

    def sampling_message(self) -> Sampling:
        return Sampling(**msgspec.structs.asdict(self.sampling))

    def limits_message(self) -> RolloutLimits:
        return RolloutLimits(**msgspec.structs.asdict(self.limits))

    def exec_message(self) -> ExecLimits:
        return ExecLimits(**msgspec.structs.asdict(self.exec))

    def environment(self, files: Mapping[str, bytes], setup: str = "") -> Environment:
        """Where the policy acts; `setup` of one task comes after the domain's own."""
        return Environment(
            interface=self.interface,
            profile=self.profile,
            files=dict(files),
            limits=self.exec_message(),
            shell=self.shell,
            rebuild=self.rebuild,
            egress=self.egress,
            setup="\n".join(part for part in (self.setup, setup) if part),
        )

    def _specimen(self) -> Task:
        """A task with everything that all tasks of the domain share."""
        return Task(
            id="specimen",
            domain=self.name,
            prompt=(ChatMessage(role="user", content="-"),),
            verification=Verification(kind=self.verifier.kind),
            environment=self.environment({}),
            sampling=self.sampling_message(),
            limits=self.limits_message(),
            value=self.value,
            overrides=self.overrides(),
        )

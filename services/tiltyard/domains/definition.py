"""What a domain is: the typed form of its TOML file, and of one drawn problem before it becomes a task.

Invariants: unknown keys are refused with file and key named; a definition holds data only, so that reading it imports
no generator. Left out: drawing tasks is `domain`, finding definitions is `registry`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from tiltyard_proto import outcomes
from tiltyard_proto.keys import check_domain
from tiltyard_proto.messages import ChatMessage, ExecLimits, RolloutLimits, Sampling

Split = Literal["train", "eval"]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a definition file."""


class VerifierTable(_Table, frozen=True):
    """Who judges: a kind of `tiltyard.verifiers` and its options."""

    kind: str
    options: dict[str, Any] = {}


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
    """'module:function' yielding `Draft`; or else `data`."""
    data: str = ""
    """A file of drafts, one JSON object a line, relative to the definition."""
    splits: tuple[Split, ...] = ("train", "eval")
    held_out: tuple[str, ...] = ()
    """Whole templates that only the eval split draws from."""
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

        self.overrides()

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


class Draft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One drawn problem: what differs from task to task of a domain."""

    template: str
    """Family within the domain; splits never share one when the definition holds templates out."""
    fields: dict[str, str] = {}
    """Filled into the definition's `user` pattern."""
    shots: tuple[tuple[dict[str, str], str], ...] = ()
    """Worked examples shown first: fields for the same pattern, and the assistant's answer."""
    messages: tuple[ChatMessage, ...] = ()
    """The whole prompt; when given, `fields`, `shots` and the pattern are not used."""
    data: dict[str, Any] = {}
    """Verification data."""
    reference: str = ""
    """An answer that passes."""
    files: dict[str, bytes] = {}
    """Workspace at the start."""
    labels: dict[str, str] = {}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a generator is asked for; it yields drafts, endlessly or until it has no more."""

    split: Split
    seed: int
    held_out: frozenset[str]
    options: dict[str, Any]

    def wants(self, template: str) -> bool:
        """Does the split draw from this template?"""
        return not self.held_out or (template in self.held_out) == (self.split == "eval")


def read(text: str, where: str) -> Definition:
    """A definition from TOML; ValueError names the file and the key that's wrong."""
    try:
        return msgspec.convert(tomllib.loads(text), Definition, strict=True)
    except tomllib.TOMLDecodeError as err:
        raise ValueError(f"{where}: not TOML: {err}") from err
    except (msgspec.ValidationError, ValueError) as err:
        raise ValueError(f"{where}: {err}; mend that key (the keys are described in docs/domains.md)") from err


def read_file(path: Path) -> Definition:
    """A definition from a TOML file; ValueError when it can't be read."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise ValueError(f"domain definition {path}: can't be read: {err}") from err
    return read(text, str(path))

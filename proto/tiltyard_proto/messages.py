"""Every message that crosses the bus, as frozen msgspec structs.

Invariants: structs are frozen, keyword-only and tagged; new fields have defaults, names and types never change,
unknown fields are ignored. A message carries the state of its rollout, so a stage needs nothing but the message.
Token arrays are bytes (see `tokens`). Times are seconds since the epoch, durations are seconds, sizes are bytes.
Left out: how a message travels (subjects, headers, claim checks) is `topology` and the bus.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from .outcomes import Attribution, Consequence, Outcome

MAJOR = 1
"""Major of the wire schema; a new major gets a new subject token."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value inside a message."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of everything that is published."""


# ---------------------------------------------------------------- tasks


class ChatMessage(_Part, frozen=True, kw_only=True):
    role: str
    content: str


class BlobRef(_Part, frozen=True, kw_only=True):
    """A reference into the blob store; written before the reference is published."""

    uri: str
    size: int
    sha256: str


class Sampling(_Part, frozen=True, kw_only=True):
    """How the engine samples; sent in full with every request."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_new_tokens: int = 64
    """Per turn."""
    stop: tuple[str, ...] = ()


class ExecLimits(_Part, frozen=True, kw_only=True):
    """Limits of one execution in a sandbox."""

    wall_s: float = 10.0
    cpu_s: float = 5.0
    memory_bytes: int = 256 << 20
    processes: int = 32
    disk_bytes: int = 64 << 20
    output_bytes: int = 16 << 10
    """Kept per stream, half head and half tail; the dropped count is reported."""
    open_files: int = 1024
    """Descriptors of one process; the sandbox's own limit (1024) is the most there is."""


class RolloutLimits(_Part, frozen=True, kw_only=True):
    """Budget of one rollout."""

    turns: int = 1
    tokens: int = 4096
    """Prompt, actions and observations together."""
    wall_s: float = 600.0
    attempts: int = 3
    """New attempts after infrastructure faults."""
    observation_chars: int = 2000
    """An observation longer than this keeps its head and tail."""


class Environment(_Part, frozen=True, kw_only=True):
    """Where the policy acts."""

    interface: str = "answer"
    """How an action is read: 'answer' (one turn, no execution), 'python' (code), 'shell' (commands)."""
    profile: str = "python"
    """Sandbox profile (image)."""
    files: dict[str, bytes] = {}
    """Files of the workspace at the start: relative path to content."""
    limits: ExecLimits = ExecLimits()
    shell: str = "fresh"
    """Interface 'shell': 'fresh' runs each action in a shell of its own; 'persistent' in one that keeps its directory,
    variables, functions and background jobs from turn to turn."""
    rebuild: str = "workspace"
    """When the sandbox of a session is lost: 'workspace' goes on from the files of the last turn (a shell's state and
    background processes are gone); 'replay' runs the earlier actions again and goes on if each gives what it gave
    before; 'none' starts a new attempt."""
    egress: tuple[str, ...] = ()
    """Hosts that a session may reach through the sandbox's proxy: 'name' (ports 80 and 443) or 'name:port'."""
    setup: str = ""
    """Shell text that runs after the files are there and before the first action, once for all members of a group on a
    machine: they begin from one snapshot. A persistent shell runs it itself, and its jobs go on. Must end with 0."""


class Verification(_Part, frozen=True, kw_only=True):
    """How a rollout is judged: a verifier kind and its data (hidden from the policy and from the sandbox session)."""

    kind: str
    data: dict[str, Any] = {}
    options: dict[str, Any] = {}


class Task(Message, frozen=True, kw_only=True, tag="task"):
    """One problem of a domain."""

    id: str
    """Content hash, one subject token; see `keys.task_id`."""
    domain: str
    """Dotted name, first part its category: 'code.python.functions'."""
    prompt: tuple[ChatMessage, ...]
    verification: Verification
    environment: Environment = Environment()
    sampling: Sampling = Sampling()
    limits: RolloutLimits = RolloutLimits()
    split: str = "train"
    """'train' or 'eval'; an eval task is never trained on."""
    template: str = ""
    """Family within the domain; held-out evaluation keeps whole templates apart."""
    labels: dict[str, str] = {}
    """Difficulty and other labels."""
    value: float = 1.0
    reference: str = ""
    """A solution that passes, used for admission; never shown to the policy."""
    overrides: dict[str, Consequence] = {}
    """The domain's own failure policy: rows of the table of outcomes, by the outcome's value."""


# ---------------------------------------------------------------- rollouts


class Candidate(_Part, frozen=True, kw_only=True):
    """A program under test: the grader writes its stdin on descriptor 3 and reads its stdout on descriptor 4.

    It can read neither the grader's files nor its memory and descriptors, and ends with it.
    """

    argv: tuple[str, ...]
    files: dict[str, bytes] = {}
    """Written into the workspace as the policy's."""


class Command(_Part, frozen=True, kw_only=True):
    """One execution in a sandbox workspace."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    files: dict[str, bytes] = {}
    """Written into the workspace before the command runs."""
    limits: ExecLimits = ExecLimits()
    cwd: str = ""
    """Directory to run in, relative to the workspace."""
    env: dict[str, str] = {}
    """Variables on top of those of the sandbox."""
    shell: bool = False
    """Run the last of `argv` as text of the session's persistent shell; without one, `argv` runs as it is."""
    background: bool = False
    """Answer at once and let it run on; without this nothing that a command started outlives it."""
    user: str = "policy"
    """'policy', or 'grader': another user, whose files and processes the policy's can't touch."""
    candidate: Candidate | None = None
    """For a grader: what it tests, running beside it as the policy's user."""


class Execution(_Part, frozen=True, kw_only=True):
    """What a sandbox found when it ran a `Command`."""

    outcome: Outcome
    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_dropped: int = 0
    """Bytes of stdout that were not kept."""
    stderr_dropped: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    claim_s: float = 0.0
    """Waiting for a sandbox: from the request to a sandbox in hand."""
    start_s: float = 0.0
    """How long that sandbox had taken to start (before or during the claim)."""
    cached: bool = False
    """Answered by an identical deterministic grading job that had already run."""
    node: str = ""
    detail: str = ""
    """One line for a person."""
    attribution: Attribution | None = None
    """Whose doing the ending was, from counters; None: what `outcomes.attribution` says of the outcome."""
    restarted: bool = False
    """The sandbox ended with this command: the next turn starts from the files of before."""
    shell_ended: bool = False
    """The persistent shell ended with this command: the next one starts in a new shell."""
    job: int = 0
    """Number of the background command that was started."""


class VersionSpan(_Part, frozen=True, kw_only=True):
    """Tokens [start, end) of an action were sampled with this policy version."""

    version: int
    start: int
    end: int


class Turn(_Part, frozen=True, kw_only=True):
    """One action and the observation it caused."""

    context_ids: bytes
    """Ids put before the action and not trained: the prompt (turn 0) or the rendered observation (later turns)."""
    action_ids: bytes
    """The sampled ids, exactly as the engine returned them."""
    logprobs: bytes
    """The sampler's log-probability of each action id, at the sampling temperature, before truncation."""
    versions: tuple[VersionSpan, ...]
    text: str
    """The action decoded, for interfaces and verifiers; never encoded again."""
    finish: str
    """'stop' or 'length'."""
    command: Command | None = None
    """What the action asks the sandbox to run; none when the interface does not execute."""
    execution: Execution | None = None
    observation: str = ""
    """What the policy is shown next; empty after the last turn."""
    workspace: BlobRef | None = None
    """The workspace after this turn (tar), so that any node can go on and a fresh sandbox can grade it."""
    started: float = 0.0
    seconds: float = 0.0
    """Generation time of the turn, queueing in the engine included."""


class Purpose(str, Enum):
    TRAIN = "train"
    EVAL = "eval"
    ADMIT = "admit"
    """Reference and do-nothing attempts before a task enters the pool."""


class GroupRef(_Part, frozen=True, kw_only=True):
    """The group that a rollout belongs to."""

    id: str
    size: int
    deadline: float
    """Closed with what is there when this time has passed."""
    purpose: Purpose = Purpose.TRAIN
    version: int = 0
    """Policy version at the opening of the group; for evaluations the version under test."""


class Rollout(Message, frozen=True, kw_only=True, tag="rollout"):
    """One attempt of the policy at a task, as far as it has come: the message of generate, execute and verify."""

    id: str
    """`<group>-<member>`"""
    run: str
    group: GroupRef
    member: int
    task: Task
    sampling: Sampling
    attempt: int = 0
    created: float = 0.0
    deadline: float = 0.0
    turns: tuple[Turn, ...] = ()
    outcome: Outcome | None = None
    """None while it runs."""
    detail: str = ""


class Job(Message, frozen=True, kw_only=True, tag="job"):
    """A grading job: a command in a fresh sandbox on a copy of the workspace. A verifier plans it."""

    rollout: Rollout
    command: Command
    profile: str
    workspace: BlobRef | None = None
    deterministic: bool = False
    """Identical jobs (command, files, profile, workspace) give the same result, so one run may answer them all."""
    collect: tuple[str, ...] = ()
    """Workspace files to return, relative paths; missing ones are left out."""
    snapshot: bool = False
    """Return a listing of the whole workspace: path to content, up to the output limit."""


class Graded(Message, frozen=True, kw_only=True, tag="graded"):
    """A grading job's result, on its way back to the verifier."""

    rollout: Rollout
    execution: Execution
    files: dict[str, bytes] = {}


class Verdict(Message, frozen=True, kw_only=True, tag="verdict"):
    """What the verifier found. The first verdict of a rollout wins."""

    rollout: Rollout
    outcome: Outcome
    """The rollout's, unless grading itself ended badly."""
    score: float | None
    """In [0, 1]; None when it could not be graded, which is never a score of 0."""
    passed: bool = False
    """Full credit."""
    components: dict[str, float] = {}
    reasons: tuple[str, ...] = ()
    evidence: BlobRef | None = None
    """What a grading job wrote and left."""
    verifier: str = ""
    """Kind and version."""
    grading: Execution | None = None
    cpu_s: float = 0.0
    """Of the verifier and its children; what the sandbox took stands in `grading`."""

    @property
    def judgement(self) -> str:
        """'accept' full credit, 'partial' some, 'reject' none; 'quarantine' no verdict: task or grader is at fault."""
        if self.score is None:
            return "quarantine"
        return "accept" if self.passed else "partial" if self.score > 0 else "reject"


# ---------------------------------------------------------------- groups, policies, runs


class Member(_Part, frozen=True, kw_only=True):
    """One rollout of a closed group with its reward."""

    verdict: Verdict
    reward: float
    advantage: float
    trains: bool


class Group(Message, frozen=True, kw_only=True, tag="group"):
    """A closed group."""

    id: str
    run: str
    domain: str
    task_id: str
    template: str
    purpose: Purpose
    version: int
    members: tuple[Member, ...]
    missing: int
    """Rollouts without a verdict at the deadline."""
    trainable: bool
    """False for evaluations, and when rewards do not vary or too few members count."""
    reason: str = ""
    """Why it does not train: 'evaluation', 'zero_variance', 'too_few', 'unanswered' (no member says anything),
    'unverified' (the verifier failed on too many members)."""
    opened: float = 0.0
    closed: float = 0.0


class GroupRecord(Message, frozen=True, kw_only=True, tag="group_record"):
    """An opened group in the key-value bucket: the sampler creates it, the aggregator adds members and closes it."""

    id: str
    run: str
    domain: str
    task_id: str
    template: str
    purpose: Purpose
    version: int
    size: int
    deadline: float
    opened: float
    index: int = 0
    members: tuple[int, ...] = ()
    """Members whose verdict has arrived; each is set once."""
    closed: bool = False


class RunStatus(Message, frozen=True, kw_only=True, tag="run_status"):
    """How a run stands, in the key-value bucket of runs."""

    run: str
    state: str
    """'evaluating', 'training', 'finished'."""
    started: float
    updated: float
    detail: str = ""
    finished: float = 0.0
    evaluated: tuple[int, ...] = ()
    """Versions whose evaluation is complete."""


class Policy(Message, frozen=True, kw_only=True, tag="policy"):
    """A policy version and where its weights lie. Latest value: announced and also polled."""

    run: str
    version: int
    path: str
    """Directory or URI of the Hugging Face checkpoint (safetensors)."""
    sha256: str = ""
    """Of the weights file."""
    size: int = 0
    position: int = 0
    """Group-stream sequence up to which this version has trained."""
    final: bool = False
    """The trainer is done; no further version will come."""
    metrics: dict[str, float] = {}
    """Of the step that made it: loss, reward_mean, entropy, mismatch_kl, grad_norm, groups, tokens, seconds ..."""
    created: float = 0.0


class DeadLetter(Message, frozen=True, kw_only=True, tag="dead_letter"):
    """A message that no handler could take, with the original bytes and why."""

    stage: str
    subject: str
    stream: str
    sequence: int
    reason: str
    """Class: decode, schema, validation, subject, blob, expired, crash or handler."""
    detail: str
    deliveries: int
    body: bytes
    headers: dict[str, str] = {}
    first_seen: float = 0.0
    failed: float = 0.0
    consumer: str = ""


class LetterAction(_Part, frozen=True, kw_only=True):
    """Something that was done about a dead letter."""

    at: float
    action: str
    """'replay', 'edit', 'resolve', 'reopen', 'supersede', 'discard'."""
    by: str = ""
    detail: str = ""
    """For people; of an edit the difference, as a unified diff."""


class LetterState(Message, frozen=True, kw_only=True, tag="letter_state"):
    """How a dead letter stands, in its key-value bucket under the letter's key. No entry: it is open."""

    letter: str
    state: str
    """'open', 'replaying', 'resolved', 'superseded' (its replay failed and is a letter of its own) or 'discarded'."""
    replays: int = 0
    subject: str = ""
    """Of the newest replay."""
    sequence: int = 0
    """Of the newest replay in its stage's stream; 0 while it is being published."""
    edited: BlobRef | None = None
    """The corrected body that the newest replay carries instead of the original."""
    result: str = ""
    """Of a resolved letter: 'processed', or 'late' when its group had closed or its rollout had ended already."""
    updated: float = 0.0
    history: tuple[LetterAction, ...] = ()


AnyMessage = Task | Rollout | Job | Graded | Verdict | Group | Policy | DeadLetter

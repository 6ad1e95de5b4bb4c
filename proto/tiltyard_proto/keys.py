"""Keys: the subject is the idempotency key, so every effect's key is derived here and nowhere else.

A key is one subject token: parts joined by `-`, made of [A-Za-z0-9_-], at most 128 characters. Run names and other
parts must not contain `-` themselves where a key is split again; only prefixes are ever split.
Domains and runs are few and checked several times for every message, so what was found good is remembered.
"""

from __future__ import annotations

import functools
import hashlib
import re

import msgspec

from .messages import Graded, Job, Policy, Purpose, Rollout, Task, Verdict

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,128}")
_DOMAIN = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*(\.[a-z0-9]+(_[a-z0-9]+)*)*")
"""No word begins or ends with `_` and none has two in a row, so that `domain_token` is injective."""
_RUN = re.compile(r"[a-z][a-z0-9_]{0,39}")


def check_token(value: str, what: str) -> str:
    """`value` if it can stand as one subject token; ValueError otherwise."""
    if not _TOKEN.fullmatch(value):
        raise ValueError(f"{what} {value!r}: expected 1 to 128 of A-Z a-z 0-9 _ -")
    return value


@functools.lru_cache(maxsize=4096)
def check_domain(name: str) -> str:
    """`name` if it is a dotted lower-case domain name of at most 100 characters; ValueError otherwise."""
    if len(name) > 100 or not _DOMAIN.fullmatch(name):
        raise ValueError(f"domain {name!r}: expected dotted lower-case words such as 'code.python.functions'")
    return name


@functools.lru_cache(maxsize=256)
def check_run(name: str) -> str:
    """`name` if it can name a run; ValueError otherwise."""
    if not _RUN.fullmatch(name):
        raise ValueError(f"run {name!r}: expected a lower-case letter, then up to 39 of a-z 0-9 _")
    return name


@functools.lru_cache(maxsize=4096)
def domain_token(domain: str) -> str:
    """A domain as one subject token: dots become `__`."""
    return check_domain(domain).replace(".", "__")


@functools.lru_cache(maxsize=1024)
def domain_of(token: str) -> str:
    """The domain that a subject token begins with (what follows a `-` is not part of one); never an error."""
    return token.split("-", 1)[0].replace("__", ".")


def task_id(task: Task) -> str:
    """Content hash of a task (its id left out): 20 hex digits."""
    bare = msgspec.structs.replace(task, id="")
    return hashlib.blake2b(msgspec.json.encode(bare, order="sorted"), digest_size=10).hexdigest()


def with_id(task: Task) -> Task:
    """The task with its content hash as id."""
    return msgspec.structs.replace(task, id=task_id(task))


def group_id(run: str, purpose: Purpose, index: int, version: int = 0) -> str:
    """Ids of groups are derived, not drawn, so that opening one again is a no-op."""
    if purpose is Purpose.EVAL:
        return f"{run}-e{version}-{index}"
    return f"{run}-{purpose.value[0]}-{index}"


def rollout_id(group: str, member: int) -> str:
    return f"{group}-{member}"


def generate_key(rollout: Rollout) -> str:
    """Rollout, attempt, turn about to be sampled."""
    return f"{rollout.id}-a{rollout.attempt}-t{len(rollout.turns)}"


def execute_key(message: Rollout | Job) -> str:
    """A turn to be run, or a grading job."""
    if isinstance(message, Job):
        return f"{message.rollout.id}-a{message.rollout.attempt}-grade"
    return f"{message.id}-a{message.attempt}-t{len(message.turns) - 1}"


def verify_key(message: Rollout | Graded) -> str:
    """A finished rollout, or its grading job's result."""
    if isinstance(message, Graded):
        return f"{message.rollout.id}-a{message.rollout.attempt}-graded"
    return f"{message.id}-a{message.attempt}"


def verdict_key(message: Verdict) -> str:
    """No attempt: the first verdict of a rollout wins."""
    return message.rollout.id


def policy_key(message: Policy) -> str:
    return f"{message.run}-{message.version}"

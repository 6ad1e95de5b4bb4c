"""Can this task be worked on at all? Asked before it is published, so that a mistake is one line and not a dead letter.

Invariant: pure. Left out: whether the task can be solved, and whether its verification data fit its verifier, which
says so when it first judges it. What goes past this (straight to the bus) ends as an outcome or a dead letter.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec

from tiltyard.domains.domain import Domain
from tiltyard_proto import keys
from tiltyard_proto.messages import Task

INTERFACES = ("answer", "python", "shell")
ROLES = ("system", "user", "assistant", "tool")
MOST = 2**53


def check_task(task: Task, domains: Mapping[str, Domain], profiles: Collection[str] = ()) -> None:
    """ValueError that names the key and what was expected. `profiles`: of sandboxes, beside those that domains name."""
    keys.check_domain(task.domain)
    if task.domain not in domains:
        raise ValueError(f"domain {task.domain!r} is not known; `tiltyard domains` lists them")
    _check_prompt(task)
    _one_of("split", task.split, ("train", "eval"))
    definitions = [domain.definition for domain in domains.values()]
    _one_of("verification.kind", task.verification.kind, sorted({one.verifier.kind for one in definitions}))
    _one_of("environment.interface", task.environment.interface, INTERFACES)
    known = {*profiles, *(one.profile for one in definitions)}
    _one_of("environment.profile", task.environment.profile, sorted(known))
    for path in task.environment.files:
        _check_path(path)
    _check_numbers("environment.limits", msgspec.structs.asdict(task.environment.limits), 0)
    _check_numbers("limits", msgspec.structs.asdict(task.limits), 0)
    _check_sampling(task)


def _check_prompt(task: Task) -> None:
    if not task.prompt:
        raise ValueError("prompt: expected at least one message")
    for message in task.prompt:
        _one_of("prompt: role", message.role, ROLES)
    if not any(message.content.strip() for message in task.prompt):
        raise ValueError("prompt: expected at least one message with content")


def _one_of(key: str, value: str, choices: Any) -> None:
    if value not in choices:
        raise ValueError(f"{key}: expected one of {', '.join(choices)}, got {value!r}")


def _check_path(path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise ValueError(f"environment.files: {path!r}: expected a path below the workspace")


def _check_numbers(where: str, numbers: Mapping[str, float], above: float) -> None:
    for key, value in numbers.items():
        if not (math.isfinite(value) and above < value <= MOST):
            raise ValueError(f"{where}.{key}: expected more than {above:g}, at most 2**53, got {value:g}")


def _check_sampling(task: Task) -> None:
    sampling = task.sampling
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        raise ValueError(f"sampling.temperature: expected 0 or more, got {sampling.temperature}")
    if not 0 < sampling.top_p <= 1:
        raise ValueError(f"sampling.top_p: expected more than 0, at most 1, got {sampling.top_p}")
    if sampling.top_k != -1 and sampling.top_k < 1:
        raise ValueError(f"sampling.top_k: expected -1 (off) or 1 and more, got {sampling.top_k}")
    if not 0 < sampling.max_new_tokens <= MOST:
        raise ValueError(f"sampling.max_new_tokens: expected 1 or more, got {sampling.max_new_tokens}")
    if not all(sampling.stop):
        raise ValueError("sampling.stop: expected no empty string")

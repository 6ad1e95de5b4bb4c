"""What the Compose test does, once, and what it saw: the tests say what should have been seen.

Build and start on a run of the tiny model, publish from outside, crash a gateway and a sandbox service, scale, drain,
take down, start again, finish, audit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.compose_stack import ROOT, Stack, healthy, kill, lend_local, service_of, take_back, until
from support.docker_machine import BASE, Docker, engine, provide_images

RUN = "compose"
MANY, MORE = 1000, 2
"""Steps at first, so that it goes on; steps after the second start, so that it ends."""
FIRST_S, SECOND_S, IMAGE_MB = 480.0, 120.0, 250.0
"""Bounds: build and start to the first policy update, a second start to the next one, an image over its base."""
SCALES = {"gateway": 3, "verifier": 4, "sandbox": 2}
KILLED = ("gateway", "sandbox")
LONG_RUNNING = ("nats", "sampler", "gateway", "verifier", "aggregator", "trainer", "sandbox", "janitor", "engine")


@dataclass
class Seen:
    """Seconds, sizes, and what was said."""

    build_s: float = 0.0
    first_s: float = 0.0
    """Build and start to the first policy update."""
    published: str = ""
    letters: str = ""
    recovered_s: dict[str, float] = field(default_factory=dict)
    after_kill: int = 0
    """Versions that followed the kills before the drain."""
    scaled: dict[str, int] = field(default_factory=dict)
    containers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """One of each service, while all ran."""
    memory_mb: dict[str, float] = field(default_factory=dict)
    drain_s: float = 0.0
    drained: dict[str, list[int]] = field(default_factory=dict)
    """Exit codes by service."""
    before: int = 0
    """Version at the drain."""
    second_s: float = 0.0
    account: dict[str, Any] = field(default_factory=dict)
    images_mb: dict[str, float] = field(default_factory=dict)
    """Over the base, by image."""
    torch: dict[str, bool] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    """Containers and networks after the end."""


def configure(path: Path, steps: int) -> None:
    """The run of examples/tiny.toml with other steps."""
    text = (ROOT / "examples/tiny.toml").read_text().replace('name = "tiny"', f'name = "{RUN}"')
    path.write_text(text.replace("steps = 3", f"steps = {steps}") + "\n[sandbox]\npool = { python = 2 }\n")
    path.chmod(0o644)


@contextmanager
def told(folder: Path) -> Iterator[Seen]:
    """The whole story; whatever happens, nothing of it is left."""
    seen, lent = Seen(), lend_local()
    try:
        with engine() as docker:
            provide_images(docker)
            stack = Stack(docker, f"tiltyard-test-{int(time.time())}", folder / "run.toml")
            configure(stack.config, MANY)
            try:
                _tell(stack, seen)
            except BaseException:
                print(stack.compose("logs", "--no-color", "--tail", "40", within_s=60))
                raise
            finally:
                stack.compose("down", "--volumes", "--remove-orphans", "--timeout", "20", within_s=300)
            seen.left = _left(docker, stack.project)
            yield seen
    finally:
        take_back(lent)


def _tell(stack: Stack, seen: Seen) -> None:
    begun = time.monotonic()
    stack.compose("build", within_s=1500)
    seen.build_s = time.monotonic() - begun
    stack.compose("up", "--detach", within_s=600)
    until(lambda: stack.version(RUN) >= 1, 600, lambda: stack.compose("ps", "--all"))
    seen.first_s = time.monotonic() - begun
    _measure_images(stack, seen)
    _look_around(stack, seen)
    _crash(stack, seen)
    _scale(stack, seen)
    _drain(stack, seen)
    _go_on(stack, seen)


def _measure_images(stack: Stack, seen: Seen) -> None:
    base = _size(stack.docker, BASE)
    for container in stack.containers():
        image = str(container["Config"]["Image"])
        if image not in seen.images_mb:
            seen.images_mb[image] = (_size(stack.docker, image) - base) / 1e6
            look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
            done = stack.docker.done("run", "--rm", "--network", "none", "--entrypoint", "python3", image, "-c", look)
            seen.torch[image] = done.returncode == 0


def _size(docker: Docker, image: str) -> int:
    return int(docker.run("image", "inspect", "--format", "{{.Size}}", image))


def _look_around(stack: Stack, seen: Seen) -> None:
    seen.published = stack.cli("publish", "--domain", "code.python.functions", "-n", "5", "--seed", "77")
    seen.letters = stack.cli("dlq", "ls")
    _all_healthy(stack)
    for container in stack.containers():
        seen.containers[service_of(container)] = container
    running = {each["Name"].strip("/"): service_of(each) for each in stack.containers() if each["State"]["Running"]}
    for line in stack.docker.run("stats", "--no-stream", "--format", "{{json .}}", *running).splitlines():
        row = json.loads(line)
        seen.memory_mb[running[row["Name"]]] = _mb(row["MemUsage"].split("/")[0].strip())


def _mb(text: str) -> float:
    units = {"KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0, "B": 1 / 1024**2}
    unit = next(unit for unit in units if text.endswith(unit))
    return float(text.removesuffix(unit)) * units[unit]


def _all_healthy(stack: Stack) -> float:
    return until(
        lambda: all(healthy(each) for each in stack.containers() if service_of(each) in LONG_RUNNING),
        180,
        lambda: stack.compose("ps", "--all"),
    )


def _crash(stack: Stack, seen: Seen) -> None:
    version = stack.version(RUN)
    for service in KILLED:
        (before,) = stack.containers(service)
        kill(before)
        seen.recovered_s[service] = until(
            lambda: _is_back(stack, service, before),  # noqa: B023  (called in this turn of the loop)
            120,
            lambda: stack.compose("ps", "--all"),
        )
    until(lambda: stack.version(RUN) > version, 300, lambda: stack.compose("ps", "--all"))
    seen.after_kill = stack.version(RUN) - version


def _is_back(stack: Stack, service: str, before: dict[str, Any]) -> bool:
    (now,) = stack.containers(service)
    return now["RestartCount"] > before["RestartCount"] and healthy(now)


def _scale(stack: Stack, seen: Seen) -> None:
    scales = [word for name, count in SCALES.items() for word in ("--scale", f"{name}={count}")]
    stack.compose("up", "--detach", "--no-build", *scales, within_s=300)
    _all_healthy(stack)
    seen.scaled = {name: len(stack.containers(name)) for name in SCALES}


def _drain(stack: Stack, seen: Seen) -> None:
    begun = time.monotonic()
    stack.compose("stop", within_s=400)  # what `down` does first; it would also take the exit codes away
    seen.drain_s = time.monotonic() - begun
    for container in stack.containers():
        if (name := service_of(container)) in LONG_RUNNING:
            seen.drained.setdefault(name, []).append(int(container["State"]["ExitCode"]))
    seen.before = stack.newest(RUN)
    stack.compose("down", within_s=300)


def _go_on(stack: Stack, seen: Seen) -> None:
    configure(stack.config, seen.before + MORE)
    begun = time.monotonic()
    stack.compose("up", "--detach", "--no-build", within_s=300)
    until(lambda: stack.version(RUN) > seen.before, 300, lambda: stack.compose("ps", "--all"))
    seen.second_s = time.monotonic() - begun
    until(lambda: stack.run_state(RUN).get("state") == "finished", 600, lambda: str(stack.run_state(RUN)))
    until(lambda: not _audited(stack, seen)["problems"], 60, lambda: str(seen.account))


def _audited(stack: Stack, seen: Seen) -> dict[str, Any]:
    command = ["run", "--rm", "-T", "--entrypoint", "python", "cli", "tests/support/compose_audit.py", RUN]
    seen.account = json.loads(stack.compose(*command))
    return seen.account


def _left(docker: Docker, project: str) -> list[str]:
    label = ("--quiet", "--filter", f"label=com.docker.compose.project={project}")
    return [
        name
        for kind in (("ps", "--all"), ("network", "ls"), ("volume", "ls"))
        for name in docker.run(*kind, *label).split()
    ]

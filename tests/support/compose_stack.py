"""The stack of compose.yaml on a Docker engine: built, started, looked at and taken down."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.docker_machine import BASE, NATS, Docker

from tiltyard.sandbox import images
from tiltyard.sandbox.settings import SandboxSettings

ROOT = Path(__file__).parents[2]
LOCAL = ROOT / "infra/compose/local"


class Stack:
    """One Compose project. `config`: the run, relative to the repository or absolute."""

    def __init__(self, docker: Docker, project: str, config: Path) -> None:
        self.docker = docker
        self.project, self.config = project, config
        self.variables = {
            "COMPOSE_PROJECT_NAME": project,
            "COMPOSE_PROFILES": "cpu",  # images of others can't be pulled everywhere
            "BASE_IMAGE": BASE,
            "NATS_IMAGE": NATS,
            "BUILD_NETWORK": "host",
            "TORCH_INDEX": os.environ.get("TORCH_INDEX", "https://pypi.org/simple"),
            "RUN_CONFIG": str(config),
        }

    def compose(self, *arguments: str, within_s: float = 120.0) -> str:
        """Standard output of `docker compose ...`."""
        return self.docker.run("compose", *self._place(), *arguments, within_s=within_s, **self.variables)

    @staticmethod
    def _place() -> tuple[str, ...]:
        return "--project-directory", str(ROOT), "--progress", "quiet"

    def cli(self, *arguments: str, within_s: float = 120.0) -> str:
        """Output of a command that a person gives from outside."""
        return self.compose("run", "--rm", "-T", "cli", *arguments, within_s=within_s)

    # ------------------------------------------------------------ looking at it

    def containers(self, service: str = "") -> list[dict[str, Any]]:
        """What the engine knows of the containers of a service, or of all."""
        names = self.compose("ps", "--all", "--quiet", *([service] if service else [])).split()
        return json.loads(self.docker.run("inspect", *names)) if names else []

    def run_state(self, run: str) -> dict[str, Any]:
        """The run's row of `tiltyard status`; empty when there is none yet."""
        rows = json.loads(self.cli("status", "--json"))["runs"]
        return next((row for row in rows if row["run"] == run), {})

    def version(self, run: str) -> int:
        """The newest policy of a run, as a container sees it; -1 when there is none, or no container."""
        look = ("exec", "-T", "aggregator", "ls", f"/data/runs/{run}/policies")
        return _newest(self.docker.done("compose", *self._place(), *look, **self.variables).stdout)

    def newest(self, run: str) -> int:
        """The same when no service runs."""
        look = ("run", "--rm", "-T", "--entrypoint", "ls", "cli", f"/data/runs/{run}/policies")
        return _newest(self.compose(*look))


def _newest(listed: str) -> int:
    return max((int(name[1:]) for name in listed.split() if re.fullmatch(r"v\d+", name)), default=-1)


def until(what: Callable[[], object], within_s: float, why: Callable[[], str] = str) -> float:
    """Seconds until `what()` is true; fails the test after `within_s` with what `why` says."""
    begun = time.monotonic()
    while not what():
        assert time.monotonic() - begun < within_s, f"not within {within_s:g} s: {why()}"
        time.sleep(0.5)
    return time.monotonic() - begun


def service_of(container: dict[str, Any]) -> str:
    return str(container["Config"]["Labels"]["com.docker.compose.service"])


def healthy(container: dict[str, Any]) -> bool:
    """Does it run, and do its checks say that it can work? True without checks when it runs."""
    state = container["State"]
    return bool(state["Running"]) and state.get("Health", {}).get("Status", "healthy") == "healthy"


def kill(container: dict[str, Any]) -> None:
    """SIGKILL its first process: a crash, where `docker kill` would count as a person's wish."""
    os.kill(container["State"]["Pid"], signal.SIGKILL)


def lend_local() -> list[Path]:
    """Put runsc and wheels that this machine has where builds look first; what was put there."""
    lent = []
    wanted = [Path(images.find_runsc(SandboxSettings()))]
    for folder in os.environ.get("PIP_FIND_LINKS", "").split():
        wanted += sorted(Path(folder).glob("torch-*.whl"))
    for source in wanted:
        target = LOCAL / source.name
        if not target.exists():
            with suppress(OSError):
                os.link(source, target)
            if not target.exists():
                shutil.copy2(source, target)
            lent.append(target)
    return lent


def take_back(lent: list[Path]) -> None:
    for path in lent:
        path.unlink(missing_ok=True)

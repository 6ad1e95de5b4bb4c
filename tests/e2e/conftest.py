"""`tiltyard up` as a process on free ports with its own data directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tiltyard.cli.models import prepare
from tiltyard.kit.embedded import free_port
from tiltyard.kit.settings import DataSettings

REPOSITORY = Path(__file__).parents[2]


class Up:
    """One `tiltyard up` process and its files."""

    def __init__(self, root: Path, model: Path, sets: tuple[str, ...]) -> None:
        self.root = root
        self.bus_port, engine_port = free_port(), free_port()
        self.results = root.parent / "results.json"
        self.output = root.parent / "output.txt"
        arguments = [
            f'data.root="{root}"',
            f'bus.servers=["nats://127.0.0.1:{self.bus_port}"]',
            f"engine.port={engine_port}",
            f'gateway.engines=["http://127.0.0.1:{engine_port}"]',
            f'run.model="{model}"',
            *sets,
        ]
        self.argv = [sys.executable, "-m", "tiltyard.cli.main", "up", "-c", "examples/tiny.toml", "--plain"]
        self.argv += ["--results", str(self.results)]
        for argument in arguments:
            self.argv += ["--set", argument]
        self._file = self.output.open("ab")
        self.process = subprocess.Popen(
            self.argv, cwd=REPOSITORY, stdout=self._file, stderr=self._file, start_new_session=True
        )

    @property
    def run_path(self) -> Path:
        return self.root / "runs" / "tiny"

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def wait(self, seconds: float) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds} s:\n{self.text[-4000:]}")

    def child(self, name: str) -> psutil.Process | None:
        """The running process of a service, or of the bus server."""
        try:
            children = psutil.Process(self.process.pid).children()
        except psutil.NoSuchProcess:
            return None
        for child in children:
            try:
                command = child.cmdline()
            except psutil.NoSuchProcess:
                continue
            if f"tiltyard.{name}" in command or (command and Path(command[0]).name == name):
                return child
        return None

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                for process in psutil.Process(self.process.pid).children(recursive=True):
                    process.kill()
                self.process.kill()
                self.process.wait()
        self._file.close()


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """The tiny model; made once per machine (`tiltyard model tiny`)."""
    return prepare("tiny", DataSettings().cache_path)


@pytest.fixture
def up(tmp_path: Path, tiny_model: Path) -> Iterator[Callable[..., Up]]:
    """Start `tiltyard up` with the tiny model and further settings."""
    started: list[Up] = []

    def start(*sets: str) -> Up:
        started.append(Up(tmp_path / "data", tiny_model, sets))
        return started[-1]

    yield start
    for one in started:
        one.end()

"""Fixtures that several kinds of test share: a real NATS server per test, a bus on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.embedded import free_port, start_server
from tiltyard.kit.provision import provision

settings.register_profile("tiltyard", deadline=None)  # a busy machine is no failure; pytest-timeout bounds a test
settings.load_profile("tiltyard")


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture(autouse=True)
def usual_log() -> Iterator[None]:
    """What a command makes of the log in this process ends with its test."""
    yield
    structlog.reset_defaults()


class NatsServer:
    """A real server on a free loopback port with a temporary store, that can be killed and started again."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.port = free_port()
        self.process = start_server(store, port=self.port)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def start(self) -> None:
        self.process = start_server(self.store, port=self.port)


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path / "nats")
    yield server
    server.kill()


@pytest.fixture
async def bus(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Bus]:
    """A connection to a provisioned bus."""
    connection = await Bus.connect(nats_server.url, BlobStore(tmp_path / "blobs"), "test")
    try:
        await provision(connection)
        yield connection
    finally:
        await connection.close()

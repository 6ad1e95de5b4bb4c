"""A real gVisor back-end, and the check after every case that nothing of its sandboxes is left on the host."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.sandbox_host import eventually_no_traces

from tiltyard.sandbox.backend import Sandbox, Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.settings import SandboxSettings

SETTINGS = SandboxSettings()


@pytest.fixture(scope="module")
async def gvisor() -> AsyncIterator[GVisorBackend]:
    """Fails, with the line that mends it, where runsc, the image or root is missing."""
    backend = GVisorBackend.open(SETTINGS)
    yield backend
    await backend.close()
    assert not backend.instance.path.exists()
    assert backend.leaked == 0


@pytest.fixture
async def sandbox(gvisor: GVisorBackend) -> AsyncIterator[Sandbox]:
    """One sandbox; afterwards nothing of it may be left."""
    made = await gvisor.start(Want())
    yield made
    await made.kill()
    await eventually_no_traces(gvisor, made.id)

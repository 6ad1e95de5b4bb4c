"""The back-ends by name.

Left out: what a back-end promises (`backend`).
"""

from __future__ import annotations

from .backend import Backend
from .bubblewrap import BubblewrapBackend
from .gvisor import GVisorBackend
from .null import NullBackend
from .process import ProcessBackend
from .settings import SandboxSettings


def open_backend(settings: SandboxSettings) -> Backend:
    """The back-end the settings ask for; StartFailed when it can't work here, ValueError for an unknown name."""
    if settings.backend == "gvisor":
        return GVisorBackend.open(settings)
    if settings.backend == "docker":
        from .docker import DockerBackend  # its HTTP client takes a while to load

        return DockerBackend.open(settings)
    if settings.backend == "bubblewrap":
        return BubblewrapBackend.open(settings)
    if settings.backend == "process":
        return ProcessBackend(settings)
    if settings.backend == "null":
        return NullBackend(settings)
    expected = "'gvisor', 'docker', 'bubblewrap', 'process' or 'null'"
    raise ValueError(f"sandbox.backend {settings.backend!r}: expected {expected}")

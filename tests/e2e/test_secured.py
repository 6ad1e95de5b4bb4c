"""The whole loop on a secured bus: TLS, one user per service, permissions from the topology."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiltyard.kit import credentials
from tiltyard_proto import permissions


def secrets(directory: Path) -> dict[str, str]:
    """Every secret of a credentials directory by its file: seeds whole, private keys by their first line of data."""
    found = {str(path): path.read_text().strip() for path in directory.rglob("*.seed")}
    return found | {str(path): path.read_text().splitlines()[1] for path in directory.rglob("*.key")}


@pytest.mark.timeout(180)
def test_a_secured_run_needs_no_more_than_it_may(up: Callable[..., Any]) -> None:
    """A run with `bus.secure` trains to its end without one refusal, every service as its own user, and no secret in
    any log or record."""
    system = up("bus.secure=true")
    assert system.wait(150) == 0, system.text[-4000:]
    server = (system.root / "nats" / "nats-server.log").read_text()
    assert "Violation" not in server
    assert "ermissions Violation" not in system.text
    directory = system.root / "credentials"
    hidden = secrets(directory)
    assert len(hidden) == 2 * len(permissions.users()) + 2
    written = [system.text, server, *map(readable, system.run_path.rglob("*")), *map(readable, logs(system.root))]
    assert len(written) > 8
    assert [name for name, secret in hidden.items() if any(secret in text for text in written)] == []
    public = credentials.security(directory)
    assert [name for name, secret in hidden.items() if secret in public] == []


def logs(root: Path) -> list[Path]:
    return [path for path in (root / "nats").iterdir() if path.is_file()]


def readable(path: Path) -> str:
    return path.read_bytes().decode("latin-1") if path.is_file() else ""

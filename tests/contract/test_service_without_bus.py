"""A service process whose bus is not there."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tiltyard.kit.embedded import free_port


@pytest.mark.parametrize("service", ["aggregator", "gateway"])
def test_the_first_sigterm_ends_a_service_that_waits_for_its_bus(service: str, tmp_path: Path) -> None:
    """Without a bus a service says so and waits; SIGTERM ends it at once and well."""
    argv = [sys.executable, "-m", f"tiltyard.{service}", "--set", f'data.root="{tmp_path}"']
    argv += ["--set", f'bus.servers=["nats://127.0.0.1:{free_port()}"]']
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert "bus_error" in line or "bus_away" in line, line
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()

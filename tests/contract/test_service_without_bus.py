"""A service process whose bus is not there."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tiltyard.kit.embedded import free_port


def answers(port: int) -> None:
    """Wait until somebody listens; fails after 10 seconds."""
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


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


def test_a_service_that_waits_for_its_bus_is_alive_and_not_ready(tmp_path: Path) -> None:
    """Probes are answered before the bus is there: alive, and not ready for the reason that is true."""
    port = free_port()
    argv = [sys.executable, "-m", "tiltyard.aggregator", "--set", f'data.root="{tmp_path}"']
    argv += ["--set", f'bus.servers=["nats://127.0.0.1:{free_port()}"]', "--set", f"service.metrics_port={port}"]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        process.stderr.readline()
        answers(port)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            assert json.load(answer) == {"alive": True}
        with pytest.raises(urllib.error.HTTPError) as found:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5)
        assert found.value.code == 503
        assert "still looking" in json.load(found.value)["problems"]["bus"]
        found.value.close()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()

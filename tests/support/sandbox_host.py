"""What sandboxes have left on the host, for tests that assert there is nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path

import anyio

from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.instance import GROUP


def processes_of(instance: str, sandbox: str = "") -> list[int]:
    """Processes on the host whose command line names the instance, or one sandbox of it."""
    pattern = re.compile(f"{instance}[-/]{sandbox}\\b" if sandbox else instance)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if pattern.search((entry / "cmdline").read_bytes().decode("utf-8", "replace")):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def networks_of_ours() -> list[str]:
    """Network namespaces that this process keeps alive for sandboxes; they have no names and live by descriptors."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:
            continue
        if target.startswith("net:["):
            found.append(f"network {target}")
    return found


def traces(backend: GVisorBackend, sandbox: str = "") -> list[str]:
    """What is left on the host of one sandbox, or of all of the back-end: directories, control groups, processes."""
    instance = backend.instance
    left = [str(path) for path in instance.path.glob(sandbox or "s[0-9]*")]
    left += [f"group {n}" for n in backend.tree.names(f"{GROUP}/{instance.id}") if not sandbox or n == sandbox]
    left += [f"process {pid}" for pid in processes_of(instance.id, sandbox)]
    left += networks_of_ours() if not sandbox else []
    return left


async def eventually_no_traces(backend: GVisorBackend, sandbox: str = "") -> None:
    """Wait until nothing is left; fails after 2 seconds with what is."""
    deadline = anyio.current_time() + 2
    while (left := traces(backend, sandbox)) and anyio.current_time() < deadline:  # noqa: ASYNC110  (nobody announces it)
        await anyio.sleep(0.01)
    assert left == []

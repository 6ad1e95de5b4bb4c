"""What must be there before anything starts, each with one line that says how to mend it."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import anyio

from tiltyard.cli.errors import UserError
from tiltyard.cli.models import present
from tiltyard.kit.embedded import port_taken, tied
from tiltyard.kit.settings import DataSettings

from .settings import SupervisorSettings

Say = Callable[[str], None]


def check_disk(root: Path, settings: SupervisorSettings) -> None:
    """UserError when the data directory can't be written or its disk is nearly full."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe = root / f".probe-{os.getpid()}"
        probe.write_bytes(b"tiltyard")
        probe.unlink()
    except OSError as error:
        raise UserError(f"{root}: {error.strerror}; choose a writable directory with --set data.root=DIR") from error
    free = shutil.disk_usage(root).free / 2**30
    if free < settings.min_free_gib:
        raise UserError(
            f"{root}: {free:.1f} GiB free, {settings.min_free_gib:g} needed; free some, "
            "choose another disk with --set data.root=DIR, or lower supervisor.min_free_gib"
        )


def check_results(path: Path) -> None:
    """UserError when the file of `--results` can't be written; better said now than when the run has ended."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
    except OSError as error:
        raise UserError(f"--results {path}: {error.strerror}") from error


def take_lock(root: Path) -> IO[str]:
    """The lock of a data directory, held while the returned file is open; UserError when another holds it."""
    file = (root / "up.lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read().strip() or "another process"
        file.close()
        raise UserError(
            f"{root} is in use by {owner}: wait for it, stop it, or use another directory with --set data.root=DIR"
        ) from None
    file.truncate(0)
    file.write(f"tiltyard up, pid {os.getpid()}")
    file.flush()
    return file


async def check_sandbox(settings: Any, data: DataSettings, say: Say) -> None:
    """UserError unless gVisor works here: root, a runsc that passes its self-test, the image of each profile."""
    from tiltyard.sandbox.backend import StartFailed
    from tiltyard.sandbox.doctor import doctor
    from tiltyard.sandbox.images import find_image

    if settings.backend == "process":
        say("sandbox: back-end 'process' isolates nothing; only for tests on throw-away machines")
        return
    if os.geteuid() != 0:
        raise UserError("sandboxes need root: run with sudo, or put the sandbox service on another machine")
    checks = await doctor(settings)
    for check in checks:
        if not check.ok and not check.optional:
            raise UserError(f"sandbox: {check.name}: {check.detail}" + (f"; mend: {check.mend}" if check.mend else ""))
    for profile in settings.pool:
        try:
            find_image(settings, profile)
        except StartFailed as error:
            raise UserError(f"[sandbox] pool: {error}") from error
    say(f"sandbox checked: {len(checks)} tests pass")


async def check_model(model: str, data: DataSettings, say: Say) -> Path:
    """The model's directory, made if it is a built-in one."""
    try:
        path = present(model, data.cache_path) or await _made(model, data.cache_path, say)
        await anyio.to_thread.run_sync(_check_model_files, path, abandon_on_cancel=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"model {model!r}: {error}; name another with --set run.model=DIR") from error
    say(f"model: {path}")
    return path


async def _made(model: str, cache: Path, say: Say) -> Path:
    """Make it in a process of its own, which an interrupt ends at once."""
    say(f"model: {model} is not there yet; making it")
    argv = [sys.executable, "-m", "tiltyard.cli.main", "model", "--set", f"data.cache={cache}", "--", model]
    done = await anyio.run_process(tied(argv), check=False, start_new_session=True)
    said = (done.stdout if done.returncode == 0 else done.stderr).decode(errors="replace").strip().splitlines()
    if done.returncode or not said:
        raise ValueError(said[-1].removeprefix("tiltyard model: ") if said else f"ended with status {done.returncode}")
    return Path(said[-1])


def _check_model_files(path: Path) -> None:
    from tiltyard.policy.check import check_directory

    check_directory(path)


def check_ports(sections: Mapping[str, Any]) -> None:
    """UserError when a port that a service will listen on is taken."""
    engine, services = sections["engine"], sections["supervisor"].services
    if services.get("engine") and engine.port and _taken(engine.host, engine.port):
        raise UserError(
            f"port {engine.host}:{engine.port} of the engine is taken: stop what listens there, or choose another with "
            "--set engine.port=PORT --set 'gateway.engines=[\"http://127.0.0.1:PORT\"]'"
        )
    first = sections["service"].metrics_port
    for port in range(first, first + sum(services.values())) if first else ():
        if _taken("0.0.0.0", port):
            raise UserError(
                f"port {port} is taken, and metrics use {first} and the ports after it, one for each process: "
                "choose others with --set service.metrics_port=PORT"
            )


def _taken(host: str, port: int) -> bool:
    try:
        return port_taken(host, port)
    except OSError as error:
        raise UserError(f"can't listen on {host}:{port}: {error.strerror}; choose another address or port") from error

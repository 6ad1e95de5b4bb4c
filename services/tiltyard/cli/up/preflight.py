"""What must be there before anything starts, each with one line that says how to mend it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import anyio

from tiltyard.cli.errors import UserError
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
    from tiltyard.sandbox.doctor import doctor

    if os.geteuid() != 0:
        raise UserError("sandboxes need root: run with sudo, or put the sandbox service on another machine")
    checks = await doctor(settings)
    for check in checks:
        if not check.ok:
            raise UserError(f"sandbox: {check.name}: {check.detail}; mend: {check.mend}")
    say(f"sandbox checked: {len(checks)} tests pass")


async def check_model(model: str, data: DataSettings, say: Say) -> Path:
    """The model's directory, made if it is a built-in one."""
    from tiltyard.cli.models import prepare

    try:
        path = await anyio.to_thread.run_sync(prepare, model, data.cache_path)
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"model {model!r}: {error}") from error
    say(f"model: {path}")
    return path

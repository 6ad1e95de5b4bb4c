"""Checkpoints: what a restart needs to train each group exactly once, in one directory that is complete or absent.

A checkpoint holds the learner's files, the `Progress` (position in the group stream, account of steps, start time)
and a manifest of sizes and hashes. Invariants: the newest undamaged one is loaded; a damaged one is said and passed
over; the manifest is written last. Left out: copies elsewhere, which the operator's backup makes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from .backend import CheckpointDamaged, Learner
from .files import new_directory, sha256, sweep
from .handler import Progress

MANIFEST = "manifest.json"
PROGRESS = "progress.json"
log = structlog.get_logger()


class Manifest(msgspec.Struct, frozen=True):
    """Name to (size, SHA-256) of every other file."""

    files: dict[str, tuple[int, str]]


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, root: Path, keep: int) -> None:
        self._root = root
        self._keep = keep

    def save(self, progress: Progress, learner: Learner) -> None:
        """Write a checkpoint of this step, unless there is one, and drop the oldest over the number kept."""
        target = self._root / f"step{progress.version:06d}"
        if not target.exists():
            with new_directory(target) as scratch:
                learner.save(scratch)
                (scratch / PROGRESS).write_bytes(msgspec.json.encode(progress))
                _write_manifest(scratch)
        for old in self._all()[self._keep :]:
            shutil.rmtree(old)

    def load(self, learner: Learner, check: Callable[[Progress], None]) -> Progress | None:
        """Restore the newest undamaged checkpoint into `learner`; its progress, or None when there is none.

        `check` may raise ValueError: the checkpoint is whole, but not this run's. Damaged ones are set aside.
        """
        sweep(self._root)
        for path in self._all():
            try:
                verify(path)
                progress = msgspec.json.decode((path / PROGRESS).read_bytes(), type=Progress)
                check(progress)
                learner.load(path)
            except (CheckpointDamaged, msgspec.DecodeError) as error:
                log.error("checkpoint_damaged", path=str(path), error=str(error), action="using the one before")
                path.rename(path.with_name(f"damaged-{path.name}"))
                continue
            return progress
        return None

    def _all(self) -> list[Path]:
        """Newest first."""
        return sorted(self._root.glob("step*"), reverse=True)


def _write_manifest(directory: Path) -> None:
    files = {path.name: (path.stat().st_size, sha256(path)) for path in sorted(directory.iterdir())}
    (directory / MANIFEST).write_bytes(msgspec.json.encode(Manifest(files)))


def verify(directory: Path) -> None:
    """CheckpointDamaged when a file is missing or not what was written."""
    try:
        manifest = msgspec.json.decode((directory / MANIFEST).read_bytes(), type=Manifest)
        for name, (size, digest) in manifest.files.items():
            path = directory / name
            if path.stat().st_size != size:
                raise CheckpointDamaged(f"{name}: {path.stat().st_size} bytes, expected {size}")
            if sha256(path) != digest:
                raise CheckpointDamaged(f"{name}: contents changed")
    except (OSError, msgspec.MsgspecError) as error:
        raise CheckpointDamaged(f"{MANIFEST}: {error}") from error

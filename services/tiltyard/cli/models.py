"""Prepare the model that a run names: a directory, a built-in one, or `tiny`, which is trained here in seconds.

`tiny` recites demonstrations of the function domain, a third of them wrong, so that there is something left to
learn; it is for tests and for trying things out, and proves nothing about language models. The cache also has
it under the name `tiny`, where services that are started one by one find it.
"""

from __future__ import annotations

import fcntl
from pathlib import Path

from tiltyard.policy.models import built_in, ensure_model

TINY = "tiny"
TINY_DEMOS = 3000
TINY_STEPS = 250
TINY_WRONG = 0.3
TINY_DOMAIN = "code.python.functions"


def prepare(name: str, cache: Path) -> Path:
    """The directory of a model, made when it is not there; ValueError, OSError or RuntimeError say why not."""
    if name != TINY:
        return ensure_model(name, cache)
    target = _tiny(cache)
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "tiny.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "model.safetensors").is_file():
            _make(target)
        link = cache / TINY
        if link.resolve() != target.resolve():
            link.unlink(missing_ok=True)
            link.symlink_to(target.name)
    return target


def can_make(name: str) -> bool:
    """Is it a model that `prepare` makes when it is not there?"""
    return name == TINY or built_in(name)


def present(name: str, cache: Path) -> Path | None:
    """The directory of a model that is there; None when it must be made first, or can't be."""
    places = [_tiny(cache)] if name == TINY else [Path(name).expanduser(), cache / name]
    return next((path for path in places if name and (path / "config.json").is_file()), None)


def _tiny(cache: Path) -> Path:
    return cache / f"tiny-{TINY_DEMOS}-{TINY_STEPS}-{int(TINY_WRONG * 100)}"


def _make(target: Path) -> None:
    import torch

    from tiltyard.domains.demos import demos
    from tiltyard.policy.tiny import make_tiny

    scratch = target.with_name(f".{target.name}")
    torch.set_num_threads(1)
    make_tiny(scratch, demos(TINY_DOMAIN, TINY_DEMOS, 0, wrong=TINY_WRONG, split="all"), steps=TINY_STEPS)
    scratch.rename(target)

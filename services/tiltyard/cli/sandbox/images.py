"""`tiltyard sandbox images ls|build|gc`: the root file systems of sandboxes."""

from __future__ import annotations

import re
import sys
import time
from argparse import Namespace
from typing import Any

import msgspec

from tiltyard.cli.errors import UserError
from tiltyard.cli.main import source_of
from tiltyard.kit.settings import section
from tiltyard.sandbox import images, profiles
from tiltyard.sandbox.imagestore import Entry, Store, size_of
from tiltyard.sandbox.imaging.build import build
from tiltyard.sandbox.imaging.errors import BuildFailed
from tiltyard.sandbox.settings import SandboxSettings

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
AGES = {"m": 60.0, "h": 3600.0, "d": 86400.0}


def images_main(arguments: Namespace) -> int:
    """Run one action; 0 when it went well."""
    settings = section(source_of(arguments), "sandbox", SandboxSettings)
    known = profiles.load(images.profile_folders(settings))
    if arguments.what == "build":
        return _build(arguments, settings, known)
    store = Store(images.home_of(settings))
    try:
        if arguments.what == "gc":
            return _collect(arguments, settings, known, store)
        return _list(arguments, known, store)
    except PermissionError as error:
        raise UserError(f"{error.filename}: belongs to another user; run it as root or under sudo") from error


def _build(arguments: Namespace, settings: SandboxSettings, known: dict[str, profiles.Profile]) -> int:
    names = sorted(known) if arguments.all else arguments.names
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise UserError(f"no profile {', '.join(unknown) or 'named'}; there are {', '.join(sorted(known))}")
    for name in names:
        try:
            path = build(known[name], images.home_of(settings), say=_say(name), again=arguments.again)
        except BuildFailed as error:
            raise UserError(f"{name}: {error}") from error
        sys.stdout.write(f"{path}\n")
    return 0


def _say(name: str) -> Any:
    return lambda text: print(f"{name}: {text}", file=sys.stderr)


def _kept(settings: SandboxSettings, known: dict[str, profiles.Profile], store: Store) -> set[str]:
    """Names of the images of today's profiles and of those the settings name."""
    found = (store.found(name, profiles.digest(profile)) for name, profile in known.items())
    named = {path.rsplit("/", 1)[-1] for path in settings.image.values()}
    return {path.name for path in found if path} | named


def _collect(arguments: Namespace, settings: SandboxSettings, known: dict[str, profiles.Profile], store: Store) -> int:
    age, budget = _age(arguments.age), _bytes(arguments.budget) if arguments.budget else None
    gone = store.collect(_kept(settings, known, store), age, budget, dry=arguments.dry_run)
    verb = "would remove" if arguments.dry_run else "removed"
    for entry in gone:
        sys.stdout.write(f"{verb} {entry.path.name} ({_mib(size_of(entry))})\n")
    total = _mib(sum(size_of(entry) for entry in gone))
    sys.stdout.write(f"{verb} {len(gone)} image{'' if len(gone) == 1 else 's'}, {total}\n")
    return 0


def _list(arguments: Namespace, known: dict[str, profiles.Profile], store: Store) -> int:
    entries = store.images()
    if arguments.json:
        sys.stdout.write(msgspec.json.encode([_row(entry) for entry in entries]).decode() + "\n")
        return 0
    there = {entry.path.name for entry in entries}
    for entry in entries:
        ago = (time.time() - entry.used) / 86400
        state = "in use" if entry.busy else f"used {ago:.1f} days ago"
        sys.stdout.write(f"{entry.path.name:32} {_mib(size_of(entry)):>10}  {state}\n")
    for name, profile in sorted(known.items()):
        wanted = f"{name}-{profiles.digest(profile)}"
        if not any(found == wanted or found.startswith(f"{wanted}-") for found in there):
            sys.stdout.write(f"{wanted:32} {'-':>10}  not built: {profile.description}\n")
    return 0


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.path.name,
        "path": str(entry.path),
        "size_bytes": size_of(entry),
        "used": entry.used,
        "busy": entry.busy,
        "meta": entry.meta,
    }


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"


def _age(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([mhd])", text)
    if not found:
        raise UserError(f"--age {text!r}: expected a number with m, h or d, for example 7d")
    return float(found[1]) * AGES[found[2]]


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMGT]?)", text)
    if not found:
        raise UserError(f"--budget {text!r}: expected a number with K, M, G or T, for example 10G")
    return int(found[1]) * UNITS[found[2]]

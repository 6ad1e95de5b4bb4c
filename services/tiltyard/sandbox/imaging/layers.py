"""Layers of an OCI image, applied one after another to a directory that nobody else writes to.

Invariants: nothing is written, linked or removed outside of the directory, whatever the layer says: names are looked
up as they would be inside it; devices, pipes, names with '..' and hard links to what is not a regular file inside are
refused; counts and bytes have caps. Left out: extended attributes, which a sandbox does not need.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from pathlib import Path
from typing import IO

from .errors import BuildFailed
from .inside import resolve

MAX_ENTRIES = 1_000_000
MAX_BYTES = 32 << 30
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"


class Tree:
    """A root file system that layers are applied to."""

    def __init__(self, root: Path, max_bytes: int = MAX_BYTES, max_entries: int = MAX_ENTRIES) -> None:
        self.root = root
        self.bytes_left, self.entries_left = max_bytes, max_entries
        self._owner = os.geteuid() == 0
        root.mkdir(mode=0o755, parents=True, exist_ok=True)

    def apply(self, layer: IO[bytes]) -> None:
        """Apply one layer, an uncompressed tar; BuildFailed for one that is broken or not to be trusted."""
        made: set[Path] = set()
        try:
            with tarfile.open(fileobj=layer, mode="r|") as archive:
                for member in archive:
                    self._apply(archive, member, made)
        except (tarfile.TarError, EOFError) as error:
            raise BuildFailed(f"a layer of the image is broken: {error}") from error

    def _apply(self, archive: tarfile.TarFile, member: tarfile.TarInfo, made: set[Path]) -> None:
        self.entries_left -= 1
        self.bytes_left -= max(0, member.size)
        if self.entries_left < 0 or self.bytes_left < 0:
            raise BuildFailed("the image is over the limit of files or bytes for an image")
        parts = [part for part in member.name.split("/") if part not in ("", ".")]
        if ".." in parts or "\0" in member.name:
            raise BuildFailed(f"the image holds {member.name[:200]!r}, which leads outside of it")
        if not parts:
            return
        parent = self._parent(parts[:-1])
        if parts[-1] == OPAQUE:
            for child in list(parent.iterdir()):
                _clear(child, made)
        elif parts[-1].startswith(WHITEOUT):
            name = parts[-1].removeprefix(WHITEOUT)
            if name in ("", ".", ".."):
                raise BuildFailed(f"the image holds {member.name[:200]!r}, which leads outside of it")
            _remove(parent / name)
        else:
            place = parent / parts[-1]
            self._make(archive, member, place)
            made.update((place, *(p for p in place.parents if p != self.root and p.is_relative_to(self.root))))

    def _parent(self, parts: list[str]) -> Path:
        """The directory of an entry, made where it is missing."""
        here = self.root
        for part in parts:
            here = resolve(self.root, f"{here.relative_to(self.root)}/{part}")
            if not here.is_dir():
                _remove(here)
                here.mkdir(mode=0o755, parents=True)
        return here

    def _make(self, archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
        if member.isdir():
            if place.is_symlink() or not place.is_dir():
                _remove(place)
                place.mkdir()
        elif member.issym():
            _remove(place)
            place.symlink_to(member.linkname)
        elif member.islnk():
            self._link(member, place)
            return
        elif member.isreg():
            _remove(place)
            source = archive.extractfile(member)
            assert source is not None
            with place.open("xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        else:
            raise BuildFailed(f"the image holds {member.name[:200]!r}, which is no file, directory or link")
        if self._owner:
            os.chown(place, member.uid, member.gid, follow_symlinks=False)
        if not member.issym():
            os.chmod(place, stat.S_IMODE(member.mode) & 0o1777)

    def _link(self, member: tarfile.TarInfo, place: Path) -> None:
        if ".." in member.linkname.split("/"):
            raise BuildFailed(f"the image holds {member.name[:200]!r}, a link that leads outside of it")
        target = resolve(self.root, member.linkname, follow=False)
        if target.is_symlink() or not target.is_file():
            raise BuildFailed(f"the image holds {member.name[:200]!r}, a hard link to what is no file of it")
        if target != place:
            _remove(place)
            os.link(target, place, follow_symlinks=False)


def _clear(path: Path, made: set[Path]) -> None:
    """Remove what a lower layer left; what this layer has made stays."""
    if path not in made:
        _remove(path)
    elif path.is_dir() and not path.is_symlink():
        for child in list(path.iterdir()):
            _clear(child, made)


def _remove(path: Path) -> None:
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)

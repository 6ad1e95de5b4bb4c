"""Workspace archives: tar made and read on the host from entries that the guest names.

Invariants: the same content gives the same bytes (sorted, no times, no owners), so that identical workspaces share a
blob and identical grading jobs share a result; unpacking refuses devices, absolute names, `..` and links that leave the
workspace. Left out: hard links (kept as copies), times, owners, extended attributes.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections.abc import Iterable

from .backend import ArchiveRefused, check_path

Entry = tuple[str, int, bytes, bytes]
"""Kind ('d' directory, 'f' file, 'l' link), mode, path, data (a link's target)."""
_KINDS = {"d": tarfile.DIRTYPE, "f": tarfile.REGTYPE, "l": tarfile.SYMTYPE}


def stays_inside(path: bytes, target: bytes) -> bool:
    """Does a link at `path` (relative) to `target` lead to somewhere in the workspace?"""
    if target.startswith(b"/") or b"\0" in target or not target:
        return False
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return joined != b".." and not joined.startswith(b"../")


def pack(entries: Iterable[Entry]) -> bytes:
    """A tar of the entries; links that lead outside are left out."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar:
        for kind, mode, path, data in sorted(entries, key=lambda entry: entry[2]):
            if kind == "l" and not stays_inside(path, data):
                continue
            info = tarfile.TarInfo(path.decode("utf-8", "surrogateescape"))
            info.type, info.mode = _KINDS[kind], mode & 0o777
            if kind == "l":
                info.linkname = data.decode("utf-8", "surrogateescape")
            info.size = len(data) if kind == "f" else 0
            tar.addfile(info, io.BytesIO(data) if kind == "f" else None)
    return buffer.getvalue()


def unpack(archive: bytes, max_bytes: int, max_entries: int) -> list[Entry]:
    """The entries of a tar, directories first and links last; ArchiveRefused for what may not be unpacked."""
    entries: list[Entry] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:", errors="surrogateescape") as tar:
            for info in tar:
                if info.name in (".", "./") and info.isdir():
                    continue
                if len(entries) >= max_entries:
                    raise ArchiveRefused(f"archive: more than {max_entries} entries")
                max_bytes -= info.size
                if max_bytes < 0 or info.size < 0:
                    raise ArchiveRefused("archive: too large")
                entries.append(_entry(tar, info))
    except (tarfile.TarError, ValueError, OverflowError, EOFError, MemoryError) as error:
        raise ArchiveRefused(str(error) if isinstance(error, ArchiveRefused) else f"archive: {error}") from error
    _check_names(entries)
    return sorted(entries, key=lambda entry: ("dfl".index(entry[0]), entry[2]))


def _check_names(entries: list[Entry]) -> None:
    """ArchiveRefused where two entries have one name, or one lies below another that is no directory."""
    kinds: dict[bytes, str] = {}
    for kind, _, path, _ in entries:
        if path in kinds:
            raise ArchiveRefused(f"archive: {path!r} is there twice")
        kinds[path] = kind
    for path in kinds:
        above = posixpath.dirname(path)
        while above:
            if kinds.get(above, "d") != "d":
                raise ArchiveRefused(f"archive: {path!r} lies below {above!r}, which is no directory")
            above = posixpath.dirname(above)


def contents(archive: bytes, paths: Iterable[str] | None, limit: int, caps: tuple[int, int]) -> dict[str, bytes]:
    """Regular files of an archive by path, all or those of `paths`, as many as fit `limit` bytes. Links are left out.

    `caps`: most bytes and entries; ArchiveRefused over them.
    """
    wanted = None if paths is None else {check_path(path) for path in paths}
    found: dict[str, bytes] = {}
    for kind, _, path, data in unpack(archive, *caps):
        if kind == "f" and (wanted is None or path in wanted) and len(data) <= limit:
            limit -= len(data)
            found[path.decode("utf-8", "surrogateescape")] = data
    return found


def _entry(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Entry:
    try:
        path = check_path(info.name)
    except ValueError as error:
        raise ArchiveRefused(str(error)) from error
    if info.isdir():
        return ("d", info.mode & 0o777, path, b"")
    if info.isreg():
        file = tar.extractfile(info)
        assert file is not None
        return ("f", info.mode & 0o777, path, file.read())
    target = info.linkname.encode("utf-8", "surrogateescape")
    if info.issym() and stays_inside(path, target):
        return ("l", 0o777, path, target)
    raise ArchiveRefused(f"archive: {info.name!r} is neither a file, a directory, nor a link that stays inside")

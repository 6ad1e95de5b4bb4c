"""The blob store: content-addressed files in a directory.

Invariants: a blob is written to a temporary name and renamed, so it is whole or absent; its name is its SHA-256, so
writing twice is a no-op; a reader verifies size and hash, and no reference reaches outside `root`. A reference is
published only after the blob is written. A blob that is put again is made young, so that `sweep` spares what may yet
be referred to. What is made takes the rights of `root`: where that is open to a group, services of several users (the
sandbox is root, the others are not) read and replace one another's blobs.
Left out: other stores (any fsspec URI would fit behind the same calls), and what is still referred to (`janitor`).
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Collection
from pathlib import Path

from tiltyard_proto.messages import BlobRef

_DIGEST = re.compile("[0-9a-f]{64}")


class BlobMissing(LookupError):
    """The blob is absent or is not what the reference says."""


class BlobStore:
    """Blobs under `root`, sharded by the first two hex digits."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _path(self, sha256: str) -> Path:
        return self.root / sha256[:2] / sha256

    def put(self, data: bytes) -> BlobRef:
        """Store `data`; the reference to publish."""
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest)
        if not _touch(path):
            rights = self._shard(path.parent)
            temporary = path.parent / f".put-{secrets.token_hex(8)}"
            try:
                with temporary.open("xb") as file:
                    os.fchmod(file.fileno(), rights & 0o666)
                    file.write(data)
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
        return BlobRef(uri=f"sha256:{digest}", size=len(data), sha256=digest)

    def _shard(self, path: Path) -> int:
        """See that a directory of blobs is there, with the rights of `root` from its first moment on; these rights."""
        self.root.mkdir(parents=True, exist_ok=True)
        rights = stat.S_IMODE(self.root.stat().st_mode)
        if not path.is_dir():
            new = self.root / f".shard-{secrets.token_hex(8)}"
            new.mkdir()
            new.chmod(rights)
            try:
                new.rename(path)
            except OSError:  # another was faster, and has put something in
                new.rmdir()
        return rights

    def get(self, ref: BlobRef) -> bytes:
        """The bytes behind `ref`; BlobMissing when absent, truncated or altered."""
        if not _DIGEST.fullmatch(ref.sha256):  # a reference is as trustworthy as who wrote the message
            raise BlobMissing(f"{ref.uri}: {ref.sha256[:80]!r} is no SHA-256")
        try:
            data = self._path(ref.sha256).read_bytes()
        except OSError as error:
            raise BlobMissing(f"{ref.uri}: {error.strerror} in {self.root}") from error
        if len(data) != ref.size or hashlib.sha256(data).hexdigest() != ref.sha256:
            raise BlobMissing(f"{ref.uri}: {len(data)} bytes do not match the reference")
        return data

    def peek(self, sha256: str) -> bytes | None:
        """The bytes stored under a hash, unchecked; None when there are none."""
        try:
            return self._path(sha256).read_bytes()
        except FileNotFoundError:
            return None

    def sweep(self, keep: Collection[str], older_than: float) -> tuple[int, int, int]:
        """Remove blobs that are not to be kept and were written or touched before `older_than`.

        Returns how many were removed, their bytes, and how many stay. Left-overs of broken writes go the same way.
        """
        removed = freed = kept = 0
        for path in self.root.glob("??/*"):
            try:
                if path.name in keep or path.stat().st_mtime >= older_than:
                    kept += 1
                    continue
                size = path.stat().st_size
                path.unlink()
            except FileNotFoundError:  # another janitor was faster
                continue
            removed, freed = removed + 1, freed + size
        return removed, freed, kept


def _touch(path: Path) -> bool:
    """Make an existing blob young again, so that no janitor takes it; False when it isn't there or must be replaced."""
    try:
        os.utime(path)
    except (FileNotFoundError, PermissionError):  # another user's, who did not share it
        return False
    return True

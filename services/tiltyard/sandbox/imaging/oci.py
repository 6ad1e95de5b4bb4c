"""Images in an OCI layout (a directory or an archive of one) or in an archive of `docker save`.

Invariants: every blob is compared with its digest before anything that depends on it is believed, a layer both as it
is stored and unpacked; the image taken is the one for this machine's processor. Left out: registries (`sources`).
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import platform
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from .errors import BuildFailed
from .layers import Tree

MAX_JSON = 8 << 20
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """An image that was unpacked."""

    digest: str
    """Of its manifest: 'sha256:...'."""
    environment: dict[str, str] = {}
    """Variables that it sets for its commands."""


class Files(Protocol):
    """The files of a layout, by name."""

    def open(self, name: str) -> IO[bytes]:
        """KeyError when there is none."""
        ...


class Folder:
    """The files of a directory; links are not followed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, name: str) -> IO[bytes]:
        path = self.path / name
        if path.is_symlink() or not path.is_file():
            raise KeyError(name)
        return path.open("rb")

    def close(self) -> None:
        """Nothing is open between calls."""


class Archive:
    """The files of a tar."""

    def __init__(self, path: Path) -> None:
        self.tar = tarfile.open(path)  # noqa: SIM115  (open while the image is unpacked)
        self.members = {
            member.name.removeprefix("./"): member for member in self.tar if member.isreg() or member.issym()
        }

    def close(self) -> None:
        self.tar.close()

    def open(self, name: str) -> IO[bytes]:
        member = self.members[name]
        if member.issym():  # old archives of `docker save` name a layer that they have already by a link
            where = [part for part in f"{name.rpartition('/')[0]}/{member.linkname}".split("/") if part]
            while ".." in where:
                del where[max(0, where.index("..") - 1) : where.index("..") + 1]
            member = self.members["/".join(where)]
        found = self.tar.extractfile(member) if member.isreg() else None
        if found is None:
            raise KeyError(name)
        return found


def unpack(path: Path, root: Path) -> Taken:
    """Unpack the image at `path` to `root`; BuildFailed says what is wrong with it."""
    try:
        with contextlib.closing(Folder(path) if path.is_dir() else Archive(path)) as files:
            try:
                files.open("index.json").close()
            except KeyError:
                return _unpack_saved(files, root)
            return _unpack_layout(files, root)
    except KeyError as error:
        raise BuildFailed(
            f"{path}: {error.args[0]} is missing; is this an OCI layout or made by `docker save`?"
        ) from error
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise BuildFailed(f"{path}: broken: {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise BuildFailed(f"{path}: not a well-formed image: {error}") from error


def _unpack_layout(files: Files, root: Path) -> Taken:
    found = _manifest(files, json.loads(_small(files, "index.json")), 4)
    digest, manifest = found
    config = json.loads(_blob(files, manifest["config"]["digest"]))
    wanted = config["rootfs"]["diff_ids"]
    layers = manifest["layers"]
    if len(wanted) != len(layers):
        raise BuildFailed(f"the manifest {digest} has {len(layers)} layers and its configuration {len(wanted)}")
    tree = Tree(root)
    for layer, diff in zip(layers, wanted, strict=True):
        with files.open(_name(layer["digest"])) as stored:
            _apply(tree, stored, layer["digest"], diff)
    return Taken(digest=digest, environment=_environment(config))


def _manifest(files: Files, index: Mapping[str, Any], depth: int) -> tuple[str, Mapping[str, Any]]:
    """Digest and content of the manifest for this machine."""
    here = ARCHITECTURES.get(platform.machine(), platform.machine())
    seen = []
    for item in index["manifests"] if depth else ():
        kind = item.get("platform") or {}
        if kind.get("os", "linux") != "linux" or kind.get("architecture", here) != here:
            seen.append(f"{kind.get('os')}/{kind.get('architecture')}")
            continue
        document = json.loads(_blob(files, item["digest"]))
        if item.get("mediaType") in INDEXES or "manifests" in document:
            return _manifest(files, document, depth - 1)
        return item["digest"], document
    raise BuildFailed(f"the image is not for linux/{here}; it is for {', '.join(seen) or 'nothing'}")


def _unpack_saved(files: Files, root: Path) -> Taken:
    """An archive of an older `docker save`, which has no manifest; its configuration's digest stands in."""
    images = json.loads(_small(files, "manifest.json"))
    if len(images) != 1:
        raise BuildFailed(f"the archive holds {len(images)} images; save one alone")
    raw = _small(files, images[0]["Config"])
    config = json.loads(raw)
    tree = Tree(root)
    for name, diff in zip(images[0]["Layers"], config["rootfs"]["diff_ids"], strict=True):
        with files.open(name) as stored:
            _apply(tree, stored, None, diff)
    return Taken(digest=f"sha256:{hashlib.sha256(raw).hexdigest()}", environment=_environment(config))


def _apply(tree: Tree, stored: IO[bytes], digest: str | None, diff: str) -> None:
    outer = _Hashed(stored)
    inner = _Hashed(_opened(io.BufferedReader(outer)))
    tree.apply(io.BufferedReader(inner))
    for stream, wanted in ((inner, diff), (outer, digest)):
        while stream.read(1 << 20):
            pass
        if wanted is not None and stream.digest() != wanted:
            raise BuildFailed(f"a layer should have the digest {wanted} and has {stream.digest()}; get the image again")


class _Hashed(io.RawIOBase):
    """A stream that knows the digest of what was read."""

    def __init__(self, source: IO[bytes] | io.BufferedIOBase) -> None:
        self.source = source
        self.hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.source.read(len(buffer))
        buffer[: len(data)] = data
        self.hash.update(data)
        return len(data)

    def digest(self) -> str:
        return f"sha256:{self.hash.hexdigest()}"


def _opened(stored: io.BufferedReader) -> io.BufferedIOBase:
    """The uncompressed layer, by what its first bytes say."""
    start = stored.peek(4)[:4]
    if start[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=stored)
    if start == b"\x28\xb5\x2f\xfd":
        try:
            import zstandard
        except ImportError as error:
            raise BuildFailed("the image is compressed with zstd; pip install 'tiltyard[sandbox]'") from error
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(stored, read_across_frames=True))
    return stored


def _small(files: Files, name: str) -> bytes:
    with files.open(name) as file:
        data = file.read(MAX_JSON + 1)
    if len(data) > MAX_JSON:
        raise BuildFailed(f"{name} of the image is larger than {MAX_JSON} bytes")
    return data


def _blob(files: Files, digest: str) -> bytes:
    data = _small(files, _name(digest))
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise BuildFailed(f"{digest} of the image does not have this digest; get the image again")
    return data


def _name(digest: str) -> str:
    kind, _, value = digest.partition(":")
    if kind != "sha256" or len(value) != 64 or set(value) - set("0123456789abcdef"):
        raise BuildFailed(f"the image names a blob {digest[:100]!r}; only sha256 is known")
    return f"blobs/sha256/{value}"


def _environment(config: Mapping[str, Any]) -> dict[str, str]:
    pairs = (item.partition("=") for item in (config.get("config") or {}).get("Env") or ())
    return {name: value for name, _, value in pairs if name}

"""Small OCI images made by hand, for tests of the reader."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import zstandard

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "+gzip": gzip.compress,
    "+zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}
Item = tuple[str, bytes | str | None, str]
"""Name, content (a link's target; None for a directory), kind: 'file', 'dir', 'link', 'hard', 'device', 'pipe'."""
KINDS = {
    "file": tarfile.REGTYPE,
    "dir": tarfile.DIRTYPE,
    "link": tarfile.SYMTYPE,
    "hard": tarfile.LNKTYPE,
    "device": tarfile.CHRTYPE,
    "pipe": tarfile.FIFOTYPE,
}


def layer(items: Sequence[Item], mode: int = 0o755) -> bytes:
    """A layer as an uncompressed tar."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content, kind in items:
            member = tarfile.TarInfo(name)
            member.type, member.mode = KINDS[kind], mode
            if isinstance(content, str):
                member.linkname = content
                content = None
            member.size = len(content or b"")
            archive.addfile(member, io.BytesIO(content or b""))
    return made.getvalue()


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Layout:
    """An OCI layout directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "blobs/sha256").mkdir(parents=True)
        (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def blob(self, data: bytes, kind: str) -> dict[str, Any]:
        """Store a blob; its descriptor."""
        digest = digest_of(data)
        (self.path / "blobs/sha256" / digest.split(":")[1]).write_bytes(data)
        return {"mediaType": kind, "digest": digest, "size": len(data)}

    def image(self, layers: Sequence[bytes], packing: str = "+gzip", environment: Sequence[str] = ()) -> dict[str, Any]:
        """Store an image; its descriptor."""
        config = {
            "architecture": ARCHITECTURE,
            "os": "linux",
            "config": {"Env": list(environment)},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(data) for data in layers]},
        }
        kind = f"application/vnd.oci.image.layer.v1.tar{packing}"
        manifest = {
            "schemaVersion": 2,
            "config": self.blob(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
            "layers": [self.blob(PACK[packing](data), kind) for data in layers],
        }
        return self.blob(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")

    def index(self, *descriptors: dict[str, Any]) -> None:
        """Write the layout's index."""
        (self.path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": list(descriptors)}))


def saved(path: Path, layers: Sequence[bytes]) -> Path:
    """An archive as older releases of `docker save` write it."""
    config = {"config": {}, "rootfs": {"diff_ids": [digest_of(data) for data in layers]}}
    names = [f"layer{index}/layer.tar" for index in range(len(layers))]
    files = {"config.json": json.dumps(config).encode(), **dict(zip(names, layers, strict=True))}
    files["manifest.json"] = json.dumps([{"Config": "config.json", "Layers": names}]).encode()
    path.write_bytes(layer([(name, data, "file") for name, data in files.items()]))
    return path

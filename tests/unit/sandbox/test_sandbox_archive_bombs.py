"""Archives that are small and claim to be large, or whose headers lie (case 23)."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from tiltyard.sandbox.archive import unpack
from tiltyard.sandbox.backend import ArchiveRefused


def tar_of(name: str = "a", body: bytes = b"", kind: bytes = tarfile.REGTYPE, **headers: str) -> bytes:
    """One member with pax headers of its own."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo(name)
        info.size, info.type = len(body), kind
        info.pax_headers = {key.replace("__", "."): value for key, value in headers.items()}
        tar.addfile(info, io.BytesIO(body))
    return buffer.getvalue()


def with_size(data: bytes, size: bytes) -> bytes:
    """The archive with another size in its first header, and a checksum that fits."""
    header = bytearray(data[:512])
    header[124:136] = size.ljust(12, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data[512:]


SPARSE = {"GNU__sparse__major": "1", "GNU__sparse__minor": "0", "GNU__sparse__name": "a"}
PLAIN = tar_of(body=b"x" * 10)
BOMBS = {
    "gzip": gzip.compress(tar_of(body=bytes(1 << 22))),
    "claims more than there is": with_size(PLAIN, b"77777777777"),
    "claims 2 ** 60": with_size(PLAIN, b"\x80\0\0\0\x10" + bytes(7)),
    "claims a negative size": with_size(PLAIN, b"\xff" * 12),
    "sparse with a size": tar_of(
        body=b"1\n0\n1\n".ljust(512, b"\0") + b"x", GNU__sparse__realsize=str(4 << 30), **SPARSE
    ),
    "sparse without a map": tar_of(body=b"junk", GNU__sparse__realsize="9", **SPARSE),
    "pax size": tar_of(body=b"x", size=str(4 << 30)),
    "pax size below zero": tar_of(body=b"x", size="-4096"),
    "a path that is none": tar_of(path="../a"),
    "a path with a NUL": tar_of(path="a\0b"),
    "a very long path": tar_of(name="d/" * 2000 + "a"),
    "a long file name": tar_of(name="n" * 300),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(name: str) -> None:
    """They are refused within the caps, never unpacked and never an error of another kind."""
    assert len(BOMBS[name]) < 50_000
    with pytest.raises(ArchiveRefused):
        unpack(BOMBS[name], 1 << 20, 100)

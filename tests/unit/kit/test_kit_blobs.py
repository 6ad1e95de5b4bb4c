"""The blob store: whole or absent."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiltyard.kit.blobs import BlobMissing, BlobStore
from tiltyard_proto.messages import BlobRef


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


def files(store: BlobStore) -> list[Path]:
    return [path for path in store.root.rglob("*") if path.is_file()]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300))
def test_what_is_put_comes_back(store: BlobStore, data: bytes) -> None:
    """Any bytes come back, referred to by their hash and size."""
    ref = store.put(data)
    assert store.get(ref) == data
    assert (ref.size, ref.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert ref.uri == f"sha256:{ref.sha256}"


def test_the_same_twice_is_one_file(store: BlobStore) -> None:
    """Content has one name, so a second put changes nothing."""
    assert store.put(b"x") == store.put(b"x")
    assert len(files(store)) == 1


@pytest.mark.parametrize("damaged", [b"", b"conten", b"contenT", b"content and more"])
def test_a_damaged_blob_is_missing(store: BlobStore, damaged: bytes) -> None:
    """Truncated, altered or longer bytes are never handed out."""
    ref = store.put(b"content")
    files(store)[0].write_bytes(damaged)
    with pytest.raises(BlobMissing, match="do not match"):
        store.get(ref)


def test_a_blob_that_is_not_there(store: BlobStore) -> None:
    """An absent blob, and a reference of another size, are BlobMissing."""
    ref = store.put(b"content")
    with pytest.raises(BlobMissing, match="do not match"):
        store.get(msgspec.structs.replace(ref, size=6))
    files(store)[0].unlink()
    with pytest.raises(BlobMissing, match="No such file"):
        store.get(ref)


def test_many_writers_of_one_blob(store: BlobStore) -> None:
    """Concurrent puts of the same content all succeed, and nothing temporary is left."""
    data = b"y" * 200_000
    with ThreadPoolExecutor(8) as pool:
        refs = list(pool.map(store.put, [data] * 24))
    assert len(set(refs)) == 1
    assert store.get(refs[0]) == data
    assert len(files(store)) == 1


def test_a_write_that_fails_leaves_nothing(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full leaves neither a blob nor a temporary file."""

    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tiltyard.kit.blobs.os.replace", full)
    with pytest.raises(OSError, match="No space"):
        store.put(b"content")
    assert files(store) == []


@pytest.mark.parametrize(("rights", "folder", "blob"), [(0o755, 0o755, 0o644), (0o2775, 0o2775, 0o664)])
def test_blobs_have_the_rights_of_their_store(store: BlobStore, rights: int, folder: int, blob: int) -> None:
    """Where the store is open to a group, so are its directories and blobs, whatever the process's umask is."""
    store.root.mkdir()
    store.root.chmod(rights)
    before = os.umask(0o077)
    try:
        store.put(b"content")
    finally:
        os.umask(before)
    (made,) = files(store)
    assert (stat.S_IMODE(made.parent.stat().st_mode), stat.S_IMODE(made.stat().st_mode)) == (folder, blob)
    assert [path for path in store.root.iterdir() if path.name.startswith(".")] == []


@pytest.fixture
def shared() -> Iterator[BlobStore]:
    """A store below directories that everybody may pass; pytest's own are root's alone."""
    with tempfile.TemporaryDirectory(prefix="tiltyard-blobs-", dir="/var/tmp") as place:
        os.chmod(place, 0o755)
        yield BlobStore(Path(place) / "blobs")


def test_users_of_a_shared_store_put_the_same_and_more(shared: BlobStore) -> None:
    """A service that is root without its powers and one that is not write into the same directories, in any order."""
    store = shared
    store.root.mkdir()
    os.chown(store.root, 10001, 10001)
    store.root.chmod(0o2775)
    script = "import sys; from pathlib import Path; from tiltyard.kit.blobs import BlobStore\n"
    script += "store = BlobStore(Path(sys.argv[1])); [store.put(bytes([n])) for n in range(int(sys.argv[2]), 256)]"
    for user, first in ((0, 128), (10001, 0), (0, 0), (10001, 128)):
        command = ["setpriv", "--reuid", str(user), "--regid", "10001", "--clear-groups", "--bounding-set", "-all"]
        command += ["--inh-caps", "-all", "--", sys.executable, "-c", script, str(store.root), str(first)]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(path for path in sys.path if path)}
        subprocess.run(command, env=environment, check=True, timeout=30)
    assert len(files(store)) == 256


@pytest.mark.parametrize("digest", ["../../secret", "/dev/zero", "", "0" * 63, "0" * 64 + "\n", "A" * 64])
def test_a_reference_reaches_nothing_outside(store: BlobStore, digest: str) -> None:
    """A reference is what somebody sent: a path in place of the hash is refused before any file is opened."""
    (store.root.parent / "secret").write_bytes(b"secret")
    with pytest.raises(BlobMissing, match="is no SHA-256"):
        store.get(BlobRef(uri="x", size=6, sha256=digest))

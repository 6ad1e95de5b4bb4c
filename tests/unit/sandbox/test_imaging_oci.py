"""OCI images: what is unpacked, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.oci import PACK, Item, Layout, digest_of, layer, saved

from tiltyard.sandbox.imaging import oci, sources
from tiltyard.sandbox.imaging.errors import BuildFailed
from tiltyard.sandbox.imaging.inside import resolve

LOWER: list[Item] = [
    ("usr/lib/", None, "dir"),
    ("lib", "usr/lib", "link"),
    ("etc/old", b"old", "file"),
    ("etc/kept", b"kept", "file"),
    ("var/x/one", b"1", "file"),
    ("var/x/two", b"2", "file"),
]
UPPER: list[Item] = [
    ("lib/new.so", b"so", "file"),
    ("etc/.wh.old", b"", "file"),
    ("var/x/three", b"3", "file"),
    ("var/x/.wh..wh..opq", b"", "file"),
    ("bin/tool", b"tool", "file"),
    ("bin/same", "bin/tool", "hard"),
    ("etc/away", "../../../../etc/passwd", "link"),
]


@pytest.mark.parametrize("packing", list(PACK))
def test_layers_are_applied_in_order(tmp_path: Path, packing: str) -> None:
    """Later layers add, replace and remove (whiteouts, opaque directories), through links as the image sees them."""
    layout = Layout(tmp_path / "image")
    descriptor = layout.image([layer(LOWER), layer(UPPER)], packing, ["PATH=/opt/bin", "A=b=c"])
    layout.index(descriptor)
    taken = oci.unpack(layout.path, tmp_path / "root")
    root = tmp_path / "root"
    files = sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir() or path.is_symlink())
    assert files == ["bin/same", "bin/tool", "etc/away", "etc/kept", "lib", "usr/lib/new.so", "var/x/three"]
    assert os.path.samefile(root / "bin/same", root / "bin/tool")
    assert taken == oci.Taken(digest=descriptor["digest"], environment={"PATH": "/opt/bin", "A": "b=c"})


def test_archives_are_read_like_directories(tmp_path: Path) -> None:
    """A tar of a layout and an archive of an older `docker save` give the same files."""
    layout = Layout(tmp_path / "image")
    layout.index(layout.image([layer(LOWER)]))
    names = [path for path in layout.path.rglob("*") if path.is_file()]
    items: list[Item] = [(str(path.relative_to(layout.path)), path.read_bytes(), "file") for path in names]
    (tmp_path / "layout.tar").write_bytes(layer(items))
    saved(tmp_path / "saved.tar", [layer(LOWER)])
    for name in ("layout", "saved"):
        oci.unpack(tmp_path / f"{name}.tar", tmp_path / name)
        assert (tmp_path / name / "etc/kept").read_bytes() == b"kept"


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([("../out", b"x", "file")], "outside"),
        ([("a/../../out", b"x", "file")], "outside"),
        ([("a/.wh...", b"", "file")], "outside"),
        ([("a/.wh..", b"", "file")], "outside"),
        ([("a", "../../../etc/hostname", "hard")], "outside"),
        ([("a", "none", "hard")], "hard link"),
        ([("b", "/etc/hostname", "link"), ("a", "b", "hard")], "hard link"),
        ([("dev/sda", None, "device")], "no file, directory or link"),
        ([("run/pipe", None, "pipe")], "no file, directory or link"),
        ([("a", "b", "link"), ("b", "a", "link"), ("a/c", b"x", "file")], "circle"),
    ],
)
def test_hostile_layers_are_refused(tmp_path: Path, items: list[Item], reason: str) -> None:
    """Names that lead out, hard links to what is not there, devices, pipes and circles end the build, with the name."""
    layout = Layout(tmp_path / "image")
    layout.index(layout.image([layer(items)]))
    with pytest.raises(BuildFailed, match=reason):
        oci.unpack(layout.path, tmp_path / "deep/root")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "deep/out").exists()


def test_links_are_followed_inside_only(tmp_path: Path) -> None:
    """Writing through an absolute or climbing link of the image lands inside of it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    items: list[Item] = [
        ("a", str(outside), "link"),
        ("a/x", b"x", "file"),
        ("b", "../../..", "link"),
        ("b/y", b"y", "file"),
    ]
    layout = Layout(tmp_path / "image")
    layout.index(layout.image([layer(items)]))
    root = tmp_path / "root"
    oci.unpack(layout.path, root)
    assert list(outside.iterdir()) == []
    assert (root / str(outside).lstrip("/") / "x").read_bytes() == b"x"
    assert (root / "y").read_bytes() == b"y"
    assert resolve(root, "/b/y") == root / "y"


def test_setuid_is_taken_away(tmp_path: Path) -> None:
    """Nothing of an image is setuid or setgid on the host."""
    layout = Layout(tmp_path / "image")
    layout.index(layout.image([layer([("bin/su", b"su", "file")], mode=0o6755)]))
    oci.unpack(layout.path, tmp_path / "root")
    assert (tmp_path / "root/bin/su").stat().st_mode & 0o7777 == 0o755


def test_digests_are_verified(tmp_path: Path) -> None:
    """A layer or a document that is not what its digest says is refused, stored or unpacked."""
    good, bad = layer(LOWER), layer(UPPER)
    layout = Layout(tmp_path / "image")
    descriptor = layout.image([good], "")
    layout.index(descriptor)
    place = layout.path / "blobs/sha256"
    (place / digest_of(good).split(":")[1]).write_bytes(bad)
    with pytest.raises(BuildFailed, match=digest_of(good)):
        oci.unpack(layout.path, tmp_path / "one")
    (place / descriptor["digest"].split(":")[1]).write_bytes(b"{}")
    with pytest.raises(BuildFailed, match="does not have this digest"):
        oci.unpack(layout.path, tmp_path / "two")


def test_the_image_for_this_machine_is_taken(tmp_path: Path) -> None:
    """Of an index for several machines ours is taken; without ours the message says which there are."""
    layout = Layout(tmp_path / "image")
    ours = layout.image([layer([("ours", b"", "file")])])
    theirs = {**layout.image([layer([("theirs", b"", "file")])]), "platform": {"os": "linux", "architecture": "s390x"}}
    layout.index(theirs, ours)
    oci.unpack(layout.path, tmp_path / "root")
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["ours"]
    layout.index(theirs)
    with pytest.raises(BuildFailed, match="linux/s390x"):
        oci.unpack(layout.path, tmp_path / "none")


@pytest.mark.parametrize("text", [b"", b"[]", b'{"manifests": 3}', b'{"manifests": [{"digest": "../../x"}]}'])
def test_malformed_images_are_refused(tmp_path: Path, text: bytes) -> None:
    """An index that is not one, or names a blob by a path, is an error with the image's name, not a crash."""
    layout = Layout(tmp_path / "image")
    (layout.path / "index.json").write_bytes(text)
    with pytest.raises(BuildFailed):
        oci.unpack(layout.path, tmp_path / "root")


def tool(folder: Path, name: str, script: str) -> None:
    """A program on the PATH that stands in for one that needs a registry."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_registries_are_left_to_their_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference is fetched by skopeo; what that says when it fails is passed on; without any tool we say so."""
    layout = Layout(tmp_path / "image")
    layout.index(layout.image([layer(LOWER)]))
    bin_ = tmp_path / "bin"
    script = f'''[ "$3" = docker://example.org/a:1 ] || {{ echo "no such image" >&2; exit 1; }}
to=${{4#oci:}}; /bin/cp -r {layout.path} "${{to%:image}}"'''
    tool(bin_, "skopeo", script)
    monkeypatch.setenv("PATH", str(bin_))
    sources.take("example.org/a:1", tmp_path / "root", tmp_path / "w")
    assert (tmp_path / "root/etc/kept").exists()
    with pytest.raises(BuildFailed, match="skopeo: no such image"):
        sources.take("example.org/b:1", tmp_path / "root2", tmp_path / "w2")
    (bin_ / "skopeo").unlink()
    with pytest.raises(BuildFailed, match="docker save"):
        sources.take("example.org/a:1", tmp_path / "root3", tmp_path / "w3")


def test_dockerfiles_are_left_to_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with a Dockerfile is built by docker and taken from what `docker save` writes."""
    archive = saved(tmp_path / "saved.tar", [layer(LOWER)])
    (tmp_path / "context").mkdir()
    (tmp_path / "context/Dockerfile").write_text("FROM scratch\n")
    bin_ = tmp_path / "bin"
    tool(bin_, "docker", f'echo "$1" >> {tmp_path}/calls; [ "$1" != save ] || /bin/cp {archive} "$3"')
    monkeypatch.setenv("PATH", str(bin_))
    sources.take(str(tmp_path / "context"), tmp_path / "root", tmp_path / "w/x")
    assert (tmp_path / "root/etc/kept").exists()
    assert (tmp_path / "calls").read_text().split() == ["build", "save", "image"]
    with pytest.raises(BuildFailed, match="no such file"):
        sources.take("./nothing", tmp_path / "root2", tmp_path / "w2")

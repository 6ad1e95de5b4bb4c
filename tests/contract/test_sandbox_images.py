"""An image from an OCI layout, with Python requirements, built for real and run in gVisor."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path

import anyio
import pytest
from support.oci import Layout

from tiltyard.sandbox import images, profiles
from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.imagestore import Store
from tiltyard.sandbox.imaging.build import build
from tiltyard.sandbox.imaging.errors import BuildFailed
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command

pytestmark = pytest.mark.anyio
LEFT_OUT = ("test", "tests", "idlelib", "lib2to3", "tkinter", "turtledemo", "ensurepip", "pydoc_data", "distutils")
PROFILE = """
name = "mine"
description = "made by hand"
environment = {{ COLOUR = "green" }}
[image]
oci = "{layout}"
python = ["tinything==1.0"]
probes = [["python3", "-c", "import tinything, json; assert tinything.VALUE == 42"]]
"""
SHOW = "import os, sys, tinything\nprint(tinything.VALUE, sys.prefix, os.environ['SHADE'], os.environ['COLOUR'])"
WHEEL = {
    "tinything.py": "VALUE = 42\n",
    "tinything-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tinything\nVersion: 1.0\n",
    "tinything-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "tinything-1.0.dist-info/RECORD": "",
}


def python_layer(image: Path, path: Path) -> bytes:
    """The Python of a Debian image as a layer that has it under /usr/local, as images of Python have."""

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if any(part in LEFT_OUT for part in member.name.split("/")) else member

    with tarfile.open(path, "w", dereference=True) as archive:
        add_program(archive, image, "/usr/bin/python3.11", "usr/local/bin/python3")
        archive.add(image / "usr/lib/python3.11", "usr/local/lib/python3.11", filter=kept)
        add_program(archive, image, "/usr/bin/dash", "bin/sh")
    return path.read_bytes()


def add_program(archive: tarfile.TarFile, image: Path, program: str, name: str) -> None:
    """Add a program of an image and the libraries it needs."""
    listed = subprocess.run(["chroot", str(image), "ldd", program], capture_output=True, text=True, check=True)
    archive.add(image / program.lstrip("/"), name)
    for library in (word for word in listed.stdout.split() if word.startswith("/")):
        archive.add((image / library.lstrip("/")).resolve(), library.lstrip("/"))


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """An OCI layout with a Python in it."""
    folder = tmp_path_factory.mktemp("oci")
    made = Layout(folder / "layout")
    data = python_layer(images.find_image(SandboxSettings(), "python"), folder / "layer.tar")
    made.index(made.image([data], "", ["PATH=/usr/local/bin:/usr/bin:/bin", "SHADE=dark"]))
    return made


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place that pip may look in."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tinything-1.0-py3-none-any.whl", "w") as archive:
        for name, text in WHEEL.items():
            archive.writestr(name, text)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.mark.timeout(180)
async def test_an_oci_image_becomes_a_sandbox(layout: Layout, wheels: Path, tmp_path: Path) -> None:
    """Built with its requirements, found by its recipe, run in gVisor with its variables; no trace of the build."""
    folder, home = tmp_path / "profiles", tmp_path / "home"
    folder.mkdir()
    (folder / "mine.toml").write_text(PROFILE.format(layout=layout.path))
    profile = profiles.load([folder])["mine"]
    image = await anyio.to_thread.run_sync(build, profile, home)
    assert image.name.startswith(f"mine-{profiles.digest(profile)}-")
    meta = Store(home).meta(image)
    assert meta is not None
    assert meta.source.startswith("sha256:")
    assert not list(image.rglob("pip"))
    assert not (image / "etc/resolv.conf").exists()
    settings = SandboxSettings(home=str(home), profiles=str(folder), runsc=images.find_runsc(SandboxSettings()))
    assert images.find_image(settings, "mine") == image
    assert Store(home).collect((), -1.0) == [], "an image in use is not collected"
    backend = GVisorBackend.open(settings)
    try:
        sandbox = await backend.start(Want(profile="mine"))
        found = await sandbox.run(Command(argv=("python3", "-c", SHOW)))
        assert found.stdout == b"42 /usr/local dark green\n", found.stderr
        found = await sandbox.run(Command(argv=("sh", "-c", "cd /tmp && echo $SHADE")))
        assert found.stdout == b"dark\n"
    finally:
        await backend.close()


@pytest.mark.timeout(180)
async def test_an_image_without_python_is_lent_one(tmp_path: Path) -> None:
    """The agent works in an image that has a shell and nothing else; commands there find no Python."""
    found = images.find_image(SandboxSettings(), "python")
    folder, home, layout = tmp_path / "profiles", tmp_path / "home", Layout(tmp_path / "layout")
    with tarfile.open(tmp_path / "layer.tar", "w", dereference=True) as archive:
        add_program(archive, found, "/usr/bin/dash", "bin/sh")
    layout.index(layout.image([(tmp_path / "layer.tar").read_bytes()]))
    folder.mkdir()
    text = f'name = "bare"\ndescription = "a shell"\n[image]\noci = "{layout.path}"\nprobes = [["sh", "-c", "true"]]\n'
    (folder / "bare.toml").write_text(text)
    profile = profiles.load([folder])["bare"]
    with pytest.raises(BuildFailed, match="build the profile 'python' first"):
        await anyio.to_thread.run_sync(build, profile, home)
    (home / "images" / found.name).symlink_to(found)
    await anyio.to_thread.run_sync(build, profile, home)
    settings = SandboxSettings(home=str(home), profiles=str(folder), runsc=images.find_runsc(SandboxSettings()))
    backend = GVisorBackend.open(settings)
    try:
        sandbox = await backend.start(Want(profile="bare"))
        command = Command(argv=("sh", "-c", "echo $0 > a; read line < a; echo $line"), files={"b": b"data"})
        assert (await sandbox.run(command)).stdout == b"sh\n"
        assert await sandbox.listing() == {"a": b"sh\n", "b": b"data"}
        missing = await sandbox.run(Command(argv=("python3", "b")))
        assert (missing.exit_code, missing.stderr) == (127, b"python3: No such file or directory\n")
        assert await sandbox.export() != b""
    finally:
        await backend.close()


@pytest.mark.timeout(180)
def test_a_requirement_that_is_not_there_is_named(layout: Layout, wheels: Path, tmp_path: Path) -> None:
    """A requirement that pip can't get ends the build with pip's reason, and a probe that fails with its output."""
    text = PROFILE.format(layout=layout.path)
    for change, said in (
        (("tinything==1.0", "nonesuch"), "pip: No matching distribution found for nonesuch"),
        (("== 42", "== 41"), "probe 'python3 -c import tinything"),
    ):
        with pytest.raises(BuildFailed, match=said):
            build(profiles.parse(text.replace(*change).encode(), "mine.toml"), tmp_path)
        assert [path for path in (tmp_path / "images").iterdir() if path.suffix != ".lock"] == []

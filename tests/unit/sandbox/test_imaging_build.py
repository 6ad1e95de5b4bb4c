"""Building images: whole or not at all, and what is said when it fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.oci import Layout, layer

from tiltyard.cli.main import main
from tiltyard.sandbox import profiles
from tiltyard.sandbox.imagestore import Meta, Store
from tiltyard.sandbox.imaging import debian
from tiltyard.sandbox.imaging.build import build
from tiltyard.sandbox.imaging.errors import BuildFailed

TEXT = 'name = "mine"\ndescription = "my own"\n[image]\n'
MIRROR = "http://deb.example.org/debian"


def recipe(text: str) -> profiles.Profile:
    return profiles.parse((TEXT + text).encode(), "mine.toml")


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("E: Unable to locate package nonesuch\nE: mmdebstrap failed to run", "no package nonesuch in Debian bookworm"),
        ("E: Couldn't find these debs: foo bar", "no package foo bar"),
        ("E: Package 'libx' has no installation candidate", "package libx can't be installed"),
        (
            f"Err: x\nE: Failed to fetch {MIRROR}/dists/bookworm/InRelease  Could not resolve 'deb.example.org'\n",
            "InRelease can't be fetched (Could not resolve 'deb.example.org'); name a reachable mirror with",
        ),
        (
            f"Get:1 {MIRROR} x InRelease\nE: The repository '{MIRROR} x Release' does not have a Release file.\n",
            "has no suite 'bookworm'",
        ),
        ("I: hello\nE: Something odd\n", "Something odd; name a reachable mirror"),
        ("", "it said nothing"),
    ],
)
def test_a_failed_bootstrap_is_explained(output: str, said: str) -> None:
    """The message names the package or the address, and how to mend it."""
    assert said in debian.explain(output, "bookworm", MIRROR)


def test_a_failed_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bootstrap that fails half-way leaves no image and no debris, and its reason is told."""
    tool = tmp_path / "bin/mmdebstrap"
    tool.parent.mkdir()
    tool.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/called\nfor last; do root=$before; before=$last; done\n'
        'mkdir -p "$root/usr"\necho "E: Unable to locate package nonesuch"\nexit 25\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("IMAGE_MIRROR", MIRROR)
    with pytest.raises(BuildFailed, match="no package nonesuch"):
        build(recipe('packages = ["nonesuch"]\n'), tmp_path / "home")
    called = (tmp_path / "called").read_text().split()
    assert "--include=python3,nonesuch" in called
    assert called[-3] == "bookworm"
    assert called[-1] == MIRROR
    assert [path for path in (tmp_path / "home/images").iterdir() if path.suffix != ".lock"] == []


def test_an_image_without_python_is_refused(tmp_path: Path) -> None:
    """The agent needs a Python; where there is none to lend, an image without one is refused before it is used."""
    layout = Layout(tmp_path / "layout")
    layout.index(layout.image([layer([("bin/sh", b"", "file")])]))
    with pytest.raises(BuildFailed, match="has no Python 3"):
        build(recipe(f'oci = "{layout.path}"\n'), tmp_path / "home")
    assert [path for path in (tmp_path / "home/images").iterdir() if path.suffix != ".lock"] == []


def test_what_is_there_is_not_built_again(tmp_path: Path) -> None:
    """A second call finds the image by its recipe and does nothing."""
    profile = recipe('packages = ["jq"]\n')
    store = Store(tmp_path)
    path = store.path / f"mine-{profiles.digest(profile)}"
    path.mkdir(parents=True)
    assert build(profile, tmp_path) == path


def test_the_command_lists_and_collects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`images ls` shows what is there and what is missing; `gc` removes what no profile names; mistakes end with 2."""
    store = Store(tmp_path)
    (store.path / "old-123").mkdir(parents=True)
    store.note(Meta(name="old-123", profile="old", recipe="{}", size_bytes=5 << 20, built=0.0))
    home = ["--set", f"sandbox.home={tmp_path}"]
    assert main(["sandbox", "images", "ls", *home]) == 0
    listed = capsys.readouterr().out
    assert "old-123" in listed
    assert "5 MiB" in listed
    assert "not built: gcc" in listed
    assert main(["sandbox", "images", "gc", "--budget", "1M", "--dry-run", *home]) == 0
    assert "would remove old-123 (5 MiB)" in capsys.readouterr().out
    assert main(["sandbox", "images", "gc", "--budget", "1M", *home]) == 0
    assert not (store.path / "old-123").exists()
    for mistake in (["gc", "--age", "soon"], ["gc", "--budget", "much"], ["build", "nonesuch"], ["build"]):
        assert main(["sandbox", "images", *mistake, *home]) == 2
    assert "there are c, geometry, node, python, reasoning, shell" in capsys.readouterr().err

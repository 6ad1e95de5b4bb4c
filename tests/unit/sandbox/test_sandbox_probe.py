"""What a runsc can do is read from its help texts, kept by the hash of the binary, and never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiltyard.sandbox import probe
from tiltyard.sandbox.backend import StartFailed

TOP = """flags:
  -directfs
    \tdirectly access the container filesystems from the sentry. (default true)
  -net-raw runsc exec
    \tenable raw sockets.
  -overlay2 value
    \twrap mounts. 'medium' can be 'memory', 'self' or 'dir=/abs/dir/path'. (default root:self)
  -platform string
    \tspecifies which platform to use: systrap (default), ptrace. (default "systrap")
  -platform_device_path string
    \te.g. /dev/kvm for KVM platform
"""
CHECKPOINT = "checkpoint [flags] <id>\n  -compression value\n    \tnone|flate\n  -image-path string\n    \tdirectory\n"
RESTORE = "restore [flags] <id>\n  --background\n    \tallow image loading to continue\n  --detach\n    \tdetach\n"


def test_flags_are_read_from_help() -> None:
    """Flags in either style, the platforms that are named, and the mediums of an overlay."""
    able = probe.parse("d", TOP, CHECKPOINT, RESTORE)
    assert able.flags == {"directfs", "net-raw", "overlay2", "platform", "platform_device_path"}
    assert able.platforms == {"systrap", "ptrace"}
    assert able.given("--net-raw=false", "--ignore-cgroups", "--overlay2=none") == [
        "--net-raw=false",
        "--overlay2=none",
    ]
    assert (able.uncompressed, able.background, able.directfs, able.overlay_dir) == (True, True, True, True)


def test_no_help_means_nothing_optional() -> None:
    """A runsc that says nothing is used without anything optional."""
    able = probe.parse("d", "", "panic: not today", "")
    assert able == probe.Capabilities(digest="d")
    assert (able.uncompressed, able.background, able.directfs, able.given("--net-raw=false")) == (
        False,
        False,
        False,
        [],
    )


def fake(path: Path, text: str, counter: Path) -> str:
    """A runsc that prints `text` for any help and counts its calls."""
    path.write_text(f"#!/bin/sh\necho . >> {counter}\ncat <<'END'\n{text}END\n")
    path.chmod(0o755)
    return str(path)


def test_a_binary_is_asked_once(tmp_path: Path) -> None:
    """The answers are kept by the hash of the binary: asked once, and again when it is another or the file is bad."""
    calls = tmp_path / "calls"
    runsc = fake(tmp_path / "runsc", TOP, calls)
    first = probe.capabilities(runsc, tmp_path / "home")
    assert first.platforms == {"systrap", "ptrace"}
    asked = len(calls.read_text())
    assert probe.capabilities(runsc, tmp_path / "home") == first
    assert len(calls.read_text()) == asked
    (kept,) = (tmp_path / "home/probes").iterdir()
    kept.write_bytes(b"{")
    assert probe.capabilities(runsc, tmp_path / "home") == first
    assert len(calls.read_text()) == 2 * asked
    fake(tmp_path / "runsc", TOP.replace("ptrace", "kvm"), calls)
    assert probe.capabilities(runsc, tmp_path / "home").platforms == {"systrap", "kvm"}


def test_a_verdict_holds_for_its_platform_and_image(tmp_path: Path) -> None:
    """A verdict is found again only for the same binary, platform and image."""
    found = probe.Verdict(accepted=True, snapshots=True)
    probe.keep_verdict(tmp_path, "d" * 64, "systrap", Path("/image"), found)
    assert probe.verdict(tmp_path, "d" * 64, "systrap", Path("/image")) == found
    assert probe.verdict(tmp_path, "d" * 64, "ptrace", Path("/image")) is None
    assert probe.verdict(tmp_path, "d" * 64, "systrap", Path("/other")) is None
    assert probe.verdict(tmp_path, "e" * 64, "systrap", Path("/image")) is None


def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    """A runsc that is missing or no program fails the start with its path."""
    with pytest.raises(StartFailed, match=r"none: No such file"):
        probe.capabilities(str(tmp_path / "none"), tmp_path)
    (tmp_path / "text").write_text("no program")
    with pytest.raises(StartFailed, match=r"text: .*runsc\.sh"):
        probe.capabilities(str(tmp_path / "text"), tmp_path)


def test_a_home_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    """Without a place to keep answers they are still given."""
    runsc = fake(tmp_path / "runsc", TOP, tmp_path / "calls")
    (tmp_path / "home").write_text("a file")
    assert probe.capabilities(runsc, tmp_path / "home").directfs

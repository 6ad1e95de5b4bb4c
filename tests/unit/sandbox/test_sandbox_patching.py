"""Unified diffs are applied exactly or not at all."""

from __future__ import annotations

import difflib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.sandbox.backend import PatchRefused
from tiltyard.sandbox.patching import apply, parse

OLD = b"one\ntwo\nthree\nfour\nfive\nsix\nseven\n"
DIFF = b"--- a/f\n+++ b/f\n@@ -1,4 +1,4 @@\n one\n-two\n+TWO\n three\n four\n@@ -6,2 +6,3 @@\n six\n seven\n+eight\n"
LINES = st.lists(
    st.sampled_from([b"a\n", b"b\n", b"c\r\n", b"\n", b"-x\n", b"+x\n", b"@@ -1 +1 @@\n", b"\xff\n"]), max_size=12
)


def diff_of(old: bytes, new: bytes, folder: Path) -> bytes:
    """What `diff -u` says."""
    for name, content in (("old", old), ("new", new)):
        (folder / name).write_bytes(content)
    command = ["diff", "-u", "--label", "a/f", "--label", "b/f", "old", "new"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).stdout


def test_a_diff_is_applied() -> None:
    """Several hunks change exactly their lines."""
    (one,) = parse(DIFF)
    assert one.path == "f"
    assert apply(one, OLD) == b"one\nTWO\nthree\nfour\nfive\nsix\nseven\neight\n"


@given(LINES, LINES, st.integers(0, 3))
def test_any_diff_leads_from_old_to_new(old: list[bytes], new: list[bytes], context: int) -> None:
    """Whatever the lines and the context, the diff of two files turns one into the other, and only that one."""
    diff = b"".join(difflib.diff_bytes(difflib.unified_diff, old, new, b"a/f", b"b/f", lineterm=b"\n", n=context))
    if old == new:
        assert diff == b""
        return
    (one,) = parse(diff)
    assert apply(one, b"".join(old)) == b"".join(new)


@settings(max_examples=30)
@given(st.text("ab\n", max_size=12), st.text("ab\n", max_size=12))
def test_missing_newlines_are_kept(tmp_path_factory: pytest.TempPathFactory, old: str, new: str) -> None:
    """Files that end without a newline, before or after, come out as `diff -u` meant them."""
    diff = diff_of(old.encode(), new.encode(), tmp_path_factory.mktemp("diff"))
    if old != new:
        assert apply(parse(diff)[0], old.encode()) == new.encode()


def test_files_are_made_and_deleted() -> None:
    """/dev/null as a side makes or deletes a file."""
    made, gone = parse(
        b"diff --git a/d/new b/d/new\nnew file mode 100644\nindex 0000000..d00491f\n--- /dev/null\n+++ b/d/new\n"
        b"@@ -0,0 +1 @@\n+1\n--- a/old\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-1\n-2\n"
    )
    assert (made.path, apply(made, None)) == ("d/new", b"1\n")
    assert (gone.path, apply(gone, b"1\n2\n")) == ("old", None)
    for patch, content in ((made, b""), (gone, None), (gone, b"1\n2\n3\n"), (gone, b"1\n")):
        with pytest.raises(PatchRefused, match=r"is there already|is not there|does not fit|would not be empty"):
            apply(patch, content)


@pytest.mark.parametrize(
    "content", [b"", OLD.replace(b"two", b"2"), b"zero\n" + OLD, OLD[4:], OLD.replace(b"\n", b"\r\n"), OLD[:-1], None]
)
def test_what_does_not_fit_is_refused(content: bytes | None) -> None:
    """Nothing is searched for, shifted or ignored."""
    with pytest.raises(PatchRefused, match=r"patch: (line 3: |line 9: |'f' is not there)"):
        apply(parse(DIFF)[0], content)


@pytest.mark.parametrize(
    ("diff", "why"),
    [
        (b"", "no file in it"),
        (b"hello\n", "line 1: expected '--- file'"),
        (b"--- a/f\n", r"line 2: expected '\+\+\+ file'"),
        (b"--- a/f\n+++ b/f\n", "line 3: expected '@@"),
        (b"--- a/f\n+++ b/f\n@@ junk\n", "line 3: expected '@@"),
        (b"--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n x\n", "line 5: the hunk has fewer lines"),
        (b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n+z\n", "line 6: expected '--- file'"),
        (b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n?x\n", "line 4: expected ' ', '-'"),
        (b"--- a/f\n+++ b/g\n@@ -1 +1 @@\n-x\n+y\n", "renames"),
        (b"--- a/../f\n+++ b/../f\n@@ -1 +1 @@\n-x\n+y\n", "line 1: workspace path"),
        (b"--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-x\n+y\n", "line 1: workspace path"),
        (b"--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-x\n+y\n", "both names"),
        (b"rename from a\nrename to b\n", "line 1: renames, modes"),
        (b"old mode 100644\nnew mode 100755\n", "line 1: renames, modes"),
        (DIFF + DIFF, "named twice"),
    ],
)
def test_what_can_not_be_read_is_refused(diff: bytes, why: str) -> None:
    """The message names the line and what was expected."""
    with pytest.raises(PatchRefused, match=why):
        parse(diff)


@given(st.binary(max_size=200), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(junk: bytes, content: bytes) -> None:
    """No bytes make it fail in another way."""
    for diff in (junk, DIFF[: len(junk)] + junk, b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n" + junk):
        try:
            for one in parse(diff):
                apply(one, content)
        except PatchRefused:
            continue

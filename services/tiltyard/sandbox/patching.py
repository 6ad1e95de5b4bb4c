"""Unified diffs, applied strictly: every hunk must fit the file at its very line, or the patch is refused.

Invariants: pure; nothing is searched for, shifted or ignored; a file is named once; what is applied is exactly what
the diff says, including a missing newline at the end. Left out: renames, modes and binary patches (refused), and
files that are no text are patched as lines of bytes like any other.
"""

from __future__ import annotations

import re

import msgspec

from .backend import PatchRefused, check_path

MAX_BYTES = 4 << 20
_HUNK = re.compile(rb"^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_GIT = (b"diff --git ", b"index ", b"new file mode ", b"deleted file mode ")
_REFUSED = (b"rename ", b"copy ", b"old mode ", b"new mode ", b"similarity ", b"GIT binary patch", b"Binary files ")
_NO_NEWLINE = b"\\ No newline at end of file"


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """Lines to find from line `start` (1 is the first) on, and what takes their place; newlines included."""

    line: int
    """Where it is in the diff."""
    start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]


class FilePatch(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to one file."""

    path: str
    creates: bool
    deletes: bool
    hunks: tuple[Hunk, ...]


def parse(diff: bytes) -> list[FilePatch]:
    """The files of a diff; PatchRefused, with the line, for what can't be read."""
    if len(diff) > MAX_BYTES:
        raise PatchRefused(f"patch: {len(diff)} bytes, at most {MAX_BYTES} are read")
    found = _Parser(diff).files()
    if not found:
        raise PatchRefused("patch: there is no file in it; expected lines '--- a/file', '+++ b/file', '@@ ...'")
    paths = [check_path(one.path) for one in found]
    if len(set(paths)) < len(paths):
        raise PatchRefused("patch: a file is named twice")
    return found


def apply(patch: FilePatch, old: bytes | None) -> bytes | None:
    """The file after the patch, None when it is deleted. `old` None: there is no file. PatchRefused unless it fits."""
    if (old is None) != patch.creates:
        raise PatchRefused(f"patch: {patch.path!r} {'is there already' if patch.creates else 'is not there'}")
    lines = _lines(old or b"")
    result: list[bytes] = []
    at = 0
    for hunk in patch.hunks:
        start = hunk.start - 1 if hunk.old else hunk.start
        if start < at or tuple(lines[start : start + len(hunk.old)]) != hunk.old:
            raise PatchRefused(f"patch: line {hunk.line}: the hunk does not fit {patch.path!r} at line {hunk.start}")
        result += lines[at:start]
        result += hunk.new
        at = start + len(hunk.old)
    result += lines[at:]
    if not all(line.endswith(b"\n") for line in result[:-1]):
        raise PatchRefused(f"patch: {patch.path!r} would have a line without its end in its middle")
    if patch.deletes:
        if result:
            raise PatchRefused(f"patch: {patch.path!r} would not be empty when it is deleted")
        return None
    return b"".join(result)


def _lines(data: bytes) -> list[bytes]:
    """Lines with their newline, at newlines only."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


class _Parser:
    def __init__(self, diff: bytes) -> None:
        self.lines = diff.split(b"\n")
        if self.lines[-1] == b"":
            self.lines.pop()
        self.at = 0

    def _refuse(self, why: str) -> PatchRefused:
        return PatchRefused(f"patch: line {self.at + 1}: {why}")

    def _peek(self) -> bytes | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def files(self) -> list[FilePatch]:
        found = []
        while (line := self._peek()) is not None:
            if line.startswith(b"--- "):
                found.append(self._file())
            elif line.startswith(_REFUSED):
                raise self._refuse("renames, modes and binary files can't be patched")
            elif line.startswith(_GIT) or not line.strip():
                self.at += 1
            else:
                raise self._refuse(f"expected '--- file', got {line[:40]!r}")
        return found

    def _file(self) -> FilePatch:
        old = self._name(b"--- ")
        new = self._name(b"+++ ")
        hunks: list[Hunk] = []
        while (line := self._peek()) is not None and line.startswith(b"@@"):
            hunks.append(self._hunk(line))
        if not hunks:
            raise self._refuse("expected '@@ -line,count +line,count @@'")
        if old is None and new is None:
            raise self._refuse("both names are /dev/null")
        if old is not None and new is not None and old != new:
            raise self._refuse(f"{old!r} and {new!r}: renames can't be patched")
        path = new if new is not None else old
        assert path is not None
        return FilePatch(path=path, creates=old is None, deletes=new is None, hunks=tuple(hunks))

    def _name(self, mark: bytes) -> str | None:
        line = self._peek()
        if line is None or not line.startswith(mark):
            raise self._refuse(f"expected '{mark.decode()}file'")
        name = line[len(mark) :].split(b"\t")[0].rstrip(b"\r")
        if name == b"/dev/null":
            self.at += 1
            return None
        if name.startswith((b"a/", b"b/")):
            name = name[2:]
        try:
            check_path(name.decode("utf-8", "surrogateescape"))
        except ValueError as error:
            raise self._refuse(str(error)) from error
        self.at += 1
        return name.decode("utf-8", "surrogateescape")

    def _hunk(self, header: bytes) -> Hunk:
        match = _HUNK.match(header)
        if match is None:
            raise self._refuse("expected '@@ -line,count +line,count @@'")
        start, old_count, _, new_count = (int(group) if group is not None else 1 for group in match.groups())
        line, old, new = self.at + 1, list[bytes](), list[bytes]()
        self.at += 1
        while len(old) < old_count or len(new) < new_count or self._peek() == _NO_NEWLINE:
            self._line(old, new)
        if (len(old), len(new)) != (old_count, new_count):
            raise self._refuse("the hunk has more lines than its header says")
        return Hunk(line=line, start=start, old=tuple(old), new=tuple(new))

    def _line(self, old: list[bytes], new: list[bytes]) -> None:
        line = self._peek()
        if line is None:
            raise self._refuse("the hunk has fewer lines than its header says")
        mark, rest = line[:1] or b" ", line[1:] + b"\n"
        if line == _NO_NEWLINE:
            before = self.lines[self.at - 1][:1]
            for side, marks in ((old, b" -"), (new, b" +")):
                if before in marks and side:
                    side[-1] = side[-1].removesuffix(b"\n")
        elif mark == b" ":
            old.append(rest)
            new.append(rest)
        elif mark == b"-":
            old.append(rest)
        elif mark == b"+":
            new.append(rest)
        else:
            raise self._refuse(f"expected ' ', '-' or '+', got {line[:40]!r}")
        self.at += 1

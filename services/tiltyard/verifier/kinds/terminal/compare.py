"""One check against what was found.

Invariants: never raises on what a sandbox returned; what isn't there, or can't be read, doesn't hold.
"""

from __future__ import annotations

import math
import re
from typing import Any

from tiltyard.verifier import limits
from tiltyard.verifier.kinds.base import BrokenTask
from tiltyard.verifier.kinds.files.kind import normal

from .data import Check

_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?\Z", re.ASCII)
_PARSED = ("json", "yaml", "toml", "ini", "csv", "nginx")


def problem(check: Check, found: Any) -> str:
    """Why a check doesn't hold; '' when it does."""
    if not isinstance(found, dict):
        return f"{_name(check)}: nothing was found out"
    return {
        "file": _file,
        "absent": lambda _, one: "" if one.get("kind") == "none" else f"{check.path} is still there",
        "mode": _mode,
        "link": _link,
        "folder": _folder,
        "archive": _archive,
        "git": _said,
        "run": _said,
    }[check.check](check, found)


def _name(check: Check) -> str:
    return " ".join(check.args)[:60] if check.check in ("git", "run") else check.path


def _file(check: Check, found: dict[str, Any]) -> str:
    if found.get("kind") != "file":
        return f"{check.path} is {_what(found)}, right is a file"
    if check.text is None:
        return ""
    got = found.get("text")
    if not isinstance(got, str):
        return f"{check.path} is too long or can't be read"
    return differs(check, got.encode("latin-1", "replace"))


def _what(found: dict[str, Any]) -> str:
    return {"none": "missing", "link": "a link", "folder": "a directory"}.get(str(found.get("kind")), "something else")


def _mode(check: Check, found: dict[str, Any]) -> str:
    mode, want = found.get("mode"), int(check.text or "0", 8)
    if found.get("kind") not in ("file", "folder") or not isinstance(mode, int):
        return f"{check.path} is {_what(found)}"
    return "" if mode & 0o777 == want & 0o777 else f"{check.path} has mode {mode & 0o777:03o}, right is {want:03o}"


def _link(check: Check, found: dict[str, Any]) -> str:
    if found.get("kind") != "link":
        return f"{check.path} is no link"
    target = str(found.get("target"))
    right = check.text is None or target.removeprefix("./").rstrip("/") == check.text.removeprefix("./").rstrip("/")
    return "" if right else f"{check.path} leads to {target[:80]!r}, right is {check.text!r}"


def _folder(check: Check, found: dict[str, Any]) -> str:
    if found.get("kind") != "folder":
        return f"{check.path} is no directory"
    if check.names is not None and found.get("names") != sorted(check.names):
        return f"{check.path} holds {str(found.get('names'))[:100]}, right is {sorted(check.names)}"
    return ""


def _archive(check: Check, found: dict[str, Any]) -> str:
    members = found.get("members")
    if not isinstance(members, dict):
        return f"{check.path} can't be read as an archive: {str(found.get('unreadable', ''))[:80]}"
    if set(members) != set(check.members) or found.get("count") != len(members):
        return f"{check.path} holds {sorted(map(str, members))[:8]}, right is {sorted(check.members)[:8]}"
    for name, text in check.members.items():
        if normal(str(members[name]).encode("latin-1", "replace"), "lines") != normal(text.encode(), "lines"):
            return f"{check.path}: {name} has other content"
    return ""


def _said(check: Check, found: dict[str, Any]) -> str:
    status, stdout = found.get("status"), found.get("stdout")
    if status != check.status or not isinstance(stdout, str):
        return f"{_name(check)} ended with status {status}, right is {check.status}"
    return "" if check.text is None else differs(check, stdout.encode("utf-8", "replace"))


def differs(check: Check, got: bytes) -> str:
    """Why a text isn't the wanted one."""
    assert check.text is not None
    want = check.text.encode()
    if check.compare in _PARSED:
        right = _parsed(check, got.decode("utf-8", "replace"))
    elif check.compare == "number":
        right = number(got.decode("utf-8", "replace")) == number(check.text) is not None
    elif check.compare == "set":
        right = sorted(normal(got, "lines")) == sorted(normal(want, "lines"))
    else:
        right = normal(got, check.compare) == normal(want, check.compare)
    return "" if right else f"{_name(check)} gives {got[:80]!r}, right is {want[:80]!r}"


def _parsed(check: Check, got: str) -> bool:
    found = limits.call(
        "tiltyard.verifier.kinds.terminal.formats:same", {"format": check.compare, "wanted": check.text, "got": got}
    )
    if found == "wanted":
        raise BrokenTask(f"check of {check.path}: `text` can't be read as {check.compare}")
    return not found


def number(text: str) -> float | None:
    """A plain decimal number; None for anything else: nothing, null and NaN are no number."""
    text = text.strip()
    value = float(text) if _NUMBER.match(text) else math.nan
    return None if math.isnan(value) else value

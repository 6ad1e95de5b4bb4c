"""Runs inside a fresh sandbox, as another user than the session's, on a copy of its workspace: looks, and says.

`guest` puts `guest_values` and the runner of `program_runs` (for `run`) in front of this file, and the call of `main`
behind it. Expected state never comes here; comparing is the verifier's. `probes` on standard input is a list of
literals; each is answered by a line {"call": index, "value": ...} on standard output, at once, so that what a later one
starts can't take it back. Git is asked in a repository of ours that borrows the objects, so that no configuration,
hook or replacement of the session's applies.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tiltyard.verifier.kinds.program_runs.runner import run

MAX_FILE = 65536
MAX_HASHED = 64 << 20
MAX_NAMES = 2000
MAX_MEMBERS = 200
RUN_S = 4.0


def look(path: str, with_text: bool) -> "dict[str, Any]":
    """What lies at a path, never following a link at its end."""
    import stat

    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {"kind": "none"}
    found: dict[str, Any] = {"kind": "other", "mode": status.st_mode & 0o7777}
    if stat.S_ISLNK(status.st_mode):
        return {**found, "kind": "link", "target": os.readlink(path)}
    if stat.S_ISDIR(status.st_mode):
        return {**found, "kind": "folder", "names": sorted(os.listdir(path))[:MAX_NAMES]}
    if stat.S_ISREG(status.st_mode):
        return {**found, "kind": "file", **content(path, with_text)}
    return found


def readable(path: str) -> None:
    """Let us read a file whose mode forbids it; it is a copy, and ours."""
    if not os.stat(path).st_mode & 0o400:
        os.chmod(path, 0o600)


def content(path: str, with_text: bool) -> "dict[str, Any]":
    """A file's digest, and its bytes as Latin-1 where they are wanted and few."""
    from hashlib import sha256

    try:
        readable(path)
        with open(path, "rb") as file:
            data = file.read(MAX_HASHED)
    except OSError as error:
        return {"unreadable": str(error)}
    found: dict[str, Any] = {"sha256": sha256(data).hexdigest(), "size": len(data)}
    if with_text and len(data) <= MAX_FILE:
        found["text"] = data.decode("latin-1")
    return found


def archive(path: str) -> "dict[str, Any]":
    """Regular files in a tar or zip by name, within caps."""
    import tarfile
    import zipfile

    try:
        readable(path)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as bundle:
                names = [one.filename for one in bundle.infolist() if not one.is_dir()]
                return members(names, lambda name: bundle.open(name))
        with tarfile.open(path) as tar:
            names = [one.name for one in tar if one.isfile()]
            return members(names, lambda name: tar.extractfile(name))
    except Exception as error:  # a hostile archive makes its reader raise anything
        return {"unreadable": f"{type(error).__name__}: {error}"[:200]}


def members(names: "list[str]", opened: "Callable[[str], Any]") -> "dict[str, Any]":
    """Name to text."""
    found = {}
    for name in names[: MAX_MEMBERS + 1]:
        with opened(name) as file:
            found[name.removeprefix("./")] = file.read(MAX_FILE).decode("latin-1")
    return {"members": found, "count": len(names)}


def git(path: str, args: "list[str]", number: int) -> "dict[str, Any]":
    """What git says about the repository at `path`."""
    theirs, ours = os.path.join(path, ".git"), f"/tmp/clean{number}"
    if not os.path.isdir(os.path.join(theirs, "objects")):
        theirs = path  # a bare one
    env = ["env", "-i", "PATH=" + os.environ.get("PATH", "/usr/bin:/bin"), "HOME=/tmp", "GIT_CONFIG_NOSYSTEM=1"]
    env += ["GIT_CONFIG_GLOBAL=/dev/null", "GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C.UTF-8"]
    status, shown = run([*env, "git", "init", "-q", "--bare", ours], b"", RUN_S, f"/tmp/i{number}", errors=True)
    if status:
        return {"status": status, "stdout": shown}
    with open(os.path.join(ours, "objects/info/alternates"), "w") as file:
        file.write(os.path.realpath(os.path.join(theirs, "objects")) + "\n")
    copy_refs(theirs, ours)
    command = [*env, "git", "-c", "core.bare=false", "--git-dir", ours, "--work-tree", path, *args]
    status, shown = run(command, b"", RUN_S, f"/tmp/g{number}")
    return {"status": status, "stdout": shown}


def copy_refs(theirs: str, ours: str) -> None:
    """Branches, tags, the head and the index; nothing that is configuration."""
    names = ["HEAD", "packed-refs", "index"]
    for folder, _, files in os.walk(os.path.join(theirs, "refs")):
        names += [os.path.relpath(os.path.join(folder, name), theirs) for name in files]
    for name in names[:MAX_NAMES]:
        source, target = os.path.join(theirs, name), os.path.join(ours, name)
        if os.path.isfile(source) and not os.path.islink(source) and not name.startswith("refs/replace"):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(source, "rb") as given, open(target, "wb") as taken:
                taken.write(given.read(MAX_HASHED))


def program(path: str, args: "list[str]", stdin: bytes, number: int) -> "dict[str, Any]":
    """What a program prints that is run in the workspace."""
    home = os.getcwd()
    try:
        os.chdir(path)
    except OSError as error:
        return {"status": 127, "stdout": str(error)}
    status, shown = run(args, stdin, RUN_S, f"/tmp/r{number}")
    os.chdir(home)
    return {"status": status, "stdout": shown}


def answer(probe: "tuple[Any, ...]", number: int) -> "dict[str, Any]":
    """What one probe finds."""
    what, path, *rest = probe
    if what == "look":
        return look(path, rest[0])
    if what == "archive":
        return archive(path)
    if what == "git":
        return git(path, rest[0], number)
    return program(path, rest[0], rest[1], number)


def main(encode: "Callable[[object], str]", describe: "Callable[[BaseException], str]") -> None:
    """Answer every probe."""
    import sys

    probes = eval(sys.stdin.readline(), {"__builtins__": {}})
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for number, probe in enumerate(probes):
        try:
            text = f'"value": {encode(answer(probe, number))}'
        except (OSError, ValueError) as error:
            text = f'"error": {describe(error)}'
        os.write(1, f'{{"call": {number}, {text}}}\n'.encode())

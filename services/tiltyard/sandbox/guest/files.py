"""Files of the workspace, walked one component at a time from its root and never through a link.

Invariants: a writer's word wins (whatever is in the way is removed, never followed); a reader gets regular files only
and never blocks on a pipe or device; everything has a cap. Paths are bytes, relative, already free of `..` (the host
checks). Left out: archives, which the host packs and unpacks.
"""

import os

MAX_DEPTH = 32
DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
Entry = tuple[str, int, bytes, bytes]
"""Kind ('d' directory, 'f' file, 'l' link), mode, path, data (a link's target)."""


class Refused(Exception):
    """A request that is over a cap; the argument says which: size, entries, depth."""


class Workspace:
    """The directory `path`, whose files belong to `uid` (0: to whoever runs this)."""

    def __init__(self, path: str, uid: int) -> None:
        self.path, self.uid = path, uid
        self.root = os.open(path, DIR_FLAGS)

    def directory(self, parts: list[bytes], create: bool) -> int:
        """A descriptor of the directory; with `create` it is made, and what is in the way goes."""
        here = os.dup(self.root)
        try:
            for part in parts:
                below = self._below(here, part, create)
                os.close(here)
                here = below
        except OSError:
            os.close(here)
            raise
        return here

    def _below(self, here: int, part: bytes, create: bool) -> int:
        try:
            return open_directory(here, part)
        except OSError:
            if not create:
                raise
        remove(here, part)
        os.mkdir(part, 0o755, dir_fd=here)
        below = open_directory(here, part)
        self._own(below)
        return below

    def _own(self, fd: int) -> None:
        if self.uid:
            os.fchown(fd, self.uid, self.uid)

    def put(self, entries: list[Entry]) -> None:
        """Write the entries in order."""
        for kind, mode, path, data in entries:
            *parents, name = path.split(b"/")
            parent = self.directory([*parents, name] if kind == "d" else parents, True)
            try:
                if kind == "d":
                    os.fchmod(parent, mode)
                    continue
                remove(parent, name)
                if kind == "l":
                    os.symlink(data, name, dir_fd=parent)
                else:
                    self._write(parent, name, mode, data)
            finally:
                os.close(parent)

    def _write(self, parent: int, name: bytes, mode: int, data: bytes) -> None:
        fd = os.open(name, WRITE_FLAGS, 0o600, dir_fd=parent)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            self._own(fd)
            os.fchmod(fd, mode & 0o777)
        finally:
            os.close(fd)

    def get(self, paths: list[bytes], limit: int) -> list[bytes]:
        """Path and content, alternating, of the regular files among `paths`; the others are left out, and what is
        over `limit` bytes in all."""
        found: list[bytes] = []
        for path in paths:
            *parents, name = path.split(b"/")
            try:
                parent = self.directory(parents, False)
            except OSError:
                continue
            try:
                data = read_file(parent, name, limit)
                limit -= len(data)
                found += [path, data]
            except (OSError, Refused):
                continue
            finally:
                os.close(parent)
        return found

    def tree(self, limit: int, entries: int) -> list[bytes]:
        """Kind, octal mode, path and data of everything, sorted; Refused over `limit` bytes or `entries` entries."""
        found: list[bytes] = []
        self._visit(self.root, b"", MAX_DEPTH, [limit, entries], found)
        return found

    def _visit(self, fd: int, prefix: bytes, depth: int, left: list[int], found: list[bytes]) -> None:
        if depth < 0:
            raise Refused("depth")
        for name in sorted(os.fsencode(n) for n in os.listdir(fd)):
            left[1] -= 1
            if left[1] < 0:
                raise Refused("entries")
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            kind, mode, path = status.st_mode & 0o170000, b"%o" % (status.st_mode & 0o777), prefix + name
            if kind == 0o040000:
                found += (b"d", mode, path, b"")
                below = open_directory(fd, name)
                try:
                    self._visit(below, path + b"/", depth - 1, left, found)
                finally:
                    os.close(below)
            elif kind == 0o120000:
                found += (b"l", mode, path, os.readlink(name, dir_fd=fd))
            elif kind == 0o100000:
                data = read_file(fd, name, left[0])
                left[0] -= len(data)
                found += (b"f", mode, path, data)


def open_directory(parent: int, name: bytes) -> int:
    """A descriptor of a real directory.

    gVisor follows a link in spite of O_NOFOLLOW with O_DIRECTORY, so what was opened is compared with what lies there.
    """
    there = os.stat(name, dir_fd=parent, follow_symlinks=False)
    fd = os.open(name, DIR_FLAGS, dir_fd=parent)
    if os.path.samestat(there, os.fstat(fd)):
        return fd
    os.close(fd)
    raise NotADirectoryError(20, "a link, not a directory")


def remove(parent: int, name: bytes) -> None:
    """Remove a file, link or directory tree, if there is one."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except OSError:
        fd = open_directory(parent, name)
        try:
            for child in os.listdir(fd):
                remove(fd, os.fsencode(child))
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=parent)


def read_file(parent: int, name: bytes, limit: int) -> bytes:
    """A regular file's bytes; OSError for anything else, Refused when it is over `limit`."""
    fd = os.open(name, READ_FLAGS, dir_fd=parent)
    try:
        status = os.fstat(fd)
        if status.st_mode & 0o170000 != 0o100000:
            raise OSError("not a regular file")
        parts: list[bytes] = []
        left = limit + 1
        while left > 0:
            data = os.read(fd, min(left, 1 << 20))
            if not data:
                return b"".join(parts)
            parts.append(data)
            left -= len(data)
        raise Refused("size")
    finally:
        os.close(fd)


def nearly_full(path: str) -> bool:
    """Is less than 1 % of the file system free?"""
    status = os.statvfs(path)
    return status.f_blocks > 0 and status.f_bfree * 100 < status.f_blocks

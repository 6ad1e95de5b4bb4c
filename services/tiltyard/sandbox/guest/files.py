"""Files of the workspace, walked one component at a time from its root and never through a link.

Invariants: a writer's word wins (whatever is in the way is removed, never followed) and half a file never stays; a
reader gets regular files only and never blocks on a pipe or device; everything has a cap. Paths are bytes, relative,
already free of `..` (the host checks). Left out: archives, which the host packs and unpacks.
"""

import os

MAX_DEPTH = 32
PUT_TRIES = 20
MOVED = (2, 17, 20, 39, 40)
"""ENOENT, EEXIST, ENOTDIR, ENOTEMPTY, ELOOP: what is there is another thing than a moment ago."""
DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
Entry = tuple[str, int, bytes, bytes]
"""Kind ('d' directory, 'f' file, 'l' link, 'x' nothing: what is there goes), mode, path, data (a link's target)."""


class Refused(Exception):
    """A request that is over a cap; the argument says which: size, entries, depth."""


class Workspace:
    """The directory `path`, whose files belong to `uid` (0: to whoever runs this)."""

    def __init__(self, path: str, uid: int) -> None:
        self.path, self.uid = path, uid
        self.root = os.open(path, DIR_FLAGS)

    def directory(self, parts: list[bytes], create: bool, owner: int = 0) -> int:
        """A descriptor of the directory; with `create` it is made for `owner`, and what is in the way goes.

        An owner besides the usual one takes over the directories on the way.
        """
        here = os.dup(self.root)
        try:
            for part in parts:
                below = self._below(here, part, create, owner)
                os.close(here)
                here = below
                if owner != self.uid and create:
                    own(here, owner)
        except OSError:
            os.close(here)
            raise
        return here

    def _below(self, here: int, part: bytes, create: bool, owner: int) -> int:
        try:
            return open_directory(here, part)
        except OSError:
            if not create:
                raise
        remove(here, part)
        os.mkdir(part, 0o755, dir_fd=here)
        below = open_directory(here, part)
        own(below, owner)
        return below

    def put(self, entries: list[Entry], owner: int) -> None:
        """Write the entries in order, as files of `owner`. Others may change what is there meanwhile."""
        for entry in entries:
            for left in reversed(range(PUT_TRIES)):
                try:
                    self._put(entry, owner)
                    break
                except OSError as error:
                    if error.errno not in MOVED or not left:
                        raise

    def _put(self, entry: Entry, owner: int) -> None:
        kind, mode, path, data = entry
        *parents, name = path.split(b"/")
        parent = self.directory([*parents, name] if kind == "d" else parents, kind != "x", owner)
        try:
            if kind == "d":
                os.fchmod(parent, mode)
                return
            remove(parent, name)
            if kind == "l":
                os.symlink(data, name, dir_fd=parent)
            elif kind == "f":
                self._write(parent, name, mode, data, owner)
        finally:
            os.close(parent)

    def protect(self) -> None:
        """From now on nobody removes or renames files of others at the top."""
        os.fchmod(self.root, 0o1777)

    def _write(self, parent: int, name: bytes, mode: int, data: bytes, owner: int) -> None:
        fd = os.open(name, WRITE_FLAGS, 0o600, dir_fd=parent)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            own(fd, owner)
            os.fchmod(fd, mode & 0o777)
        except OSError:  # half a file is of no use, and on a full disk it is in the way of everything
            remove(parent, name)
            raise
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

    def tree(self, limit: int, entries: int, under: bytes, data: bool) -> list[bytes]:
        """Kind, octal mode, path and data of everything below the path `under` (empty: all), sorted, or of that one
        file; without `data` the size in its place, and 'o' for what is neither file, directory nor link. Refused over
        `limit` bytes or `entries` entries; OSError where there is nothing."""
        walk = Walk(limit, entries, data)
        if not under:
            walk.visit(self.root, b"", MAX_DEPTH)
            return walk.found
        *parents, name = under.split(b"/")
        parent = self.directory(parents, False)
        try:
            walk.entry(parent, name, under, MAX_DEPTH, top=True)
        finally:
            os.close(parent)
        return walk.found


class Walk:
    """One walk over a directory tree, within caps."""

    def __init__(self, limit: int, entries: int, data: bool) -> None:
        self.limit, self.entries, self.data = limit, entries, data
        self.found: list[bytes] = []

    def visit(self, fd: int, prefix: bytes, depth: int) -> None:
        """Everything in the directory `fd`."""
        if depth < 0:
            raise Refused("depth")
        names = os.listdir(fd)
        if len(names) > self.entries:
            raise Refused("entries")
        for name in sorted(os.fsencode(n) for n in names):
            try:
                self.entry(fd, name, prefix + name, depth)
            except OSError as error:  # gone, or another thing by now
                if error.errno not in MOVED:
                    raise

    def entry(self, fd: int, name: bytes, path: bytes, depth: int, top: bool = False) -> None:
        """One entry of the directory `fd`, and what is below it."""
        self.entries -= 1
        if self.entries < 0:
            raise Refused("entries")
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        kind, mode = status.st_mode & 0o170000, b"%o" % (status.st_mode & 0o777)
        if kind == 0o040000:
            below = open_directory(fd, name)
            if not top:
                self.found += (b"d", mode, path, b"" if self.data else b"0")
            try:
                self.visit(below, path + b"/", depth - 1)
            finally:
                os.close(below)
        elif not self.data:
            letter = b"l" if kind == 0o120000 else b"f" if kind == 0o100000 else b"o"
            self.found += (letter, mode, path, b"%d" % status.st_size)
        elif kind == 0o120000:
            self.found += (b"l", mode, path, os.readlink(name, dir_fd=fd))
        elif kind == 0o100000:
            data = read_file(fd, name, self.limit)
            self.limit -= len(data)
            self.found += (b"f", mode, path, data)


def own(fd: int, owner: int) -> None:
    """Give a file to a user; 0: to nobody else."""
    if owner:
        os.fchown(fd, owner, owner)


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
            raise OSError(40, "not a regular file")
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

"""Files of a sandbox's workspace, as requests to the agent. `remote.RemoteSandbox` builds on it.

Invariants: a path is checked here before the agent sees it, and the agent walks it without following links; archives
are packed and unpacked on this side, so that nothing the guest sends is interpreted but by the caps and names checked
here. Left out: commands (`remote`), how archives look (`archive`), how patches are read (`patching`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from . import archive, patching
from .backend import Absent, FileInfo, PatchRefused, SandboxLost, check_path
from .commands import USERS, entries_of, number
from .settings import SandboxSettings


class Files(ABC):
    """The file half of `backend.Sandbox`."""

    _settings: SandboxSettings

    @abstractmethod
    async def _request(self, request: dict[str, Any]) -> list[bytes]:
        """The agent's answer to a request; SandboxLost when there is none."""

    @abstractmethod
    def _distrust(self) -> None:
        """Give the sandbox up: what it sent can't come from the agent."""

    async def write(self, files: Mapping[str, bytes], user: str = "policy") -> None:
        await self._put(entries_of(files), user)

    async def restore(self, archive_bytes: bytes, under: str = "", user: str = "policy") -> None:
        settings = self._settings
        below = check_path(under) + b"/" if under else b""
        entries = archive.unpack(archive_bytes, settings.workspace_bytes, settings.workspace_entries)
        await self._put([(kind, mode, below + path, data) for kind, mode, path, data in entries], user)

    async def export(self, under: str = "") -> bytes:
        strip = len(check_path(under)) + 1 if under else 0
        entries = await self._tree(self._settings.workspace_bytes, under)
        return archive.pack((kind, mode, path[strip:] or path, data) for kind, mode, path, data in entries)

    async def read(self, paths: Iterable[str], limit: int = 1 << 20) -> dict[str, bytes]:
        wanted = [check_path(path) for path in paths]
        fields = await self._request({"op": "get", "paths": wanted, "limit": limit})
        if len(fields) % 2 == 0:
            self._distrust()
            raise SandboxLost("the agent sent malformed files")
        found = dict(zip(fields[1::2], fields[2::2], strict=True))
        return {text(path): found[path] for path in wanted if path in found}

    async def listing(self, limit: int = 1 << 20) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for kind, _, path, data in await self._tree(self._settings.workspace_bytes):
            if kind == "f" and len(data) <= limit:
                limit -= len(data)
                found[text(path)] = data
        return found

    async def entries(self, under: str = "") -> list[FileInfo]:
        found = await self._tree(0, under, data=False)
        return [FileInfo(path=text(path), kind=kind, mode=mode, size=number(size)) for kind, mode, path, size in found]

    async def patch(self, diff: bytes) -> list[str]:
        patches = patching.parse(diff)
        changes: list[archive.Entry] = []
        for one in patches:
            mode, old = await self._regular(one.path)
            new = patching.apply(one, old)
            changes.append(
                ("x", 0, check_path(one.path), b"") if new is None else ("f", mode, check_path(one.path), new)
            )
        await self._put(changes, "policy")
        return [one.path for one in patches]

    async def _regular(self, path: str) -> tuple[int, bytes | None]:
        """Mode and content of a regular file; content None when there is none."""
        try:
            found = await self._tree(self._settings.workspace_bytes, path)
        except Absent:
            return 0o644, None
        match found:
            case [("f", mode, _, data)]:
                return mode, data
        raise PatchRefused(f"patch: {path!r} is not a regular file")

    async def _tree(self, limit: int, under: str = "", data: bool = True) -> list[archive.Entry]:
        request = {
            "op": "tree",
            "limit": limit,
            "entries": self._settings.workspace_entries,
            "under": check_path(under) if under else b"",
            "data": data,
        }
        fields = (await self._request(request))[1:]
        kinds = (b"d", b"f", b"l") if data else (b"d", b"f", b"l", b"o")
        if len(fields) % 4 or any(kind not in kinds for kind in fields[::4]):
            self._distrust()
            raise SandboxLost("the agent sent a malformed tree")
        groups = zip(fields[::4], fields[1::4], fields[2::4], fields[3::4], strict=True)
        return [(kind.decode(), number(mode, 8), path, data) for kind, mode, path, data in groups]

    async def _put(self, entries: list[archive.Entry], user: str) -> None:
        await self._request({"op": "put", "entries": entries, "user": USERS[user]})


def text(path: bytes) -> str:
    """A path of the guest's as text that leads back to the same bytes."""
    return path.decode("utf-8", "surrogateescape")

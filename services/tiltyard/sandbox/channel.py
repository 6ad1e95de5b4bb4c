"""Frames between the service and the agent inside: requests out, answers in.

Invariants: the agent is not trusted: lengths are checked before anything is read, an answer is a list of byte strings
and nothing is unmarshalled. A broken or closed channel is `SandboxLost`. One request at a time. Left out: what the
frames mean.
"""

from __future__ import annotations

import asyncio
import marshal
import os
from typing import Any

import anyio

from .backend import SandboxLost

MARSHAL_VERSION = 2
"""Understood by every Python 3 inside."""


def encode(request: dict[str, Any]) -> bytes:
    """A request as a frame."""
    body = marshal.dumps(request, MARSHAL_VERSION)
    return len(body).to_bytes(4, "big") + body


def split(body: bytes) -> list[bytes]:
    """The fields of an answer; SandboxLost when it is malformed."""
    fields: list[bytes] = []
    at = 0
    while at < len(body):
        end = at + 4 + int.from_bytes(body[at : at + 4], "big")
        if at + 4 > len(body) or end > len(body):
            raise SandboxLost("the agent sent a malformed answer")
        fields.append(body[at + 4 : end])
        at = end
    if not fields:
        raise SandboxLost("the agent sent an empty answer")
    return fields


class Channel:
    """The two pipes of one sandbox."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: asyncio.ReadTransport,
        max_frame: int,
    ) -> None:
        self._reader, self._writer, self._source, self._max = reader, writer, source, max_frame

    @property
    def ended(self) -> bool:
        """Has the other side gone, with nothing left to read?"""
        return self._reader.at_eof()

    async def send(self, request: dict[str, Any]) -> None:
        """Write a request; SandboxLost when nobody reads any more."""
        try:
            self._writer.write(encode(request))
            await self._writer.drain()
        except (ConnectionError, RuntimeError) as error:
            raise SandboxLost("the sandbox is gone") from error

    async def receive(self) -> list[bytes]:
        """The next answer; SandboxLost at the end of the pipe or for a frame over the limit."""
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            if size > self._max:
                raise SandboxLost(f"the agent announced {size} bytes")
            return split(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise SandboxLost("the sandbox is gone") from error

    def close(self) -> None:
        """Close our ends: the agent ends when it sees it."""
        self._writer.close()
        self._source.close()


class _Pipe:
    """A descriptor for the loop, which closes it once.

    uvloop closes the descriptor itself and then calls `close` a turn later, when the number may be another file's.
    """

    def __init__(self, file: Any, closes_itself: bool) -> None:
        self._fd, self._closes_itself = os.dup(file.fileno()), closes_itself
        file.close()

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if not self._closes_itself:
            os.close(self._fd)


async def connect(stdin: Any, stdout: Any, max_frame: int) -> Channel:
    """A channel over the pipes of a `subprocess.Popen` (binary files, whose ownership it takes).

    Not to be cancelled half-way, when nobody could say who owns the pipes; it takes one turn of the loop.
    """
    loop = asyncio.get_running_loop()
    closes_itself = type(loop).__module__.startswith("uvloop")
    ours, theirs = _Pipe(stdin, closes_itself), _Pipe(stdout, closes_itself)
    reader = asyncio.StreamReader(limit=1 << 20, loop=loop)
    left = [ours, theirs]
    with anyio.CancelScope(shield=True):
        try:
            source, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), theirs)
            left.remove(theirs)
            transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, ours)
        except OSError:
            if theirs not in left:
                source.close()
            for pipe in left:
                os.close(pipe.fileno())
            raise
    return Channel(reader, asyncio.StreamWriter(transport, protocol, None, loop), source, max_frame)

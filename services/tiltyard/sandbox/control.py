"""The service's door for the person on this machine: a unix socket in the instance's directory.

A request and its answer are one MessagePack struct each, after its length; a connection carries one pair. Invariants:
only the user who runs the service (and root) gets in: the directory is private, the socket is 0600, and the peer's uid
is asked of the kernel; a debugging command never runs in a sandbox whose result counts: it gets a fresh one, or an
idle session that is taken from its rollout, which goes on from its stored workspace. Left out: who asks (`cli`).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import msgspec
from anyio.abc import SocketStream

from tiltyard_proto.messages import Command, Execution

from .backend import SandboxError

SOCKET = "control"
MOST = 64 << 20
"""Largest frame."""
ANSWER_S = 10.0


class ControlError(RuntimeError):
    """The request could not be done; one line for the person who asked."""


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of what may be asked."""


class List(Request, frozen=True, kw_only=True, tag="list"):
    """All sandboxes of the service."""


class Exec(Request, frozen=True, kw_only=True, tag="exec"):
    """Run a command, in a new sandbox of a profile or in an idle session."""

    command: Command
    profile: str = "python"
    sandbox: str = ""
    """Id of a session's sandbox; empty: a new one."""


class Reap(Request, frozen=True, kw_only=True, tag="reap"):
    """Look for remains now, and end what is overdue."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One sandbox."""

    instance: str
    id: str
    profile: str
    state: str
    """'idle', 'busy', 'grading', 'session' or 'debug'."""
    age_s: float
    rollout: str = ""
    domain: str = ""
    tenant: str = ""
    memory_bytes: int = 0
    cpu_s: float = 0.0
    cpus: float = 0.0
    """Cores in use since the last time somebody looked."""


class Listing(msgspec.Struct, frozen=True, kw_only=True, tag="listing", tag_field="type"):
    instance: str
    pid: int
    rows: tuple[Row, ...]
    leaked: int
    breakers: dict[str, str]
    """State of those that are not closed, by name."""
    waiting: int


class Ran(msgspec.Struct, frozen=True, kw_only=True, tag="ran", tag_field="type"):
    execution: Execution
    sandbox: str


class Reaped(msgspec.Struct, frozen=True, kw_only=True, tag="reaped", tag_field="type"):
    instance: str
    strays: int
    """Remains that were found and removed."""
    overdue: int
    leaked: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed", tag_field="type"):
    detail: str


Answer = Listing | Ran | Reaped | Failed
Handler = Callable[[List | Exec | Reap], Awaitable[Answer]]


async def _read(stream: SocketStream) -> bytes:
    head = await _exactly(stream, 4)
    size = int.from_bytes(head, "big")
    if size > MOST:
        raise ControlError(f"a frame of {size} bytes")
    return await _exactly(stream, size)


async def _exactly(stream: SocketStream, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        parts += await stream.receive(size - len(parts))
    return bytes(parts)


def _frame(value: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(value)
    return len(body).to_bytes(4, "big") + body


def _short(path: Path, handle: int) -> str:
    """A name for `path` that fits a socket address, however deep it lies; `handle` is its open directory."""
    return f"/proc/self/fd/{handle}/{path.name}"


def peer_uid(stream: SocketStream) -> int:
    """The uid at the other end, as the kernel knows it."""
    raw: socket.socket = stream.extra(anyio.abc.SocketAttribute.raw_socket)
    found = raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[1])


async def serve_control(directory: Path, handler: Handler) -> None:
    """Answer requests at `directory`/control until cancelled."""
    path = directory / SOCKET
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener = await anyio.create_unix_listener(_short(path, handle), mode=0o600)
        try:
            await listener.serve(lambda stream: _one(stream, handler))
        finally:
            with anyio.CancelScope(shield=True):
                await listener.aclose()
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)


async def _one(stream: SocketStream, handler: Handler) -> None:
    async with stream:
        try:
            if peer_uid(stream) not in (0, os.geteuid()):
                return
            with anyio.fail_after(ANSWER_S):
                request = msgspec.msgpack.decode(await _read(stream), type=List | Exec | Reap)
            answer = await handler(request)
        except (ControlError, SandboxError, ValueError, TimeoutError) as error:
            answer = Failed(detail=str(error))
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return
        try:
            await stream.send(_frame(answer))
        except anyio.BrokenResourceError:
            return


async def ask(directory: Path, request: List | Exec | Reap, within_s: float = ANSWER_S) -> Answer:
    """One request to the service of that instance directory; ControlError when it does not answer or can't do it."""
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ControlError(f"{directory}: {error.strerror}") from error
    try:
        with anyio.fail_after(within_s):
            async with await anyio.connect_unix(_short(directory / SOCKET, handle)) as stream:
                await stream.send(_frame(request))
                answer = msgspec.msgpack.decode(await _read(stream), type=Answer)
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError, TimeoutError, msgspec.MsgspecError) as error:
        why = str(error) or type(error).__name__
        raise ControlError(f"the sandbox service of {directory.name} does not answer: {why}") from error
    finally:
        os.close(handle)
    if isinstance(answer, Failed):
        raise ControlError(answer.detail)
    return answer


def doors(home: Path) -> list[Path]:
    """Instance directories that have a control socket."""
    return sorted(path.parent for path in (home / "run").glob(f"*/{SOCKET}") if not path.parent.name.startswith("."))

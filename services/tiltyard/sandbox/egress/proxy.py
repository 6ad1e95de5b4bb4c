"""The filtering proxy of one sandbox: HTTP CONNECT and plain HTTP, to listed hosts only.

Invariants: a request is judged before anything is looked up or connected; the address connected to is the one judged;
connections at a time, bytes in all, the size of a request's head and the time for every step have caps; what is
refused is answered at once with 403 and counted by reason. Bytes that a client sends after a refusal are not read.
Left out: reading what passes (TLS stays between the sandbox and the host), caching, keep-alive: one request a
connection.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

import anyio
import anyio.abc
import structlog

from tiltyard.sandbox import metrics

from .rules import Refused, Rules, split

HEAD_BYTES = 32 << 10
HEAD_S = 10.0
CONNECT_S = 10.0
IDLE_S = 60.0
CHUNK = 64 << 10
NOT_PASSED = (b"host:", b"proxy-", b"connection:", b"keep-alive:", b"te:", b"upgrade:")
TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
FIRST = re.compile(TOKEN + rb" [^\x00-\x20\x7f]+ HTTP/1\.[01]")
FIELD = re.compile(TOKEN + rb":[^\x00-\x08\x0a-\x1f\x7f]*")
"""RFC 9112's, without what lenient hosts read otherwise than a judge: a blank before the colon, a line that goes on in
the next, an end of line without a carriage return. Else a second Host could get past the one that was judged."""
Lookup = Callable[[str, int], Awaitable[Sequence[str]]]

log = structlog.get_logger()


async def lookup(name: str, port: int) -> Sequence[str]:
    """Addresses of a name as the host's resolver says; Refused when it has none."""
    try:
        found = await anyio.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Refused("lookup", f"{name}: {error.strerror}") from error
    return list(dict.fromkeys(str(item[4][0]) for item in found))


class Proxy:
    """The proxy of one sandbox. Run `serve` in a task group; cancel it to end every connection."""

    def __init__(self, rules: Rules, *, connections: int, total_bytes: int, find: Lookup = lookup) -> None:
        self.rules, self.find = rules, find
        self._slots = anyio.CapacityLimiter(connections)
        self._left = total_bytes

    async def serve(self, listener: socket.socket) -> None:
        """Take connections until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                client = await _accept(listener)
                if self._slots.available_tokens < 1 or self._left <= 0:
                    tasks.start_soon(self._turn_away, client)
                    continue
                self._slots.acquire_on_behalf_of_nowait(client)
                tasks.start_soon(self._connection, client)

    async def _turn_away(self, client: anyio.abc.SocketStream) -> None:
        kind = "bytes" if self._left <= 0 else "connections"
        await self._refuse(client, Refused("limit", f"over the limit of {kind} of this sandbox"))

    async def _connection(self, client: anyio.abc.SocketStream) -> None:
        try:
            await self._request(client)
        except Refused as refused:
            await self._refuse(client, refused)
        except (OSError, TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            pass  # either side went away; both are closed below
        finally:
            self._slots.release_on_behalf_of(client)
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(client)

    async def _refuse(self, client: anyio.abc.SocketStream, refused: Refused) -> None:
        metrics.EGRESS_REFUSED.labels(refused.reason).inc()
        log.info("egress_refused", reason=refused.reason, detail=str(refused))
        status = "502 Bad Gateway" if refused.reason == "lookup" else "403 Forbidden"
        text = f"{refused}\n".encode()
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        try:
            with anyio.fail_after(1):
                await client.send(head.encode() + text)
        except (TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(client)

    # ------------------------------------------------------------ one request

    async def _request(self, client: anyio.abc.SocketStream) -> None:
        with anyio.fail_after(HEAD_S):
            head, rest = await _head(client)
        method, target, fields = _parsed(head)
        if method == "CONNECT":
            host, port = _authority(target, None)
            answer, forward = b"HTTP/1.1 200 Connection established\r\n\r\n", rest
        else:
            host, port, path = _url(target)
            answer, forward = b"", _rewritten(method, target, path, fields) + rest
        server = await self._connect(host, port)
        metrics.EGRESS_CONNECTIONS.inc()
        async with server:
            if answer:
                await client.send(answer)
            if forward:
                await self._pass_on(server, forward)
            moved = [anyio.current_time()]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._pump, client, server, moved, tasks.cancel_scope)
                tasks.start_soon(self._pump, server, client, moved, tasks.cancel_scope)

    async def _connect(self, host: str, port: int) -> anyio.abc.SocketStream:
        name = self.rules.check(host, port)
        try:
            with anyio.fail_after(CONNECT_S):
                for address in self.rules.choose(name, port, await self.find(name, port)):
                    try:
                        return await anyio.connect_tcp(address, port)
                    except OSError:
                        continue
        except TimeoutError:
            pass
        raise Refused("lookup", f"{name}:{port} does not answer")

    async def _pump(
        self,
        source: anyio.abc.SocketStream,
        target: anyio.abc.SocketStream,
        moved: list[float],
        scope: anyio.CancelScope,
    ) -> None:
        """Carry bytes one way. The end of the source ends that way; anything else ends the connection, and so does
        a time without bytes either way; `moved` holds when there were some last."""
        try:
            while anyio.current_time() - moved[0] < IDLE_S:
                with anyio.move_on_after(IDLE_S):
                    data = await source.receive(CHUNK)
                    moved[0] = anyio.current_time()
                    await self._pass_on(target, data)
            scope.cancel()
        except anyio.EndOfStream:
            try:
                await target.send_eof()
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                scope.cancel()
        except (OSError, Refused, anyio.BrokenResourceError, anyio.ClosedResourceError):
            scope.cancel()

    async def _pass_on(self, target: anyio.abc.SocketStream, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            metrics.EGRESS_REFUSED.labels("limit").inc()
            raise Refused("limit", "over the limit of bytes of this sandbox")
        metrics.EGRESS_BYTES.inc(len(data))
        await target.send(data)


async def _accept(listener: socket.socket) -> anyio.abc.SocketStream:
    while True:
        try:
            client, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            await anyio.wait_readable(listener)
            continue
        client.setblocking(False)
        return await anyio.abc.SocketStream.from_socket(client)


async def _head(client: anyio.abc.SocketStream) -> tuple[bytes, bytes]:
    """The request's head, and what came after it."""
    data = b""
    while b"\r\n\r\n" not in data:
        if len(data) > HEAD_BYTES:
            raise Refused("request", "the head of the request is too large")
        data += await client.receive(HEAD_BYTES)
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _parsed(head: bytes) -> tuple[str, str, list[bytes]]:
    """Method, target and header lines."""
    first, *fields = head.split(b"\r\n")
    if not FIRST.fullmatch(first) or not all(FIELD.fullmatch(field) for field in fields):
        raise Refused("request", "not a request that a proxy understands")
    method, target, _ = first.decode("latin-1").split(" ")
    return method, target, fields


def _authority(text: str, default: int | None) -> tuple[str, int]:
    try:
        host, port = split(text)
    except ValueError as error:
        raise Refused("request", "not a host and port") from error
    if (port or default) is None:
        raise Refused("request", "no port")
    return host, port or default or 0


def _url(target: str) -> tuple[str, int, str]:
    """Host, port and path of an absolute http URL."""
    try:
        parts = urlsplit(target)
    except ValueError as error:
        raise Refused("request", "not an address") from error
    if parts.scheme != "http" or not parts.netloc:
        raise Refused("request", "expected CONNECT, or an absolute http:// address")
    host, port = _authority(parts.netloc.rpartition("@")[2], 80)
    path = parts.path or "/"
    return host, port, f"{path}?{parts.query}" if parts.query else path


def _rewritten(method: str, target: str, path: str, fields: list[bytes]) -> bytes:
    """The request for the host itself, one to a connection, with the host that was judged and nothing for the proxy."""
    kept = [field for field in fields if not field.lower().startswith(NOT_PASSED)]
    host = urlsplit(target).netloc.rpartition("@")[2]
    lines = [f"{method} {path} HTTP/1.1".encode("latin-1"), f"Host: {host}".encode("latin-1"), *kept]
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])

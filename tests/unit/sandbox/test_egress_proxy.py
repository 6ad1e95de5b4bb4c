"""The filtering proxy, with real connections on the loopback interface."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import pytest

from tiltyard.sandbox.egress import proxy as module
from tiltyard.sandbox.egress.proxy import Proxy
from tiltyard.sandbox.egress.rules import parse

pytestmark = pytest.mark.anyio
Answer = Callable[[anyio.abc.SocketStream], Awaitable[None]]


async def echo(client: anyio.abc.SocketStream) -> None:
    """Answers with what it was sent, until the other side has ended."""
    async with client:
        async for data in client:
            await client.send(data)


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[int]:
    """A host behind the proxy; its port."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def proxied(
    hosts: Sequence[str], names: dict[str, list[str]] | None = None, *, connections: int = 4, total_bytes: int = 1 << 20
) -> AsyncIterator[int]:
    """A proxy whose resolver knows `names`; its port."""

    async def find(name: str, port: int) -> Sequence[str]:
        return (names or {}).get(name, [name])

    made = Proxy(parse(hosts), connections=connections, total_bytes=total_bytes, find=find)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.serve, listener)
        yield listener.getsockname()[1]
        tasks.cancel_scope.cancel()
    listener.close()


async def everything(stream: anyio.abc.SocketStream) -> bytes:
    data = b""
    try:
        async for part in stream:
            data += part
    except anyio.BrokenResourceError:
        pass
    return data


async def ask(port: int, request: bytes) -> bytes:
    """What the proxy answers to a request, all of it."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(request)
        with anyio.fail_after(5):
            return await everything(stream)


async def test_a_tunnel_carries_bytes_both_ways() -> None:
    """CONNECT to a listed host gives a tunnel; the end of one direction does not end the other."""
    async with server(echo) as there, proxied([f"127.0.0.1:{there}"]) as port:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(f"CONNECT 127.0.0.1:{there} HTTP/1.1\r\n\r\nearly ".encode())
            await stream.send(b"late")
            await stream.send_eof()
            with anyio.fail_after(5):
                data = await everything(stream)
        assert data == b"HTTP/1.1 200 Connection established\r\n\r\nearly late"


async def test_plain_http_is_rewritten() -> None:
    """A GET by absolute address reaches the host as its own request, its Host the one that was judged."""
    async with (
        server(echo) as there,
        proxied(["web.example", f"127.0.0.1:{there}"], {"web.example": ["127.0.0.1"]}) as port,
    ):
        url = f"http://127.0.0.1:{there}/a/b?c=d"
        head = f"GET {url} HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: x\r\nAccept: */*\r\n\r\n".encode()
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(head)
            await stream.send_eof()
            with anyio.fail_after(5):
                data = await everything(stream)
        wanted = f"GET /a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:{there}\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        assert data == wanted.encode()


@pytest.mark.parametrize(
    ("request_", "status", "said"),
    [
        (b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n", b"403", b"not among the hosts"),
        (b"CONNECT good.example:22 HTTP/1.1\r\n\r\n", b"403", b"port 22"),
        (b"CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n", b"403", b"not among the hosts"),
        (b"CONNECT good.example:443 HTTP/1.1\r\n\r\n", b"403", b"no public address"),
        (b"GET http://169.254.169.254/latest HTTP/1.1\r\n\r\n", b"403", b"not among the hosts"),
        (b"GET http://x@evil.example/ HTTP/1.1\r\n\r\n", b"403", b"evil.example is not"),
        (b"GET /relative HTTP/1.1\r\n\r\n", b"403", b"absolute"),
        (b"GET ftp://good.example/ HTTP/1.1\r\n\r\n", b"403", b"absolute"),
        (b"CONNECT good.example HTTP/1.1\r\n\r\n", b"403", b"no port"),
        (b"CONNECT  HTTP/1.1\r\n\r\n", b"403", b"not a"),
        (b"\x16\x03\x01\x00\r\n\r\n", b"403", b"not a request"),
        (b"GET http://[::1 HTTP/1.1\r\n\r\n", b"403", b"not a"),
        (b"GET http://good.example/ HTTP/1.1\r\nHost : evil.example\r\n\r\n", b"403", b"not a request"),
        (b"GET http://good.example/ HTTP/1.1\r\nAccept: a\r\n Host: evil.example\r\n\r\n", b"403", b"not a request"),
        (b"GET http://good.example/ HTTP/1.1\r\n\x00Host: evil.example\r\n\r\n", b"403", b"not a request"),
        (b"GET http://good.example/ HTTP/1.1\r\nno colon\r\n\r\n", b"403", b"not a request"),
        (b"GET\t/x\tHTTP/1.0\nHost:evil.example\nX:y http://good.example/ HTTP/1.1\r\n\r\n", b"403", b"not a request"),
        (b"GET http://good.example/\x0bx HTTP/1.1\r\n\r\n", b"403", b"not a request"),
        (b"GET http://good.example/ HTTP/1.1\nHost:evil.example\r\n\r\n", b"403", b"not a request"),
        (b"x" * 70000, b"403", b"too large"),
    ],
)
async def test_refusals(request_: bytes, status: bytes, said: bytes) -> None:
    """What is not allowed or not a request is answered at once with 403 and the reason; nothing is connected."""
    async with proxied(["good.example"], {"good.example": ["10.0.0.1", "127.0.0.1"]}) as port:
        answer = await ask(port, request_)
        assert answer.split(b" ")[1:2] == [status]
        assert said in answer


async def test_the_judged_address_is_the_one_connected_to() -> None:
    """A name is looked up once; an answer that changes to a private address afterwards changes nothing."""
    async with server(echo) as there:
        answers = iter([["127.0.0.1"], ["10.0.0.1"]])
        asked = []

        async def find(name: str, port: int) -> Sequence[str]:
            asked.append(name)
            return next(answers)

        made = Proxy(
            parse([f"moving.example:{there}", f"127.0.0.1:{there}"]), connections=2, total_bytes=1000, find=find
        )
        stream = await made._connect("moving.example", there)
        await stream.aclose()
        assert asked == ["moving.example"]


async def test_connections_have_a_cap() -> None:
    """Over the cap a connection is refused at once; when one ends there is room again."""
    async with server(echo) as there, proxied([f"127.0.0.1:{there}"], connections=1) as port:
        request = f"CONNECT 127.0.0.1:{there} HTTP/1.1\r\n\r\n".encode()
        async with await anyio.connect_tcp("127.0.0.1", port) as first:
            await first.send(request)
            assert b" 200 " in await first.receive()
            assert b"limit of connections" in await ask(port, request)
        with anyio.fail_after(5):
            while True:
                async with await anyio.connect_tcp("127.0.0.1", port) as again:
                    await again.send(request)
                    if b" 200 " in await again.receive():
                        break


async def test_bytes_have_a_cap() -> None:
    """Over the cap of bytes a connection ends, and every later one is refused."""
    async with server(echo) as there, proxied([f"127.0.0.1:{there}"], total_bytes=10_000) as port:
        request = f"CONNECT 127.0.0.1:{there} HTTP/1.1\r\n\r\n".encode()
        answer = await ask(port, request + bytes(20_000))
        assert len(answer) < 12_000
        assert b"limit of bytes" in await ask(port, request)


async def test_a_connection_without_bytes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tunnel that carries nothing for the idle time is closed; one that carries something one way stays."""
    monkeypatch.setattr(module, "IDLE_S", 1.0)

    async def drip(client: anyio.abc.SocketStream) -> None:
        async with client:
            for _ in range(8):
                await client.send(b".")
                await anyio.sleep(0.25)
            await anyio.sleep(9)

    async with server(drip) as there, proxied([f"127.0.0.1:{there}"]) as port:
        answer = await ask(port, f"CONNECT 127.0.0.1:{there} HTTP/1.1\r\n\r\n".encode())
        assert answer.endswith(b"........")


async def test_a_name_without_an_address_is_said() -> None:
    """A name that can't be looked up is answered with 502."""
    made = Proxy(parse(["nowhere.invalid"]), connections=1, total_bytes=1000)
    with pytest.raises(module.Refused) as caught:
        await made._connect("nowhere.invalid", 443)
    assert caught.value.reason == "lookup"

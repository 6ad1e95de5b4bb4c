"""The Docker back-end without Docker: what it asks of a daemon, and how it reads what an attached container writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tiltyard.sandbox import docker as docker_module
from tiltyard.sandbox import housekeeping
from tiltyard.sandbox.backend import SandboxLost, StartFailed, Want
from tiltyard.sandbox.docker import DockerBackend
from tiltyard.sandbox.docker_api import Docker, DockerError
from tiltyard.sandbox.docker_spec import INSTANCE, OWNER, Image, container, owner
from tiltyard.sandbox.instance import Instance, is_alive
from tiltyard.sandbox.profiles import load
from tiltyard.sandbox.settings import SandboxSettings

pytestmark = pytest.mark.anyio


def piece(stream: int, data: bytes) -> bytes:
    return bytes((stream, 0, 0, 0)) + len(data).to_bytes(4, "big") + data


def frame(*fields: bytes) -> bytes:
    body = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
    return len(body).to_bytes(4, "big") + body


@asynccontextmanager
async def answering(path: Path, *parts: bytes) -> AsyncIterator[Docker]:
    """A daemon that answers any connection with `parts`, then closes it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        yield Docker(str(path))


UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\n\r\n"


async def test_frames_are_put_together(tmp_path: Path) -> None:
    """A frame may come in many pieces and several in one; what is on stderr is left out; then the end is told."""
    ends: list[str] = []

    async def ended() -> None:
        ends.append("ended")

    first, second = frame(b"hello", b"1"), frame(b"x" * 5000)
    parts = [piece(1, first[:3]), piece(2, b"noise"), piece(1, first[3:] + second[:9]), piece(1, second[9:])]
    async with answering(tmp_path / "s", UPGRADED, *parts) as docker:
        channel = await docker.attach("c", 1 << 20, ended)
        assert await channel.receive() == [b"hello", b"1"]
        assert await channel.receive() == [b"x" * 5000]
        assert ends == []
        with pytest.raises(SandboxLost, match="gone"):
            await channel.receive()
        assert ends == ["ended"]
        channel.close()


async def nothing() -> None:
    return


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([UPGRADED, piece(1, (1 << 24).to_bytes(4, "big"))], "announced"),
        ([UPGRADED, b"\1\0\0\0\x7f\xff\xff\xff"], "too long"),
        ([UPGRADED, piece(1, b"\0\0\0\1x")], "malformed"),
        ([UPGRADED, b"\1\0\0"], "gone"),
    ],
)
async def test_a_malformed_stream_is_a_lost_sandbox(tmp_path: Path, parts: list[bytes], said: str) -> None:
    """Lengths that can't be and streams that break off are a lost sandbox, without a buffer that grows."""
    async with answering(tmp_path / "s", *parts) as docker:
        channel = await docker.attach("c", 1 << 20, nothing)
        with pytest.raises(SandboxLost, match=said):
            await channel.receive()
        channel.close()


async def test_a_refused_attachment_is_said(tmp_path: Path) -> None:
    """A daemon that refuses, or ends, is an error with its words."""
    async with answering(tmp_path / "s", b"HTTP/1.1 404 Not Found\r\n\r\n") as docker:
        with pytest.raises(DockerError, match="404"):
            await docker.attach("c", 1 << 20, nothing)
    with pytest.raises(DockerError, match="no Docker daemon"):
        await Docker(str(tmp_path / "none")).attach("c", 1 << 20, nothing)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def daemon(path: Path, handler: Handler) -> AsyncIterator[None]:
    """An HTTP daemon at a socket."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    try:
        yield
    finally:
        await runner.cleanup()


async def test_the_daemons_words_are_kept(tmp_path: Path) -> None:
    """An error of the daemon keeps its status and message; an empty answer is None."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/bad"):
            return web.json_response({"message": "no such thing\nusage: ..."}, status=404)
        return web.Response(status=204)

    async with daemon(tmp_path / "s", handler):
        docker = Docker(str(tmp_path / "s"))
        assert await docker.call("POST", "/good") is None
        with pytest.raises(DockerError, match=r"^no such thing$") as caught:
            await docker.call("GET", "/bad")
        assert caught.value.status == 404
        await docker.close()
    gone = Docker(str(tmp_path / "s"))
    with pytest.raises(DockerError, match="no Docker daemon"):
        await gone.call("GET", "/good")
    await gone.close()


async def test_only_containers_of_dead_services_of_this_home_go(tmp_path: Path) -> None:
    """Reconciling asks for the home's own containers and removes those whose service is gone."""
    settings = SandboxSettings(backend="docker", docker_socket=str(tmp_path / "s"), home=str(tmp_path / "home"))
    removed: list[str] = []
    asked: list[str] = []
    listed: list[dict[str, Any]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.method == "DELETE":
            removed.append(request.path.rpartition("/")[2])
            return web.Response(status=404 if removed[-1] == "b" else 204)
        asked.append(request.query["filters"])
        return web.json_response(listed)

    async with daemon(tmp_path / "s", handler):
        backend, other = DockerBackend.open(settings), DockerBackend.open(settings)
        ids = {"mine": backend.instance.id, "living": other.instance.id, "a": "dead0000", "b": "dead0001"}
        listed += [{"Id": name, "Labels": {INSTANCE: instance}} for name, instance in ids.items()]
        assert await backend.reconcile() == 2
        assert removed == ["a", "b"]
        assert f"{OWNER}={owner(tmp_path / 'home')}" in asked[0]
        await other.close()
        assert await backend.reconcile() == 3
        await backend.close()


async def test_a_container_that_stays_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that the daemon won't remove is a leak, after a while of trying."""
    monkeypatch.setattr(docker_module, "END_S", 0.2)
    settings = SandboxSettings(backend="docker", docker_socket=str(tmp_path / "s"), home=str(tmp_path / "home"))
    tries: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        tries.append(request.path)
        return web.json_response({"message": "driver failed"}, status=500)

    async with daemon(tmp_path / "s", handler):
        backend = DockerBackend.open(settings)
        cell = docker_module.DockerCell(backend, "c", 1 << 20)
        await cell.destroy()
        assert backend.leaked == 1
        assert len(tries) > 1
        with pytest.raises(SandboxLost, match="docker_memory_bytes"):
            cell.set_memory(2 << 20)
        with pytest.raises(StartFailed, match="way out"):
            await backend.start(Want(egress=("example.org",)))
        with pytest.raises(StartFailed, match="no profile 'none'"):
            await backend.start(Want(profile="none"))
        await backend.close()


def test_what_is_asked_of_the_daemon() -> None:
    """gVisor, limits, no network, only the agent's rights, a read-only root, sized file systems."""
    settings = SandboxSettings(docker_memory_bytes=100 << 20)
    profile = load()["python"]
    image = Image(name="i", command=("agent",), variables={})
    asked = container(settings, {"of": "me"}, Want(disk_bytes=5 << 20), profile, image)
    host = asked["HostConfig"]
    assert (host["Runtime"], host["NetworkMode"], host["ReadonlyRootfs"], host["CapDrop"]) == (
        "runsc",
        "none",
        True,
        ["ALL"],
    )
    assert host["Memory"] == host["MemorySwap"] == (105 << 20) + profile.overhead_bytes
    assert all("size=" in options and "nosuid" in options for options in host["Tmpfs"].values())
    assert "no-new-privileges" in host["SecurityOpt"]
    assert "CAP_SYS_ADMIN" not in host["CapAdd"]
    assert asked["StdinOnce"]
    assert asked["Labels"] == {"of": "me"}
    assert not any("=/root" in line for line in asked["Env"])


def test_an_instance_is_alive_as_long_as_its_lock(tmp_path: Path) -> None:
    """The lock of a service tells whether it lives; unknown ids and odd ones are dead."""
    instance = Instance(tmp_path, None)
    assert is_alive(tmp_path, instance.id)
    assert not is_alive(tmp_path, "nobody")
    assert not is_alive(tmp_path, "../../etc")
    instance.close()
    assert not is_alive(tmp_path, instance.id)


async def test_a_daemon_that_is_away_ends_nothing(tmp_path: Path) -> None:
    """Looking for remains goes on when the daemon is back; what could not be removed is removed then, and no leak."""
    settings = SandboxSettings(backend="docker", docker_socket=str(tmp_path / "s"), home=str(tmp_path / "home"))
    removed: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.method == "DELETE":
            removed.append(request.path.rpartition("/")[2])
            return web.Response(status=204)
        labels = {INSTANCE: backend.instance.id}
        return web.json_response([{"Id": name, "Names": [f"/{name}"], "Labels": labels} for name in ("left", "alive")])

    async with daemon(tmp_path / "s", handler):
        backend = DockerBackend.open(settings)
    assert await housekeeping.reconcile_once(backend) == 0
    backend._live["alive"] = docker_module.DockerCell(backend, "alive", 1 << 20)
    backend.forget("left", gone=False)
    assert backend.leaked == 1
    async with daemon(tmp_path / "s", handler):
        assert await backend.reconcile() == 1
        assert (removed, backend.leaked) == (["left"], 0)
        await backend.close()

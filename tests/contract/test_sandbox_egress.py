"""Hosts that a sandbox may reach: real gVisor, real network namespaces, hosts of our own in some of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from support.networks import Network
from support.sandbox_host import eventually_no_traces, networks_of_ours

from tiltyard.sandbox.backend import Sandbox, SnapshotFailed, StartFailed, Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits, Execution

pytestmark = pytest.mark.anyio
PORT = 8000
FETCH = """
import sys, time, urllib.request
for url in sys.argv[1:]:
    begun = time.monotonic()
    try:
        said = urllib.request.urlopen(url, timeout=10).read().decode()
    except OSError as error:
        said = getattr(error, "read", lambda: b"")().decode() or str(error)
    print(said.strip(), "slow" if time.monotonic() - begun > 2 else "")
"""
REACH = """
import socket, sys, time
for address in sys.argv[1:]:
    host, port = address.rsplit(":", 1)
    begun = time.monotonic()
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
        said = "reached"
    except OSError as error:
        said = "refused"
    print(said, "slow" if time.monotonic() - begun > 1 else "")
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Two hosts, a and b, each of which serves its own name."""
    network = Network("ab", "10.213.8")
    servers = []
    for name in "ab":
        folder = tmp_path_factory.mktemp(name)
        (folder / "who").write_text(f"host {name}\n")
        serve = [sys.executable, "-m", "http.server", str(PORT), "--bind", network.address(name)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        servers.append(subprocess.Popen([*network.enter(name), *serve], cwd=folder, **quiet))  # type: ignore[call-overload]
    yield network
    for server in servers:
        server.kill()
        server.wait()
    network.close()


@pytest.fixture
async def gvisor(hosts: Network) -> AsyncIterator[GVisorBackend]:
    """A back-end whose machine allows both hosts; afterwards nothing of its networks is left."""
    allowed = tuple(f"{hosts.address(name)}:{PORT}" for name in "ab")
    backend = GVisorBackend.open(SandboxSettings(egress=(*allowed, "example.org")))
    yield backend
    await backend.close()
    assert networks_of_ours() == []
    assert backend.leaked == 0


async def serving(address: str) -> None:
    """Wait until a host answers."""
    with anyio.fail_after(20):
        while True:
            try:
                await (await anyio.connect_tcp(address, PORT)).aclose()
                return
            except OSError:
                await anyio.sleep(0.05)


async def script(sandbox: Sandbox, source: str, *arguments: str) -> Execution:
    limits = ExecLimits(wall_s=20.0)
    return await sandbox.run(
        Command(argv=("python3", "try.py", *arguments), files={"try.py": source.encode()}, limits=limits)
    )


async def test_a_listed_host_is_reached_and_nothing_else(gvisor: GVisorBackend, hosts: Network) -> None:
    """Through the proxy the listed host answers and others are refused by name; past the proxy nothing is reached."""
    a, b = hosts.address("a"), hosts.address("b")
    await serving(a)
    await serving(b)
    sandbox = await gvisor.start(Want(egress=(f"{a}:{PORT}",)))
    urls = [f"http://{a}:{PORT}/who", f"http://{b}:{PORT}/who", "http://169.254.169.254/", "http://localhost:9/"]
    found = await script(sandbox, FETCH, *urls)
    lines = found.stdout.decode().splitlines()
    assert lines[0] == "host a "
    assert [line.split(" ")[0] for line in lines[1:3]] == [b, "169.254.169.254"]
    assert all("not among the hosts" in line and not line.endswith("slow") for line in lines[1:3])
    assert "refused" in lines[3]
    direct = [f"{a}:{PORT}", f"{b}:{PORT}", "10.231.0.1:22", "10.231.0.1:4222", "1.1.1.1:80", "127.0.0.1:22"]
    found = await script(sandbox, REACH, *direct, "10.231.0.1:3128")
    assert found.stdout.decode().splitlines() == ["refused "] * len(direct) + ["reached "]
    await sandbox.kill()
    await eventually_no_traces(gvisor, sandbox.id)
    assert networks_of_ours() == []


async def test_two_sandboxes_share_nothing(gvisor: GVisorBackend, hosts: Network) -> None:
    """Each has its own list: what one may reach the other may not; neither reaches a server inside the other."""
    a, b = hosts.address("a"), hosts.address("b")
    await serving(a)
    first = await gvisor.start(Want(egress=(f"{a}:{PORT}",)))
    second = await gvisor.start(Want(egress=(f"{b}:{PORT}",)))
    url = f"http://{a}:{PORT}/who"
    assert (await script(first, FETCH, url)).stdout == b"host a \n"
    assert b"not among the hosts" in (await script(second, FETCH, url)).stdout
    listen = "import socket\nserver = socket.create_server(('0.0.0.0', 9000))\nserver.settimeout(1)\n"
    listen += "try:\n    server.accept()\nexcept TimeoutError:\n    print('alone')\n"
    results: list[bytes] = []

    async def serve() -> None:
        results.append((await script(first, listen)).stdout)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        assert (await script(second, REACH, "10.231.0.2:9000", "10.231.0.1:9000")).stdout == b"refused \nrefused \n"
    assert results == [b"alone\n"]
    await first.kill()
    await second.kill()


async def test_without_a_list_there_is_no_network(gvisor: GVisorBackend, hosts: Network) -> None:
    """A sandbox that asks for no hosts has neither a proxy nor a way to one, even where the machine allows hosts."""
    sandbox = await gvisor.start(Want())
    found = await script(
        sandbox, "import os\nprint([name for name in os.environ if 'proxy' in name.lower()])\n" + REACH
    )
    assert found.stdout == b"[]\n"
    found = await script(sandbox, REACH, "10.231.0.1:3128", f"{hosts.address('a')}:{PORT}")
    assert found.stdout == b"refused \nrefused \n"
    await sandbox.kill()


async def test_the_machine_has_the_last_word(gvisor: GVisorBackend) -> None:
    """Hosts that the machine does not allow, and lists that are none, start nothing and leave nothing."""
    for hosts, said in ((("evil.example",), "evil.example:80"), (("example.org:22",), "org:22"), (("*",), "patterns")):
        with pytest.raises(StartFailed, match=said):
            await gvisor.start(Want(egress=hosts))
    await eventually_no_traces(gvisor)


async def test_open_connections_are_not_branched(gvisor: GVisorBackend) -> None:
    """A session that may reach hosts can't be branched, and goes on."""
    sandbox = await gvisor.start(Want(egress=("example.org",)))
    with pytest.raises(SnapshotFailed, match="reach hosts"):
        await gvisor.snapshot(sandbox)
    assert (await sandbox.run(Command(argv=("true",)))).exit_code == 0
    await sandbox.kill()


async def test_a_start_that_fails_leaves_no_network(hosts: Network, tmp_path: Path) -> None:
    """When runsc does not start, the namespaces and the proxy go with the rest."""
    broken = tmp_path / "runsc"
    broken.write_text("#!/bin/sh\necho 'panic: not today' >&2; exit 2\n")
    broken.chmod(0o755)
    backend = GVisorBackend.open(SandboxSettings(egress=("example.org",), runsc=str(broken)))
    with pytest.raises(StartFailed, match="not today"):
        await backend.start(Want(egress=("example.org",)))
    await eventually_no_traces(backend)
    await backend.close()

"""What a sandbox with a network can't do to its host, and what is left when the service is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.sandbox_host import networks_of_ours, processes_of
from support.waiting import until

from tiltyard.sandbox import images
from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.network import Networks
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(egress=("example.org",))
WANT = Want(egress=("example.org",))
TRY = """
import os, socket, sys
proxy = os.environ["http_proxy"].split("//")[1].split(":")
for address in sys.argv[1:]:
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=5)
        print(address, "reached")
    except OSError:
        pass
    with socket.create_connection((proxy[0], int(proxy[1])), timeout=5) as stream:
        stream.sendall(f"CONNECT {address} HTTP/1.1\\r\\n\\r\\n".encode())
        print(stream.recv(100).split(b" ")[1].decode())
"""
SERVICE = """
import sys
import anyio
from support.sandbox_host import networks_of_ours
from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.settings import SandboxSettings

async def main():
    home, runsc, image = sys.argv[1:]
    settings = SandboxSettings(egress=("example.org",), home=home, runsc=runsc, image={"python": image})
    backend = GVisorBackend.open(settings)
    await backend.start(Want(egress=("example.org",)))
    print(backend.instance.id, *(found.split()[1] for found in networks_of_ours()), flush=True)
    await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.fixture
async def gvisor() -> AsyncIterator[GVisorBackend]:
    backend = GVisorBackend.open(SETTINGS)
    yield backend
    await backend.close()
    assert networks_of_ours() == []


async def test_services_of_the_host_are_out_of_reach(gvisor: GVisorBackend) -> None:
    """A server that listens on every address of the host is reached neither past the proxy nor through it, whatever the
    address is called."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        own = socket.gethostbyname(socket.gethostname())
        addresses = [
            f"{name}:{port}" for name in ("10.231.0.1", "127.0.0.1", own, "localhost", "0.0.0.0", "2130706433")
        ]
        sandbox = await gvisor.start(WANT)
        command = Command(
            argv=("python3", "try.py", *addresses), files={"try.py": TRY.encode()}, limits=ExecLimits(wall_s=30)
        )
        found = await sandbox.run(command)
        assert found.stdout.split() == [b"403"] * len(addresses), found.stderr
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


def users_of(spaces: set[str]) -> list[str]:
    """Processes that are in one of the network namespaces or keep one open."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                links = [entry / "ns/net", *(entry / "fd").iterdir()]
                found += [entry.name for link in links if os.path.islink(link) and os.readlink(link) in spaces]
            except OSError:
                continue
    return found


async def test_a_killed_service_leaves_no_network(tmp_path: Path) -> None:
    """SIGKILL of the service: its sandboxes and both their namespaces are gone, since nothing holds them."""
    found = SandboxSettings()
    places = (str(tmp_path), images.find_runsc(found), str(images.find_image(found, "python")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", SERVICE, *places]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: ASYNC220
    assert service.stdout is not None
    instance, *spaces = service.stdout.readline().split()
    assert len(spaces) == 2
    assert len(processes_of(instance)) > 1
    service.send_signal(signal.SIGKILL)
    service.wait()
    service.stdout.close()
    await until(lambda: not processes_of(instance))
    await until(lambda: not users_of(set(spaces)))


def test_networks_come_and_go() -> None:
    """Many networks one after another leave no descriptor and no thread."""
    networks = Networks(SETTINGS)
    networks.attach(WANT.egress).close()
    before = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    for _ in range(20):
        network = networks.attach(WANT.egress)
        network.close()
        network.close()
    after = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    networks.close()
    assert all(now <= then for now, then in zip(after, before, strict=True))  # other things may end meanwhile
    assert networks_of_ours() == []

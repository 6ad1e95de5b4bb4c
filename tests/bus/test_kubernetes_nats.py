"""The bus as Kubernetes runs it: three servers with the shipped configuration, TLS and users, on loopback."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster_files import ROOT

from tiltyard.cli.main import main
from tiltyard.kit import credentials
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.durability import check_durability
from tiltyard.kit.embedded import find_binary, free_port
from tiltyard.kit.provision import provision
from tiltyard.kit.settings import BusSettings
from tiltyard_proto.topology import GENERATE

pytestmark = pytest.mark.anyio
FILES = ROOT / "infra/kubernetes/nats"
LINKS = ("client", "route", "monitor")


class Servers:
    """The three pods' servers, each with its own ports in place of its own address."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.shipped = {port["name"]: port["containerPort"] for port in container()["ports"]}
        assert main(["credentials", str(root / "made"), "--mount", str(root / "made/server")]) == 0
        self.ports = [{link: free_port() for link in LINKS} for _ in range(3)]
        self.processes = [self._start(index) for index in range(3)]

    def _start(self, index: int) -> subprocess.Popen[bytes]:
        folder = self.root / f"nats-{index}"
        (folder / "security").mkdir(parents=True)
        (folder / "security/security.conf").write_text((self.root / "made/server/security.conf").read_text())
        for name in ("nats.conf", "cluster.conf"):
            (folder / name).write_text(self._own((FILES / name).read_text(), index, folder))
        command = [find_binary(), "-c", str(folder / "nats.conf")]
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env={"POD_NAME": f"nats-{index}"})

    def _own(self, text: str, index: int, folder: Path) -> str:
        """The shipped text with this machine's paths, ports and names; nothing else is changed."""
        for other in range(3):
            route = f"nats-{other}.nats.tiltyard.svc:{self.shipped['route']}"
            text = text.replace(route, f"127.0.0.1:{self.ports[other]['route']}")
        for link in LINKS:
            text = text.replace(f"0.0.0.0:{self.shipped[link]}", f"127.0.0.1:{self.ports[index][link]}")
        text = text.replace("/etc/nats/security", str(self.root / "made/server"))
        return text.replace("/data/jetstream", str(folder / "store")).replace("/tmp/nats.pid", str(folder / "pid"))

    def urls(self, link: str, scheme: str) -> tuple[str, ...]:
        return tuple(f"{scheme}://127.0.0.1:{ports[link]}" for ports in self.ports)

    def wait(self, page: str, within_s: float = 40) -> None:
        """Until every server's page says that it is well."""
        deadline = time.monotonic() + within_s
        while not all(_well(f"{url}{page}") for url in self.urls("monitor", "http")):
            logs = [(self.root / f"nats-{index}/log").read_text()[-800:] for index in range(3)]
            assert time.monotonic() < deadline, logs
            time.sleep(0.1)


def container() -> dict[str, Any]:
    """The server's container as the manifest has it."""
    stateful = next(iter(yaml.safe_load_all((FILES / "nats.yaml").read_text())))
    found: dict[str, Any] = stateful["spec"]["template"]["spec"]["containers"][0]
    return found


def _well(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


async def test_three_servers_of_the_manifests_are_a_production_bus(servers: Servers, tmp_path: Path) -> None:
    """The probes' pages answer, the durability check passes, and the provisioner makes streams of three copies."""
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        servers.wait(container()[probe]["httpGet"]["path"])
    settings = BusSettings(
        servers=servers.urls("client", "nats"),
        monitors=servers.urls("monitor", "http"),
        embedded=False,
        durability="production",
    )
    await check_durability(settings)
    options: dict[str, Any] = credentials.options_in(tmp_path / "made", "provisioner")
    bus = await Bus.connect(settings.servers, BlobStore(tmp_path / "blobs"), "provisioner", **options)
    try:
        await provision(bus, settings.replicas)
        info = await bus.js.api(f"STREAM.INFO.{GENERATE.stream}")
    finally:
        await bus.close()
    assert info["config"]["num_replicas"] == 3
    assert info["cluster"]["name"] == "tiltyard"
    assert {info["cluster"]["leader"], *(each["name"] for each in info["cluster"]["replicas"])} == {
        "nats-0", "nats-1", "nats-2",
    }  # fmt: skip

"""A NATS cluster of real servers as child processes: for tests and load tests of what a cluster promises.

Invariants: `start` returns when every server serves JetStream and the cluster has a meta leader; a server keeps its
name, ports and store over `kill` and `start`, so it comes back as the one that went; `stop` leaves no process behind.
Left out: production clusters (infra/), users and TLS.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .embedded import EmbeddedError, find_binary, free_port

CONFIG = """\
server_name: {name}
listen: "{host}:{port}"
http: "{host}:{monitor}"
max_payload: 1MB
jetstream {{ store_dir: "{store}", max_file_store: 64GB, max_memory_store: 256MB, sync_interval: "{sync}" }}
cluster {{ name: tiltyard, listen: "{host}:{route}", routes: [{routes}], pool_size: 3 }}
"""


@dataclass(kw_only=True)
class Node:
    """One server: where it listens, where it keeps its store, and its process while it runs."""

    name: str
    store: Path
    host: str = "127.0.0.1"
    port: int = field(default_factory=free_port)
    route: int = field(default_factory=free_port)
    monitor: int = field(default_factory=free_port)
    prefix: tuple[str, ...] = ()
    """Put before the command, such as `ip netns exec NAME`."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://{self.host}:{self.port}"

    @property
    def monitor_url(self) -> str:
        return f"http://{self.host}:{self.monitor}"

    @property
    def log(self) -> Path:
        return self.store / "nats-server.log"

    def page(self, name: str) -> dict[str, Any]:
        """A monitoring page ('varz', 'jsz?raft=1' ...); OSError while the server is away."""
        with urllib.request.urlopen(f"{self.monitor_url}/{name}", timeout=2) as reply:
            found: dict[str, Any] = json.load(reply)
        return found


class Cluster:
    """Servers that know one another."""

    def __init__(self, nodes: Sequence[Node], *, sync: str = "always", binary: str = "nats-server") -> None:
        self.nodes = list(nodes)
        self.sync = sync
        self.binary = binary

    @classmethod
    def under(cls, root: Path, count: int = 3, *, sync: str = "always") -> Cluster:
        """Servers `a`, `b`, `c` ... on free loopback ports with their stores below `root`."""
        return cls([Node(name=chr(ord("a") + i), store=root / chr(ord("a") + i)) for i in range(count)], sync=sync)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(node.url for node in self.nodes)

    def start(self, within_s: float = 60.0) -> None:
        """Start the servers that do not run, and wait until the cluster is whole."""
        for node in self.nodes:
            if node.process is None:
                self.start_node(node)
        self.wait_whole(within_s)

    def start_node(self, node: Node) -> None:
        """Start one server; it may not be ready yet."""
        node.store.mkdir(parents=True, exist_ok=True)
        config = node.store / "nats-server.conf"
        routes = ", ".join(f'"nats://{other.host}:{other.route}"' for other in self.nodes if other is not node)
        config.write_text(
            CONFIG.format(
                name=node.name,
                host=node.host,
                port=node.port,
                monitor=node.monitor,
                route=node.route,
                routes=routes,
                store=node.store / "jetstream",
                sync=self.sync,
            )
        )
        with node.log.open("ab") as log:
            command = [*node.prefix, find_binary(self.binary), "-c", str(config)]
            node.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def wait_whole(self, within_s: float = 60.0) -> None:
        """Until every running server is current in a cluster of all that run and there is a leader; EmbeddedError."""
        deadline = time.monotonic() + within_s
        while not self._whole():
            for node in self.nodes:
                if node.process is not None and node.process.poll() is not None:
                    raise EmbeddedError(f"server {node.name} ended with {node.process.returncode}; see {node.log}")
            if time.monotonic() > deadline:
                raise EmbeddedError(f"the cluster was not whole within {within_s:g} s; see {self.nodes[0].log}")
            time.sleep(0.1)

    def _whole(self) -> bool:
        running = [node for node in self.nodes if node.process is not None]
        leaders: set[str] = set()
        for node in running:
            try:
                health, meta = node.page("healthz"), node.page("jsz").get("meta_cluster") or {}
            except (OSError, ValueError):
                return False
            leaders.add(meta.get("leader", ""))
            if health.get("status") != "ok" or int(meta.get("cluster_size", 0)) < len(self.nodes):
                return False
        return len(leaders) == 1 and leaders != {""}

    def kill(self, node: Node) -> None:
        """SIGKILL; nothing of the server's memory survives."""
        assert node.process is not None
        node.process.kill()
        node.process.wait()
        node.process = None

    def node(self, name: str) -> Node:
        """The server of that name."""
        return next(node for node in self.nodes if node.name == name)

    def stop(self) -> None:
        """Kill what runs."""
        for node in self.nodes:
            if node.process is not None:
                self.kill(node)

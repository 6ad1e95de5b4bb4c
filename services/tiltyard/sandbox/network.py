"""What a sandbox's network is: none, or a cable to a proxy that lets listed hosts through.

Invariants: the proxies run in a thread of their own, so that their traffic does not delay the service; a proxy ends
with its sandbox, and everything with this process. Left out: the rules (`egress.rules`).
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

import anyio
import anyio.from_thread
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal

from .backend import StartFailed
from .egress import namespace, rules
from .egress.namespace import Cable
from .egress.proxy import Proxy
from .settings import SandboxSettings

HIDE = 'mount -t tmpfs -o ro,size=4k none /proc/sys/net/core && exec "$@"'
"""A runsc of 2024 takes a namespace in which this directory has a certain file for the host's own. Newer kernels show
that file in every namespace, so the launcher is not shown the directory."""
PROXY_URL = f"http://{namespace.PROXY}:{namespace.PORT}"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


class Network:
    """The network of one sandbox. `close` it when the sandbox is gone."""

    kind = "none"
    """Value of runsc's --network."""
    environment: dict[str, str] = {}  # noqa: RUF012  (never changed)
    """Variables that every command gets."""

    def launcher(self) -> tuple[str, ...]:
        """What to put before the command line of runsc."""
        return ()

    def spec(self, said: dict[str, Any]) -> dict[str, Any]:
        """The OCI specification `said`, or a copy that names this network."""
        return said

    def close(self) -> None:
        """Harmless a second time."""


class Proxied(Network):
    """The network of a sandbox that may reach some hosts."""

    kind = "sandbox"
    environment = {**dict.fromkeys(VARIABLES, PROXY_URL), "NO_PROXY": "localhost,127.0.0.1", "no_proxy": "localhost"}  # noqa: RUF012

    def __init__(self, cable: Cable, portal: BlockingPortal, proxy: Proxy) -> None:
        self._cable, self._portal = cable, portal
        self.namespace = cable.namespace
        self._ended: Future[None]
        self._scope: anyio.CancelScope
        self._ended, self._scope = portal.start_task(_serve, proxy, cable)

    def launcher(self) -> tuple[str, ...]:
        enter = ("nsenter", f"--net={self.namespace}", "--", "unshare", "--mount", "--propagation", "private", "--")
        return (*enter, "/bin/sh", "-c", HIDE, "network")

    def spec(self, said: dict[str, Any]) -> dict[str, Any]:
        linux = said["linux"]
        others = [space for space in linux["namespaces"] if space["type"] != "network"]
        return {**said, "linux": {**linux, "namespaces": [*others, {"type": "network", "path": self.namespace}]}}

    def close(self) -> None:
        if not self._ended.done():
            self._portal.call(self._scope.cancel)
            self._ended.result(timeout=5)
        self._cable.close()


async def _serve(proxy: Proxy, cable: Cable, *, task_status: TaskStatus[anyio.CancelScope]) -> None:
    assert cable.listener is not None
    with anyio.CancelScope() as scope:
        task_status.started(scope)
        await proxy.serve(cable.listener)


class Networks:
    """Makes networks. `close` when the back-end ends; call both from worker threads."""

    def __init__(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self.allowed = rules.parse(settings.egress)
        self._lock = threading.Lock()
        self._opening: AbstractContextManager[BlockingPortal] | None = None
        self._portal: BlockingPortal | None = None

    def attach(self, hosts: tuple[str, ...]) -> Network:
        """The network of a sandbox that may reach `hosts`; StartFailed where it can't be made or isn't allowed."""
        if not hosts:
            return Network()
        try:
            wanted = rules.parse(hosts)
        except ValueError as error:
            raise StartFailed(str(error)) from error
        beyond = rules.beyond_of(self.allowed, wanted)
        if beyond:
            raise StartFailed(f"{', '.join(beyond)}: not among the hosts of sandbox.egress on this machine")
        if os.geteuid() != 0:
            raise StartFailed("network namespaces need root")
        settings = self.settings
        proxy = Proxy(wanted, connections=settings.egress_connections, total_bytes=settings.egress_bytes)
        cable = Cable()
        try:
            return Proxied(cable, self._ready(), proxy)
        except BaseException:
            cable.close()
            raise

    def _ready(self) -> BlockingPortal:
        with self._lock:
            if self._portal is None:
                self._opening = anyio.from_thread.start_blocking_portal()
                self._portal = self._opening.__enter__()
            return self._portal

    def close(self) -> None:
        with self._lock:
            if self._opening is not None:
                self._opening.__exit__(None, None, None)
            self._opening = self._portal = None

"""Network namespaces on a bridge, one per server, whose links to one another can be cut and healed.

Invariant: everything that `Network` made is removed by `close`. Needs root and `ip`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack

PREFIX = "10.213.7"


def require() -> None:
    """AssertionError with the line that mends it when this machine can't make network namespaces."""
    assert shutil.which("ip"), "apt-get install -y iproute2"
    assert os.geteuid() == 0, "network namespaces need root: sudo make test"


def ip(*arguments: str, check: bool = True) -> None:
    """Run `ip`; its message is in the error when it fails."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, f"ip {' '.join(arguments)}: {done.stderr}"


class Network:
    """Namespaces for `names`, with the host at .254 of a /24."""

    def __init__(self, names: str, prefix: str = PREFIX) -> None:
        require()
        self.names, self.prefix = names, prefix
        self.bridge = f"tb{os.getpid()}"
        with ExitStack() as failed:
            failed.callback(self.close)
            ip("link", "add", self.bridge, "type", "bridge")
            ip("address", "add", f"{self.prefix}.254/24", "dev", self.bridge)
            ip("link", "set", self.bridge, "up")
            for name in names:
                self._add(name)
            failed.pop_all()

    def space(self, name: str) -> str:
        return f"tn{os.getpid()}{name}"

    def _link(self, name: str) -> str:
        return f"tv{os.getpid()}{name}"

    def address(self, name: str) -> str:
        return f"{self.prefix}.{self.names.index(name) + 1}"

    def enter(self, name: str) -> tuple[str, ...]:
        """What to put before a command so that it runs in a namespace."""
        return ("ip", "netns", "exec", self.space(name))

    def _add(self, name: str) -> None:
        space, link = self.space(name), self._link(name)
        ip("netns", "add", space)
        ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("link", "set", link, "master", self.bridge, "up")
        ip("-n", space, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        ip("-n", space, "link", "set", "lo", "up")

    def cut(self, name: str) -> None:
        """The other namespaces no longer hear from this one; whoever is on the host still does."""
        for other in self.names.replace(name, ""):
            ip("-n", self.space(name), "route", "add", "blackhole", f"{self.address(other)}/32")

    def heal(self, name: str) -> None:
        """Undo `cut`."""
        for other in self.names.replace(name, ""):
            ip("-n", self.space(name), "route", "del", "blackhole", f"{self.address(other)}/32", check=False)

    def close(self) -> None:
        for name in self.names:
            ip("netns", "del", self.space(name), check=False)
            ip("link", "del", self._link(name), check=False)
        ip("link", "del", self.bridge, check=False)

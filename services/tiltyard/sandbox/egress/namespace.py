"""A network for one sandbox: two network namespaces and a cable between them.

The sandbox gets one end; the proxy listens on the other end, in a namespace that holds nothing else and has no way
out. So there is nothing to filter: whatever is not for the proxy goes nowhere, and no service of the host can be
reached, whatever it listens on. Invariants: the namespaces have no names and live by descriptors of this process, so
that they and the cable are gone with it however it ends; both threads that enter a namespace end in it.
Left out: what passes through the proxy (`proxy`).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable

from tiltyard.sandbox.backend import StartFailed

NEW_NETWORK = 0x40000000
GUEST, PROXY = "10.231.0.2", "10.231.0.1"
PORT = 3128
DEVICE = "eth0"


class Cable:
    """The namespaces of one sandbox, and the socket that listens at the proxy's end."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        self.listener: socket.socket | None = None
        try:
            _in_a_thread(self._make)
        except (OSError, subprocess.SubprocessError) as error:
            self.close()
            raise StartFailed(f"no network for a sandbox: {error}") from error

    @property
    def namespace(self) -> str:
        """Path of the sandbox's network namespace, for as long as this lives."""
        return f"/proc/{os.getpid()}/fd/{self._descriptors[1]}"

    def _make(self) -> None:
        if shutil.which("ip") is None:
            raise OSError("the program ip is missing; install iproute2")
        inner = self._new()
        outer = f"/proc/{os.getpid()}/fd/{inner}"
        self._new()
        _ip(
            f"link add {DEVICE} type veth peer name {DEVICE} netns {outer}",
            f"link set {DEVICE} addrgenmode none",
            f"address add {GUEST}/30 dev {DEVICE}",
            f"link set {DEVICE} up",
            "link set lo up",
        )
        _check(_libc.setns(inner, NEW_NETWORK))
        _ip(f"link set {DEVICE} addrgenmode none", f"address add {PROXY}/30 dev {DEVICE}", f"link set {DEVICE} up")
        self.listener = socket.create_server((PROXY, PORT), backlog=64)
        self.listener.setblocking(False)

    def _new(self) -> int:
        """Enter a namespace of its own; its descriptor."""
        _check(_libc.unshare(NEW_NETWORK))
        self._descriptors.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        return self._descriptors[-1]

    def close(self) -> None:
        """Let both namespaces go; harmless a second time."""
        if self.listener is not None:
            self.listener.close()
        while self._descriptors:
            os.close(self._descriptors.pop())


_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"network namespaces: {os.strerror(number)}; the service needs CAP_SYS_ADMIN")


def _ip(*lines: str) -> None:
    """Run commands of `ip` in this thread's namespace."""
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(["ip", "-batch", "-"], input=text, capture_output=True, text=True, check=False, timeout=10)
    if done.returncode:
        raise OSError(f"ip: {done.stderr.strip()[:300]}")


def _in_a_thread(work: Callable[[], None]) -> None:
    """Run it in a thread of its own, which ends with it, since it leaves the thread in another namespace."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except (OSError, subprocess.SubprocessError) as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="network-namespace")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]

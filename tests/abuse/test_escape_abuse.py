"""Programs that look for a way out: network, host, kernel, the agent, secrets, the file interface."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tiltyard.sandbox.backend import Sandbox, Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard_proto.messages import Command, ExecLimits, Execution
from tiltyard_proto.outcomes import Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("case")]
LIMITS = ExecLimits(wall_s=10.0)


@pytest.fixture(scope="module")
async def shared(gvisor: GVisorBackend) -> AsyncIterator[Sandbox]:
    """One sandbox for the probes that leave it as it was."""
    made = await gvisor.start(Want())
    yield made
    assert made.alive
    await made.kill()


async def py(sandbox: Sandbox, source: str) -> Execution:
    return await sandbox.run(Command(argv=("python3", "main.py"), files={"main.py": source.encode()}, limits=LIMITS))


async def test_17_no_network(shared: Sandbox) -> None:
    """Every way out fails at once, by address, by name, raw, over IPv6 and vsock; loopback works."""
    source = """
import socket, threading, time
begun = time.monotonic()
def attempt(name, act):
    try:
        act()
        print(name, "WORKED")
    except OSError as error:
        print(name, "refused")
def tcp(host, port, family=socket.AF_INET): socket.socket(family, socket.SOCK_STREAM).connect((host, port))
attempt("tcp", lambda: tcp("1.1.1.1", 443))
attempt("metadata", lambda: tcp("169.254.169.254", 80))
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("8.8.8.8", 53)))
attempt("dns", lambda: socket.getaddrinfo("example.com", 80))
attempt("ipv6", lambda: tcp("2606:4700:4700::1111", 443, socket.AF_INET6))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM).connect((2, 1)))
print("quick" if time.monotonic() - begun < 3 else "SLOW")
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
client.sendall(b"loop")
print(server.accept()[0].recv(4).decode())
"""
    found = await py(shared, source)
    lines = found.stdout.decode().splitlines()
    assert lines[:8] == [f"{n} refused" for n in ("tcp", "metadata", "udp", "dns", "ipv6", "raw", "packet", "vsock")]
    assert lines[8:] == ["quick", "loop"], found.stderr


async def test_18_host_is_absent(shared: Sandbox) -> None:
    """Sockets, files, processes and groups of the host are not there."""
    shadow = Path("/etc/shadow").read_text()  # noqa: ASYNC240  (a small local file)
    source = f"""
import os, socket
docker = "/var/run/docker.sock", "/run/docker.sock"
for path in (*docker, "/sys/fs/cgroup/memory", {str(os.getcwd())!r}, "/proc/{os.getpid()}"):
    print(os.path.exists(path))
try:
    print(open("/etc/shadow").read() == {shadow!r})
except OSError:
    print(False)
found = [line for line in open("/proc/net/unix").read().splitlines()[1:]] if os.path.exists("/proc/net/unix") else []
print(len(found) > 0)
"""
    found = await py(shared, source)
    assert found.stdout.decode().split() == ["False"] * 7, found.stderr


async def test_19_kernel_interfaces_are_refused(shared: Sandbox) -> None:
    """Mounts, devices, namespaces, tracing, kernel modules, clocks: refused, by errno and not by a crash."""
    source = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    print(name, "refused" if result == -1 else "WORKED")
call("mount", 165, b"none", b"/tmp", b"tmpfs", 0, 0)
call("umount", 166, b"/proc", 0)
call("chroot", 161, b"/tmp")
call("pivot_root", 155, b"/tmp", b"/tmp")
call("device", 2, (libc.mknod(b"/tmp/disk", 0o60666, 0x800), b"/tmp/disk")[1], 2)
call("ptrace", 101, 16, 1, 0, 0)
call("setns", 308, 0, 0)
call("bpf", 321, 0, 0, 0)
call("perf", 298, 0, 0, -1, -1, 0)
call("userfaultfd", 323, 0)
call("init_module", 175, 0, 0, b"")
call("kexec", 246, 0, 0, 0, 0)
call("reboot", 169, 0xfee1dead, 672274793, 0x1234567, 0)
call("settimeofday", 164, b"\\0" * 16, 0)
call("sethostname", 170, b"x", 1)
call("swapon", 167, b"/tmp/x", 0)
call("iopl", 172, 3)
call("io_uring_setup", 425, 8, b"\\0" * 120)
call("process_vm_readv", 310, 1, b"\\0" * 16, 1, b"\\0" * 16, 1, 0)
call("setuid", 105, 0)
call("capset", 126, b"\\0" * 8, b"\\xff" * 24)
"""
    found = await py(shared, source)
    assert [line for line in found.stdout.decode().splitlines() if not line.endswith(" refused")] == []
    assert len(found.stdout.splitlines()) == 21, found.stderr


async def test_19_no_capabilities(shared: Sandbox) -> None:
    """User code has another uid and no capability of any kind, in a script and in any other command."""
    script = "id -u; grep -E '^(CapInh|CapPrm|CapEff)' /proc/self/status"
    for argv in (("bash", "-c", script), ("python3", "main.py")):
        source = f"import os, subprocess; subprocess.run(['bash', '-c', {script!r}])".encode()
        found = await shared.run(Command(argv=argv, files={"main.py": source}))
        uid, *masks = found.stdout.decode().splitlines()
        assert uid == "1000"
        assert [int(mask.split()[1], 16) for mask in masks] == [0, 0, 0]


async def test_20_agent_is_out_of_reach(shared: Sandbox) -> None:
    """User code can't write to the agent's descriptors or memory, stop it or kill it; it answers as before."""
    source = """
import os, signal
def attempt(name, act):
    try:
        act()
        print(name, "WORKED")
    except OSError as error:
        print(name, "refused")
for fd in range(3, 12):  # 0 to 2 are the null device
    attempt(f"fd{fd}", lambda: os.open(f"/proc/1/fd/{fd}", os.O_WRONLY))
attempt("mem", lambda: os.open("/proc/1/mem", os.O_RDWR))
attempt("kill", lambda: os.kill(1, signal.SIGKILL))
attempt("stop", lambda: os.kill(1, signal.SIGSTOP))
attempt("rlimit", lambda: __import__("resource").prlimit(1, 7, (4, 4)))
attempt("code", lambda: open(__import__("glob").glob("/tiltyard/*/guest/agent.py")[0], "a"))
held = [n for n in os.listdir("/proc/self/fd") if n not in ("0", "1", "2")]
print(len(held))
"""
    found = await py(shared, source)
    lines = found.stdout.decode().splitlines()
    assert [line for line in lines[:-1] if not line.endswith(" refused")] == []
    assert len(lines) == 15
    assert lines[-1] == "1"  # the directory being listed
    everyone = await py(shared, "import os, signal\nos.kill(-1, signal.SIGKILL)")
    assert everyone.outcome in (Outcome.SIGNALLED, Outcome.NONZERO_EXIT)
    assert (await py(shared, "print('still here')")).stdout == b"still here\n"


async def test_21_no_secrets(shared: Sandbox) -> None:
    """Nothing of the host's environment, names or command lines can be read inside."""
    os.environ["TILTYARD_TEST_SECRET"] = "s3cr3t-of-the-host"
    try:
        source = """
import os, glob
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline") + ["/etc/hostname", "/etc/hosts"]:
    try: print(path, open(path, "rb").read())
    except OSError: pass
print(os.environ, os.uname().nodename)
"""
        found = await py(shared, source)
    finally:
        del os.environ["TILTYARD_TEST_SECRET"]
    text = found.stdout.decode()
    assert "PYTHONHASHSEED" in text  # it did look
    for word in ("s3cr3t", os.getcwd(), ".cache/", "runsc", "'TILTYARD"):
        assert word not in text
    assert "'sandbox'" in repr(text.split()[-1]) or text.rstrip().endswith("sandbox")


async def test_22_file_interface_under_attack(sandbox: Sandbox) -> None:
    """While a program swaps a file for a link as fast as it can, reading and writing stay in the workspace."""
    source = """
import os, time
os.makedirs("d", exist_ok=True)
if os.fork() == 0:
    os.setsid()
    while True:
        try:
            os.rename("d", "e"); os.symlink("/etc", "d"); os.unlink("d"); os.rename("e", "d")
        except OSError: pass
time.sleep(0.05)
"""
    found = await py(sandbox, source)
    assert found.outcome is Outcome.FINISHED
    await sandbox.run(Command(argv=("bash", "-c", "rm -rf d e; ln -s /etc d; ln -s /proc/1 p; mkfifo f; ln -s f g")))
    begun = time.monotonic()
    assert await sandbox.read(["d/passwd", "p/environ", "f", "g", "d"]) == {}
    await sandbox.write({"d/passwd": b"mine", "f": b"file", "g/h": b"deep"})
    assert await sandbox.read(["d/passwd", "f", "g/h"]) == {"d/passwd": b"mine", "f": b"file", "g/h": b"deep"}
    assert time.monotonic() - begun < 2
    assert b"root:" in (await sandbox.run(Command(argv=("cat", "/etc/passwd")))).stdout


async def test_24_setuid_has_no_effect(sandbox: Sandbox) -> None:
    """A file with the set-user-id bit gives nothing, made inside or carried in."""
    await sandbox.run(Command(argv=("bash", "-c", "cp /usr/bin/id id; chmod 4755 id")))
    archive = await sandbox.export()
    await sandbox.restore(archive)
    found = await sandbox.run(Command(argv=("./id", "-u")))
    assert found.stdout == b"1000\n"

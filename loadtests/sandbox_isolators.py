"""The same work under other isolators: one call makes a sandbox, runs a program in it and leaves nothing.

`docker` gets a daemon of its own, with its own data and socket, that ends with the benchmark; its containers are in
the benchmark's accounting group. What is not installed is named, with how to get it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from tiltyard.sandbox.launch import Runsc, spec

Once = Callable[[tuple[str, ...]], Awaitable[None]]
WAYS = {"runc": "apt-get install runc", "bwrap": "apt-get install bubblewrap", "dockerd": "apt-get install docker.io"}
VARIABLES = {"PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1"}
IMAGE = "tiltyard-bench"


async def call(command: list[str]) -> None:
    """Run a program that must succeed; RuntimeError with what it said."""
    done = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode('utf-8', 'replace')[-400:]}")


def missing() -> dict[str, str]:
    """What is not here, and how to get it."""
    return {name: how for name, how in WAYS.items() if shutil.which(name) is None}


def bubblewrap(image: Path) -> Once:
    """bubblewrap, with everything unshared."""
    fixed = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", str(image), "/", "--proc", "/proc"]
    fixed += ["--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/workspace", "--chdir", "/workspace", "--clearenv"]
    for name, value in VARIABLES.items():
        fixed += ["--setenv", name, value]

    async def once(argv: tuple[str, ...]) -> None:
        await call([*fixed, "--", *argv])

    return once


def runc(image: Path, work: Path, group: str) -> Once:
    """runc, with the root file system, mounts and namespaces of our sandboxes."""
    count = iter(range(1 << 30))

    async def once(argv: tuple[str, ...]) -> None:
        name = f"bench-{os.getpid()}-{next(count)}"
        bundle = work / name
        bundle.mkdir()
        text = spec(image, list(argv), 64 << 20, 16 << 20, VARIABLES)
        del text["process"]["capabilities"]  # not every host could give those that ours have inside gVisor
        text["linux"]["cgroupsPath"] = f"{group}/{name}"
        (bundle / "config.json").write_text(json.dumps(text))
        await call(["runc", "--root", str(work / "state"), "run", "--bundle", str(bundle), name])
        shutil.rmtree(bundle)

    return once


def runsc(image: Path, work: Path, program: Runsc) -> Once:
    """gVisor without anything of ours: the program is the first process of a bundle of its own."""
    count = iter(range(1 << 30))

    async def once(argv: tuple[str, ...]) -> None:
        name = f"bench-{os.getpid()}-{next(count)}"
        bundle = work / name
        bundle.mkdir()
        text = spec(image, list(argv), 64 << 20, 16 << 20, VARIABLES)
        (bundle / "config.json").write_text(json.dumps(text))
        await call(program.run(bundle, (), bundle, name))
        shutil.rmtree(bundle)

    return once


def docker(socket: str, runtime: str) -> Once:
    """`docker run`, with a runtime."""
    fixed = ["docker", "-H", socket, "run", "--rm", "--network=none", f"--runtime={runtime}"]

    async def once(argv: tuple[str, ...]) -> None:
        await call([*fixed, IMAGE, *argv])

    return once


@contextmanager
def daemon(image: Path, runsc: str, platform: str, group: str) -> Iterator[str]:
    """The socket of a docker daemon with the image imported and runsc as a runtime."""
    with tempfile.TemporaryDirectory(prefix="bench-docker-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        arguments = [f"--platform={platform}", "--network=none", "--ignore-cgroups"]
        config = {"runtimes": {"runsc": {"path": runsc, "runtimeArgs": arguments}}, "live-restore": False}
        (work / "daemon.json").write_text(json.dumps(config))
        socket = f"unix://{work}/docker.sock"
        command = ["dockerd", "--config-file", str(work / "daemon.json"), "-H", socket]
        command += ["--data-root", str(work / "data"), "--exec-root", str(work / "exec"), "-p", str(work / "pid")]
        command += ["--bridge=none", "--iptables=false", "--ip-forward=false", f"--cgroup-parent={group}"]
        with (work / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            _wait_ready(process, socket, work / "log")
            _import(image, socket)
            yield socket
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait_ready(process: subprocess.Popen[bytes], socket: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    while subprocess.run(["docker", "-H", socket, "info"], capture_output=True, check=False).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"dockerd did not come up: {log.read_text().strip().splitlines()[-1:]}")
        time.sleep(0.2)


def _import(image: Path, socket: str) -> None:
    tar = subprocess.Popen(["tar", "-C", str(image), "--exclude=./tiltyard", "-c", "."], stdout=subprocess.PIPE)
    changes = [word for name, value in VARIABLES.items() for word in ("-c", f"ENV {name}={value}")]
    command = ["docker", "-H", socket, "import", *changes, "-c", "WORKDIR /workspace", "-", IMAGE]
    subprocess.run(command, stdin=tar.stdout, check=True, capture_output=True)
    if tar.wait():
        raise RuntimeError(f"tar of {image} failed")

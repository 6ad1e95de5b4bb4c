"""A Docker engine for the Compose test: the host's where one runs, else one of its own that leaves nothing behind.

Invariants: an engine of our own keeps everything below one directory, ends with the test, and takes its firewall rules
along.
Left out: installing the programs, which `infra/setup/docker.sh` does.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOME = Path(os.environ.get("TILTYARD_HOME") or Path.home() / ".cache/tiltyard")
BASE, NATS = "tiltyard-base:bookworm", "tiltyard-nats:local"
"""Images made here, in place of those that would be pulled."""
PACKAGES = "python3,python3-pip,ca-certificates"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
READY_S = 60.0
TABLES = {"filter": ("INPUT", "FORWARD", "OUTPUT"), "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING")}
"""Tables of the firewall that an engine adds chains to, with the chains that they have by themselves."""
FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


class Docker:
    """The docker command against one engine."""

    def __init__(self, host: str) -> None:
        self.environment = {**os.environ, "DOCKER_HOST": host, "DOCKER_CONFIG": str(HOME / "docker")}
        self.environment |= {"DOCKER_BUILDKIT": "1", "COMPOSE_BAKE": "false"}

    def run(self, *arguments: str, within_s: float = 120.0, **more: str) -> str:
        """Standard output of `docker ...`; fails the test with what it said when it fails."""
        done = self.done(*arguments, within_s=within_s, **more)
        assert done.returncode == 0, f"docker {' '.join(arguments)}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def done(self, *arguments: str, within_s: float = 120.0, **more: str) -> subprocess.CompletedProcess[str]:
        """The finished command, however it ended. `more`: further variables."""
        return subprocess.run(
            ["docker", *arguments],
            env=self.environment | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )


@contextmanager
def engine() -> Iterator[Docker]:
    """The engine that DOCKER_HOST names or that listens where engines do, else one of our own."""
    found = Docker(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    if found.done("info").returncode == 0:
        yield found
        return
    place = Path(tempfile.mkdtemp(prefix="tiltyard-compose-"))
    rules, forward = _rules(), FORWARD.read_text()
    daemon = _start(place)
    try:
        own = Docker(f"unix://{place}/socket")
        _wait(own, daemon, place)
        yield own
    finally:
        _stop(daemon, place)
        subprocess.run(["iptables-restore"], input=rules, text=True, check=False, capture_output=True)
        FORWARD.write_text(forward)


def _rules() -> str:
    """The host's firewall rules, to be restored; a table that nobody has used is an empty one."""
    said = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    for table, chains in TABLES.items():
        if f"*{table}\n" not in said:
            said += "\n".join((f"*{table}", *(f":{chain} ACCEPT [0:0]" for chain in chains), "COMMIT", ""))
    return said


def _start(place: Path) -> subprocess.Popen[bytes]:
    options = {"data-root": "data", "exec-root": "exec", "pidfile": "pid", "config-file": "daemon.json"}
    (place / "daemon.json").write_text("{}")
    command = ["setpriv", "--pdeathsig", "TERM", "--", "dockerd", f"--host=unix://{place}/socket", "--bridge=none"]
    command += [f"--{name}={place / value}" for name, value in options.items()]
    with (place / "log").open("wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def _wait(docker: Docker, daemon: subprocess.Popen[bytes], place: Path) -> None:
    deadline = time.monotonic() + READY_S
    while docker.done("info").returncode:
        said = (place / "log").read_text()[-2000:]
        assert daemon.poll() is None and time.monotonic() < deadline, said  # noqa: PT018  (one reason, one log)
        time.sleep(0.2)


def _stop(daemon: subprocess.Popen[bytes], place: Path) -> None:
    daemon.terminate()
    try:
        daemon.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()
    for line in reversed(Path("/proc/mounts").read_text().splitlines()):
        if (where := line.split()[1]).startswith(str(place)):
            subprocess.run(["umount", "-l", where], check=False)
    shutil.rmtree(place, ignore_errors=True)


# ---------------------------------------------------------------- images in place of pulled ones


def provide_images(docker: Docker) -> None:
    """A base image of Debian packages and an image with the NATS server of the virtual environment."""
    if docker.done("image", "inspect", BASE).returncode:
        variable = f"ENV PIP_CERT={CERTIFICATES} SSL_CERT_FILE={CERTIFICATES}"
        docker.run("import", "--change", variable, str(base_archive()), BASE, within_s=300)
    if docker.done("image", "inspect", NATS).returncode:
        with tempfile.TemporaryDirectory() as scratch:
            place = Path(scratch) / "usr/local/bin"
            place.mkdir(parents=True)
            shutil.copy2(_nats_server(), place / "nats-server")
            subprocess.run(["tar", "-C", scratch, "-cf", f"{scratch}/nats.tar", "usr"], check=True)
            docker.run("import", f"{scratch}/nats.tar", NATS)


def base_archive() -> Path:
    """Debian 12 with Python as an archive, made once; it trusts the certificates that this machine trusts."""
    archive = HOME / "docker/base-bookworm.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        new = archive.with_suffix(f".{os.getpid()}.tar")
        trust = f"--customize-hook=copy-in {CERTIFICATES} {CERTIFICATES.parent}"
        command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={PACKAGES}", trust]
        subprocess.run([*command, "bookworm", str(new), "http://deb.debian.org/debian"], check=True, timeout=900)
        new.rename(archive)
    return archive


def _nats_server() -> str:
    from tiltyard.kit.embedded import find_binary

    return find_binary()

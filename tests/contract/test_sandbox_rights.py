"""The executor works with exactly the capabilities that are documented, and the documents agree on them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tiltyard.sandbox import images
from tiltyard.sandbox.settings import SandboxSettings

INFRA = Path(__file__).parents[2] / "infra"
EGRESS = {"NET_ADMIN", "NET_RAW"}
EXECUTOR = """
import sys, anyio
from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.doctor import doctor, render
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command
home, runsc, image, *hosts = sys.argv[1:]
settings = SandboxSettings(home=home, runsc=runsc, image={"python": image}, egress=tuple(hosts))
async def main():
    for check in await doctor(settings):
        assert check.ok, render(check)
    backend = GVisorBackend.open(settings)
    sandbox = await backend.start(Want(egress=tuple(hosts)))
    snapshot = "" if hosts else await backend.snapshot(sandbox)
    found = await (await backend.start(Want(snapshot=snapshot, egress=tuple(hosts)))).run(Command(argv=("id", "-u")))
    await backend.close()
    print(found.stdout.decode().strip(), backend.leaked)
anyio.run(main)
"""


def documented() -> set[str]:
    """The capabilities of the systemd unit."""
    unit = (INFRA / "systemd/tiltyard-sandbox.service").read_text()
    (line,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    return {name.removeprefix("CAP_") for name in line.split()}


def run_with(capabilities: set[str], home: Path, *hosts: str) -> subprocess.CompletedProcess[str]:
    """The executor's work with these capabilities and no way to gain others."""
    found = SandboxSettings()
    keep = ",".join(["-all", *(f"+{name.lower()}" for name in sorted(capabilities))])
    command = ["setpriv", "--no-new-privs", "--bounding-set", keep, "--", sys.executable, "-c", EXECUTOR, str(home)]
    command += [images.find_runsc(found), str(images.find_image(found, "python")), *hosts]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": ":".join(path for path in sys.path if path)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=55, check=False)


@pytest.mark.parametrize("hosts", [(), ("example.org",)], ids=["no network", "egress"])
def test_the_documented_rights_are_enough(tmp_path: Path, hosts: tuple[str, ...]) -> None:
    """With the documented capabilities everything works: the self-test, snapshots, clean-up, a filtered network."""
    done = run_with(documented() - (set() if hosts else EGRESS), tmp_path, *hosts)
    assert done.stdout == "1000 0\n", done.stderr[-2000:]


@pytest.mark.parametrize("name", ["SYS_ADMIN", "SETUID", "SETFCAP"])
def test_none_of_them_is_superfluous(tmp_path: Path, name: str) -> None:
    """Without any of them no sandbox starts, and the reason is said."""
    done = run_with(documented() - EGRESS - {name}, tmp_path)
    assert done.returncode == 1
    assert "FAIL  start: runsc: " in done.stderr


def test_the_documents_agree() -> None:
    """systemd, compose and the page name the same capabilities; the pod that has gVisor around it names none."""
    compose = yaml.safe_load((INFRA.parent / "compose.yaml").read_text())
    assert set(compose["services"]["sandbox"]["cap_add"]) == documented()
    page = (INFRA.parent / "docs/sandbox.md").read_text().partition("## Rights")[2]
    assert {name for name in documented() if f"`CAP_{name}`" in page} == documented()
    assert "drop: [ALL]" in (INFRA / "kubernetes/sandbox-pod.yaml").read_text()


def test_the_unit_is_valid(tmp_path: Path) -> None:
    """systemd accepts the unit; only its program is replaced by one that is there."""
    unit = (INFRA / "systemd/tiltyard-sandbox.service").read_text()
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    copy = tmp_path / "tiltyard-sandbox.service"
    copy.write_text(re.sub(r"^ExecStart=.*$", "ExecStart=/bin/true", unit, flags=re.MULTILINE))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")

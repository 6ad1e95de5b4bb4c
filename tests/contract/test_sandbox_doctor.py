"""The doctor: a good runsc passes, each defect of a bad one is found by what happens, and verdicts are kept."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import anyio
import msgspec
import pytest
from support.runscs import spoil

from tiltyard.cli.main import main
from tiltyard.sandbox import doctor, images, probe
from tiltyard.sandbox.backend import StartFailed
from tiltyard.sandbox.cgroups import CgroupError
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.trial import Trial

pytestmark = pytest.mark.anyio
CHECKS = ["runsc", "start", "files", "processes", "disk", "network", "user", "memory", "clean-up"]
CHECKS += ["image", "snapshot", "branch"]


@pytest.fixture
def settings(tmp_path: Path) -> SandboxSettings:
    """A home of its own, with nothing known about any runsc."""
    found = SandboxSettings()
    image = str(images.find_image(found, "python"))
    return SandboxSettings(home=str(tmp_path / "home"), runsc=images.find_runsc(found), image={"python": image})


def kept(settings: SandboxSettings, pattern: str = "*") -> dict[str, int]:
    """Files in which something is known, with their times."""
    return {path.name: path.stat().st_mtime_ns for path in Path(settings.home, "probes").glob(pattern)}


def fetch_old(folder: Path) -> str:
    """Path of the runsc of Debian 12's main archive."""
    if "VERSION_CODENAME=bookworm" not in Path("/etc/os-release").read_text():
        pytest.skip("this system's archive has no such package: not Debian 12")
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", "runsc/bookworm"]
    fetched = subprocess.run(command, cwd=folder, capture_output=True, timeout=50, check=False)
    if fetched.returncode:
        pytest.skip(f"Debian's archive can't be reached: {fetched.stderr.decode()[-200:]}")
    (package,) = folder.glob("runsc_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, folder / "tree"], check=True, timeout=50)
    return str(folder / "tree/usr/bin/runsc")


async def test_a_working_machine_passes(settings: SandboxSettings) -> None:
    """Every check passes here, each by what it tried, and nothing is left."""
    checks = await doctor.doctor(settings)
    assert [check.name for check in checks if not check.ok] == []
    assert [check.name for check in checks] == CHECKS
    assert os.listdir(Path(settings.home, "run")) == []


@pytest.mark.parametrize(
    ("defect", "failing"),
    [
        ("no_stat", ["files"]),
        ("no_sizes", ["disk"]),
        ("no_rights", ["files", "processes", "disk", "network", "user", "memory"]),
        ("bad_snapshots", ["snapshot", "branch"]),
        ("leaves_nothing_running", ["branch"]),
        ("odd_version", []),
    ],
)
async def test_defects_are_found(settings: SandboxSettings, tmp_path: Path, defect: str, failing: list[str]) -> None:
    """Broken tools, limits that don't hold and snapshots that fail are found; a version string is not looked at."""
    spoiled = msgspec.structs.replace(settings, runsc=spoil(tmp_path, settings.runsc, defect))
    checks = await doctor.doctor(spoiled)
    assert [check.name for check in checks if not check.ok] == failing
    assert all("infra/setup/runsc.sh" in check.mend for check in checks if not check.ok and check.name != "memory")
    optional = {"snapshot", "branch"}
    assert doctor.passed(checks) is (set(failing) <= optional)


async def test_the_mend_is_named(tmp_path: Path, settings: SandboxSettings) -> None:
    """A runsc that does not work, or none at all, or no image, is refused with the line that mends it."""
    broken = tmp_path / "runsc"
    broken.write_text("#!/bin/sh\necho 'panic: not today' >&2; exit 2\n")
    broken.chmod(0o755)
    (check,) = await doctor.doctor(msgspec.structs.replace(settings, runsc=str(broken)))
    assert (check.ok, check.detail) == (False, "runsc: panic: not today")
    assert check.mend.startswith("get a working runsc with infra/setup/runsc.sh")
    chosen = msgspec.structs.replace(settings, runsc=str(broken), platform="kvm")
    assert "another sandbox.platform" in (await doctor.doctor(chosen))[0].mend
    docker = msgspec.structs.replace(settings, backend="docker", docker_socket=str(tmp_path / "none"))
    (check,) = await doctor.doctor(docker)
    assert (check.mend, "set sandbox.docker_socket" in check.detail) == ("", True)
    (check,) = await doctor.doctor(msgspec.structs.replace(settings, runsc=str(tmp_path / "none")))
    assert "infra/setup/runsc.sh" in check.detail
    (check,) = await doctor.doctor(msgspec.structs.replace(settings, image={"python": str(tmp_path / "none")}))
    assert "tiltyard sandbox images build python" in check.detail


async def test_without_an_image_that_has_python_nothing_is_judged(settings: SandboxSettings, tmp_path: Path) -> None:
    """A service whose images all lack what the self-test needs starts without it."""
    (tmp_path / "bare").mkdir()
    bare = msgspec.structs.replace(settings, image={"c": str(tmp_path / "bare")}, pool={"c": 1})
    assert await doctor.accept(bare) is None


async def test_an_impossible_trial_is_a_note(settings: SandboxSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots that can't even be tried are named as such; sandboxes hold all the same."""

    def refused(_: Trial) -> None:
        raise CgroupError("memory/tiltyard: Read-only file system")

    monkeypatch.setattr(Trial, "run", refused)
    checks = await doctor.doctor(settings)
    assert [(check.name, check.detail) for check in checks if not check.ok] == [
        (name, "memory/tiltyard: Read-only file system") for name in ("snapshot", "branch")
    ]
    assert doctor.passed(checks)


async def test_a_verdict_is_kept_for_the_binary_that_earned_it(settings: SandboxSettings, tmp_path: Path) -> None:
    """An accepted runsc is not tried again; another binary in its place is, and is refused with its findings."""
    here = tmp_path / "runsc"
    here.symlink_to(settings.runsc)
    chosen = msgspec.structs.replace(settings, runsc=str(here))
    verdict = await doctor.accept(chosen)
    assert verdict == probe.Verdict(accepted=True, snapshots=True, leave_running=True)
    before = kept(settings)
    assert await doctor.accept(chosen) == verdict
    assert kept(settings) == before
    here.unlink()
    os.rename(spoil(tmp_path, settings.runsc, "no_stat"), here)
    with pytest.raises(StartFailed, match="FAIL  files"):
        await doctor.accept(chosen)
    assert len(kept(settings, "*.systrap.*")) == 1


def test_the_command_prints_and_exits_by_its_findings(
    settings: SandboxSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tiltyard sandbox doctor` ends with 0 for a good runsc and with 1, and the mend, for a bad one."""
    where = [
        "--set",
        f"sandbox.home={settings.home}",
        "--set",
        f'sandbox.image={{python="{settings.image["python"]}"}}',
    ]
    assert main(["sandbox", "doctor", "--runsc", settings.runsc, "--json", *where]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == CHECKS
    assert main(["sandbox", "doctor", "--runsc", spoil(tmp_path, settings.runsc, "no_stat"), *where]) == 1
    printed = capsys.readouterr().out
    assert "FAIL  files: " in printed
    assert "mend: get a working runsc with infra/setup/runsc.sh" in printed


async def test_debians_first_package_is_refused(settings: SandboxSettings, tmp_path: Path) -> None:
    """The runsc of Debian 12's main archive, in which `ls` fails, is refused by what it does."""
    old = await anyio.to_thread.run_sync(fetch_old, tmp_path)
    (check,) = await doctor.doctor(msgspec.structs.replace(settings, runsc=old))
    assert (check.name, check.ok, "no systrap" in check.detail) == ("platform", False, True)
    checks = await doctor.doctor(msgspec.structs.replace(settings, runsc=old, platform="ptrace"))
    assert [check.name for check in checks if not check.ok] == ["files", "branch"]
    assert not doctor.passed(checks)

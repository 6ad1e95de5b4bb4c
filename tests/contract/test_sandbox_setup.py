"""infra/setup/runsc.sh: one that is there and passes, then the release, then Debian's backports."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "infra/setup/runsc.sh"
GOOD = "#!/bin/sh\n# {name}\necho /usr; echo directory; echo end\n"
BAD = "#!/bin/sh\necho 'panic: not today' >&2\nexit 2\n"
NO_LS = "#!/bin/sh\necho 'ls: /usr: Invalid argument' >&2\necho end\n"
APT = """#!/bin/sh
# A stand-in for the archive: one directory per suite under {archive}.
for last; do :; done
case " $* " in
*" update "*)
    list=$(echo "$*" | grep -o 'sourcelist=[^ ]*' | cut -d= -f2)
    sed -E 's/^deb (\\[[^]]*\\] )?[^ ]+ ([^ ]+) .*/\\2/' "$list" >> {archive}/asked ;;
*" download "*) cp "{archive}/${{last#runsc/}}"/runsc_*.deb . ;;
esac
"""


def suites() -> list[str]:
    """The suites in which this system's packages are looked for, in that order."""
    fields = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    own = [fields.get("VERSION_CODENAME", "stable").strip('"')]
    return ["bookworm-backports", *own] if fields["ID"] == "debian" else own


FIRST, *OTHERS = suites()


class Place:
    """A home, a PATH and archives of their own."""

    def __init__(self, root: Path) -> None:
        self.home, self.bin, self.release, self.archive = (root / n for n in ("home", "bin", "release", "archive"))
        for path in (self.home / "bin", self.bin, self.release / os.uname().machine, self.archive):
            path.mkdir(parents=True)
        self.script(self.bin / "apt-get", APT.format(archive=self.archive))

    def script(self, path: Path, text: str) -> Path:
        path.write_text(text)
        path.chmod(0o755)
        return path

    def publish(self, text: str, checksum: str = "") -> None:
        """Put a runsc into the stand-in for gVisor's release archive."""
        folder = self.release / os.uname().machine
        (folder / "runsc").write_text(text)
        right = hashlib.sha512(text.encode()).hexdigest()
        (folder / "runsc.sha512").write_text(f"{checksum or right}  runsc\n")

    def package(self, suite: str, text: str) -> None:
        """Put a package with this runsc into the stand-in for Debian's archive."""
        tree = self.archive / f"tree-{suite}"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "usr/bin").mkdir(parents=True)
        self.script(tree / "usr/bin/runsc", text)
        control = "Package: runsc\nVersion: 1\nArchitecture: all\nMaintainer: no <no@example.org>\nDescription: x\n"
        (tree / "DEBIAN/control").write_text(control)
        (self.archive / suite).mkdir()
        made = self.archive / suite / "runsc_1_all.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, made], check=True, capture_output=True)

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        base = {"PATH": f"{self.bin}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.home)}
        base |= {"TILTYARD_HOME": str(self.home), "GVISOR_URL": f"file://{self.release}"}
        return subprocess.run(
            ["bash", SCRIPT], env={**base, **environment}, capture_output=True, text=True, timeout=50, check=False
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_named_one_is_taken_or_refused(place: Place) -> None:
    """A runsc that is named is used if it passes; if not, nothing else is taken behind the user's back."""
    named = place.script(place.home / "mine", GOOD.format(name="named"))
    place.publish(GOOD.format(name="release"))
    assert place.run(TILTYARD_SANDBOX__RUNSC=str(named)).stdout == f"{named}\n"
    place.script(named, NO_LS)
    done = place.run(TILTYARD_SANDBOX__RUNSC=str(named))
    assert (done.returncode, done.stdout) == (1, "")
    assert "unset TILTYARD_SANDBOX__RUNSC to have one fetched" in done.stderr


def test_one_that_is_there_comes_first(place: Place) -> None:
    """What an earlier call installed wins over the PATH, the PATH over the release; each only if it passes."""
    place.publish(GOOD.format(name="release"))
    installed = place.script(place.home / "bin/runsc", GOOD.format(name="installed"))
    on_path = place.script(place.bin / "runsc", GOOD.format(name="path"))
    assert place.run().stdout == f"{installed}\n"
    place.script(installed, BAD)
    assert place.run().stdout == f"{on_path}\n"
    assert installed.read_text() == BAD


def test_the_release_comes_before_packages(place: Place) -> None:
    """gVisor's own release is installed where its archive can be reached; a wrong checksum ends the set-up."""
    place.script(place.bin / "runsc", NO_LS)
    place.publish(GOOD.format(name="release"))
    place.package(FIRST, GOOD.format(name="backports"))
    done = place.run()
    assert done.stdout == f"{place.home}/bin/runsc\n"
    assert "# release" in Path(done.stdout.strip()).read_text()
    Path(done.stdout.strip()).unlink()
    place.publish(GOOD.format(name="release"), checksum="0" * 128)
    done = place.run()
    assert (done.returncode, "checksum is wrong" in done.stderr) == (1, True)
    assert list((place.home / "bin").iterdir()) == []


@pytest.mark.parametrize("release", ["unreachable", "broken"])
def test_backports_are_the_last_resort(place: Place, release: str) -> None:
    """Without a release, or with one that fails the self-test, Debian's backports are asked, for runsc alone."""
    if release == "broken":
        place.publish(BAD)
    place.package(FIRST, GOOD.format(name="backports"))
    done = place.run()
    assert (done.returncode, done.stdout) == (0, f"{place.home}/bin/runsc\n")
    assert "# backports" in (place.home / "bin/runsc").read_text()
    assert (place.archive / "asked").read_text() == f"{FIRST}\n"


def test_nothing_that_fails_is_installed(place: Place) -> None:
    """Where every candidate fails the self-test, the script fails with what to do, and installs nothing."""
    place.publish(NO_LS)
    place.package(FIRST, BAD)
    for suite in OTHERS:
        place.package(suite, NO_LS)
    done = place.run()
    assert (done.returncode, done.stdout) == (1, "")
    assert "no working runsc here" in done.stderr
    assert list((place.home / "bin").iterdir()) == []
    assert list(Path(place.home).glob("**/*.new.*")) == []

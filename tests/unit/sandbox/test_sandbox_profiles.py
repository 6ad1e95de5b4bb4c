"""Profiles: the shipped ones, those of the user, and what is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tiltyard.sandbox import images, profiles
from tiltyard.sandbox.backend import StartFailed
from tiltyard.sandbox.settings import SandboxSettings

TEXT = 'name = "mine"\ndescription = "my own"\n[image]\npackages = ["python3", "jq"]\n'


def test_the_shipped_profiles_load() -> None:
    """Every shipped profile has a description, probes, and a digest of its own."""
    known = profiles.load()
    assert {"python", "shell", "node", "c", "geometry"} <= set(known)
    assert all(profile.image.probes and profile.description for profile in known.values())
    assert len({profiles.digest(profile) for profile in known.values()}) == len(known)


def test_a_users_profile_adds_and_replaces(tmp_path: Path) -> None:
    """A directory of profiles adds to the shipped ones, and wins over one of the same name."""
    (tmp_path / "mine.toml").write_text(TEXT)
    (tmp_path / "python.toml").write_text(TEXT.replace("mine", "python"))
    known = profiles.load([tmp_path])
    assert known["mine"].image.packages == ("python3", "jq")
    assert known["python"].description == "my own"


def test_the_digest_is_of_the_recipe() -> None:
    """What does not change the image does not change its name; everything in the recipe does."""
    profile = profiles.parse(TEXT.encode(), "mine.toml")
    other = msgspec.structs.replace(profile, cpus=2.0, description="other", preload=("json",))
    assert profiles.digest(other) == profiles.digest(profile)
    for change in ({"packages": ("jq",)}, {"python": ("six",)}, {"suite": "trixie"}, {"probes": (("true",),)}):
        recipe = msgspec.structs.replace(profile.image, **change)
        assert profiles.digest(msgspec.structs.replace(profile, image=recipe)) != profiles.digest(profile)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT.replace("jq", "jq; rm -rf /"), "libc6-dev"),
        (TEXT.replace("jq", "--hook"), "libc6-dev"),
        (TEXT.replace("mine", "../mine"), "expected a name"),
        (TEXT + 'suite = "a b"\n', "expected a name"),
        (TEXT + 'oci = "x"\n', "either 'packages' or 'oci'"),
        (TEXT + "packages2 = 3\n", "packages2"),
        ('name = "x"\n', "missing"),
        ("name = ", "here"),
    ],
)
def test_bad_profiles_are_refused(text: str, said: str) -> None:
    """An error names the file and what was expected."""
    with pytest.raises(profiles.ProfileError, match="here") as caught:
        profiles.parse(text.encode(), "here.toml")
    assert said in str(caught.value)


def test_a_missing_image_names_its_mend(tmp_path: Path) -> None:
    """Without an image the command that builds it is told, and an unknown profile with those there are."""
    settings = SandboxSettings(home=str(tmp_path))
    with pytest.raises(StartFailed, match="tiltyard sandbox images build shell"):
        images.find_image(settings, "shell")
    with pytest.raises(StartFailed, match=r"no profile 'shall'.*shell"):
        images.find_image(settings, "shall")


def test_a_misspelled_folder_is_no_empty_one(tmp_path: Path) -> None:
    """A directory of profiles that is not there is said, instead of leaving its profiles out."""
    assert images.profile_folders(SandboxSettings()) == []
    assert images.profile_folders(SandboxSettings(profiles=str(tmp_path))) == [tmp_path]
    wrong = SandboxSettings(home=str(tmp_path), profiles=str(tmp_path / "profile"))
    with pytest.raises(profiles.ProfileError, match=r"sandbox.profiles '.*/profile': there is no such directory"):
        images.profile_folders(wrong)
    with pytest.raises(StartFailed, match=r"sandbox\.profiles"):
        images.find_image(wrong, "python")

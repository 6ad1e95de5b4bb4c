"""`tiltyard credentials`: what it makes, keeps and protects."""

from __future__ import annotations

import re
import stat
import subprocess
from pathlib import Path

import pytest

from tiltyard.cli.main import main
from tiltyard.kit import credentials, tls
from tiltyard.kit.embedded import find_binary
from tiltyard.kit.settings import BusSettings, DataSettings, SettingsError
from tiltyard_proto.permissions import users


def test_it_makes_everything_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every user gets a key and a certificate; a second time nothing changes; nothing secret is printed."""
    directory = tmp_path / "credentials"
    assert main(["credentials", str(directory)]) == 0
    first = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert main(["credentials", str(directory)]) == 0
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == first
    assert {path.name for path in (directory / "users").iterdir()} == set(users())
    said = capsys.readouterr().out
    assert f"{len(users())} users made, 0 were there already" in said
    for user in users():
        assert (directory / "users" / user / credentials.SEED).read_text().strip() not in said


def test_secrets_are_for_their_owner_only(tmp_path: Path) -> None:
    """Directories are 0700; seeds and keys are 0600 from the moment they exist."""
    credentials.make(tmp_path / "credentials")
    for path in (tmp_path / "credentials").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.is_dir():
            assert mode == 0o700
        elif path.suffix in (".seed", ".key"):
            assert mode == 0o600


def test_keys_are_distinct_and_no_seed_is_in_the_servers_files(tmp_path: Path) -> None:
    """The server is told public keys only, one for each user."""
    credentials.make(tmp_path)
    seeds = [(tmp_path / "users" / user / credentials.SEED).read_bytes().strip() for user in users()]
    keys = {credentials.public_key(seed) for seed in seeds}
    text = (tmp_path / "server" / credentials.SECURITY).read_text()
    assert len(keys) == len(users())
    assert all(key.startswith("U") and key in text for key in keys)
    assert not [seed for seed in seeds if seed.decode() in text]


def test_the_servers_configuration_is_valid(tmp_path: Path) -> None:
    """nats-server reads what is made, included in a configuration beside it."""
    credentials.make(tmp_path, ["nats.example.org", "10.1.2.3"])
    config = tmp_path / "server" / "nats.conf"
    config.write_text(f'jetstream {{ store_dir: "{tmp_path}/js" }}\ninclude {credentials.SECURITY}\n')
    done = subprocess.run([find_binary(), "-t", "-c", str(config)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_rotation_changes_one_user(tmp_path: Path) -> None:
    """`--rotate USER` makes a new key and certificate for that user; a name that is no user is refused."""
    directory = tmp_path / "credentials"
    credentials.make(directory)
    before = {user: (directory / "users" / user / tls.CERTIFICATE).read_bytes() for user in users()}
    assert main(["credentials", str(directory), "--rotate", "gateway"]) == 0
    after = {user: (directory / "users" / user / tls.CERTIFICATE).read_bytes() for user in users()}
    assert {user for user in users() if before[user] != after[user]} == {"gateway"}
    for step in ("--rotate", "--retire"):
        assert main(["credentials", str(directory), step, "root"]) == 2


def keys_in(directory: Path) -> list[str]:
    """The public keys that the servers are told, in order."""
    return re.findall(r"nkey: (U\w+)", (directory / "server" / credentials.SECURITY).read_text())


def test_old_keys_stay_until_they_are_retired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each rotation adds a key with the same rights; making again keeps them; `--retire` leaves the newest alone."""
    directory = tmp_path / "credentials"
    command = ["credentials", str(directory)]
    assert main(command) == 0
    first = keys_in(directory)
    assert main([*command, "--rotate", "gateway"]) == main([*command, "--rotate", "gateway"]) == main(command) == 0
    assert "old keys still get in, of gateway:" in capsys.readouterr().out
    overlap = keys_in(directory)
    assert len(overlap) == len(first) + 2
    assert set(first) < set(overlap)
    assert main([*command, "--retire", "all"]) == 0
    said = capsys.readouterr().out
    assert "2 old keys are retired" in said
    assert "still get in" not in said
    assert len(set(keys_in(directory)) - set(first)) == 1
    assert len(keys_in(directory)) == len(first)


def test_every_key_can_be_changed_in_one_go(tmp_path: Path) -> None:
    """`all` names every user, and the servers' configuration stays valid in between."""
    credentials.make(tmp_path)
    assert main(["credentials", str(tmp_path), "--rotate", "all"]) == 0
    assert len(set(keys_in(tmp_path))) == 2 * len(users())
    config = tmp_path / "server" / "nats.conf"
    config.write_text(f'jetstream {{ store_dir: "{tmp_path}/js" }}\ninclude {credentials.SECURITY}\n')
    done = subprocess.run([find_binary(), "-t", "-c", str(config)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_where_settings_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain by default; `secure` looks below the data directory; `credentials` wins; what is missing is named."""
    data = DataSettings(root=str(tmp_path))
    assert credentials.client_options(BusSettings(), data, "gateway") == {}
    assert credentials.directory_of(BusSettings(secure=True), data) == tmp_path / "credentials"
    other = BusSettings(secure=True, credentials=str(tmp_path / "other"))
    assert credentials.directory_of(other, data) == tmp_path / "other"
    with pytest.raises(SettingsError, match=r"no ca\.pem, tls\.pem, tls\.key, nkey\.seed of 'gateway' in .*other"):
        credentials.client_options(other, data, "gateway")
    credentials.make(tmp_path / "other")
    options = credentials.client_options(other, data, "gateway")
    assert options["nkeys_seed"].endswith("other/users/gateway/nkey.seed")


def test_an_unwritable_directory_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file where the directory should be ends the command with status 2 and the reason."""
    (tmp_path / "taken").write_text("")
    assert main(["credentials", str(tmp_path / "taken")]) == 2
    assert capsys.readouterr().err.count("\n") == 1

"""Credentials of the bus: an nkey and a certificate for each user, and the server's configuration for them.

Layout of a credentials directory, private to its owner:
`ca.pem`, `ca.key` (needed to add or renew only; keep it elsewhere); `server/` (`tls.pem`, `tls.key`, `ca.pem`,
`security.conf`); `users/<user>/` (`nkey.seed`, `tls.pem`, `tls.key`, `ca.pem`). A container is given one user's folder
and names it as its credentials directory. `retiring/<user>` holds public keys that a rotation has replaced and that the
servers still take, one a line.

Invariants: what exists is kept, so making again adds only what is missing; a seed never stands in settings, in an
argument or in a log: it is read from its file, or from TILTYARD_NKEY_SEED, when the connection is made; with
credentials the connection is TLS from its first byte, so nobody in between can talk it down to plain text.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiltyard_proto import permissions

from . import tls
from .settings import BusSettings, DataSettings, SettingsError

SEED = "nkey.seed"
SEED_ENV = "TILTYARD_NKEY_SEED"
SECURITY = "security.conf"
RETIRING = "retiring"
LOCAL = ("localhost", "127.0.0.1", "::1")


def _nkeys() -> Any:
    try:
        import nkeys
    except ImportError as error:
        raise tls.NoCryptography("nkeys are not installed: pip install 'tiltyard[secure]'") from error
    return nkeys


def new_seed() -> bytes:
    """The seed of a new user."""
    nkeys = _nkeys()
    seed: bytes = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    return seed


def public_key(seed: bytes) -> str:
    """The public key of a seed: what the server knows of a user."""
    pair = _nkeys().from_seed(bytearray(seed.strip()))
    try:
        return str(pair.public_key.decode())
    finally:
        pair.wipe()


# ---------------------------------------------------------------- making


def make(directory: Path, hosts: Sequence[str] = (), mount: Path | None = None) -> list[str]:
    """Make what is missing in `directory`; the names of users that are new.

    `hosts` are further names and addresses of the servers; `mount` is where the servers will see `server/`.
    """
    tls.private_directory(directory)
    if not (directory / tls.CA).exists():
        tls.make_authority(directory)
    server = directory / "server"
    if not (server / tls.CERTIFICATE).exists() or hosts:
        tls.make_certificate(directory, server, "nats-server", list(dict.fromkeys((*LOCAL, *hosts))))
    made = [user for user in permissions.users() if _make_user(directory, user)]
    tls.write_private(server / SECURITY, security(directory, mount).encode())
    return made


def _make_user(directory: Path, user: str) -> bool:
    folder = directory / "users" / user
    new = not (folder / SEED).exists()
    if new:
        tls.write_private(folder / SEED, new_seed() + b"\n")
    if not (folder / tls.CERTIFICATE).exists():
        tls.make_certificate(directory, folder, user)
    return new


def rotate(directory: Path, user: str) -> None:
    """Take `user`'s nkey and certificate away, so that `make` makes new ones.

    The servers take the old key as well until it is retired. ValueError when there is no such user.
    """
    permissions.permissions(user)
    folder = directory / "users" / user
    if (folder / SEED).exists():
        keys = [*retiring(directory, user), public_key((folder / SEED).read_bytes())]
        tls.private_directory(directory / RETIRING)
        tls.write_private(directory / RETIRING / user, "".join(f"{key}\n" for key in dict.fromkeys(keys)).encode())
    (folder / SEED).unlink(missing_ok=True)
    (folder / tls.CERTIFICATE).unlink(missing_ok=True)


def retiring(directory: Path, user: str) -> list[str]:
    """Old public keys of `user` that the servers still take."""
    path = directory / RETIRING / user
    return path.read_text().split() if path.exists() else []


def retire(directory: Path, user: str) -> int:
    """From the next configuration on the servers refuse `user`'s old keys; how many there were.

    ValueError when there is no such user.
    """
    permissions.permissions(user)
    old = retiring(directory, user)
    (directory / RETIRING / user).unlink(missing_ok=True)
    return len(old)


# ---------------------------------------------------------------- the server's side


def security(directory: Path, mount: Path | None = None) -> str:
    """TLS and permissions of every user, to be included in a server's configuration."""
    where = mount or (directory / "server").absolute()
    lines = [
        "# Made by `tiltyard credentials`: who may connect, and what each may do.",
        "tls {",
        f'  cert_file: "{where / tls.CERTIFICATE}"',
        f'  key_file: "{where / tls.KEY}"',
        f'  ca_file: "{where / tls.CA}"',
        "  verify: true",
        "  handshake_first: true",
        "  timeout: 5",
        "}",
        "authorization {",
        "  users: [",
        *(line for user in permissions.users() for line in _user(directory, user)),
        "  ]",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _user(directory: Path, user: str) -> list[str]:
    """The user's entry, and one with the same rights for each key that is on its way out."""
    old = retiring(directory, user)
    key = public_key((directory / "users" / user / SEED).read_bytes())
    return [_entry(user, key), *(_entry(f"{user}, until it is retired", each) for each in old if each != key)]


def _entry(who: str, key: str) -> str:
    allowed = permissions.permissions(who.partition(",")[0])
    return (
        f"    # {who}\n"
        f"    {{ nkey: {key}, permissions: {{\n"
        f"        publish: {{ allow: [{_quoted(allowed.publish)}] }}\n"
        f"        subscribe: {{ allow: [{_quoted(allowed.subscribe)}] }}\n"
        "    } }"
    )


def _quoted(subjects: Sequence[str]) -> str:
    return ", ".join(f'"{subject}"' for subject in subjects)


# ---------------------------------------------------------------- the client's side


def directory_of(bus: BusSettings, data: DataSettings) -> Path | None:
    """The credentials directory that the settings name; None when the bus is not secured."""
    if bus.credentials:
        return Path(bus.credentials).expanduser().absolute()
    return Path(data.root).absolute() / "credentials" if bus.secure else None


def user_folder(directory: Path, user: str) -> Path:
    """The folder with a user's files: `users/<user>` of a whole directory, or the directory itself."""
    folder = directory / "users" / user
    folder = folder if folder.is_dir() else directory
    needed = [tls.CA, tls.CERTIFICATE, tls.KEY, *([] if os.environ.get(SEED_ENV) else [SEED])]
    missing = [name for name in needed if not (folder / name).is_file()]
    if missing:
        raise SettingsError(
            f"[bus] credentials: no {', '.join(missing)} of {user!r} in {directory}: "
            "make them with `tiltyard credentials DIR`"
        )
    return folder


def client_options(bus: BusSettings, data: DataSettings, user: str) -> dict[str, Any]:
    """Options for `Bus.connect` as `user`; none when the bus is not secured. SettingsError when files are missing."""
    directory = directory_of(bus, data)
    return {} if directory is None else options_in(directory, user)


def options_in(directory: Path, user: str) -> dict[str, Any]:
    """Options for `Bus.connect` as `user` with the files in `directory`."""
    folder = user_folder(directory, user)
    _nkeys()
    options: dict[str, Any] = {"tls": tls.client_context(folder), "tls_handshake_first": True}
    seed = os.environ.get(SEED_ENV)
    return options | ({"nkeys_seed_str": seed} if seed else {"nkeys_seed": str(folder / SEED)})

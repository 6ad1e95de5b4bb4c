"""`tiltyard credentials DIR`: keys, certificates and the servers' security configuration for a bus.

A key is changed in two steps, so that nobody is locked out in between: `--rotate` makes a new one beside the old one,
`--retire` ends the old one. Both at once refuse a key that has leaked without delay.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from tiltyard.kit import credentials, tls
from tiltyard_proto import permissions

from .errors import UserError


def main(arguments: Namespace) -> int:
    directory = Path(arguments.directory)
    try:
        for user in _users(arguments.rotate):
            credentials.rotate(directory, user)
        retired = sum(credentials.retire(directory, user) for user in _users(arguments.retire))
        made = credentials.make(directory, arguments.host, arguments.mount)
    except tls.NoCryptography as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(f"{error.filename or directory}: {error.strerror}") from error
    server = directory / "server"
    print(f"{len(made)} users made, {len(permissions.users()) - len(made)} were there already: {directory}/users/")
    print(f"servers: give them {server}/ and include its {credentials.SECURITY} in their configuration")
    print(f"services: --set bus.credentials={directory}, or mount one user's folder and name that")
    print(f"certificates end on {tls.expires(server / tls.CERTIFICATE):%Y-%m-%d}; keep {directory}/ca.key elsewhere")
    if retired:
        print(f"{retired} old keys are retired: have the servers read {credentials.SECURITY} again (SIGHUP)")
    if leaving := [user for user in permissions.users() if credentials.retiring(directory, user)]:
        print(
            f"old keys still get in, of {', '.join(leaving)}: have the servers read {credentials.SECURITY} again "
            "(SIGHUP), restart these with their new keys, then --retire them"
        )
    return 0


def _users(named: Sequence[str]) -> list[str]:
    """The users that the arguments name; UserError for one that is none."""
    known = permissions.users()
    for name in named:
        if name not in (*known, "all"):
            raise UserError(f"user {name!r}: expected 'all' or one of {', '.join(known)}")
    return [user for user in known if user in named or "all" in named]

"""`tiltyard credentials DIR`: keys, certificates and the servers' security configuration for a bus."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tiltyard.kit import credentials, tls
from tiltyard_proto import permissions

from .errors import UserError


def main(arguments: Namespace) -> int:
    directory = Path(arguments.directory)
    try:
        for user in arguments.rotate:
            credentials.rotate(directory, user)
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
    return 0

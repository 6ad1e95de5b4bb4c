"""Who gets in: keys, certificates, plain text, rotation and revocation, on a real server."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from nats.errors import Error as NatsError
from support.secured import Secured, bare, connection
from support.waiting import until

from tiltyard.cli.main import main
from tiltyard.kit import credentials, tls
from tiltyard.kit.settings import SettingsError, read_source
from tiltyard_proto.permissions import inbox

pytestmark = pytest.mark.anyio


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Secured]:
    secured = Secured(tmp_path)
    yield secured
    secured.stop()


def options(server: Secured, user: str = "gateway") -> dict[str, Any]:
    return credentials.options_in(server.directory, user)


async def test_the_right_key_and_certificate_get_in(server: Secured) -> None:
    """A user with its own files is connected over TLS."""
    async with bare(server, "gateway") as attempts:
        assert attempts.client.is_connected
        assert await attempts.subscribe([f"{inbox('gateway')}.a"]) == [f"{inbox('gateway')}.a"]


async def test_an_unknown_key_is_refused(server: Secured, tmp_path: Path) -> None:
    """A key that the server does not know is refused, though the certificate is right."""
    seed = tmp_path / "unknown.seed"
    seed.write_bytes(credentials.new_seed())
    with pytest.raises(NatsError, match=r"(?i)authorization"):
        async with bare(server, "gateway", nkeys_seed=str(seed)):
            pass


async def test_no_key_is_refused(server: Secured) -> None:
    """A certificate alone does not get in."""
    with pytest.raises(NatsError, match=r"(?i)authorization"):
        async with connection(server.url, tls=options(server)["tls"], tls_handshake_first=True):
            pass


async def test_a_certificate_of_another_authority_is_refused(server: Secured, tmp_path: Path) -> None:
    """The server takes certificates of its own authority only, and the client a server of its own only."""
    other = tmp_path / "other"
    credentials.make(other)
    theirs = tls.client_context(other / "users" / "gateway")
    with pytest.raises((ssl.SSLError, OSError)):
        async with bare(server, "gateway", tls=theirs):
            pass
    trusting = tls.client_context(other / "users" / "gateway")
    trusting.load_verify_locations(server.directory / "ca.pem")
    with pytest.raises((ssl.SSLError, OSError, NatsError)):
        async with bare(server, "gateway", tls=trusting):
            pass


async def test_no_certificate_is_refused(server: Secured) -> None:
    """A key alone does not get in."""
    context = ssl.create_default_context(cafile=str(server.directory / "ca.pem"))
    with pytest.raises((ssl.SSLError, OSError, NatsError)):
        async with bare(server, "gateway", tls=context):
            pass


async def test_a_user_can_not_serve(server: Secured, tmp_path: Path) -> None:
    """A certificate of a user is no certificate of a server: a client refuses to talk to it."""
    user = server.directory / "users" / "sandbox"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(user / tls.CERTIFICATE, user / tls.KEY)
    client, peer = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = options(server)["tls"].wrap_bio(peer, client, server_hostname="sandbox")
    theirs = context.wrap_bio(client, peer, server_side=True)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"(?i)purpose"):
        shake(ours, theirs)


def shake(*sides: ssl.SSLObject) -> None:
    """A TLS handshake in memory."""
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


async def test_plain_text_is_refused_by_both(server: Secured, nats_server: Any) -> None:
    """A secured server takes no plain connection; a client with credentials sends none."""
    with pytest.raises((NatsError, OSError, TimeoutError)):
        async with connection(server.url, connect_timeout=2):
            pass
    with pytest.raises((ssl.SSLError, OSError, TimeoutError, NatsError)):
        async with connection(nats_server.url, connect_timeout=2, **options(server)):
            pass


def reload(server: Secured) -> None:
    """The server reads what `tiltyard credentials` has made."""
    plain = server.config.read_text().split("# Made by")[0]
    server.config.write_text(plain + (server.directory / "server" / credentials.SECURITY).read_text())
    server.process.send_signal(signal.SIGHUP)


def command(server: Secured, *arguments: str) -> None:
    assert main(["credentials", str(server.directory), *arguments]) == 0


async def gets_in(server: Secured, **options: Any) -> bool:
    """Does the gateway get in and do what it may?"""
    try:
        async with bare(server, "gateway", **options) as attempts:
            return bool(await attempts.subscribe([f"{inbox('gateway')}.a"]))
    except NatsError as error:
        if "authorization" not in str(error).lower():
            raise
        return False
    except ConnectionResetError:  # refused before the last byte of the handshake was out
        return False


async def eventually_in(server: Secured, **options: Any) -> None:
    with anyio.fail_after(10):
        while not await gets_in(server, **options):  # noqa: ASYNC110  (nobody announces it)
            await anyio.sleep(0.05)


async def test_a_key_is_changed_with_an_overlap(server: Secured) -> None:
    """Old and new key both get in between `--rotate` and `--retire`, the old connection living on; then the new one
    alone does, and the old connection is dropped."""
    old = server.root / "old.seed"
    old.write_bytes((server.directory / "users/gateway/nkey.seed").read_bytes())
    async with bare(server, "gateway", nkeys_seed=str(old)) as before, bare(server, "sandbox") as other:
        command(server, "--rotate", "gateway")
        assert not await gets_in(server), "the server has not been told yet"
        reload(server)
        await eventually_in(server)
        assert await gets_in(server, nkeys_seed=str(old))
        assert before.client.is_connected
        assert await before.subscribe([f"{inbox('gateway')}.b"])
        async with bare(server, "gateway") as after:
            command(server, "--retire", "gateway")
            reload(server)
            await until(lambda: not before.client.is_connected)
            assert after.client.is_connected
        assert other.client.is_connected
    assert not await gets_in(server, nkeys_seed=str(old))
    assert await gets_in(server)


async def test_a_leaked_key_is_refused_at_once(server: Secured) -> None:
    """`--rotate` and `--retire` in one command leave no overlap."""
    old = server.root / "old.seed"
    old.write_bytes((server.directory / "users/gateway/nkey.seed").read_bytes())
    async with bare(server, "gateway", nkeys_seed=str(old)) as before:
        command(server, "--rotate", "gateway", "--retire", "gateway")
        reload(server)
        await until(lambda: not before.client.is_connected)
    assert not await gets_in(server, nkeys_seed=str(old))
    assert await gets_in(server)


async def test_a_seed_from_the_environment(server: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed may come from the environment; then no seed file is needed, and it becomes no setting."""
    folder = server.directory / "users" / "gateway"
    seed = (folder / "nkey.seed").read_text().strip()
    (folder / "nkey.seed").unlink()
    with pytest.raises(SettingsError, match=r"no nkey\.seed of 'gateway'"):
        options(server)
    monkeypatch.setenv(credentials.SEED_ENV, seed)
    async with bare(server, "gateway") as attempts:
        assert attempts.client.is_connected
    assert seed not in str(read_source(None))


async def test_one_users_folder_is_enough(server: Secured, tmp_path: Path) -> None:
    """A container that is given one user's folder connects with that alone."""
    folder = server.directory / "users" / "verifier"
    alone = tmp_path / "mounted"
    alone.mkdir()
    for file in folder.iterdir():
        (alone / file.name).write_bytes(file.read_bytes())
    async with connection(server.url, **credentials.options_in(alone, "verifier")) as client:
        assert client.is_connected


async def test_commands_say_what_they_lack(server: Secured) -> None:
    """A command without credentials is one line that says so; with them it is connected."""
    where = ("--set", f'bus.servers=["{server.url}"]')
    refused = await tiltyard("status", *where)
    assert refused.returncode == 2
    assert b"does not take us as 'cli': name its credentials" in refused.stderr
    secured = (*where, "--set", f'bus.credentials="{server.directory}"')
    assert (await tiltyard("provision", *secured)).returncode == 0
    assert (await tiltyard("status", *secured)).returncode == 0
    missing = await tiltyard("status", *where, "--set", 'bus.credentials="/nowhere"')
    assert (missing.returncode, missing.stderr.count(b"\n")) == (2, 1)


async def tiltyard(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    argv = [sys.executable, "-m", "tiltyard.cli.main", *arguments]
    return await anyio.run_process(argv, env=environment, check=False)

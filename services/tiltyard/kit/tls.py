"""Certificates of the bus: an authority of our own, one certificate for the server and one for each user.

Invariants: keys are ECDSA P-256, written for their owner only and never over an existing file; a certificate of a user
can't serve and the server's can't act as a user's; contexts speak TLS 1.2 or newer and check the other side.
Left out: who may do what, which is decided by the user's nkey (`credentials`), and revocation lists: a user is revoked
by taking its key out of the server's configuration.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .settings import SettingsError

CA, CERTIFICATE, KEY = "ca.pem", "tls.pem", "tls.key"
AUTHORITY_DAYS, LEAF_DAYS = 3650, 730


class NoCryptography(SettingsError):
    """Making certificates needs the `secure` extra."""


def _x509() -> Any:
    try:
        from cryptography import x509
    except ImportError as error:
        raise NoCryptography("certificates need cryptography and nkeys: pip install 'tiltyard[secure]'") from error
    return x509


def private_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing, for its owner only."""
    for each in (*reversed(path.parents), path):
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, body: bytes) -> None:
    """Write a file that only its owner can read, at once with these rights."""
    private_directory(path.parent)
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(body)


def _new_key(path: Path) -> Any:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    plain = serialization.NoEncryption()
    write_private(path, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return key


def _name(common: str) -> Any:
    x509 = _x509()
    return x509.Name(
        [
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "tiltyard"),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, common),
        ]
    )


def _builder(subject: Any, issuer: Any, public_key: Any, days: float) -> Any:
    x509 = _x509()
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> Any:
    chosen = {"digital_signature": True, "key_cert_sign": signs_certificates, "crl_sign": signs_certificates}
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    unset = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    return _x509().KeyUsage(**chosen, **unset)


def make_authority(directory: Path, days: float = AUTHORITY_DAYS) -> None:
    """`ca.pem` and `ca.key` in `directory`."""
    from cryptography.hazmat.primitives import hashes, serialization

    x509 = _x509()
    key, name = _new_key(directory / "ca.key"), _name("tiltyard bus authority")
    certificate = (
        _builder(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    (directory / CA).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _alternative(host: str) -> Any:
    x509 = _x509()
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def make_certificate(
    authority: Path, directory: Path, name: str, hosts: Sequence[str] = (), days: float = LEAF_DAYS
) -> None:
    """`tls.key`, `tls.pem` and `ca.pem` in `directory`: a server's when `hosts` are given, else a user's."""
    from cryptography.hazmat.primitives import hashes, serialization

    x509 = _x509()
    issuer = x509.load_pem_x509_certificate((authority / CA).read_bytes())
    signer: Any = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
    key = _new_key(directory / KEY)
    purpose = x509.ExtendedKeyUsageOID.SERVER_AUTH if hosts else x509.ExtendedKeyUsageOID.CLIENT_AUTH
    # servers of a cluster call one another
    purposes = [purpose, x509.ExtendedKeyUsageOID.CLIENT_AUTH] if hosts else [purpose]
    builder = (
        _builder(_name(name), issuer.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_alternative(host) for host in hosts] or [x509.DNSName(name)]), critical=False
        )
    )
    certificate = builder.sign(signer, hashes.SHA256())
    (directory / CERTIFICATE).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / CA).write_bytes((authority / CA).read_bytes())


def expires(certificate: Path) -> datetime.datetime:
    """When a certificate ends, in UTC."""
    ends: datetime.datetime = _x509().load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    return ends


def client_context(directory: Path) -> ssl.SSLContext:
    """A context that shows the user's certificate and accepts a server of the same authority only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(directory / CA)
    context.load_cert_chain(directory / CERTIFICATE, directory / KEY)
    return context

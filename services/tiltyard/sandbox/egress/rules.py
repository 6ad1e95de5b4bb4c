"""Which hosts a sandbox may reach: names and ports that are listed, at addresses that are public or listed.

Invariants: what is not listed is refused; a name is looked up once, here, and the connection goes to an address that
was judged, so that a name can't lead elsewhere a moment later; private, loopback, link-local, metadata, multicast and
reserved addresses are refused, also as IPv6 forms of IPv4 ones, unless the list names the address itself.
Left out: patterns; a list that is short enough to be read says what it allows.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

import msgspec

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
WEB_PORTS = frozenset((80, 443))
LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"


class Refused(Exception):
    """A connection that may not be made. `reason` is one of: host, port, address, lookup, limit, request."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed list of allowed hosts."""

    ports: dict[str, frozenset[int]]
    """Ports by name or address."""

    def check(self, host: str, port: int) -> str:
        """The name or address in its canonical form; Refused when it is not listed."""
        name = canonical(host)
        if name not in self.ports:
            raise Refused("host", f"{name} is not among the hosts that this sandbox may reach")
        if port not in self.ports[name]:
            raise Refused("port", f"port {port} of {name} is not among those that this sandbox may reach")
        return name

    def choose(self, name: str, port: int, found: Sequence[str]) -> list[str]:
        """Of the addresses that a name has, those that may be connected to; Refused when there are none."""
        good = [address for address in found if self._allowed(address, port)]
        if not good:
            raise Refused("address", f"{name} has no public address: {', '.join(found) or 'none'}")
        return good

    def _allowed(self, text: str, port: int) -> bool:
        address = unwrapped(ipaddress.ip_address(text.partition("%")[0]))
        return port in self.ports.get(str(address), frozenset()) or public(address)


def parse(hosts: Iterable[str]) -> Rules:
    """Rules from 'name', 'name:port', 'address', 'address:port' or '[address]:port'; without a port 80 and 443.
    ValueError names the entry."""
    ports: dict[str, frozenset[int]] = {}
    for entry in hosts:
        host, port = split(entry)
        name = canonical(host)
        if not _is_address(name) and not re.fullmatch(rf"{LABEL}(\.{LABEL})*", name):
            raise ValueError(f"egress {entry!r}: expected a host as 'name', 'name:port' or an address; no patterns")
        ports[name] = ports.get(name, frozenset()) | (WEB_PORTS if port is None else {port})
    return Rules(ports=ports)


def beyond_of(allowed: Rules, wanted: Rules) -> list[str]:
    """What is wanted and not allowed, as 'name:port'."""
    return [
        f"{name}:{port}"
        for name, ports in sorted(wanted.ports.items())
        for port in sorted(ports - allowed.ports.get(name, frozenset()))
    ]


def split(entry: str) -> tuple[str, int | None]:
    """Host and port of 'host:port'; ValueError for what is no such thing."""
    bracketed = re.fullmatch(r"\[([0-9a-fA-F.]*:[0-9a-fA-F:.]*)\](?::(\d{1,5}))?", entry)
    plain = re.fullmatch(r"([^\s:/@\[\]]+)(?::(\d{1,5}))?", entry)
    if bracketed or plain:
        host, port = (bracketed or plain).groups()  # type: ignore[union-attr]  # one of them is there
    elif _is_address(entry):
        host, port = entry, None
    else:
        raise ValueError(f"egress {entry!r}: expected 'name', 'name:port' or an address")
    if port is not None and not 1 <= int(port) <= 65535:
        raise ValueError(f"egress {entry!r}: expected a port from 1 to 65535")
    return host, None if port is None else int(port)


def canonical(host: str) -> str:
    """One spelling of a name or address. Forms of addresses that only some programs read stay what they are: names."""
    lowered = host.lower().rstrip(".")
    try:
        return str(unwrapped(ipaddress.ip_address(lowered)))
    except ValueError:
        return lowered


def unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 form of it leads to."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return inner or address
    return address


def public(address: Address) -> bool:
    """Is it an address of the open Internet?"""
    local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    return address.is_global and not (address.is_multicast or address.is_reserved or local)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True

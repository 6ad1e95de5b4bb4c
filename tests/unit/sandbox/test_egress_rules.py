"""Which hosts and addresses a sandbox may reach."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiltyard.sandbox.egress.rules import Refused, beyond_of, canonical, parse

LISTED = ["pypi.org", "git.example.org:22", "10.1.2.3:8000", "[2001:db8::1]:443", "Files.Example.ORG."]


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("pypi.org", 443),
        ("pypi.org", 80),
        ("PyPI.org.", 443),
        ("git.example.org", 22),
        ("10.1.2.3", 8000),
        ("2001:db8:0::1", 443),
        ("files.example.org", 443),
    ],
)
def test_listed_hosts_are_allowed(host: str, port: int) -> None:
    """A host is allowed at its ports, however it is spelled; without a port 80 and 443 are meant."""
    assert parse(LISTED).check(host, port) == canonical(host)


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [
        ("evil.pypi.org", 443, "host"),
        ("pypi.org.evil.net", 443, "host"),
        ("xpypi.org", 443, "host"),
        ("pypi.org", 22, "port"),
        ("git.example.org", 443, "port"),
        ("10.1.2.4", 8000, "host"),
        ("10.1.2.3", 443, "port"),
        ("169.254.169.254", 80, "host"),
        ("0x0a010203", 8000, "host"),
        ("167838211", 8000, "host"),
        ("", 443, "host"),
    ],
)
def test_everything_else_is_refused(host: str, port: int, reason: str) -> None:
    """Other names, parents, children and ports of listed names, and odd spellings of addresses are refused."""
    with pytest.raises(Refused) as caught:
        parse(LISTED).check(host, port)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "192.0.2.1",
        "::1",
        "::",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "2002:a9fe:a9fe::1",
        "2001:db8::2",
    ],
)
def test_a_listed_name_may_not_lead_inside(address: str) -> None:
    """A listed name whose address is private, link-local, reserved or a form of such is refused."""
    with pytest.raises(Refused) as caught:
        parse(LISTED).choose("pypi.org", 443, [address])
    assert caught.value.reason == "address"


def test_public_and_listed_addresses_may_be_connected_to() -> None:
    """Public addresses pass, a private one when the list names it with this port, and the others are left out."""
    rules = parse(LISTED)
    assert rules.choose("pypi.org", 443, ["10.0.0.1", "151.101.0.223", "2a04:4e42::223"]) == [
        "151.101.0.223",
        "2a04:4e42::223",
    ]
    assert rules.choose("internal.example.org", 8000, ["10.1.2.3"]) == ["10.1.2.3"]
    with pytest.raises(Refused):
        rules.choose("internal.example.org", 8001, ["10.1.2.3"])


@pytest.mark.parametrize(
    "entry",
    ["*", "*.example.org", "", "http://a.org", "a b", "a.org:0", "a.org:99999", "a.org:x", "-a.org", "a@b", "[a]:1"],
)
def test_bad_entries_are_refused(entry: str) -> None:
    """What is no name or address is an error that shows the entry."""
    with pytest.raises(ValueError, match="egress"):
        parse([entry])


def test_what_an_operator_allows_bounds_what_a_task_asks() -> None:
    """Hosts beyond the operator's list are named, port by port."""
    allowed = parse(["a.org", "b.org:22"])
    assert beyond_of(allowed, parse(["A.org:443", "b.org:22"])) == []
    assert beyond_of(allowed, parse(["b.org", "c.org:1"])) == ["b.org:80", "b.org:443", "c.org:1"]
    assert beyond_of(parse([]), parse(["a.org:80"])) == ["a.org:80"]


@given(st.ip_addresses())
def test_nothing_private_passes_in_any_spelling(address: object) -> None:
    """With an empty list, only public addresses pass, and mapped forms of an address fare like the address."""
    rules = parse([])
    text = str(address)
    spellings = [text] if ":" in text else [text, f"::ffff:{text}", f"64:ff9b::{text}"]
    passed = []
    for spelling in spellings:
        try:
            passed.append(bool(rules.choose("x", 80, [spelling])))
        except Refused:
            passed.append(False)
    assert len(set(passed)) == 1
    if any(passed):
        assert getattr(address, "is_global", False)

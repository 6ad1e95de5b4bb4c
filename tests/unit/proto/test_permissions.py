"""Permissions that follow from the topology."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiltyard_proto import permissions
from tiltyard_proto.permissions import KEPT, OPERATORS, inbox, matches, may_publish, names, services, users
from tiltyard_proto.topology import BUCKETS, DLQ, STAGES

PAIRS = [(user, stage) for user in services() for stage in STAGES if stage is not DLQ]


def test_every_name_of_the_topology_is_a_service_of_ours_or_a_person() -> None:
    """Six services take part in the flow; the engine is not on the bus."""
    assert services() == ("aggregator", "gateway", "sampler", "sandbox", "trainer", "verifier")
    assert set(users()) == {*services(), *OPERATORS}


@pytest.mark.parametrize(("user", "stage"), PAIRS, ids=lambda value: getattr(value, "name", value))
def test_publishing_follows_the_senders(user: str, stage: object) -> None:
    """A service may publish to a stage exactly when the topology names it as sender, and never as a replay."""
    (found,) = [each for each in STAGES if each is stage]
    subject = f"tilt.v1.{found.name}.code__python.key-1"
    assert may_publish(user, subject) == (user in names(found.sender))
    assert not may_publish(user, f"{subject}.replay.1")
    assert not may_publish(user, f"tilt.v1.{found.name}")


@pytest.mark.parametrize(("user", "stage"), PAIRS, ids=lambda value: getattr(value, "name", value))
def test_work_belongs_to_the_receiver(user: str, stage: object) -> None:
    """Pulling, acknowledging and dead letters of a work stage are its receiver's alone."""
    (found,) = [each for each in STAGES if each is stage]
    mine = user in names(found.receiver)
    assert may_publish(user, f"tilt.v1.dlq.{found.name}.crash-TILT_X-1") == mine
    for subject in (
        f"$JS.API.CONSUMER.MSG.NEXT.{found.stream}.{found.name}_work",
        f"$JS.ACK.{found.stream}.{found.name}_work.1.2.3.4.5",
    ):
        assert may_publish(user, subject) == (mine if found.work or "MSG.NEXT" in subject else False)


def test_only_the_sampler_watches_dead_letters() -> None:
    """It follows them for the gauges; it can neither change how they stand nor remove them."""
    follow = "$JS.API.CONSUMER.CREATE.TILT_DLQ"
    assert [user for user in services() if may_publish(user, follow)] == ["sampler"]
    assert not may_publish("sampler", "$KV.tilt_letters.key")
    assert not may_publish("sampler", "$JS.API.STREAM.PURGE.TILT_DLQ")


@pytest.mark.parametrize("user", services())
def test_no_service_manages_the_bus(user: str) -> None:
    """No service creates, changes, purges or deletes a stream, nor deletes or makes durable consumers."""
    streams = [*(stage.stream for stage in STAGES), *(f"KV_{bucket}" for bucket in BUCKETS)]
    for stream in streams:
        for verb in ("STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.DELETE"):
            assert not may_publish(user, f"$JS.API.{verb}.{stream}")
        for verb in ("CONSUMER.DELETE", "CONSUMER.DURABLE.CREATE", "CONSUMER.PAUSE", "CONSUMER.RESET"):
            assert not may_publish(user, f"$JS.API.{verb}.{stream}.x")
        assert not may_publish(user, f"$JS.API.STREAM.MSG.GET.{stream}")
        assert not may_publish(user, f"$JS.API.DIRECT.GET.{stream}")
    assert not may_publish(user, "$JS.API.STREAM.NAMES")
    assert not may_publish(user, "$SYS.REQ.SERVER.PING")


@pytest.mark.parametrize("user", users())
def test_everyone_hears_only_their_own_inbox(user: str) -> None:
    """One subscription is allowed: the user's inbox; nobody publishes to anybody's."""
    found = permissions.permissions(user)
    assert found.subscribe == (f"{inbox(user)}.>",)
    assert not any(may_publish(user, f"{inbox(other)}.x") for other in users())
    assert not [pattern for pattern in found.publish if pattern.startswith((">", "*"))]
    assert list(found.publish) == sorted(set(found.publish))


def test_buckets_are_written_by_those_who_are_listed() -> None:
    """A bucket's keys are written by its services and by nobody else."""
    for bucket in BUCKETS:
        writers = {access.user for access in KEPT if access.bucket == bucket and access.write}
        assert {user for user in services() if may_publish(user, f"$KV.{bucket}.key")} == writers


def test_dashboards_only_look_at_numbers() -> None:
    """The monitor reads states of streams and consumers, no message, and writes nothing."""
    assert all(
        pattern.split(".")[2:4] in (["STREAM", "INFO"], ["CONSUMER", "INFO"], ["CONSUMER", "LIST"])
        for pattern in permissions.permissions("monitor").publish
    )


def test_an_unknown_user_is_a_mistake() -> None:
    """A name that is no user is refused with the list of those there are."""
    with pytest.raises(ValueError, match=r"user 'root': expected one of aggregator, .*supervisor"):
        permissions.permissions("root")


def test_the_table_names_everyone() -> None:
    """The printed table has one head line for each user."""
    heads = [line for line in permissions.table().splitlines() if not line.startswith(" ")]
    assert heads == list(users())


TOKENS = st.lists(st.sampled_from(["a", "b", "*", ">"]), min_size=1, max_size=4)


@given(pattern=TOKENS, subject=st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=5))
def test_matching_is_by_whole_tokens(pattern: list[str], subject: list[str]) -> None:
    """A pattern without wildcards matches itself only; `*` stands for one token, a final `>` for one or more."""
    if ">" in pattern[:-1]:
        return
    expected = len(pattern) == len(subject) or (pattern[-1] == ">" and len(subject) >= len(pattern))
    expected = expected and all(p in ("*", ">", s) for p, s in zip(pattern, subject, strict=False))
    assert matches(".".join(pattern), ".".join(subject)) == expected

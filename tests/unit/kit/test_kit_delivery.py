"""Deliveries, errors of the JetStream API, and delays: what is decided without a server."""

from __future__ import annotations

import pytest

from tiltyard.kit.delivery import Delivery
from tiltyard.kit.jetstream import (
    ApiError,
    BusError,
    BusUnavailable,
    Conflict,
    InFlight,
    JetStream,
    NotFound,
    StreamFull,
    TooLarge,
    _raise_for,
    header_block,
)
from tiltyard.kit.provision import bucket_config, consumer_config, stream_config
from tiltyard.kit.serve import retry_delay
from tiltyard.kit.wire import WireClient
from tiltyard_proto import topology

NUMBERS = "TILT_GENERATE.generate_work.3.1234.99.1700000000500000000.7"


@pytest.mark.parametrize(
    "reply",
    [f"$JS.ACK.{NUMBERS}", f"$JS.ACK.hub.ACCOUNTHASH.{NUMBERS}", f"$JS.ACK._.ACCOUNTHASH.{NUMBERS}.random"],
)
def test_all_forms_of_the_acknowledgement_subject(reply: str) -> None:
    """The short form and the form with domain and account say the same."""
    delivery = Delivery(b"s", reply.encode(), b"", b"body")
    assert (delivery.stream, delivery.sequence, delivery.deliveries) == ("TILT_GENERATE", 1234, 3)
    assert (delivery.stored, delivery.pending) == (1700000000.5, 7)
    assert (delivery.subject, delivery.body, delivery.headers, delivery.reply) == ("s", b"body", {}, reply.encode())


@pytest.mark.parametrize(
    ("code", "err_code", "description", "kind"),
    [
        (400, 10071, "wrong last sequence: 3", Conflict),
        (400, 10164, "wrong last sequence", InFlight),
        (503, 10077, "maximum messages per subject exceeded", Conflict),
        (503, 10077, "maximum messages exceeded", StreamFull),
        (503, 10047, "insufficient storage resources available", StreamFull),
        (503, 10023, "insufficient resources", StreamFull),
        (404, 10059, "stream not found", NotFound),
        (404, 10014, "consumer not found", NotFound),
        (404, 10037, "no message found", NotFound),
        (404, 0, "not found", NotFound),
        (503, 10008, "JetStream system temporarily unavailable", BusUnavailable),
        (400, 10052, "invalid configuration", ApiError),
    ],
)
def test_errors_are_named_after_conditions(code: int, err_code: int, description: str, kind: type[BusError]) -> None:
    """The server's codes become the kit's few types, with the subject in the message."""
    with pytest.raises(kind, match=r"^some\.subject: ") as caught:
        _raise_for({"code": code, "err_code": err_code, "description": description}, "some.subject")
    assert type(caught.value) is kind
    assert description in str(caught.value)


def test_size_counts_headers() -> None:
    """What would make the server close the connection is refused before it is sent."""
    client = WireClient()
    client._max_payload = 1000
    js = JetStream(client)
    js.check_size("s", b"x" * 900, b"")
    with pytest.raises(TooLarge, match="the server takes 1000"):
        js.check_size("s", b"x" * 900, header_block({"Header": "v" * 90}))


def test_headers_travel_as_one_block() -> None:
    """Each header has its line, after the sequence that is expected on the subject where there is one."""
    assert header_block({}) == b"NATS/1.0\r\n\r\n"
    assert header_block({"A": "1: 2", "B": ""}) == b"NATS/1.0\r\nA: 1: 2\r\nB: \r\n\r\n"
    assert header_block({"A": "1"}, 0) == b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\nA: 1\r\n\r\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [("", "v"), ("a:b", "v"), ("a\nb", "v"), ("é", "v"), ("n", "v\r\nX: y"), ("n", "\r"), ("n", "\n"), ("n", "ü")],
)
def test_what_cannot_be_a_header_is_named(name: str, value: str) -> None:
    """A header that would break the block, or add one, is refused with its name and value, beside good ones."""
    with pytest.raises(ValueError, match="expected ASCII on one line") as caught:
        header_block({"Good": "1", name: value, "Fine": "2"})
    assert f"header {name!r}: {value!r}" in str(caught.value)


def test_retry_delay_is_monotonic_and_bounded() -> None:
    """Delays never shrink and never pass thirty seconds, however often a message came."""
    delays = [retry_delay(n) for n in range(1, 200)]
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (0.5, 30.0)


def test_streams_keep_the_first_of_each_key() -> None:
    """Every stream keeps one message per subject and refuses new ones; no server-side limit of deliveries exists."""
    for stage in topology.STAGES:
        config = stream_config(stage, replicas=3)
        assert (config["max_msgs_per_subject"], config["discard_new_per_subject"]) == (1, True)
        assert (config["discard"], config["retention"], config["num_replicas"]) == ("new", "limits", 3)
        assert config["subjects"] == [stage.subjects]
        assert consumer_config(stage)["max_deliver"] == -1
        assert "backoff" not in consumer_config(stage)
    assert all(bucket_config(bucket)["max_msgs_per_subject"] == 1 for bucket in topology.BUCKETS)

"""What the server sends, cut into pieces anyhow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiltyard.kit.delivery import Delivery
from tiltyard.kit.frames import MAX_LINE, WireParser
from tiltyard.kit.link import Malformed

Message = tuple[bytes, bytes, bytes, bytes]
words = st.binary(min_size=1, max_size=12).map(lambda raw: raw.hex().encode())
headers = st.one_of(st.just(b""), words.map(lambda word: b"NATS/1.0\r\nName: %b\r\n\r\n" % word))
messages = st.tuples(words, st.one_of(st.just(b""), words), headers, st.binary(max_size=200))


class Client:
    """Where the parser brings things."""

    def __init__(self, tap: Any) -> None:
        self.taps = {b"7": tap}
        self.usual: list[Message] = []
        self.pings = 0

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, body: bytes, headers: bytes | None) -> None:
        assert sid == 8
        self.usual.append((subject, reply, headers or b"", body))

    async def _process_ping(self) -> None:
        self.pings += 1


def frame(sid: int, message: Message) -> bytes:
    """A message as the server writes it."""
    subject, reply, head, body = message
    middle = b" %b" % reply if reply else b""
    if head:
        sizes = (subject, sid, middle, len(head), len(head) + len(body), head, body)
        return b"HMSG %b %d%b %d %d\r\n%b%b\r\n" % sizes
    return b"MSG %b %d%b %d\r\n%b\r\n" % (subject, sid, middle, len(body), body)


@pytest.mark.anyio
@given(st.lists(st.tuples(st.sampled_from([7, 8]), messages), max_size=12), st.lists(st.integers(1, 90), min_size=1))
async def test_pieces_change_nothing(sent: list[tuple[int, Message]], cuts: list[int]) -> None:
    """However the bytes are cut, taps and usual subscriptions get each message once, whole and in order."""
    tapped: list[Message] = []
    client = Client(lambda *message: tapped.append(message))
    parser = WireParser(client)
    stream = b"PING\r\n".join(frame(sid, message) for sid, message in sent)
    at, turn = 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        if parser.feed(stream[at : at + size]):
            await parser.work()
        at, turn = at + size, turn + 1
    assert tapped == [message for sid, message in sent if sid == 7]
    assert client.usual == [message for sid, message in sent if sid == 8]
    assert client.pings == max(0, len(sent) - 1)


@pytest.mark.parametrize(
    "line",
    [b"MSG nonsense", b"MSG s 7 x", b"MSG s seven 1", b"HMSG s 7 r 1", b"HMSG s 7 r x 2", b"HMSG s 7 r 1 2 3", b"MSG"],
)
def test_what_is_no_message_is_told(line: bytes) -> None:
    """A line that begins like a message and is none raises, instead of being waited for or passed over."""
    with pytest.raises(Malformed, match="malformed"):
        WireParser(Client(print)).feed(line + b"\r\n" + b"x" * 100)


@pytest.mark.parametrize("line", [b"MSG s 7 -13", b"MSG s 7 -1", b"HMSG s 7 r -2 2", b"HMSG s 7 r 3 2"])
def test_impossible_sizes_are_told(line: bytes) -> None:
    """Sizes below zero, or a header that is longer than its message, raise; they never lead back to the same line."""
    with pytest.raises(Malformed, match="malformed"):
        WireParser(Client(print)).feed(line + b"\r\n" + b"x" * 100)


def test_a_line_without_an_end() -> None:
    """A peer that never ends its line is cut off before it fills the memory."""
    parser = WireParser(Client(print))
    assert not parser.feed(b"x" * MAX_LINE)
    with pytest.raises(Malformed, match="without an end"):
        parser.feed(b"x")


def test_a_tap_that_raises_costs_its_message_only() -> None:
    """The next message of the same piece still arrives."""
    seen: list[bytes] = []

    def tap(subject: bytes, *_: bytes) -> None:
        seen.append(subject)
        raise RuntimeError("a tap's mistake")

    assert not WireParser(Client(tap)).feed(frame(7, (b"a", b"", b"", b"1")) + frame(7, (b"b", b"", b"", b"2")))
    assert seen == [b"a", b"b"]


@pytest.mark.parametrize("reply", [b"$JS.ACK.", b"$JS.ACK.a.b.c.d.e.f.g", b"$JS.ACK.\xff", b"x"])
def test_a_forged_delivery_says_nothing(reply: bytes) -> None:
    """An acknowledgement subject that no server wrote is read as a first delivery from nowhere, not as an error."""
    delivery = Delivery(b"subject", reply, b"", b"body")
    assert (delivery.stream, delivery.sequence, delivery.deliveries, delivery.pending) == ("", 0, 1, 0)

"""Releases understand one another: what an earlier one published is read, and an earlier reader takes what is new.

`releases/<version>/` holds the bytes that a release wrote, one file a message type, and is never changed; a new release
adds its directory by copying `golden/`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.examples import EXAMPLES

from tiltyard_proto import topology
from tiltyard_proto.topology import STAGES

RELEASES = sorted((Path(__file__).parent / "releases").iterdir())
WRITTEN = [(path.parent.name, path.stem, path) for release in RELEASES for path in sorted(release.glob("*.msgpack"))]
UNKNOWN = {"of_a_later_release": {"nested": [1, 2.5, None, b"bytes", "text"]}, "another": "x"}


def known(new: Any, old: Any) -> Any:
    """What of a message's decoded map an older one has as well, at every depth."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: known(new[key], value) for key, value in old.items()}
    if isinstance(old, list) and isinstance(new, list):
        return [known(n, o) for n, o in zip(new, old, strict=True)]
    return new


def newer(raw: Any) -> Any:
    """A decoded message with unknown fields in every map that is a struct of ours (at every depth)."""
    if isinstance(raw, dict):
        return {key: newer(value) for key, value in raw.items()} | (
            UNKNOWN if "outcome" in raw or "type" in raw else {}
        )
    return [newer(each) for each in raw] if isinstance(raw, list) else raw


def test_there_is_a_release_of_every_message() -> None:
    """The first release is there with the types it had."""
    assert RELEASES[0].name == "0.1.0"
    assert len([name for release, name, _ in WRITTEN if release == "0.1.0"]) == 10


@pytest.mark.parametrize(("name", "path"), [pytest.param(*each[1:], id="-".join(each[:2])) for each in WRITTEN])
def test_what_a_release_wrote_is_read(name: str, path: Path) -> None:
    """Bytes of an earlier release decode with today's types, and nothing that they said is lost."""
    body = path.read_bytes()
    message: Any = msgspec.msgpack.decode(body, type=type(EXAMPLES[name]))
    said = msgspec.msgpack.decode(body)
    assert known(msgspec.msgpack.decode(topology.encode(message)), said) == said
    for stage in STAGES:
        if stage.accepts(message):
            assert topology.decode(stage, body) == message
            assert stage.subject(message).startswith(f"tilt.v1.{stage.name}.")


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_older_reader_takes_what_is_new(name: str) -> None:
    """Fields that a reader does not know are passed over at every depth, in both encodings."""
    kind = type(EXAMPLES[name])
    raw = newer(msgspec.msgpack.decode(topology.encode(EXAMPLES[name])))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(raw), type=kind) == EXAMPLES[name]
    plain = newer(msgspec.json.decode(msgspec.json.encode(EXAMPLES[name])))
    plain.pop("of_a_later_release")
    assert msgspec.json.decode(msgspec.json.encode(plain), type=kind) == EXAMPLES[name]


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_oldest_reader_takes_todays_message(name: str) -> None:
    """A reader that knows the required fields only, as the first release with none of the later ones would, reads
    today's bytes."""
    kind = type(EXAMPLES[name])
    required = [(field.name, field.type) for field in msgspec.structs.fields(kind) if field.required]
    oldest = msgspec.defstruct(f"Old{kind.__name__}", required, tag_field="type", tag=name, kw_only=True, frozen=True)
    read = msgspec.msgpack.decode(topology.encode(EXAMPLES[name]), type=oldest)
    assert all(getattr(read, field) == getattr(EXAMPLES[name], field) for field, _ in required)

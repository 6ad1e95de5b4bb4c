"""The wire contract: golden bytes, the committed schema, and what old and new versions may say to one another."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.examples import EXAMPLES, ROLLOUT

import tiltyard_proto
from tiltyard_proto import messages, topology
from tiltyard_proto.messages import Message
from tiltyard_proto.schema import schema, text

GOLDEN = Path(__file__).parent / "golden"
SCHEMA = Path(inspect.getfile(tiltyard_proto)).parent / "schema.json"
STRUCTS = [
    kind
    for _, kind in inspect.getmembers(messages, inspect.isclass)
    if issubclass(kind, msgspec.Struct) and kind.__module__ == messages.__name__ and kind.__struct_fields__
]
TAGGED = [kind for kind in STRUCTS if kind.__struct_config__.tag is not None]


def structs_in(value: Any) -> Iterator[msgspec.Struct]:
    """All structs within a value, itself included."""
    if isinstance(value, msgspec.Struct):
        yield value
        for field in value.__struct_fields__:
            yield from structs_in(getattr(value, field))
    elif isinstance(value, tuple):
        for item in value:
            yield from structs_in(item)


def without_optional(raw: Any, value: Any) -> Any:
    """The decoded map of a message with every field left out that has a default, at every depth."""
    if isinstance(value, tuple):
        return [without_optional(r, v) for r, v in zip(raw, value, strict=True)]
    if not isinstance(value, msgspec.Struct):
        return raw
    required = [field.encode_name for field in msgspec.structs.fields(value) if field.required]
    kept = {name: without_optional(raw[name], getattr(value, name)) for name in required}
    return kept | ({"type": raw["type"]} if isinstance(value, Message) else {})


def test_an_example_of_every_message() -> None:
    """Every tagged type has an example and a golden file, and nothing else has."""
    tags = {kind.__struct_config__.tag for kind in TAGGED}
    assert set(EXAMPLES) == tags == {path.stem for path in GOLDEN.glob("*.msgpack")}
    assert all(type(example).__struct_config__.tag == name for name, example in EXAMPLES.items())


def test_the_examples_leave_nothing_out() -> None:
    """Every field of every struct stands in some golden file, because some example sets it to something else than its
    default."""
    seen: set[tuple[str, str]] = set()
    for example in EXAMPLES.values():
        for part in structs_in(example):
            for field in msgspec.structs.fields(part):
                default = field.default_factory() if callable(field.default_factory) else field.default
                if getattr(part, field.name) != default:
                    seen.add((type(part).__name__, field.name))
    wanted = {(kind.__name__, name) for kind in STRUCTS for name in kind.__struct_fields__}
    assert wanted - seen == set()


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_golden_bytes(name: str) -> None:
    """The committed bytes decode to the example, and the example encodes to the committed bytes."""
    golden = (GOLDEN / f"{name}.msgpack").read_bytes()
    assert msgspec.msgpack.decode(golden, type=type(EXAMPLES[name])) == EXAMPLES[name]
    assert topology.encode(EXAMPLES[name]) == golden


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_json_says_the_same(name: str) -> None:
    """A message as JSON comes back equal."""
    example = EXAMPLES[name]
    assert msgspec.json.decode(msgspec.json.encode(example), type=type(example)) == example


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_old_message_is_read(name: str) -> None:
    """A message with its required fields only, at every depth, decodes, and the rest has its defaults."""
    example = EXAMPLES[name]
    raw = without_optional(msgspec.msgpack.decode(topology.encode(example)), example)
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(raw), type=type(example))
    for field in msgspec.structs.fields(old):
        if not field.required:
            default = field.default_factory() if callable(field.default_factory) else field.default
            assert getattr(old, field.name) == default


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_newer_message_is_read(name: str) -> None:
    """Unknown fields are ignored."""
    raw = msgspec.msgpack.decode(topology.encode(EXAMPLES[name]))
    newer = msgspec.msgpack.encode({**raw, "of_a_later_version": [1, {"a": b"b"}]})
    assert msgspec.msgpack.decode(newer, type=type(EXAMPLES[name])) == EXAMPLES[name]


@pytest.mark.parametrize("stage", topology.STAGES, ids=lambda stage: str(stage.name))
def test_unknown_tags_are_errors(stage: topology.Stage[Any]) -> None:
    """A tag that the stage does not carry is refused, in both encodings."""
    tags = {kind.__struct_config__.tag for kind in TAGGED if stage.accepts(EXAMPLES[str(kind.__struct_config__.tag)])}
    for name, example in EXAMPLES.items():
        if name not in tags:
            with pytest.raises(msgspec.ValidationError):
                topology.decode(stage, topology.encode(example))
    raw = {**msgspec.msgpack.decode(topology.encode(ROLLOUT)), "type": "nonsense"}
    for body in (msgspec.msgpack.encode(raw), b'{"type": "nonsense"}'):
        with pytest.raises(msgspec.ValidationError):
            topology.decode(stage, body)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_truncated_bytes_are_errors(name: str) -> None:
    """No prefix of a message is a message."""
    body = topology.encode(EXAMPLES[name])
    for end in {*range(0, len(body), 7), len(body) - 1}:
        with pytest.raises(msgspec.DecodeError):
            msgspec.msgpack.decode(body[:end], type=type(EXAMPLES[name]))


def test_the_committed_schema_is_the_generated_one() -> None:
    """`schema.json` is what `python -m tiltyard_proto.schema` prints."""
    assert SCHEMA.read_text() == text()


def test_the_schema_is_whole() -> None:
    """Every stage and message is in the schema and every reference in it leads somewhere."""
    made = schema()
    assert set(made["stages"]) == {stage.name for stage in topology.STAGES}
    assert {kind.__name__ for kind in STRUCTS} <= set(made["$defs"])
    assert set(re.findall(r'"#/\$defs/(\w+)"', text())) <= set(made["$defs"])


def test_schema_names_what_the_encoder_writes() -> None:
    """Each property of a message's schema is a key of its golden bytes and the other way round."""
    definitions = schema()["$defs"]
    for name, example in EXAMPLES.items():
        raw = msgspec.msgpack.decode((GOLDEN / f"{name}.msgpack").read_bytes())
        assert set(raw) == set(definitions[type(example).__name__]["properties"])

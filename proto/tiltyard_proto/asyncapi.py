"""The bus as an AsyncAPI 3 document: channels, who sends and who receives, and the schema of every message.

`python -m tiltyard_proto.asyncapi` prints it; `docs/asyncapi.json` is its committed output, compared by a test.
Invariants: it is derived from the topology and the messages alone, and the same code gives the same bytes; every
reference in it leads somewhere. Left out: key-value buckets, which carry no messages between services.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from .messages import MAJOR
from .permissions import names
from .schema import schema
from .topology import PREFIX, STAGES, Stage

CONTENT_TYPE = "application/msgpack"
HEADERS: dict[str, tuple[str, str]] = {
    "Tilt-Schema": ("type and major of the body", r"^[a-z_]+/[0-9]+$"),
    "traceparent": ("W3C trace context", r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"),
    "Tilt-Run": ("the run", ""),
    "Tilt-Rollout": ("the rollout", ""),
    "Tilt-Claim": ("the body is a reference to a blob that holds the message", "^1$"),
    "Nats-Expected-Last-Subject-Sequence": ("0: the first writer of a subject wins", "^[0-9]+$"),
}


def _ref(*path: str) -> dict[str, str]:
    return {"$ref": "#/" + "/".join(path)}


def _kinds(stage: Stage[Any]) -> tuple[type[msgspec.Struct], ...]:
    """The message types of a stage."""
    return get_args(stage.type) or (stage.type,)


def _channel(stage: Stage[Any]) -> dict[str, Any]:
    return {
        "address": f"{PREFIX}.{stage.name}.{{domain}}.{{key}}",
        "title": stage.name,
        "description": f"{stage.what}. Key: {stage.keyed_by}. Stream {stage.stream}.",
        "messages": {kind.__name__: _ref("components", "messages", kind.__name__) for kind in _kinds(stage)},
        "parameters": {name: _ref("components", "parameters", name) for name in ("domain", "key")},
    }


def _operation(stage: Stage[Any], user: str, action: str) -> dict[str, Any]:
    how = "work, shared out by a durable consumer" if stage.work else "followed by position"
    channel = ("channels", stage.name)
    return {
        "action": action,
        "channel": _ref(*channel),
        "title": f"{user} {'sends to' if action == 'send' else 'receives from'} {stage.name}",
        "description": how if action == "receive" else "stored under its key; the first writer wins",
        "messages": [_ref(*channel, "messages", kind.__name__) for kind in _kinds(stage)],
        "tags": [{"name": user}],
    }


def _operations() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for stage in STAGES:
        for action, users in (("send", stage.sender), ("receive", stage.receiver)):
            for user in sorted(names(users)) or [users[0]]:
                name = f"{user.replace(' ', '_')}_{action}s_{stage.name}"
                found[name] = _operation(stage, user, action)
    return found


def _message(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        "name": str(kind.__struct_config__.tag),
        "title": kind.__name__,
        "summary": (kind.__doc__ or "").strip().splitlines()[0],
        "contentType": CONTENT_TYPE,
        "headers": _ref("components", "schemas", "Headers"),
        "payload": _ref("components", "schemas", kind.__name__),
    }


def _headers() -> dict[str, Any]:
    properties = {
        name: {"type": "string", "description": what} | ({"pattern": pattern} if pattern else {})
        for name, (what, pattern) in HEADERS.items()
    }
    return {"type": "object", "properties": properties, "required": ["Tilt-Schema", "traceparent"]}


def _moved(value: Any) -> Any:
    """Schemas with their references led to where AsyncAPI keeps them."""
    if isinstance(value, dict):
        return {
            key: each.replace("#/$defs/", "#/components/schemas/") if key == "$ref" else _moved(each)
            for key, each in value.items()
        }
    return [_moved(each) for each in value] if isinstance(value, list) else value


def document() -> dict[str, Any]:
    """The AsyncAPI document."""
    kinds = {kind.__name__: kind for stage in STAGES for kind in _kinds(stage)}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Tiltyard bus",
            "version": f"{MAJOR}.0.0",
            "description": "Streams of a NATS JetStream server. Bodies are MessagePack, or JSON where they begin "
            "with {. Fields may be added with a default; a field that is not known is ignored.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": {"nats": {"host": "127.0.0.1:4222", "protocol": "nats"}},
        "channels": {stage.name: _channel(stage) for stage in STAGES},
        "operations": _operations(),
        "components": {
            "messages": {name: _message(kind) for name, kind in kinds.items()},
            "parameters": {
                "domain": {"description": "the task's domain with its dots as __; of a dead letter the stage"},
                "key": {"description": "the idempotency key of the effect"},
            },
            "schemas": {"Headers": _headers(), **_moved(schema()["$defs"])},
        },
    }


def text() -> str:
    """The document as indented JSON with sorted keys and a final newline."""
    return msgspec.json.format(msgspec.json.encode(document(), order="deterministic"), indent=1).decode() + "\n"


if __name__ == "__main__":
    print(text(), end="")

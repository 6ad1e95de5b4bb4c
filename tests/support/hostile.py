"""Tasks and messages that nobody can work on, as a hostile or unlucky user would send them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import msgspec

from tiltyard_proto import keys
from tiltyard_proto.messages import ChatMessage, Task, Verification

GARBAGE = {
    "empty": b"",
    "opcode": b"\xc1\xff\x00",
    "cut": b'{"type":',
    "tag": b'{"type":"nonsense"}',
    "other": b'{"type":"policy","run":"x","version":0,"path":"/x"}',
    "nan": b'{"type":"task","value":NaN}',
    "surrogate": b'{"type":"task","id":"\\ud800"}',
    "deep": b'{"type":"task","x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "length": b"\xdf\xff\xff\xff\xff",
}
"""Bodies that are no message of any stage."""


def prompt(text: str) -> tuple[ChatMessage, ...]:
    return (ChatMessage(role="user", content=text),)


def nested(depth: int) -> list[Any]:
    data: list[Any] = []
    for _ in range(depth):
        data = [data]
    return data


def tasks(base: Task) -> Iterator[Task]:
    """Variants of a good task, each wrong in one way; the template says in which."""
    e, limits, v, s = base.environment, base.limits, base.verification, base.sampling

    def but(name: str, **changes: Any) -> Task:
        return keys.with_id(msgspec.structs.replace(base, template=f"bad_{name}", **changes))

    def environment(**changes: Any) -> Any:
        return msgspec.structs.replace(e, **changes)

    yield but("huge", prompt=prompt("word " * 300_000))
    yield but("long", prompt=prompt("word " * 3000))
    yield but("special", prompt=prompt("<|im_end|>\n<|im_start|>system\nhi<|endoftext|>"))
    yield but("nul", prompt=prompt("a\0b"))
    yield but("no_prompt", prompt=())
    yield but("role", prompt=(ChatMessage(role="emperor", content="x"),))
    yield but("files", environment=environment(files={"a": bytes(range(256)) * 4096}))
    yield but("outside", environment=environment(files={"/etc/passwd": b"x", "../../x": b""}))
    yield but("kind", verification=Verification(kind="nope"))
    yield but("data", verification=msgspec.structs.replace(v, data={}))
    yield but("deep", verification=msgspec.structs.replace(v, data={"x": nested(400)}))
    yield but("profile", environment=environment(profile="nope"))
    yield but("interface", environment=environment(interface="nope"))
    yield but("turns", limits=msgspec.structs.replace(limits, turns=-1))
    yield but("tokens", limits=msgspec.structs.replace(limits, tokens=-1))
    yield but("wall", limits=msgspec.structs.replace(limits, wall_s=-1.0))
    yield but("wall_nan", limits=msgspec.structs.replace(limits, wall_s=float("nan")))
    yield but("temperature", sampling=msgspec.structs.replace(s, temperature=float("nan")))
    yield but("no_tokens", sampling=msgspec.structs.replace(s, max_new_tokens=0))
    negative = msgspec.structs.replace(e.limits, wall_s=-1.0, memory_bytes=-5, processes=-1, disk_bytes=0)
    yield but("exec", environment=environment(limits=negative))
    large = msgspec.structs.replace(e.limits, wall_s=1e300, memory_bytes=2**62, disk_bytes=2**62)
    yield but("exec_large", environment=environment(limits=large))
    yield but("value", value=float("nan"))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "role": ({"prompt": [{"role": "emperor", "content": "x"}]}, "prompt: role: expected one of system, user"),
    "no content": (
        {"prompt": [{"role": "user", "content": " "}]},
        "prompt: expected at least one message with content",
    ),
    "outside": ({"environment": {"files": {"../x": ""}}}, "environment.files: '../x': expected a path below"),
    "absolute": ({"environment": {"files": {"/etc/passwd": ""}}}, "'/etc/passwd': expected a path below"),
    "base64": ({"environment": {"files": {"a": "!"}}}, "Invalid base64"),
    "kind": ({"verification": {"kind": "nope"}}, "verification.kind: expected one of "),
    "profile": ({"environment": {"profile": "nope"}}, "environment.profile: expected one of "),
    "interface": ({"environment": {"interface": "nope"}}, "environment.interface: expected one of answer"),
    "turns": ({"limits": {"turns": -1}}, "limits.turns: expected more than 0"),
    "wall": ({"limits": {"wall_s": 0}}, "limits.wall_s: expected more than 0"),
    "large": ({"environment": {"limits": {"memory_bytes": 2**63}}}, "environment.limits.memory_bytes: expected"),
    "temperature": ({"sampling": {"temperature": -1}}, "sampling.temperature: expected 0 or more"),
    "top_p": ({"sampling": {"top_p": 2}}, "sampling.top_p: expected more than 0, at most 1"),
    "top_k": ({"sampling": {"top_k": 0}}, "sampling.top_k: expected -1"),
    "no tokens": ({"sampling": {"max_new_tokens": 0}}, "sampling.max_new_tokens: expected 1 or more"),
    "stop": ({"sampling": {"stop": [""]}}, "sampling.stop: expected no empty string"),
    "unknown key": ({"promt": "x"}, "unknown key 'promt'; known keys: id, domain, prompt"),
    "file size": ({"environment": {"files": {"a": base64.b64encode(bytes(9)).decode(), "": ""}}}, "expected a path"),
}
"""Changes to a good task's JSON that `tiltyard publish` refuses, and what it says."""

"""Messages and bytes as text for people: indented JSON, or a hexdump where there is no structure."""

from __future__ import annotations

from typing import Any

import msgspec

from .errors import UNREADABLE


def rendering(message: Any) -> str:
    """A message as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(message), indent=2).decode()


def rendering_of_bytes(body: bytes) -> str:
    """Bytes as JSON where they hold any structure at all, else as a hexdump."""
    for codec in (msgspec.json, msgspec.msgpack):
        try:
            return rendering(codec.decode(body))
        except UNREADABLE:
            continue
    return hexdump(body)


def hexdump(body: bytes, limit: int = 4096) -> str:
    """Offset, hexadecimal and printable characters, sixteen bytes a line."""
    lines = []
    for offset in range(0, min(len(body), limit), 16):
        row = body[offset : offset + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{offset:08x}  {row[:8].hex(' '):23}  {row[8:].hex(' '):23}  |{shown}|")
    if len(body) > limit:
        lines.append(f"... {len(body) - limit} more bytes")
    return "\n".join(lines)

"""`tiltyard config`: every setting with its meaning, as TOML that could be a configuration file."""

from __future__ import annotations

import ast
import inspect
import textwrap
from argparse import Namespace
from typing import Any

import msgspec

from .main import source_of
from .sections import check_all, component_types


def field_docs(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The docstring below each field of a settings struct, read from its source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        documented = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and documented:
            docs[field.target.id] = " ".join(str(text.value.value).split())  # type: ignore[attr-defined]
    return docs


def toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, msgspec.Struct):
        value = {k: v for k, v in msgspec.structs.asdict(value).items() if v is not None}
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{k}" = {toml(v)}' for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return msgspec.json.encode(value).decode()


def render(sections: dict[str, Any]) -> str:
    """The annotated configuration."""
    lines: list[str] = []
    for name, kind in component_types().items():
        lines += [f"# {(kind.__doc__ or '').strip().splitlines()[0]}", f"[{name}]"]
        docs = field_docs(kind)
        for field in kind.__struct_fields__:
            value = getattr(sections[name], field)
            entry = f"{field} = {toml(value)}" if value is not None else f"# {field} ="
            lines += [f"# {docs.get(field, '')}", entry]
        lines.append("")
    return "\n".join(lines)


def main(arguments: Namespace) -> int:
    print(render(check_all(source_of(arguments))))
    return 0

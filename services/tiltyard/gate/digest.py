"""What a check's result depends on, as one hash: definition, generator, data, kind, gate, versions of what they import.

Code is followed through the imports of our own modules (and of the package that ships the domain), read and not run.
Left out: images of sandboxes, whose recipes have digests of their own.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

import msgspec

from tiltyard.domains import Domain
from tiltyard.verifier.kinds.registry import AnyKind

_OURS = ("tiltyard.domains", "tiltyard.verifier", "tiltyard.gate")


def digest(domain: Domain, kinds: Mapping[str, AnyKind], evaluation: str) -> str:
    """The hash of everything behind one domain; `evaluation` is that of the evaluation sets."""
    definition = domain.definition
    parts = [evaluation.encode(), msgspec.json.encode(definition, order="sorted")]
    generator = definition.generator.partition(":")[0]
    modules = {"tiltyard.gate.check", *([generator] if generator and not generator.startswith("./") else [])}
    parts += [(domain.folder / file).read_bytes() for file in (generator,) if file.startswith("./")]
    if kind := kinds.get(definition.verifier.kind):
        modules.add(type(kind).__module__)
    if definition.data:
        parts.append((domain.folder / definition.data).read_bytes())
    for module in sorted(modules):
        parts += [part for _, part in sorted(_closure(module).items())]
    hashed = blake2b(digest_size=16)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big") + part)
    return hashed.hexdigest()


def evaluation_digest(domains: Iterable[Domain]) -> str:
    """The hash of what evaluation-only domains are drawn from."""
    hashed = blake2b(digest_size=16)
    for domain in domains:
        if "train" not in domain.definition.splits:
            hashed.update(msgspec.json.encode(domain.definition, order="sorted"))
            for _, part in sorted(_closure(domain.definition.generator.partition(":")[0]).items()):
                hashed.update(part)
    return hashed.hexdigest()


@cache
def _closure(module: str) -> Mapping[str, bytes]:
    """Everything that a module is made of: path or distribution to its bytes or version."""
    package = module.split(".")[0]
    found: dict[str, bytes] = {}
    todo, seen = [module], set[str]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name.split(".")[0] != package:
            found |= _version(name.split(".")[0])
        elif package != "tiltyard" or name.startswith(_OURS):
            for path in _files(name):
                found[str(path)] = content = path.read_bytes()
                todo += _imports(content, f"{name}.x" if path.name == "__init__.py" else name)
    return found


def _files(name: str) -> list[Path]:
    """A module's own file; of a kind everything in its folder, since runners and rules are not imported by it."""
    try:
        spec = find_spec(name)
    except (ModuleNotFoundError, ValueError):
        return []
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return []
    path = Path(spec.origin)
    if path.name == "kind.py":
        return sorted(one for one in path.parent.rglob("*") if one.is_file() and "__pycache__" not in one.parts)
    return [path]


def _imports(content: bytes, name: str) -> list[str]:
    found: list[str] = []
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # a data file
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(name.split(".")[: -node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            found += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return found


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


def _version(top: str) -> dict[str, bytes]:
    if top in sys.stdlib_module_names or top in ("tiltyard", "tiltyard_proto", ""):
        return {}
    try:
        return {one: version(one).encode() for one in _distributions().get(top, [])}
    except PackageNotFoundError:
        return {}

"""What is written about domains and verifiers agrees with the code."""

from __future__ import annotations

from pathlib import Path

from tiltyard.domains.definition import Definition
from tiltyard.verifier.kinds.registry import FOLDER, built_in

ROOT = Path(__file__).parents[2]
DOMAINS, VERIFIERS = ROOT / "docs/domains.md", ROOT / "docs/verifiers.md"


def test_every_key_of_a_definition_is_described() -> None:
    """The table of docs/domains.md names each key."""
    table = DOMAINS.read_text().split("## The file")[1].split("A family says")[0]
    assert [key for key in Definition.__struct_fields__ if f"`{key}`" not in table] == []


def test_every_kind_is_described() -> None:
    """Each built-in kind has a row in docs/verifiers.md, or a page of its own that the page links to."""
    text = VERIFIERS.read_text()
    pages = {path.stem for path in (ROOT / "docs/verifiers").glob("*.md")}
    assert [kind.name for kind in built_in() if f"`{kind.name}`" not in text and kind.name not in pages] == []
    assert pages <= {kind.name for kind in built_in()}


def test_every_folder_has_the_same_shape() -> None:
    """A kind's folder has `__init__`, `data` and `kind`; its class reads what `data` says."""
    for kind in built_in():
        names = {path.name for path in (FOLDER / kind.name).glob("*.py")}
        assert {"__init__.py", "data.py", "kind.py"} <= names, kind.name
        assert kind.data.__module__.startswith(f"{FOLDER.parent.parent.name}.verifier.kinds.{kind.name}"), kind.name
        assert kind.version

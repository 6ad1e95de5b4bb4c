"""`tiltyard config`: what it prints could be the configuration file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tiltyard.cli.config import field_docs, render, toml
from tiltyard.cli.sections import check_all, component_types
from tiltyard.kit.settings import COMPONENTS, SHARED, SettingsError, read_source

TEXT = """
[run]
name = "other"
model = "/models/with \\"quotes\\" and \\\\ and ü"
staleness = 3
[run.train]
"code.python.functions" = { tasks = 3, temperature = 0.5 }
"math" = {}
[bus]
servers = ["nats://a:1", "nats://b:2"]
[supervisor]
services = { engine = 0, gateway = 2 }
"""


@pytest.mark.parametrize("text", ["", TEXT])
def test_it_reads_back_to_the_same_settings(tmp_path: Path, text: str) -> None:
    """Rendered and read again, every table has the same values, defaults and odd strings included."""
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(text)
    sections = check_all(read_source(first, (), {}))
    second.write_text(render(sections))
    assert check_all(read_source(second, (), {})) == sections
    assert set(tomllib.loads(second.read_text())) == {*SHARED, *COMPONENTS}


def test_every_setting_is_explained() -> None:
    """Each field of each table has a sentence, each table a heading, and no table takes unknown keys."""
    for name, kind in component_types().items():
        docs = field_docs(kind)
        assert [f"{name}.{field}" for field in kind.__struct_fields__ if not docs.get(field)] == []
        assert (kind.__doc__ or "").strip()
        assert kind.__struct_config__.forbid_unknown_fields


def test_every_table_belongs_to_somebody() -> None:
    """The tables that are accepted are those that have settings."""
    assert set(component_types()) == {*SHARED, *COMPONENTS}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, "true"),
        (1.5, "1.5"),
        ('a\n"b"', '"a\\n\\"b\\""'),
        ((), "[]"),
        ({}, "{}"),
        ({"a.b": (1,)}, '{ "a.b" = [1] }'),
    ],
)
def test_values_as_toml(value: object, expected: str) -> None:
    """Each kind of value, and it reads back."""
    assert toml(value) == expected
    tomllib.loads(f"x = {expected}")


@pytest.mark.parametrize("override", ["supervisor.services={foo=1}", "supervisor.services={engine=-1}"])
def test_services_that_are_not_there_are_refused(override: str) -> None:
    """The supervisor starts services by name, so a name it does not know is a mistake found before anything starts."""
    with pytest.raises(SettingsError, match=r"--set supervisor\.services=.*\[supervisor\]: services: "):
        check_all(read_source(None, [override], {}))

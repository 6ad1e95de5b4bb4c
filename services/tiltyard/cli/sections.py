"""All settings of all components, for the commands that need the whole configuration."""

from __future__ import annotations

import importlib
from typing import Any

import msgspec

from tiltyard.kit.settings import SHARED, Source, section

from .main import SERVICES


def component_types() -> dict[str, type[msgspec.Struct]]:
    """Settings struct of every table."""
    kinds = dict(SHARED)
    for name in SERVICES:
        module = importlib.import_module(f"tiltyard.{name}.settings")
        kinds[name] = getattr(module, f"{name.capitalize()}Settings")
    from tiltyard.kit.janitor import JanitorSettings

    from .up.settings import SupervisorSettings

    kinds["supervisor"] = SupervisorSettings
    kinds["janitor"] = JanitorSettings
    return kinds


def check_all(source: Source) -> dict[str, Any]:
    """Every table as its struct; SettingsError for the first mistake."""
    return {name: section(source, name, kind) for name, kind in component_types().items()}

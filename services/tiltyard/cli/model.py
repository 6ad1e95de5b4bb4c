"""`tiltyard model`: prepare a model and print its directory."""

from __future__ import annotations

from argparse import Namespace

from tiltyard.kit.settings import DataSettings, RunSettings, section
from tiltyard.policy.models import ensure_model

from .main import source_of


def main(arguments: Namespace) -> int:
    source = source_of(arguments)
    name = arguments.name or section(source, "run", RunSettings).model
    print(ensure_model(name, section(source, "data", DataSettings).cache_path))
    return 0

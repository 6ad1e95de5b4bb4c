"""`tiltyard model`: prepare a model and print its directory."""

from __future__ import annotations

from argparse import Namespace

from tiltyard.kit.settings import DataSettings, RunSettings, section

from .errors import UserError
from .main import source_of
from .models import prepare


def main(arguments: Namespace) -> int:
    source = source_of(arguments)
    name = arguments.name or section(source, "run", RunSettings).model
    try:
        print(prepare(name, section(source, "data", DataSettings).cache_path))
    except (OSError, RuntimeError) as error:  # disk, network
        raise UserError(f"{name}: {error}") from error
    return 0

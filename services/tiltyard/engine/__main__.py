"""`python -m tiltyard.engine [-c FILE] [--set engine.KEY=VALUE] [--model DIR] [--port N]`: serve a model on the CPU."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tiltyard.engine.settings import EngineSettings
from tiltyard.kit import log
from tiltyard.kit.settings import DataSettings, RunSettings, ServiceSettings, SettingsError, read_source, section
from tiltyard.policy.models import ModelUnavailable


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tiltyard run engine", description="Run the embedded engine.")
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="TOML configuration; defaults without it")
    parser.add_argument("--set", action="append", default=[], metavar="TABLE.KEY=VALUE", help="override one setting")
    parser.add_argument("--model", help="short for --set engine.model=...")
    parser.add_argument("--port", type=int, help="short for --set engine.port=...")
    given = parser.parse_args(argv)
    short = [f"engine.{key}={value}" for key in ("model", "port") if (value := getattr(given, key)) is not None]
    try:
        source = read_source(given.config, [*given.set, *short])
        settings = section(source, "engine", EngineSettings)
        run, data = section(source, "run", RunSettings), section(source, "data", DataSettings)
        service = section(source, "service", ServiceSettings)
        log.setup("engine", service.log_format, service.log_level)
        os.environ.update(OMP_WAIT_POLICY="PASSIVE", OMP_NUM_THREADS="1")  # a lane is one thread
        from tiltyard.engine.serve import serve

        return serve(settings, settings.model or run.model, data.cache_path)
    except (ValueError, ModelUnavailable) as error:  # a wrong setting is a ValueError too
        print(f"tiltyard engine: {error}", file=sys.stderr)
        return 2 if isinstance(error, SettingsError) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Run one aggregator service: `python -m tiltyard.aggregator -c FILE`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tiltyard.kit.service import run_service

from .settings import AggregatorSettings


def main(argv: Sequence[str] | None = None) -> int:
    return run_service("aggregator", AggregatorSettings, "tiltyard.aggregator.app:start", argv)


if __name__ == "__main__":
    sys.exit(main())

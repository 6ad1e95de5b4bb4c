"""Run one sampler service: `python -m tiltyard.sampler -c FILE`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tiltyard.kit.service import run_service

from .settings import SamplerSettings


def main(argv: Sequence[str] | None = None) -> int:
    return run_service("sampler", SamplerSettings, "tiltyard.sampler.app:start", argv)


if __name__ == "__main__":
    sys.exit(main())

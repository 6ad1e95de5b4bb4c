"""`python -m tiltyard.trainer -c FILE`: wiring only; torch is loaded after the settings are known to be right."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tiltyard.kit.service import run_service

from .settings import TrainerSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Run one trainer until it is told to stop; the exit status."""
    return run_service("trainer", TrainerSettings, "tiltyard.trainer.app:start", argv)


if __name__ == "__main__":
    sys.exit(main())

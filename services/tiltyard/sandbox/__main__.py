"""`python -m tiltyard.sandbox`: run one sandbox service."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tiltyard.kit.service import run_service

from .settings import SandboxSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the service; its exit status."""
    return run_service("sandbox", SandboxSettings, "tiltyard.sandbox.app:start", argv)


if __name__ == "__main__":
    sys.exit(main())

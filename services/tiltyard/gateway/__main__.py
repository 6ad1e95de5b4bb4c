"""`python -m tiltyard.gateway -c FILE`: serve stage generate."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tiltyard.kit.service import run_service

from .settings import GatewaySettings


def main(argv: Sequence[str] | None = None) -> int:
    return run_service("gateway", GatewaySettings, "tiltyard.gateway.app:start", argv)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tiltyard.verifier -c FILE`: serve stage verify."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tiltyard.kit.service import run_service

from .settings import VerifierSettings


def main(argv: Sequence[str] | None = None) -> int:
    return run_service("verifier", VerifierSettings, "tiltyard.verifier.app:start", argv)


if __name__ == "__main__":
    sys.exit(main())

"""Load: rollouts through every real service on a simulated engine, as fast as they go; `make load`.

Prints a table, writes rows {measure, value, unit, target, holds} to `results/load.json` and a report with charts to
`results/load.html`. Everything runs on this machine's loopback and is gone afterwards; `--servers` takes a bus that is
elsewhere. Exit status 1 when something was lost; with `--strict` also when a target is missed.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from load.command import main

if __name__ == "__main__":
    sys.exit(main())

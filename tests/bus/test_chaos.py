"""The chaos load test at a small size: real services, real kills, a real audit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
MUST_HOLD = {
    "rollouts",
    "server killed",
    "rollouts with exactly one verdict",
    "groups closed once",
    "things not accounted for",
}
"""Recovery times depend on how busy the machine is; the large run reports them."""


@pytest.mark.timeout(180)
def test_nothing_is_lost_or_doubled_while_everything_is_killed(tmp_path: Path) -> None:
    """Four hundred rollouts, services killed six times, the server once: one verdict each, every group closed and
    trained once, no dead letter."""
    results = tmp_path / "chaos.json"
    argv = [sys.executable, str(ROOT / "loadtests/chaos"), "--results", str(results), "--limit", "150"]
    argv += ["--rollouts", "400", "--kills", "6", "--kill-every", "0.7", "--server-kills", "1", "--lease", "3"]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'services'}:{ROOT / 'proto'}"}
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, env=environ, check=False, timeout=170)
    said = done.stdout[-4000:] + done.stderr[-4000:]
    assert results.is_file(), said
    rows = {row["measure"]: row for row in msgspec.json.decode(results.read_bytes())}
    assert {name for name in MUST_HOLD if rows[name]["holds"]} == MUST_HOLD, said
    assert rows["services killed"]["value"] >= 4, said

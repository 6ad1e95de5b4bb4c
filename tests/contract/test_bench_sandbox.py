"""The sandbox benchmark in its small size: it runs, writes its rows, and what doesn't hang on the load holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(200)
def test_the_bench_in_small(tmp_path: Path) -> None:
    """Every row of the table is there; nothing is left; memory and CPU hold on any machine."""
    argv = [sys.executable, str(ROOT / "loadtests/bench_sandbox.py"), "--small", "--without", "docker"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [*argv, "--results", str(tmp_path / "rows.json")],
        capture_output=True,
        text=True,
        timeout=190,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    rows = msgspec.json.decode((tmp_path / "rows.json").read_bytes())
    found = {row["measure"]: row for row in rows}
    assert len(found) == len(rows)
    assert all(set(row) == {"measure", "value", "unit", "target", "holds"} for row in rows)
    assert all(measure in done.stdout for measure in found)
    targets = [row for row in rows if row["target"]]
    assert len(targets) == 16
    for start in ("idle sandbox, of", "left of them", "sandboxes leaked", "cold start to an answering agent, CPU"):
        (row,) = [row for row in targets if row["measure"].startswith(start)]
        assert row["holds"], row

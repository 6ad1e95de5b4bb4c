"""The bus benchmark in its small size: it runs, writes its rows, and what doesn't hang on the machine's load holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(150)
def test_the_bench_in_small(tmp_path: Path) -> None:
    """CPU costs and shares hold on any machine; waits are shown, and only bounded loosely on a busy one."""
    argv = [sys.executable, str(ROOT / "loadtests/bench_bus.py"), "--small", "--results", str(tmp_path / "rows.json")]
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=140, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    rows = msgspec.json.decode((tmp_path / "rows.json").read_bytes())
    found = {row["measure"]: row for row in rows}
    assert len(found) == len(rows) == 16
    assert all(set(row) == {"measure", "value", "unit", "target", "holds"} for row in rows)
    assert all(measure in done.stdout for measure in found)
    for start in ("confirmed publishes", "full hop (", "one domain floods: share"):
        (row,) = [row for measure, row in found.items() if measure.startswith(start)]
        assert row["holds"], row

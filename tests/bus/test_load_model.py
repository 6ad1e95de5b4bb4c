"""`tiltyard size` against the load test: costs are measured at two loads, and two others are predicted from them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tiltyard.cli.main import main
from tiltyard.cli.size import read_costs

ROOT = Path(__file__).parents[2]
TRIES = 2
"""A neighbour on the machine may spoil one measurement; what is wrong is wrong twice."""
PREDICTED = [f"{turns}-turns: CPU of a rollout against the prediction" for turns in (2, 6)]


def measure(results: Path) -> dict[str, Any]:
    """The rows of the four loads, by measure."""
    argv = [sys.executable, str(ROOT / "loadtests/load"), "steady", "turns", "2-turns", "6-turns"]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'services'}:{ROOT / 'proto'}"}
    done = subprocess.run(
        [*argv, "--scale", "0.1", "--results", str(results)], capture_output=True, text=True, check=False, env=environ
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return {row["measure"]: row for row in msgspec.json.decode(results.read_bytes())}


@pytest.mark.timeout(420)
def test_the_model_predicts_what_it_has_not_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CPU of a rollout of two and of six turns is within a fifth of what one and four turns say; the measured costs
    can be given to the command."""
    found: list[dict[str, Any]] = []
    for _ in range(TRIES):
        found.append(measure(tmp_path / "load.json"))
        if all(found[-1][name]["holds"] for name in PREDICTED):
            break
    assert any(all(rows[name]["holds"] for name in PREDICTED) for rows in found), [
        rows[name]["value"] for rows in found for name in PREDICTED
    ]
    costs = read_costs(tmp_path / "costs.json")
    assert costs.turns.cpu_ms["sandbox"] > costs.answer.cpu_ms["sandbox"]
    assert main(["size", "500", "--costs", str(tmp_path / "costs.json")]) == 0
    assert costs.machine.split(",")[0] in capsys.readouterr().out.replace("\n", " ")

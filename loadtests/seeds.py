"""Does a run's rise hold for every seed? Runs one configuration for several seeds, one after another.

`python loadtests/seeds.py examples/demo.toml 0 1 2` prints a table and writes `results/seeds-<run>.json`: rows
{measure, value, unit, target, holds}. The claim is that the rise of each trained domain lies outside its 95 %
interval for every seed, with at least 200 held-out rollouts before and after.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec

from tiltyard.cli.report import Row

LIMIT_S = 1200


def run_seed(config: Path, seed: int, results: Path) -> list[Row]:
    """One run; its rows."""
    argv = [sys.executable, "-m", "tiltyard.cli.main", "up", "-c", str(config), "--fresh", "--plain"]
    argv += ["--set", f"run.seed={seed}", "--results", str(results)]
    subprocess.run(argv, check=True, timeout=LIMIT_S)
    return msgspec.json.decode(results.read_bytes(), type=list[Row])


def select(rows: list[Row], domains: list[str]) -> list[Row]:
    """The rows that the claim is about."""
    wanted = [f"{domain}: {what}" for domain in domains for what in SHOWN]
    return [row for row in rows if row.measure in (*wanted, "wall time", "CPU time, all processes")]


SHOWN = (
    "held-out pass rate before",
    "held-out pass rate after",
    "held-out rollouts after",
    "rise",
    "rise, low",
    "rise, high",
)


def main(config: Path, seeds: list[int]) -> int:
    settings = tomllib.loads(config.read_text())["run"]
    rows: list[Row] = []
    for seed in seeds:
        results = Path("results") / f"{settings['name']}-seed{seed}.json"
        for row in select(run_seed(config, seed, results), list(settings["train"])):
            rows.append(msgspec.structs.replace(row, measure=f"seed {seed}: {row.measure}"))
    for row in rows:
        held = "" if row.holds is None else "holds" if row.holds else "FAILS"
        print(f"{row.measure:70} {row.value:8.3f} {row.unit:9} {row.target:22} {held}")
    target = Path("results") / f"seeds-{settings['name']}.json"
    target.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    return 0 if all(row.holds is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), [int(seed) for seed in sys.argv[2:]] or [0, 1, 2]))

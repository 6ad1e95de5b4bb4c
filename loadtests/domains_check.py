"""The registry and its verifiers as a table: `make domains-check`. Writes results/domains-check.json.

Rows are {measure, value, unit, target, holds}: the entry gate over all domains, cases, math-verify beside the kind
`math`, forgeries on every kind that runs code, HumanEval through the real sandbox, verdicts per second, bombs.
Status 0 when every row holds.
`--only gate,cases,mathematics,forgeries,humaneval,rates,bombs` measures some of them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import domains_measures as measures
import msgspec
from domains_maths import mathematics
from rich.console import Console
from rich.table import Table

from tiltyard.sandbox.reaper import become_subreaper

ROOT = Path(__file__).resolve().parents[1]
MEASURES = {
    "cases": measures.cases,
    "mathematics": mathematics,
    "forgeries": measures.forgeries,
    "humaneval": measures.humaneval,
    "rates": measures.rates,
    "bombs": measures.bombs,
}


def gate(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The gate as a person runs it."""
    out, begun = ROOT / "results/.domains-gate.json", time.monotonic()
    out.unlink(missing_ok=True)
    again = ["--again"] if arguments.again else []
    command = [sys.executable, "-m", "tiltyard.cli.main", "domains", "check", "--results", str(out), *again]
    subprocess.run(command, cwd=ROOT, check=False)
    seconds = time.monotonic() - begun
    found = msgspec.json.decode(out.read_bytes())["check"]
    out.unlink()
    row = measures.row
    return [
        row("domains in the registry", found["domains"], "", ">= 200", found["domains"] >= 200),
        row("domains that fail the gate", len(found["failed"]), "", "0", not found["failed"]),
        row("faulty tasks left out", found["faulty_tasks"], "", "", True),
        row("domains checked before in the same state", found["checked_before"], "", "", True),
        row("whole check", round(seconds), "s", "< 900", seconds < 900),
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="gate," + ",".join(MEASURES))
    parser.add_argument("--again", action="store_true", help="check even what was checked before")
    parser.add_argument("--cases", type=Path, action="append", default=[], metavar="FILE", help="further cases")
    arguments = parser.parse_args()
    become_subreaper()
    (ROOT / "results").mkdir(exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name in arguments.only.split(","):
        rows += gate(arguments) if name == "gate" else anyio.run(MEASURES[name], arguments)
    table = Table("measure", "value", "target", "", box=None)
    for row in rows:
        value = f"{row['value']:,}" if isinstance(row["value"], int | float) else str(row["value"])
        table.add_row(row["measure"], f"{value} {row['unit']}", row["target"], "" if row["holds"] else "MISSED")
    Console(highlight=False).print(table)
    body = msgspec.json.format(msgspec.json.encode({"rows": rows}), indent=1)
    (ROOT / "results/domains-check.json").write_bytes(body + b"\n")
    return 0 if all(row["holds"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

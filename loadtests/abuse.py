"""The abuse suite as a table: `make abuse`. Runs tests/abuse, prints one row a case, writes results/abuse.json.

Rows are {measure, value, unit, target, holds}: the case's outcome with its attribution, whether the host was left
clean, the neighbour's latency during the case over the one before it. Status 0 when every case holds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from support.abuse import CASES, Finding, merged

ROOT = Path(__file__).resolve().parents[1]
DIFFERENTIAL = "tests/differential/test_differential.py"
"""Where case 32 is tested."""
MOST_RATIO = 2.0


OTHERS = ("--ignore=tests/abuse/test_user_abuse.py", "--ignore=tests/abuse/test_soak.py")
"""What is in the folder and no case of the table."""


def pytest(*arguments: str, **environment: str) -> int:
    """Run tests; pytest's status."""
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode


def differential() -> Finding:
    """Case 32, whose tests lie elsewhere and look after their host themselves."""
    begun = time.monotonic()
    status = pytest(DIFFERENTIAL)
    endings = ["equal" if status == 0 else "different"]
    seconds = time.monotonic() - begun
    held = status == 0
    return Finding(cases=(32,), test=DIFFERENTIAL, outcomes=endings, clean=held, seconds=seconds, passed=held)


def rows_of(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that are written."""
    found = []
    for case in cases:
        name = f"{case['case']:02d} {case['title']}"
        ending = f"{' / '.join(case['outcomes']) or 'as expected'}; {' / '.join(case['attributions']) or 'none'}"
        found.append(row(f"{name}: outcome; attribution", ending, "", "as the case says", case["passed"]))
        found.append(row(f"{name}: host clean", case["clean"], "", True, case["clean"]))
        ratio = case["ratio"]  # none where no command ran long enough to be compared
        if ratio is not None:
            held = ratio <= MOST_RATIO
            found.append(row(f"{name}: neighbour", round(ratio, 2), "x", f"<= {MOST_RATIO:g}", held))
    return found


def row(measure: str, value: object, unit: str, target: object, holds: bool) -> dict[str, Any]:
    return {"measure": measure, "value": value, "unit": unit, "target": target, "holds": holds}


def markdown(cases: list[dict[str, Any]]) -> str:
    """The table that the README shows: what does not depend on the machine."""
    lines = ["| | case | outcome | whose | host clean |", "|---|---|---|---|---|"]
    for case in cases:
        clean = "yes" if case["clean"] else "NO"
        outcomes, whose = ", ".join(case["outcomes"]) or "-", ", ".join(case["attributions"]) or "-"
        lines.append(f"| {case['case']} | {case['title']} | {outcomes} | {whose} | {clean} |")
    return "\n".join(lines)


def show(cases: list[dict[str, Any]]) -> None:
    table = Table("", "case", "outcome", "attribution", "host clean", "neighbour", "seconds", "holds", box=None)
    for case in cases:
        ratio = "-" if case["ratio"] is None else f"{case['ratio']:.2f}x"
        table.add_row(
            str(case["case"]),
            case["title"],
            ", ".join(case["outcomes"]),
            ", ".join(case["attributions"]),
            "yes" if case["clean"] else "NO",
            ratio,
            f"{case['seconds']:.1f}",
            "yes" if case["passed"] else "NO",
        )
    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--markdown", action="store_true", help="also print the table as the README shows it")
    parser.add_argument("rest", nargs="*", help="further arguments for pytest")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        account = Path(folder) / "account.json"
        status = pytest("tests/abuse", *OTHERS, *options.rest, ABUSE_ACCOUNT=str(account))
        findings = msgspec.json.decode(account.read_bytes(), type=list[Finding]) if account.exists() else []
    if not options.rest:
        findings.append(differential())
        status = status or int(not findings[-1].passed)
    cases = merged(findings)
    show(cases)
    missing = sorted(set(CASES) - {case["case"] for case in cases})
    if missing and not options.rest:
        print("not tried:", ", ".join(f"{number} {CASES[number]}" for number in missing))
    if options.markdown:
        print(markdown(cases))
    results = ROOT / "results"
    results.mkdir(exist_ok=True)
    (results / "abuse.json").write_bytes(msgspec.json.format(msgspec.json.encode(rows_of(cases)), indent=2) + b"\n")
    return status


if __name__ == "__main__":
    sys.exit(main())

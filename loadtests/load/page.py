"""The report as one HTML file that needs nothing else: tables and charts of every scenario."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from html import escape

from load.charts import bars, lines
from load.drive import Result
from load.hops import spread
from load.meter import SERVER, Sample

from tiltyard.cli.report import Row

STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1180px; padding: 0 1rem; color: #0f172a }
table { border-collapse: collapse } td, th { padding: 2px 10px; text-align: left; border-bottom: 1px solid #e2e8f0 }
td.n { text-align: right; font-variant-numeric: tabular-nums } .yes { color: #047857 } .no { color: #b91c1c }
.charts { display: flex; flex-wrap: wrap; gap: 12px } details { margin: 8px 0 }
"""


def page(results: Sequence[Result], rows: Sequence[Row]) -> str:
    """The whole file."""
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    head = [row for row in rows if row.target]
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Tiltyard under load</title>",
        f"<style>{STYLE}</style></head><body><h1>Tiltyard under load</h1>",
        f"<p>{escape(when)}; {escape(machine)}; load of the machine {os.getloadavg()[0]:.1f}</p>",
        "<h2>What was asked for</h2>",
        table(head),
    ]
    for result in results:
        name = result.scenario.name
        parts.append(f"<h2>{escape(name)}: {escape(result.scenario.title)}</h2>")
        parts.append(f"<div class='charts'>{''.join(charts(result))}</div>")
        own = [row for row in rows if row.measure.startswith(f"{name}: ")]
        parts.append(f"<details><summary>All figures</summary>{table(own)}</details>")
    return "".join(parts) + "</body></html>\n"


def table(rows: Sequence[Row]) -> str:
    """Rows as an HTML table."""
    lines_ = ["<table><tr><th>measure</th><th>value</th><th>unit</th><th>target</th><th>holds</th></tr>"]
    for row in rows:
        held = {True: "<td class='yes'>yes</td>", False: "<td class='no'>NO</td>", None: "<td></td>"}[row.holds]
        value = "" if row.value is None else f"{row.value:.6g}"
        lines_.append(
            f"<tr><td>{escape(row.measure)}</td><td class='n'>{value}</td><td>{escape(row.unit)}</td>"
            f"<td>{escape(row.target)}</td>{held}</tr>"
        )
    return "".join(lines_) + "</table>"


def charts(result: Result) -> list[str]:
    """The charts of one scenario."""
    samples = result.samples
    stages = list(samples[-1].waiting)
    names = [name for name in samples[-1].cpu_s if name in samples[-1].memory or name == SERVER]
    memory = {name: [(each.at, each.memory.get(name, 0) / 1e6) for each in samples] for name in names}
    waiting = {stage: [(each.at, each.waiting[stage]) for each in samples] for stage in stages}
    hops = {name: spread(values).p95 * 1e3 for name, values in result.journeys.hops().items() if values}
    return [
        lines("Verdicts", {"a second": rates(samples)}, "1/s"),
        lines("Waiting or in a handler", waiting, "messages"),
        lines("Memory", memory, "MB"),
        bars("CPU of a rollout, ms", result.cpu_ms(), "ms"),
        bars("Latency by hop, p95, ms", hops, "ms"),
    ]


def rates(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Verdicts per second between neighbouring looks at least a second apart."""
    found, before = [], samples[0]
    for each in samples[1:]:
        if each.at - before.at >= 1.0:
            found.append((each.at, (each.verdicts - before.verdicts) / (each.at - before.at)))
            before = each
    return found

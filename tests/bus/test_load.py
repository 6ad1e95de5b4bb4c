"""The load test at a small size: every real service, a simulated engine, rows, a report, nothing left behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest
from support import build

from tiltyard.kit.bus import Bus
from tiltyard_proto.topology import BUCKETS, GENERATE, STAGES

ROOT = Path(__file__).parents[2]
MUST_HOLD = ("rollouts and groups lost", "dead letters")
"""Rates and CPU depend on how busy the machine is; the large run reports them."""


def load(tmp_path: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """Run scenarios; the rows by measure, and the page."""
    results = tmp_path / "load.json"
    argv = [sys.executable, str(ROOT / "loadtests/load"), *arguments, "--results", str(results)]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'services'}:{ROOT / 'proto'}", "TMPDIR": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, env=environ, check=False, timeout=170)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = msgspec.json.decode(results.read_bytes())
    assert all(set(row) == {"measure", "value", "unit", "target", "holds"} for row in rows)
    return {row["measure"]: row for row in rows}, results.with_suffix(".html").read_text()


@pytest.mark.timeout(180)
def test_rollouts_through_all_services(tmp_path: Path) -> None:
    """One turn and four turns: all are judged and closed, costs and latencies of every part are reported, the page
    needs nothing from elsewhere, and neither a process nor a directory is left."""
    rows, page = load(tmp_path, "steady", "turns", "--scale", "0.02")
    for name in ("steady", "turns"):
        assert all(rows[f"{name}: {what}"]["holds"] for what in MUST_HOLD)
        assert rows[f"{name}: rollouts"]["value"] >= 100
        for service in ("sampler", "gateway", "verifier", "aggregator", "trainer", "nats"):
            assert rows[f"{name}: CPU of a rollout in {service}"]["value"] >= 0
            assert rows[f"{name}: memory of {service}, most"]["value"] > 10
        assert 0 < rows[f"{name}: whole rollout, p50"]["value"] <= rows[f"{name}: whole rollout, p99"]["value"]
    assert rows["steady: limit: a bare client does the same bus operations"]["value"] > 0
    assert rows["turns: from execute to the next stage, p99"]["value"] > 0
    assert page.count("<svg") == 10
    assert not re.search(r"(src|href)=|https?://", page)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["costs.json", "load.html", "load.json"]
    ours = [each for each in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(each.info["cmdline"] or ())]
    assert ours == []


async def of_the_load(bus: Bus) -> list[str]:
    """What lies on the bus below a load's names."""
    found: list[str] = []
    for stream in (*(stage.stream for stage in STAGES), *(f"KV_{bucket}" for bucket in BUCKETS)):
        info = await bus.js.api(f"STREAM.INFO.{stream}", {"subjects_filter": ">"})
        found += [subject for subject in info["state"].get("subjects") or {} if "load" in subject]
    for stage in STAGES:
        page = await bus.js.api(f"CONSUMER.LIST.{stage.stream}", {"offset": 0})
        found += [each["name"] for each in page["consumers"] or () if "load" in each["name"]]
    return found


@pytest.mark.anyio
@pytest.mark.timeout(180)
async def test_a_bus_elsewhere_is_left_as_it_was(bus: Bus, nats_server: Any, tmp_path: Path) -> None:
    """A load on a server that was there takes all of its own away again; where others have work it doesn't begin."""
    arguments = ("flood", "--scale", "0.05", "--servers", nats_server.url)
    work = tmp_path / "work"
    work.mkdir()
    rows, _ = await anyio.to_thread.run_sync(load, work, *arguments)
    assert rows["flood: rollouts"]["value"] > 50
    assert all(rows[f"flood: {what}"]["holds"] for what in MUST_HOLD)
    assert await of_the_load(bus) == []
    await bus.publish(GENERATE, build.rollout(build.task("math.test")))
    argv = [sys.executable, str(ROOT / "loadtests/load"), *arguments, "--results", str(work / "no.json")]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'services'}:{ROOT / 'proto'}"}
    done = await anyio.run_process(argv, check=False, env=environ)
    assert done.returncode == 2
    assert b"stage generate has 1 messages under way" in done.stderr
    assert not (work / "no.json").exists()

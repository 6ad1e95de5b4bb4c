"""Chaos: thousands of rollouts through real services while these and the NATS server are killed; then an audit.

`python loadtests/chaos` (or `make chaos`) prints a table and writes `results/chaos.json`: rows {measure, value, unit,
target, holds}. The engine is simulated, the sandbox runs nothing and the learner counts tokens; everything else is what
production runs. Exit status 1 when a claim does not hold.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import anyio
import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from audit import Account, audit, read_records
from kills import Killer
from plan import Plan
from rig.queues import waiting
from rig.world import World

from tiltyard.cli.models import prepare
from tiltyard.cli.report import Row
from tiltyard.kit.bus import Bus
from tiltyard.kit.jetstream import BusError
from tiltyard.kit.settings import DataSettings, RunSettings, read_source, section
from tiltyard.trainer.settings import TrainerSettings
from tiltyard_proto import topology
from tiltyard_proto.messages import RunStatus

RECOVERY_S = 2.0


async def run(world: World, plan: Plan, limit_s: float) -> tuple[Account, Killer, float]:
    """The whole test; TimeoutError when the run has not come to rest within `limit_s` seconds."""
    started = time.monotonic()
    async with world.running() as bus:
        killer = Killer(world, bus, plan)
        with anyio.fail_after(limit_s):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(killer.services)
                await _until_at_rest(bus, killer)
                tasks.cancel_scope.cancel()
            seconds = time.monotonic() - started
            source = read_source(world.path, (), {})
            settings = section(source, "run", RunSettings), section(source, "trainer", TrainerSettings)
            config = msgspec.json.decode((world.model / "config.json").read_bytes())
            return await audit(bus, *settings, config["vocab_size"]), killer, seconds


async def _until_at_rest(bus: Bus, killer: Killer) -> None:
    """Until the run has finished and no work waits; the server is killed on the way."""
    said = 0.0
    while True:
        await anyio.sleep(0.2)
        try:
            verdicts = int((await bus.js.api(f"STREAM.INFO.{topology.VERDICT.stream}"))["state"]["messages"])
            await killer.server(verdicts / killer.plan.rollouts)
            if await _finished(bus) and await _idle(bus):
                return
        except BusError:
            continue
        if time.monotonic() - said > 15:
            said = time.monotonic()
            print(f"  {verdicts} verdicts, kills: {dict(sorted(killer.kills.items()))}", flush=True)


async def _finished(bus: Bus) -> bool:
    entry = await bus.kv(topology.RUNS_BUCKET).get("chaos")
    return entry is not None and msgspec.msgpack.decode(entry[0], type=RunStatus).state == "finished"


async def _idle(bus: Bus) -> bool:
    """No message waits, and every opened group is closed."""
    for stage in (stage for stage in topology.STAGES if stage.work):
        if await waiting(bus, stage):
            return False
    records = await bus.js.api(f"STREAM.INFO.KV_{topology.GROUPS_BUCKET}")
    groups = await bus.js.api(f"STREAM.INFO.{topology.GROUP.stream}")
    if records["state"]["messages"] != groups["state"]["messages"]:
        return False
    return all(record.closed for record in await read_records(bus))


def rows(account: Account, killer: Killer, seconds: float, load: float) -> list[Row]:
    """The table."""
    plan, problems = killer.plan, account.problems
    recoveries = [value for values in killer.recoveries.values() for value in values]
    median = statistics.median(recoveries) if recoveries else float("nan")
    lost = sum(count for what, count in problems.items() if "trained" not in what)
    services = sum(killer.kills.values()) - killer.kills["nats"]

    def row(measure: str, value: float, unit: str, target: str = "", holds: bool | None = None) -> Row:
        return Row(measure=measure, value=value, unit=unit, target=target, holds=holds)

    table = [
        row("rollouts", account.rollouts, "", f">= {plan.rollouts}", account.rollouts >= plan.rollouts),
        row("services killed", services, "", "one every 2 s"),
        row(
            "server killed", killer.kills["nats"], "", f"{plan.server_kills}", killer.kills["nats"] >= plan.server_kills
        ),
        row("rollouts with exactly one verdict", account.verdicts, "", "all", account.verdicts == account.rollouts),
        row("groups closed once", account.closed, "", "all", account.closed == account.opened),
        row("groups trained once, in steps whose weights agree", account.trained, ""),
        row("steps", account.steps, ""),
        row("things not accounted for", lost, "", "0", lost == 0),
        row("deliveries repeated", account.redelivered, ""),
        row("recovery of a killed service, median", median, "s", f"<= {RECOVERY_S:g}", median <= RECOVERY_S),
        row("recovery of a killed service, longest", max(recoveries, default=float("nan")), "s"),
        row("recoveries measured", len(recoveries), ""),
        row("wall time", seconds, "s"),
        row("rollouts per second", account.rollouts / seconds, "1/s"),
        row("load of the machine at the end (cores: 2)".replace("2", str(os.cpu_count())), load, ""),
    ]
    for name, values in sorted(killer.recoveries.items()):
        table.append(row(f"recovery of {name}, median of {len(values)}", statistics.median(values), "s"))
    return table


def main() -> int:
    """Run, print, write; the exit status."""
    plan = Plan()
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    top.add_argument("--rollouts", type=int, default=plan.rollouts)
    top.add_argument("--kills", type=int, default=plan.kills, help="services killed at most; 0: until all is done")
    top.add_argument("--kill-every", type=float, default=plan.kill_every_s, metavar="SECONDS")
    top.add_argument("--server-kills", type=int, default=plan.server_kills)
    top.add_argument("--lease", type=float, default=plan.lease_s, metavar="SECONDS", help="of a delivery")
    top.add_argument("--seed", type=int, default=0)
    top.add_argument("--limit", type=float, default=3600, metavar="SECONDS", help="give up after this long")
    top.add_argument("--results", type=Path, default=Path("results/chaos.json"))
    given = top.parse_args()
    plan = Plan(
        rollouts=given.rollouts,
        kills=given.kills,
        kill_every_s=given.kill_every,
        server_kills=given.server_kills,
        lease_s=given.lease,
        seed=given.seed,
    )
    root = Path(tempfile.mkdtemp(prefix="tiltyard-chaos-"))
    world = plan.world(root, prepare("tiny", DataSettings().cache_path))
    with ExitStack() as failed:
        failed.callback(print, f"chaos: failed; logs and store are kept in {root}", file=sys.stderr)
        account, killer, seconds = anyio.run(run, world, plan, given.limit, backend_options={"use_uvloop": True})
        failed.pop_all()
    found = rows(account, killer, seconds, os.getloadavg()[0])
    for row in found:
        held = "" if row.holds is None else "holds" if row.holds else "FAILS"
        print(f"{row.measure:55} {row.value:10.2f} {row.unit:5} {row.target:15} {held}")
    for what, count in account.problems.items():
        print(f"  {what}: {count}")
    given.results.parent.mkdir(parents=True, exist_ok=True)
    given.results.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    if account.problems:
        print(f"chaos: logs and store are kept in {root}", file=sys.stderr)
    else:
        shutil.rmtree(root)
    return 0 if all(row.holds is not False for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())

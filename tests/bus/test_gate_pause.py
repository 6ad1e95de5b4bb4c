"""The gate tells a running bus, and the sampler listens."""

from __future__ import annotations

import anyio
import pytest
from support import build
from support.waiting import until

from tiltyard.cli.domains.check import tell_bus
from tiltyard.gate.report import Problem, Report
from tiltyard.kit import breaker
from tiltyard.kit.bus import Bus
from tiltyard.kit.settings import RunSettings, TaskShare
from tiltyard.sampler.app import Sampler
from tiltyard.sampler.backend import BusRegister
from tiltyard.sampler.handler import State
from tiltyard.sampler.settings import SamplerSettings

pytestmark = pytest.mark.anyio
BAD, GOOD = "math.bad", "math.good"


def report(domain: str, *problems: str) -> Report:
    found = tuple(Problem(check="worthless", detail=detail) for detail in problems)
    return Report(domain=domain, kind="k", tasks=9, problems=found)


async def test_a_failed_domain_is_kept_out_until_it_passes(bus: Bus) -> None:
    """A report that fails takes a domain from a sampler that runs; the next that passes gives it back."""
    settings = SamplerSettings()
    run = RunSettings(name="run", train={BAD: TaskShare(tasks=1), GOOD: TaskShare(tasks=1)})
    sampler = Sampler(bus, BusRegister(bus), State(run, settings), settings)
    for name in (BAD, GOOD):
        sampler.state.on_task(build.task(name))

    def drawn() -> set[str]:
        return {task.domain for task in sampler.state.train_tasks()}

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sampler.follow_pauses)
        assert await tell_bus(bus, [report(BAD, "junk gets full credit"), report(GOOD)]) == 1
        await until(lambda: drawn() == {GOOD})
        (held,) = await breaker.standing(bus)
        assert (held.stage, held.domain, held.detail) == ("gate", BAD, "worthless: junk gets full credit")
        assert await tell_bus(bus, [report(BAD, "still"), report(GOOD)]) == 0
        assert await tell_bus(bus, [report(BAD)]) == 1
        await until(lambda: drawn() == {BAD, GOOD})
        tasks.cancel_scope.cancel()
    assert await breaker.standing(bus) == []

"""Wire the sampler: read tasks, closed groups and policies; open groups; say where the run stands.

One instance is active per run. A second one would open the same groups under the same ids, which is harmless.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anyio
import structlog

from tiltyard.kit import breaker, joins
from tiltyard.kit.bus import Bus
from tiltyard.kit.deadletters import follow_checked
from tiltyard.kit.dlq_watch import DlqWatch
from tiltyard.kit.jetstream import BusUnavailable
from tiltyard.kit.service import Context
from tiltyard_proto import topology
from tiltyard_proto.messages import GroupRecord, Purpose, RunStatus
from tiltyard_proto.topology import Stage

from .backend import BusRegister, Register
from .handler import State, rollouts
from .settings import SamplerSettings

AT_A_TIME = 16
"""Groups that are being opened."""
WAIT_S = 0.3
"""Between two tries while the bus is away."""
log = structlog.get_logger()


class Sampler:
    """The active sampler of one run."""

    def __init__(self, bus: Bus, register: Register, state: State, settings: SamplerSettings) -> None:
        self.bus = bus
        self.register = register
        self.state = state
        self.settings = settings
        self.changed = anyio.Event()
        self.last_task = time.monotonic()
        self._status: RunStatus | None = None

    # ------------------------------------------------------------ streams

    async def follow(self, stage: Stage[Any], take: Callable[[Any], None]) -> None:
        """Fold a stream into the state and wake the loop."""
        async for followed in follow_checked(self.bus, stage, "sampler"):
            if followed.message is not None:
                take(followed.message)
            if stage is topology.TASK:
                self.last_task = time.monotonic()
            self.changed.set()

    async def follow_pauses(self) -> None:
        """No groups are opened for a domain that a stage has paused."""
        async for pause in breaker.follow(self.bus):
            self.state.on_pause(pause.domain, pause.stage, holds=pause.holds)
            self.changed.set()

    async def catch_up(self, stage: Stage[Any], take: Callable[[Any], None]) -> int:
        """Fold what the stream holds now; the position reached."""
        info = await self.bus.js.api(f"STREAM.INFO.{stage.stream}")
        last, position = int(info["state"]["last_seq"]), 0
        if not int(info["state"]["messages"]):
            return 0
        async for followed in follow_checked(self.bus, stage, "sampler"):
            if followed.message is not None:
                take(followed.message)
            position = followed.sequence
            if position >= last or not followed.pending:
                break
        return position

    async def recover(self) -> None:
        """Rebuild the state, and send again what an earlier process may not have sent."""
        await self.catch_up(topology.TASK, self.state.on_task)
        await self.catch_up(topology.GROUP, self.state.on_group)
        await self.catch_up(topology.POLICY, self.state.on_policy)
        for pause in await breaker.standing(self.bus):
            self.state.on_pause(pause.domain, pause.stage, holds=True)
        for record in await self.register.records(self.state.run.name):
            self.state.on_record(record)
        for record in list(self.state.open.values()):
            if (task := self.state.tasks.get(record.task_id)) is not None:
                await self.register.send(rollouts(record, task, self.state.run))
        log.info("sampler_ready", tasks=len(self.state.tasks), closed=len(self.state.closed), open=len(self.state.open))

    # ------------------------------------------------------------ the loop

    async def run(self, stop: anyio.Event) -> None:
        await self._wait_for_tasks(stop)
        while not stop.is_set():
            self.changed = anyio.Event()
            try:
                await self._open_groups()
                await self._report()
            except BusUnavailable as error:
                log.warning("sampler_waits", error=str(error))
            with anyio.move_on_after(self.settings.tick_s):
                await self.changed.wait()

    async def _wait_for_tasks(self, stop: anyio.Event) -> None:
        """Until every domain has its tasks, or no more come."""
        said = 0.0
        while not stop.is_set():
            lacks = self.state.missing_tasks()
            quiet = time.monotonic() - self.last_task > self.settings.settle_s
            if not lacks or (quiet and self.state.tasks and self._each_domain_has_some()):
                return
            if time.monotonic() - said > 5:
                log.info("waiting_for_tasks", missing=lacks)
                said = time.monotonic()
            await anyio.sleep(0.1)

    def _each_domain_has_some(self) -> bool:
        run = self.state.run
        return all(self.state.pool(d, "train") for d in run.train) and all(
            self.state.pool(d, "eval") for d in run.evaluate
        )

    async def _open_groups(self) -> None:
        """As many at a time as `AT_A_TIME`: each waits for the bus several times."""
        wanted = self.state.groups_to_open(time.time())
        for start in range(0, len(wanted), AT_A_TIME):
            async with anyio.create_task_group() as tasks:
                for record in wanted[start : start + AT_A_TIME]:
                    tasks.start_soon(self._open_group, record)

    async def _open_group(self, wanted: GroupRecord) -> None:
        started = time.time()
        record = await self._recorded(wanted)
        self.state.on_record(record)
        task = self.state.tasks[record.task_id]
        log.info(
            "group_opened", group=record.id, domain=record.domain, template=record.template, version=record.version
        )
        sent = list(rollouts(record, task, self.state.run))
        await self.register.send(sent)
        joins.opened(record, sent, started)

    async def _recorded(self, wanted: GroupRecord) -> GroupRecord:
        """The record of a group, as it stands on the bus; waits while the bus is away."""
        while True:
            try:
                return await self.register.open(wanted)
            except BusUnavailable as error:
                log.warning("sampler_waits", group=wanted.id, error=str(error))
                await anyio.sleep(WAIT_S)

    async def _report(self) -> None:
        """Write the run's status when it changed."""
        state, now = self.state, time.time()
        if state.policy is None:
            return
        old = self._status or await self.register.status(state.run.name)
        finished = state.finished()
        evaluating = state.open_groups(Purpose.EVAL) > 0
        new = RunStatus(
            run=state.run.name,
            state="finished" if finished else "evaluating" if evaluating else "training",
            started=old.started if old else now,
            updated=now,
            finished=(old.finished if old and old.finished else now) if finished else 0.0,
            detail=f"version {state.policy.version} of {state.run.steps}" + self._silence(),
        )
        if old is None or (old.state, old.detail) != (new.state, new.detail):
            await self.register.write_status(new)
            say = log.warning if state.probing() else log.info
            say("run_status", state=new.state, detail=new.detail, dropped_groups=state.fold.dropped)
            self._status = new

    def _silence(self) -> str:
        """What a person must know when nobody answers for groups any more."""
        if not self.state.probing():
            return ""
        return f"; nobody answers: the last {self.state.fold.silence} groups closed without a usable verdict"


async def start(context: Context) -> None:
    """Until told to stop."""
    settings: SamplerSettings = context.settings
    sampler = Sampler(context.bus, BusRegister(context.bus), State(context.run, settings), settings)
    while True:
        try:
            await sampler.recover()
            break
        except BusUnavailable as error:
            log.warning("sampler_waits", error=str(error))
            await anyio.sleep(WAIT_S)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sampler.follow, topology.TASK, sampler.state.on_task)
        tasks.start_soon(sampler.follow, topology.GROUP, sampler.state.on_group)
        tasks.start_soon(sampler.follow, topology.POLICY, sampler.state.on_policy)
        tasks.start_soon(sampler.follow_pauses)
        tasks.start_soon(DlqWatch(context.bus).run)
        await sampler.run(context.stop)
        tasks.cancel_scope.cancel()

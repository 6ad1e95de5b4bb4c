"""Serve a stage: pull, gate, decode, handle, publish, acknowledge. The one loop that runs handlers.

Order for every message: delivery gate (`suspects`), decode, "already done?" where somebody may have had it before,
handle with the lease extended, publish the outputs by compare-and-set and wait for storage, acknowledge the input.
Acknowledgements are not fenced, so they are never the guard: a second delivery publishes to the same keys and loses.

A handler ends in one of four ways: it returns outputs; raises `Reject` (dead letter); raises `Retry` (comes back after
a delay); raises anything else (logged, tried again, a dead letter after the stage's deliveries). A bus that is away is
no failure of its: the message comes again, as often as it takes.
A dead letter is stored before its input is terminated, and `bury` says what its rollout's group must hear.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import anyio
import structlog
from anyio.abc import TaskGroup

from tiltyard_proto import followups, topology
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import Stage

from . import deadletters, metrics, tracing
from .blobs import BlobMissing
from .breaker import Breaker
from .bus import Bus, Out
from .crew import Crew
from .delivery import Delivery
from .errors import BusUnavailable, Forbidden, NotFound
from .flows import FlowSource
from .intake import MAX_DETAIL, Reject, printable
from .provision import durable
from .pull import Puller
from .suspects import NOTHING, Evidence, Lane, Past

M = TypeVar("M")
Handler = Callable[[M], Awaitable[Sequence[Out]]]
Bury = Callable[[M, Outcome, str], Sequence[Out]]
AGAIN = frozenset({"retry", "failed"})
"""Endings after which a message comes again."""
Able = Callable[[], bool]
Taken = tuple[Delivery, bool]
"""A delivery that has a slot, and whether somebody may have finished it already."""
UNABLE_S = 0.25
"""How often a service that can do nothing now looks whether it can again."""
log = structlog.get_logger()
__all__ = ["Bury", "Handler", "Reject", "Retry", "Server", "retry_delay", "serve"]


class Retry(Exception):
    """Not now: deliver again after `after_s` seconds."""

    def __init__(self, after_s: float, detail: str) -> None:
        super().__init__(detail)
        self.after_s = after_s
        self.detail = detail


def retry_delay(deliveries: int) -> float:
    """Seconds before the next delivery after an unplanned failure, at a usual stage: 0.5, 1, 2 ... at most 30."""
    return topology.GENERATE.retry_delay(deliveries)


class Server(Generic[M]):
    """One stage's consumer with up to `slots` handlers at a time."""

    def __init__(
        self,
        bus: Bus,
        stage: Stage[M],
        handler: Handler[M],
        *,
        slots: int,
        bury: Bury[M] | None,
        fair: bool = False,
        breaker: Breaker | None = None,
        able: Able | None = None,
    ) -> None:
        self.bus = bus
        self.stage = stage
        self.handler = handler
        self.slots = slots
        self.bury = bury
        self.fair = fair
        self.breaker = breaker or Breaker(bus, stage, share=0.0, window=1)
        self.able = able or _always
        self.busy = 0
        self._cut = 0.0
        """When the connection was lost last, seconds since the epoch."""
        self._freed = asyncio.Event()
        """Set when a slot has become free; the one who waits clears it first."""
        self._evidence = Evidence(bus, stage)
        self._lane = Lane()
        self._source_now: Puller | FlowSource | None = None
        """What is pulled from now; None between two."""
        self._running: dict[int, tuple[Delivery, float]] = {}
        """Deliveries in a handler, with the time of their last sign of life."""
        self._seconds = metrics.SECONDS.labels(stage.name)

    # ------------------------------------------------------------ the loop

    async def run(self, stop: anyio.Event, drain_s: float = 10.0) -> None:
        """Until `stop` is set; then running handlers get `drain_s` seconds, and what is left goes back."""
        in_flight = metrics.IN_FLIGHT.labels(self.stage.name)
        in_flight.set_function(lambda: self.busy)
        self.bus.client.lost.append(self._on_lost)
        try:
            await self._run(stop, drain_s)
        finally:
            self.bus.client.lost.remove(self._on_lost)
            in_flight.set_function(lambda: 0)

    def _on_lost(self) -> None:
        self._cut = time.time()

    async def _run(self, stop: anyio.Event, drain_s: float) -> None:
        async with anyio.create_task_group() as handlers:
            pulling = anyio.CancelScope()
            handlers.start_soon(self._extend)
            handlers.start_soon(self.breaker.follow)
            handlers.start_soon(_cancel_when, stop, pulling)
            crew = Crew(handlers, self._one)
            with pulling:
                while not stop.is_set():
                    if self.able():
                        await self._pull_from(self._source(), handlers, crew)
                    else:
                        await anyio.sleep(UNABLE_S)
            with anyio.move_on_after(drain_s):
                while self.busy:
                    await self._a_free_slot()
            handlers.cancel_scope.cancel()

    def _source(self) -> Puller | FlowSource:
        if self.fair:
            return FlowSource(self.bus, self.stage, lambda: [delivery for delivery, _ in self._running.values()])
        return Puller(self.bus.js, self.stage.stream, durable(self.stage))

    async def _pull_from(self, puller: Puller | FlowSource, tasks: TaskGroup, crew: Crew[Taken]) -> None:
        """Start handlers until the pull fails; what was pulled and not started goes back at once."""
        self._source_now = puller
        try:
            await puller.start(tasks)
            while self.able():
                if self.busy >= self.slots or self._lane.closed:
                    await self._a_free_slot()
                    continue
                delivery = await puller.next(self.slots - self.busy)
                if delivery is not None:
                    self.busy += 1
                    crew.hand((delivery, puller.may_be_done(delivery)))
        except (BusUnavailable, NotFound, Forbidden) as error:
            log.warning("stage_waits", stage=self.stage.name, error=str(error))
            await anyio.sleep(0.3)
        finally:
            self._source_now = None
            with anyio.CancelScope(shield=True), anyio.move_on_after(3):
                for delivery in await puller.stop():
                    self.bus.say(delivery, b"-NAK")

    async def _one(self, taken: Taken) -> None:
        delivery, may_be_done = taken
        started = time.monotonic()
        tracing.begin(self.stage.name, delivery)
        metrics.arrived(self.stage.name, delivery)
        running = id(delivery)
        self._running[running] = delivery, started
        if delivery.stored < self._cut:
            may_be_done = True  # a killed server forgets its last answers, and counts deliveries from 1
        try:
            ending = await self._handle(delivery, may_be_done)
            tracing.end(ending)
            metrics.handled(self.stage.name, ending).inc()
            self._seconds.observe(time.monotonic() - started)
        except anyio.get_cancelled_exc_class():
            self.bus.say(delivery, b"-NAK")
            raise
        finally:
            del self._running[running]
            self.busy -= 1
            self._freed.set()

    async def _a_free_slot(self) -> None:
        self._freed.clear()
        await self._freed.wait()

    # ------------------------------------------------------------ one message

    async def _handle(self, delivery: Delivery, may_be_done: bool) -> str:
        """Handle it: with others where nobody had it before, alone where it may have killed who had it."""
        if self.breaker.holds_back(delivery.subject):
            self._nak(delivery, self.breaker.again_s())
            return "paused"
        past = await self._evidence.past(delivery) if may_be_done else NOTHING
        if past is None:  # nobody is judged without evidence
            self._nak(delivery, self.stage.retry_delay(1))
            return "unread"
        alone = past.suspect
        if alone:
            metrics.SUSPECTS.labels(self.stage.name).inc()
            log.warning("suspect", stage=self.stage.name, subject=delivery.subject, deaths=past.deaths)
        await self._lane.enter(alone=alone)
        try:
            if may_be_done:
                return await self._watched(delivery, past)
            return await self._work(delivery, past, may_be_done)
        finally:
            self._lane.leave(alone=alone)

    async def _watched(self, delivery: Delivery, past: Past) -> str:
        """Handle it with a word in the bucket that this process has it in hand."""
        try:
            await self._evidence.hold(delivery, past, alone=past.suspect)
            ending = await self._work(delivery, past, True)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                await self._evidence.write(delivery, past)  # handed back in good order
            raise
        if ending not in AGAIN:  # else the word was taken back when it was handed back
            await self._evidence.write(delivery, past)
        return ending

    async def _work(self, delivery: Delivery, past: Past, may_be_done: bool) -> str:
        message: M | None = None
        try:
            if past.deaths_alone >= self.stage.deaths_alone:
                said = f"{past.deaths} workers had it in hand and were never heard of again"
                raise Reject("crash", f"{said}, {past.deaths_alone} of them with nothing else in hand")
            message = await self._decode(delivery, past)
            if may_be_done and await self._is_done(message):
                self.bus.say(delivery, b"+ACK")
                return "already_done"
            await self._publish(await self.handler(message))
        except Exception as error:  # whatever a handler of ours or of others raises: the fourth way to end
            return await self._failed(delivery, past, message, error)
        self.bus.say(delivery, b"+ACK")
        self.breaker.lived(delivery.subject)
        return "done"

    async def _decode(self, delivery: Delivery, past: Past) -> M:
        try:
            return await self.bus.receive(self.stage, delivery)
        except BlobMissing as error:
            if past.failures + 1 < self.stage.max_deliveries:
                raise Retry(self.stage.retry_delay(past.failures + 1), str(error)) from error
            raise Reject("blob", str(error)) from error

    async def _is_done(self, message: M) -> bool:
        """Was this message handled by somebody whose acknowledgement was lost? Then a result of it is stored."""
        for stage, subject in followups.possible(self.stage, message):
            if await self.bus.js.last(stage.stream, subject) is not None:
                log.info("already_done", stage=self.stage.name, found=subject)
                return True
        return False

    async def _publish(self, outputs: Sequence[Out]) -> None:
        for stage, message in outputs:
            if not await self.bus.publish(stage, message):
                log.info("already_done", stage=stage.name, key=stage.key(message))

    async def _failed(self, delivery: Delivery, past: Past, message: M | None, error: Exception) -> str:
        if isinstance(error, BusUnavailable):  # nobody's failure, however long it lasts
            log.warning("stage_waits", stage=self.stage.name, subject=delivery.subject, error=str(error))
            await self._evidence.write(delivery, past)
            self._nak(delivery, self.stage.retry_delay(delivery.deliveries))
            return "retry"
        tries = past.failures + 1
        if isinstance(error, Retry) and tries >= self.stage.max_deliveries:
            error = Reject("handler", f"tried {tries} times: {error.detail}")
        if isinstance(error, Retry):
            log.info("retry", stage=self.stage.name, after_s=error.after_s, detail=error.detail)
            await self._again(delivery, past, error.after_s)
            return "retry"
        if isinstance(error, Reject):
            await self._dead_letter(delivery, message, error)
            return error.reason
        log.error("handler_failed", stage=self.stage.name, subject=delivery.subject, exc_info=error)
        if tries >= self.stage.max_deliveries:
            reject = Reject("handler", f"{type(error).__name__}: {error}")
            await self._dead_letter(delivery, message, reject)
            return reject.reason
        await self._again(delivery, past, self.stage.retry_delay(tries))
        return "failed"

    async def _again(self, delivery: Delivery, past: Past, after_s: float) -> None:
        """Have it delivered again, and remember that a handler has failed."""
        await self._evidence.write(delivery, past.failed())
        self._nak(delivery, after_s)

    async def _dead_letter(self, delivery: Delivery, message: M | None, error: Reject) -> None:
        log.error(
            "dead_letter", stage=self.stage.name, subject=delivery.subject, reason=error.reason, detail=error.detail
        )
        letter = deadletters.letter_of(self.stage, delivery, error, durable(self.stage))
        await self.bus.publish(topology.DLQ, letter)
        metrics.DEAD_LETTERS.labels(letter.stage, letter.reason).inc()
        await self._bury(delivery, error.message if message is None else message, error)
        self.bus.say(delivery, f"+TERM {letter.reason}".encode())
        if message is not None or letter.reason == "crash":  # else its sender's fault
            others = [other.subject for other, _ in self._running.values() if other is not delivery]
            await self.breaker.died(delivery.subject, f"{letter.reason}: {letter.detail}", others)

    async def _bury(self, delivery: Delivery, message: M | None, error: Reject) -> None:
        """Tell the rollout's group; the letter is stored, so whatever fails here must not stop the stage."""
        try:
            if message is None and error.reason == "crash":
                message = await self.bus.receive(self.stage, delivery)
            if message is not None and self.bury is not None:
                detail = printable(f"{error.reason}: {error.detail}", MAX_DETAIL)
                await self._publish(self.bury(message, Outcome.POISON, detail))
        except Exception as problem:  # without a sound message there is no group to tell
            log.warning("buried_in_silence", subject=delivery.subject, error=str(problem))

    # ------------------------------------------------------------ acknowledgements

    async def _extend(self) -> None:
        """Extend the leases of what is handled and of what waits for a suspect, at least every 3/8 of their length."""
        lease = self.stage.ack_wait_s
        while True:
            await anyio.sleep(lease / 8)
            now = time.monotonic()
            for running, (delivery, seen) in self._running.items():
                if now - seen > lease / 4:
                    self._running[running] = delivery, now
                    self.bus.say(delivery, b"+WPI")
            for delivery in self._source_now.waiting() if self._source_now else ():
                self.bus.say(delivery, b"+WPI")

    def _nak(self, delivery: Delivery, after_s: float) -> None:
        self.bus.say(delivery, f'-NAK {{"delay": {int(after_s * 1e9)}}}'.encode())


def _always() -> bool:
    return True


async def _cancel_when(stop: anyio.Event, scope: anyio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()


async def serve(
    bus: Bus,
    stage: Stage[Any],
    handler: Handler[Any],
    *,
    slots: int,
    stop: anyio.Event,
    bury: Bury[Any] | None = None,
    drain_s: float = 10.0,
    fair: bool = False,
    breaker: Breaker | None = None,
    able: Able | None = None,
) -> None:
    """Serve `stage` with `handler` until `stop` is set.

    `fair`: share the slots between lanes and domains. `breaker`: pause a domain that dies here. While `able` says no,
    nothing is pulled and what was pulled and not begun goes back, so that others may take it.
    """
    server = Server(bus, stage, handler, slots=slots, bury=bury, fair=fair, breaker=breaker, able=able)
    await server.run(stop, drain_s)

"""Serve a stage: pull, gate, decode, handle, publish, acknowledge. The one loop that runs handlers.

Order for every message: delivery gate, decode, handle with the lease extended, publish the outputs
by compare-and-set and wait for storage, acknowledge the input. Acknowledgements are not fenced, so they are never the
guard: a second delivery publishes to the same keys and loses.

A handler ends in one of four ways: it returns outputs; raises `Reject` (dead letter); raises `Retry` (comes back after
a delay); raises anything else (logged, tried again, a dead letter after the stage's deliveries).
A dead letter is stored before its input is terminated, and `bury` says what its rollout's group must hear.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import anyio
import structlog
from anyio.abc import TaskGroup

from tiltyard_proto import topology
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import Stage

from . import deadletters, metrics
from .blobs import BlobMissing
from .bus import Bus, Out
from .intake import MAX_DETAIL, Reject, printable
from .jetstream import BusUnavailable, NotFound
from .provision import durable
from .pull import Delivery, Puller

M = TypeVar("M")
Handler = Callable[[M], Awaitable[Sequence[Out]]]
Bury = Callable[[M, Outcome, str], Sequence[Out]]
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

    def __init__(self, bus: Bus, stage: Stage[M], handler: Handler[M], *, slots: int, bury: Bury[M] | None) -> None:
        self.bus = bus
        self.stage = stage
        self.handler = handler
        self.slots = slots
        self.bury = bury
        self.busy = 0
        self._freed = anyio.Event()

    # ------------------------------------------------------------ the loop

    async def run(self, stop: anyio.Event, drain_s: float = 10.0) -> None:
        """Until `stop` is set; then running handlers get `drain_s` seconds, and what is left goes back."""
        async with anyio.create_task_group() as handlers:
            while not stop.is_set():
                puller = Puller(self.bus.js, self.stage.stream, durable(self.stage))
                try:
                    await puller.start()
                    await self._pull(puller, handlers, stop)
                except (BusUnavailable, NotFound) as error:
                    log.warning("stage_waits", stage=self.stage.name, error=str(error))
                    await anyio.sleep(0.3)
                finally:
                    with anyio.CancelScope(shield=True), anyio.move_on_after(3):
                        for delivery in await puller.stop():
                            await self._say(delivery, b"-NAK")
            with anyio.move_on_after(drain_s):
                while self.busy:
                    await self._wait_freed()
            handlers.cancel_scope.cancel()

    async def _pull(self, puller: Puller, handlers: TaskGroup, stop: anyio.Event) -> None:
        while not stop.is_set():
            if self.busy >= self.slots:
                with anyio.move_on_after(1.0):
                    await self._wait_freed()
                continue
            delivery = await puller.next(self.slots - self.busy)
            if delivery is not None:
                self.busy += 1
                metrics.IN_FLIGHT.labels(self.stage.name).inc()
                handlers.start_soon(self._one, delivery)

    async def _wait_freed(self) -> None:
        await self._freed.wait()

    async def _one(self, delivery: Delivery) -> None:
        started = time.monotonic()
        try:
            ending = await self._handle(delivery)
            metrics.HANDLED.labels(self.stage.name, ending).inc()
            metrics.SECONDS.labels(self.stage.name).observe(time.monotonic() - started)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), anyio.move_on_after(2):
                await self._say(delivery, b"-NAK")
            raise
        finally:
            self.busy -= 1
            metrics.IN_FLIGHT.labels(self.stage.name).dec()
            self._freed.set()
            self._freed = anyio.Event()

    # ------------------------------------------------------------ one message

    async def _handle(self, delivery: Delivery) -> str:
        message: M | None = None
        try:
            if delivery.deliveries > self.stage.max_deliveries:
                raise Reject("crash", f"delivered {delivery.deliveries - 1} times without an answer")
            message = await self._decode(delivery)
            async with anyio.create_task_group() as lease:
                lease.start_soon(self._extend, delivery)
                outputs = await self.handler(message)
                await self._publish(outputs)
                lease.cancel_scope.cancel()
        except Exception as error:
            return await self._failed(delivery, message, _single(error))
        await self._say(delivery, b"+ACK")
        return "done"

    async def _decode(self, delivery: Delivery) -> M:
        try:
            return await self.bus.receive(self.stage, delivery)
        except BlobMissing as error:
            if delivery.deliveries < self.stage.max_deliveries:
                raise Retry(self.stage.retry_delay(delivery.deliveries), str(error)) from error
            raise Reject("blob", str(error)) from error

    async def _publish(self, outputs: Sequence[Out]) -> None:
        for stage, message in outputs:
            if not await self.bus.publish(stage, message):
                log.info("already_done", stage=stage.name, key=stage.key(message))

    async def _failed(self, delivery: Delivery, message: M | None, error: Exception) -> str:
        if isinstance(error, Retry) and delivery.deliveries >= self.stage.max_deliveries:
            error = Reject("handler", f"tried {delivery.deliveries} times: {error.detail}")
        if isinstance(error, Retry):
            log.info("retry", stage=self.stage.name, after_s=error.after_s, detail=error.detail)
            await self._nak(delivery, error.after_s)
            return "retry"
        if isinstance(error, Reject):
            await self._dead_letter(delivery, message, error)
            return error.reason
        log.error("handler_failed", stage=self.stage.name, subject=delivery.subject, exc_info=error)
        if delivery.deliveries >= self.stage.max_deliveries:
            reject = Reject("handler", f"{type(error).__name__}: {error}")
            await self._dead_letter(delivery, message, reject)
            return reject.reason
        await self._nak(delivery, self.stage.retry_delay(delivery.deliveries))
        return "failed"

    async def _dead_letter(self, delivery: Delivery, message: M | None, error: Reject) -> None:
        log.error(
            "dead_letter", stage=self.stage.name, subject=delivery.subject, reason=error.reason, detail=error.detail
        )
        letter = deadletters.letter_of(self.stage, delivery, error, durable(self.stage))
        await self.bus.publish(topology.DLQ, letter)
        metrics.DEAD_LETTERS.labels(letter.stage, letter.reason).inc()
        await self._bury(delivery, error.message if message is None else message, error)
        await self._say(delivery, f"+TERM {letter.reason}".encode())

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

    async def _extend(self, delivery: Delivery) -> None:
        while True:
            await anyio.sleep(self.stage.ack_wait_s / 3)
            await self._say(delivery, b"+WPI")

    async def _nak(self, delivery: Delivery, after_s: float) -> None:
        await self._say(delivery, f'-NAK {{"delay": {int(after_s * 1e9)}}}'.encode())

    async def _say(self, delivery: Delivery, word: bytes) -> None:
        if self.bus.client.is_connected:  # else the lease ends by itself and the message comes again
            await self.bus.client.publish(delivery.reply, word)


def _single(error: Exception) -> Exception:
    """The one cause inside the lease's exception group."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def serve(
    bus: Bus,
    stage: Stage[Any],
    handler: Handler[Any],
    *,
    slots: int,
    stop: anyio.Event,
    bury: Bury[Any] | None = None,
    drain_s: float = 10.0,
) -> None:
    """Serve `stage` with `handler` until `stop` is set."""
    await Server(bus, stage, handler, slots=slots, bury=bury).run(stop, drain_s)

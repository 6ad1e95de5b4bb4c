"""Deliveries of a stage shared fairly between domains: a consumer per flow, and `fair` choosing.

An index of arrivals (subjects only) says at once which flow has work; then exactly as many messages as there are free
slots are pulled, without waiting, from the flows whose turn it is. What the index can't see, redeliveries, can only
come from flows that have something unanswered by us: the server is asked about those once a second, and only they are
pulled from on suspicion, because a pull that finds nothing holds up a free slot for as long as it takes.
Invariants: as in `pull`: never more in hand and on their way than slots were free; nothing is left without an owner
when it stops. The consumers live in memory on one server, which keeps 300 of them cheap; when one is lost it is made
again from the last floor seen, and what it delivers a second time is recognised by its stored result.
Weights (JSON, domain to weight, under the stage's name in the bucket of weights) are read every few seconds.
Left out: who sets them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import anyio
import msgspec
import structlog

from tiltyard_proto import keys, topology
from tiltyard_proto.topology import Stage

from . import weights
from .bus import Bus
from .delivery import Delivery
from .errors import ApiError, BusError, BusUnavailable, NotFound
from .fair import Scheduler
from .frames import parse_headers
from .jetstream import API
from .provision import flow_config, flow_consumer
from .pull import byte_limit
from .strangers import Strangers, is_stranger
from .wire import NotConnected

log = structlog.get_logger()
PULL_LOST_S = 2.5
CHECK_S = 1.0
BUSY_EVERY = 3
"""A flow with work is asked about, for its floor, in every third round."""
ALREADY_THERE = frozenset({10148, 10013})


@dataclass
class Flow:
    """One domain's messages in one lane."""

    token: str
    ready: bool = False
    created: float = 0.0
    """When its consumer was made, by the server's clock."""
    floor: int = 0
    """Everything up to here has been acknowledged."""
    arrivals: int = 1
    """Messages that the index has seen."""
    settled: int = 0
    """How many of them had come when the server last said that none waits and none is unanswered."""
    coming: int = 0
    """Messages asked for and not here yet."""


@dataclass
class Pull:
    flow: str
    left: int
    asked: float = field(default_factory=time.monotonic)


class FlowSource:
    """The same calls as `Puller`, over all flows of a stage."""

    def __init__(self, bus: Bus, stage: Stage[Any], in_hand: Callable[[], Iterable[Delivery]]) -> None:
        """`in_hand`: what has been taken from here and not been answered yet."""
        self._bus = bus
        self._stage = stage
        self._in_hand = in_hand
        self._prefix = f"{topology.PREFIX}.{stage.name}."
        self._scheduler = Scheduler()
        self._flows: dict[str, Flow] = {}
        self._wanted: deque[str] = deque()
        """Flows whose consumer is to be made."""
        self._make = asyncio.Event()
        self._strangers = Strangers(bus, stage)
        self._buffer: deque[Delivery] = deque()
        self._pulls: dict[bytes, Pull] = {}
        self._coming = 0
        self._serial = 0
        self._inbox = bus.client.new_inbox()
        self._waiter: asyncio.Future[None] | None = None
        self._subscription: Any = None
        self._upkeep = anyio.CancelScope()

    async def start(self, tasks: Any) -> None:
        """Subscribe, and keep the index, the consumers and the weights up to date in `tasks`."""
        self._subscription = await self._bus.client.tap(f"{self._inbox}.*", self._on_message)
        self._bus.client.lost.append(self._on_lost)
        tasks.start_soon(self._keep)

    async def _keep(self) -> None:
        with self._upkeep:
            async with anyio.create_task_group() as tasks:
                for job in (self._index, self._make_consumers, self._look_after, self._strangers.run):
                    tasks.start_soon(job)

    def may_be_done(self, delivery: Delivery) -> bool:
        """Could somebody have finished this message already?"""
        flow = self._flows.get(self._token(delivery.subject))
        return delivery.deliveries > 1 or flow is None or delivery.stored < flow.created

    def waiting(self) -> Iterable[Delivery]:
        """Messages in hand that nobody has taken."""
        return self._buffer

    def _token(self, subject: str) -> str:
        return subject[len(self._prefix) :].partition(".")[0]

    # ------------------------------------------------------------ what the server says

    def _on_message(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        if reply.startswith(b"$JS.ACK."):
            delivery = Delivery(subject, reply, headers, body)
            self._buffer.append(delivery)
            flow = self._flows[self._token(delivery.subject)]
            self._arrived(flow)
            self._scheduler.set(flow.token, delivery.pending - flow.coming)
            self._wake()
            return
        ended = self._drop(subject)
        if ended is None:
            return
        status = parse_headers(headers)
        if status.get("Status") in ("404", "408"):
            self._scheduler.set(ended.flow, 0)
        elif status.get("Status") == "503" or "Deleted" in status.get("Description", ""):
            self._lose(ended.flow)
        self._wake()

    def _arrived(self, flow: Flow) -> None:
        """One message of the flow's oldest pull is here."""
        for name, pull in self._pulls.items():
            if pull.flow == flow.token:
                pull.left -= 1
                self._coming -= 1
                flow.coming -= 1
                if pull.left <= 0:
                    del self._pulls[name]
                return

    def _drop(self, name: bytes) -> Pull | None:
        """Nothing more will come of this pull."""
        pull = self._pulls.pop(name, None)
        if pull is not None:
            self._coming -= pull.left
            self._flows[pull.flow].coming -= pull.left
        return pull

    def _on_lost(self) -> None:
        for name, pull in list(self._pulls.items()):
            self._scheduler.set(pull.flow, max(1, self._scheduler.work(pull.flow)))
            self._drop(name)
        self._wake()

    def _lose(self, token: str) -> None:
        """The flow's consumer is gone: have it made again."""
        self._scheduler.set(token, 0)
        self._flows[token].ready, self._flows[token].settled = False, 0
        self._wanted.append(token)
        self._make.set()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ------------------------------------------------------------ taking

    async def next(self, free: int) -> Delivery | None:
        """The next message; None when there was none within about a second. BusUnavailable while the server is away."""
        if not self._buffer:
            self._pull(free)
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(1.0, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        elif len(self._buffer) + self._coming < free and self._bus.client.is_connected:
            self._pull(free)
        return self._buffer.popleft() if self._buffer else None

    def _pull(self, free: int) -> None:
        if not self._bus.client.is_connected:
            raise BusUnavailable("not connected")
        now = time.monotonic()
        for name in [name for name, pull in self._pulls.items() if now - pull.asked > PULL_LOST_S]:
            pull = self._pulls[name]
            self._drop(name)
            self._lose(pull.flow)  # asked for without waiting, a consumer that lives answers at once
        for token, batch in self._scheduler.share(free - len(self._buffer) - self._coming).items():
            self._ask(token, batch)

    def _ask(self, token: str, batch: int) -> None:
        self._serial += 1
        reply = f"{self._inbox}.{self._serial}".encode()
        request = b'{"batch":%d,"no_wait":true%b}' % (batch, byte_limit(batch))
        endpoint = f"{API}.CONSUMER.MSG.NEXT.{self._stage.stream}.{flow_consumer(self._stage, token)}".encode()
        try:
            self._bus.client.send(b"PUB %b %b %d\r\n%b\r\n" % (endpoint, reply, len(request), request))
        except NotConnected as error:
            raise BusUnavailable("not connected") from error
        self._pulls[reply] = Pull(token, batch)
        self._coming += batch
        self._flows[token].coming += batch
        self._scheduler.set(token, self._scheduler.work(token) - batch)

    async def stop(self) -> list[Delivery]:
        """Withdraw interest; the messages that were in hand and not taken."""
        self._upkeep.cancel()
        if self._subscription is not None:
            self._bus.client.lost.remove(self._on_lost)
            await self._bus.client.untap(self._subscription)
            self._subscription = None
        left = list(self._buffer)
        self._buffer.clear()
        return left

    # ------------------------------------------------------------ index, consumers, weights

    async def _index(self) -> None:
        """Notice every arrival, from the oldest message that the stream still has."""
        source = self._bus.follow_raw(self._stage.stream, self._stage.subjects, headers_only=True)
        async for delivery in source:
            token = self._token(delivery.subject)
            flow = self._flows.get(token)
            if flow is None:
                if is_stranger(token):
                    self._strangers.add(delivery.sequence)
                    continue
                self._flows[token] = Flow(token)
                self._wanted.append(token)
                self._make.set()
                continue
            flow.arrivals += 1
            if flow.ready:
                self._scheduler.set(token, self._scheduler.work(token) + 1)
                self._wake()

    async def _make_consumers(self) -> None:
        while True:
            await self._make.wait()
            self._make.clear()
            while self._wanted:
                token = self._wanted.popleft()
                try:
                    await self._create(self._flows[token])
                except BusError as error:
                    log.warning("flow_waits", flow=token, error=str(error))
                    self._wanted.append(token)  # behind the others, which may fare better
                    await anyio.sleep(0.3)

    async def _create(self, flow: Flow) -> None:
        config = flow_config(self._stage, flow.token, flow.floor)
        endpoint = f"{self._stage.stream}.{flow_consumer(self._stage, flow.token)}"
        payload = {"stream_name": self._stage.stream, "config": config, "action": "create"}
        try:
            info = await self._bus.js.api(f"CONSUMER.CREATE.{endpoint}.{config['filter_subject']}", payload)
        except ApiError as error:
            if error.err_code not in ALREADY_THERE:
                raise
            info = await self._bus.js.api(f"CONSUMER.INFO.{endpoint}")
        flow.created = msgspec.convert(info["created"], type=datetime).timestamp()
        flow.ready = True
        self._scheduler.set(flow.token, max(1, int(info["num_pending"])))
        self._wake()

    async def _look_after(self) -> None:
        """Every second: ask about flows that may have something left, and read the weights."""
        lease, round_ = max(1, int(self._stage.ack_wait_s / CHECK_S)), 0
        while True:
            if round_ % BUSY_EVERY == 0:
                await self._read_weights()
            try:
                ours = Counter(self._token(each.subject) for each in (*self._in_hand(), *self._buffer))
                for flow in list(self._flows.values()):
                    if self._is_due(flow, round_, everyone=round_ % lease == 0):
                        await self._check(flow, ours[flow.token])
            except BusError as error:
                log.warning("upkeep_failed", stage=self._stage.name, error=str(error))
            self._wake()
            await anyio.sleep(CHECK_S)
            round_ += 1

    def _is_due(self, flow: Flow, round_: int, *, everyone: bool) -> bool:
        if not flow.ready:
            return False
        if self._scheduler.work(flow.token):
            return round_ % BUSY_EVERY == 0
        return everyone or flow.arrivals != flow.settled

    async def _check(self, flow: Flow, ours: int) -> None:
        """Remember the floor; what is unanswered, and not because we have it, may come again: it counts as work."""
        arrivals = flow.arrivals
        endpoint = f"{self._stage.stream}.{flow_consumer(self._stage, flow.token)}"
        try:
            info = await self._bus.js.api(f"CONSUMER.INFO.{endpoint}")
        except NotFound:
            if flow.ready:
                self._lose(flow.token)
            return
        flow.floor = max(flow.floor, int(info["ack_floor"]["stream_seq"]))
        waiting, unanswered = int(info["num_pending"]), int(info["num_ack_pending"])
        if not waiting and not unanswered:
            flow.settled = arrivals
        elif (waiting or unanswered > ours) and not self._scheduler.work(flow.token) and not flow.coming:
            self._scheduler.set(flow.token, max(1, waiting))

    async def _read_weights(self) -> None:
        """Weights that can't be read leave those that were."""
        try:
            found = await weights.read(self._bus, self._stage.name)
        except (BusError, ValueError) as error:
            log.warning("weights_unread", stage=self._stage.name, error=str(error))
            return
        self._scheduler.weights = {keys.domain_token(name): each for name, each in found.items()}

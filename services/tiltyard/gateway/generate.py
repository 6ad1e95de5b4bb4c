"""Sampling one turn: from a rollout to the rollout with one more turn, whatever the engines do meanwhile.

Invariants: a refused request is never repeated; a full queue is waited for and costs no try; after a fault or a lost
connection the request is aborted where it was and repeated on another engine while one is left, at most `tries`
times; what an engine cut short is resumed with a smaller budget, so the whole stays within it; every turn ends by
the rollout's deadline.
Left out: waiting and routing are `engines`, the decisions are `handler`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from uuid import uuid4

import anyio
import structlog

from tiltyard_proto import flow
from tiltyard_proto.messages import Rollout
from tiltyard_proto.outcomes import Outcome

from . import metrics
from .engines import Engine, NoEngine, Pool
from .handler import (
    Action,
    Chat,
    Ending,
    ParseAction,
    Plan,
    action_text,
    conclude,
    deadline_ending,
    extend,
    make_turn,
    min_version,
    plan_turn,
    settle,
)
from .settings import GatewaySettings
from .wire import EngineBusy, EngineFault, PromptTooLong, RequestRefused, Sample, generate_body, sampling_params

Clock = Callable[[], float]
log = structlog.get_logger()


class Invalid(Exception):
    """The rollout can't be sampled as it is, by nobody: a dead letter."""


class Cut(Exception):
    """The turn ends without an action."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.detail)
        self.ending = ending


class Generator:
    """Samples turns through a pool of engines."""

    def __init__(
        self, pool: Pool, chat: Chat, parse: ParseAction, settings: GatewaySettings, clock: Clock = time.time
    ) -> None:
        self._pool = pool
        self._chat = chat
        self._parse = parse
        self._settings = settings
        self._clock = clock
        self._context = min(settings.context_length or chat.context_length, chat.context_length)

    async def turn(self, rollout: Rollout) -> Rollout:
        """The rollout with its next turn, or ended. Raises Invalid when no engine would take it."""
        started, clock = self._clock(), time.monotonic()
        try:
            plan = plan_turn(rollout, self._chat, self._context)
            if isinstance(plan, Ending):
                raise Cut(plan)
            action, finish = await self._sample(rollout, plan)
            text = action_text(action.ids, self._chat)
            turn = make_turn(plan, action, finish, text, started=started, seconds=time.monotonic() - clock)
            done = conclude(rollout, turn, self._parse)
        except Cut as cut:
            done = flow.finish(rollout, cut.ending.outcome, cut.ending.detail)
        except (ValueError, RequestRefused) as error:
            metrics.turns("invalid").inc()
            raise Invalid(str(error)) from error
        metrics.SECONDS.observe(time.monotonic() - clock)
        metrics.turns(done.outcome.value if done.outcome else done.turns[-1].finish).inc()
        return done

    async def _sample(self, rollout: Rollout, plan: Plan) -> tuple[Action, str]:
        """The whole action, over as many calls as it takes."""
        action, calls = Action(), 0
        call = _Calls(rollout, self._pool, self._settings, self._clock)
        while True:
            left = plan.max_new - len(action.ids)
            params = sampling_params(rollout.sampling, left, self._chat.eos_ids)
            try:
                sample = await call.one([*plan.input_ids, *action.ids], params)
            except PromptTooLong as error:
                raise Cut(Ending(outcome=Outcome.TOKEN_LIMIT, detail=str(error)[:300])) from error
            if sample.finish != "abort" or self._settings.keep_partial:
                action, calls = extend(action, sample), calls + bool(sample.ids)
            settled = settle(
                action,
                sample.finish,
                left=plan.max_new - len(action.ids),
                stops=rollout.sampling.stop,
                chat=self._chat,
                resumed=calls > 1,
            )
            if settled is not None:
                return settled
            metrics.RETRIES.labels("aborted").inc()


class _Calls:
    """The generate calls of one turn, with what they share: tries, waits, engines to avoid, the deadline."""

    def __init__(self, rollout: Rollout, pool: Pool, settings: GatewaySettings, clock: Clock) -> None:
        self._rollout = rollout
        self._pool = pool
        self._settings = settings
        self._clock = clock
        self._faults = 0
        self._busy = 0
        self._avoid: set[str] = set()
        self._end = rollout.deadline or clock() + settings.hold_s + settings.request_s

    def _left(self) -> float:
        left = self._end - self._clock()
        if left > 0:
            return left
        if self._rollout.deadline:
            raise Cut(deadline_ending(self._rollout, "the deadline passed while the turn was sampled"))
        raise Cut(Ending(outcome=Outcome.ENGINE_FAILED, detail="not sampled in time"))

    async def one(self, input_ids: list[int], params: dict[str, object]) -> Sample:
        """One sample, from whichever engine gives it. Raises Cut or RequestRefused."""
        key, version = self._rollout.group.id, min_version(self._rollout)
        while True:
            hold_s = min(self._left(), self._settings.hold_s)
            try:
                async with self._pool.lease(key, version, self._avoid, hold_s) as engine:
                    sample = await self._ask(engine, input_ids, params)
            except NoEngine as error:
                self._left()
                raise Cut(Ending(outcome=Outcome.ENGINE_FAILED, detail=str(error)[:500])) from error
            if sample is not None:
                return sample
            await self._pause()

    async def _ask(self, engine: Engine, input_ids: list[int], params: dict[str, object]) -> Sample | None:
        """One call to one engine; None when it should be repeated."""
        rid = uuid4().hex  # of fixed length: an engine aborts by prefix
        body = generate_body(input_ids, params, rid, f"{self._rollout.run}-v{engine.version}")
        timeout_s = min(self._left() + 0.05, self._settings.request_s)  # a call cut by the deadline is past it
        try:
            sample = await engine.client.generate(body, engine.version, timeout_s)
        except EngineBusy:
            metrics.RETRIES.labels("busy").inc()
            self._busy += 1
            self._avoid = {engine.url}
            return None
        except RequestRefused:
            self._pool.worked(engine)
            raise
        except EngineFault as error:
            await self._fault(engine, rid, error)
            return None
        except anyio.get_cancelled_exc_class():
            await self._abort(engine, rid)
            raise
        self._pool.worked(engine)
        metrics.tokens("prompt").inc(sample.prompt_tokens)
        metrics.tokens("cached").inc(sample.cached_tokens)
        metrics.tokens("sampled").inc(len(sample.ids))
        if sample.finish == "abort" and not sample.ids:  # cut short while it queued
            metrics.RETRIES.labels("aborted").inc()
            self._busy += 1
            return None
        self._busy = 0
        return sample

    async def _fault(self, engine: Engine, rid: str, error: EngineFault) -> None:
        metrics.RETRIES.labels("fault").inc()
        log.warning("generate_failed", engine=engine.url, rollout=self._rollout.id, error=str(error))
        await self._abort(engine, rid)
        self._left()
        self._pool.failed(engine, str(error)[:300])
        self._avoid.add(engine.url)
        self._faults += 1
        if self._faults >= self._settings.tries:
            detail = f"{self._faults} faults, the last from {engine.url}: {error}"
            raise Cut(Ending(outcome=Outcome.ENGINE_FAILED, detail=detail[:500]))

    async def _abort(self, engine: Engine, rid: str) -> None:
        """Tell the engine that nobody waits any more; its answer doesn't matter."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(2.0):
            try:
                await engine.client.abort(rid)
            except (EngineFault, EngineBusy) as error:
                log.debug("abort_failed", engine=engine.url, error=str(error))

    async def _pause(self) -> None:
        """A short wait before the next try, longer after each full queue in a row."""
        base = self._settings.busy_wait_s
        wait = base * min(8, 2 ** max(0, self._busy - 1)) if self._busy else base * 0.1 * self._faults
        await anyio.sleep(min(wait * (0.5 + random.random()), self._left()))

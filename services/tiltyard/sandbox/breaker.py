"""Circuit breakers: what has gone wrong too often is refused for a while, then tried again.

One state machine for two uses. For abuse (`Abuse`) each task and each group has one: programs that run into limits
open it, and further executions are refused at once instead of using up another sandbox. For the infrastructure
(`tiltyard.sandbox.guard`) each profile has one: starts that fail open it. Closed lets everything through; open
nothing; after a while it is half open and lets one trial through, whose result closes or opens it again, for longer
each time. Invariants: pure, the caller brings the time; refusing and letting through never change what was counted; a
trial that is never answered for does not block the next for ever. Left out: what a refusal means (`guard`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from enum import Enum

import msgspec

from tiltyard_proto.messages import ExecLimits
from tiltyard_proto.outcomes import Outcome

WEIGHTS: Mapping[Outcome, float] = {
    Outcome.OUT_OF_MEMORY: 1.0,
    Outcome.PROCESS_LIMIT: 1.0,
    Outcome.OUTPUT_LIMIT: 1.0,
    Outcome.DISK_LIMIT: 1.0,
    Outcome.SANDBOX_LOST: 1.0,
    Outcome.TAMPERING: 3.0,
    Outcome.WALL_LIMIT: 0.25,
}
"""How much each ending counts as abuse; a loop without end is a weak policy's commonest mistake, so it counts least."""
MOST = 8192
"""Breakers kept; the one that was used longest ago goes first."""


class State(str, Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Pass(str, Enum):
    """What may be done now."""

    YES = "yes"
    TRIAL = "trial"
    """Only this one, with the result reported as a trial's."""
    NO = "no"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """When a breaker opens, and for how long."""

    threshold: float
    """Sum of the weights within the window that opens it; 0: never."""
    ratio: float = 0.0
    """It opens only when the weights are also at least this part of the number of events."""
    window_s: float = 300.0
    open_s: float = 30.0
    """For how long it opens the first time; doubles with each trial that fails."""
    open_cap_s: float = 600.0
    trial_s: float = 120.0
    """A trial that has not been answered for by then is given up."""


class Breaker:
    """One state machine. Times are seconds of any clock that does not go back."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._events: deque[tuple[float, float]] = deque()
        self._sum = 0.0
        self._until = 0.0
        """Open until then; 0: closed."""
        self._open_s = rules.open_s
        self._trial_until = 0.0

    def state(self, now: float) -> State:
        if not self._until:
            return State.CLOSED
        return State.OPEN if now < self._until else State.HALF_OPEN

    def may(self, now: float) -> Pass:
        """What `enter` would say, without taking the trial."""
        state = self.state(now)
        if state is State.CLOSED:
            return Pass.YES
        return Pass.TRIAL if state is State.HALF_OPEN and now >= self._trial_until else Pass.NO

    def enter(self, now: float) -> Pass:
        """Ask to do one thing. A TRIAL is given to one at a time."""
        answer = self.may(now)
        if answer is Pass.TRIAL:
            self._trial_until = now + self.rules.trial_s
        return answer

    def wait_s(self, now: float) -> float:
        """Seconds until it may be worth asking again; 0 when something may be done now."""
        return 0.0 if self.may(now) is not Pass.NO else max(self._until, self._trial_until) - now

    def give_up(self) -> None:
        """The trial was not made after all; another may be."""
        self._trial_until = 0.0

    def record(self, now: float, weight: float, *, trial: bool = False) -> None:
        """How something that was let through ended: 0 is well, more is worse."""
        if trial and self._until:
            self._trial_ended(now, weight)
            return
        self._forget(now)
        self._events.append((now, weight))
        self._sum += weight
        if not self._until and self._too_much():
            self._open(now)

    def _trial_ended(self, now: float, weight: float) -> None:
        self._trial_until = 0.0
        if weight > 0:
            self._open_s = min(self.rules.open_cap_s, 2 * self._open_s)
            self._open(now)
            return
        self._until, self._open_s = 0.0, self.rules.open_s
        self._events.clear()
        self._sum = 0.0

    def _too_much(self) -> bool:
        rules = self.rules
        return 0 < rules.threshold <= self._sum + 1e-9 and self._sum + 1e-9 >= rules.ratio * len(self._events)

    def _open(self, now: float) -> None:
        self._until = now + self._open_s
        self._events.clear()
        self._sum = 0.0

    def _forget(self, now: float) -> None:
        while self._events and self._events[0][0] <= now - self.rules.window_s:
            self._sum -= self._events.popleft()[1]
        if not self._events:
            self._sum = 0.0


class Abuse:
    """Breakers by name; something is let through when all of its names let it through."""

    def __init__(self, rules: Mapping[str, Rules]) -> None:
        self.rules = rules
        """By kind, the part of a name before the colon."""
        self._breakers: OrderedDict[str, Breaker] = OrderedDict()

    def enter(self, names: Iterable[str], now: float) -> Pass:
        """NO when any of them says so; TRIAL when any of them makes it one, which all of them then wait for."""
        known = [self._breakers[name] for name in names if name in self._breakers]
        answers = [breaker.may(now) for breaker in known]
        if Pass.NO in answers:
            return Pass.NO
        for breaker in known:
            breaker.enter(now)
        return Pass.TRIAL if Pass.TRIAL in answers else Pass.YES

    def record(self, names: Iterable[str], now: float, weight: float, *, trial: bool) -> None:
        """How an execution ended. A name without a breaker gets one with its first bad ending."""
        for name in names:
            breaker = self._breakers.get(name)
            if breaker is None:
                if weight <= 0:
                    continue
                breaker = self._breakers[name] = Breaker(self.rules[name.partition(":")[0]])
            self._breakers.move_to_end(name)
            breaker.record(now, weight, trial=trial)
        while len(self._breakers) > MOST:
            self._breakers.popitem(last=False)

    def give_up(self, names: Iterable[str]) -> None:
        """A trial was not made after all."""
        for name in names:
            if name in self._breakers:
                self._breakers[name].give_up()

    def wait_s(self, names: Iterable[str], now: float) -> float:
        """Seconds until it may be worth asking again."""
        return max((self._breakers[name].wait_s(now) for name in names if name in self._breakers), default=0.0)

    def not_closed(self, now: float) -> dict[str, State]:
        """Those that refuse or try, by name."""
        states = {name: breaker.state(now) for name, breaker in self._breakers.items()}
        return {name: state for name, state in states.items() if state is not State.CLOSED}


def tightened(limits: ExecLimits) -> ExecLimits:
    """Limits of a trial: what stays within half of everything would have stayed within all of it."""
    return msgspec.structs.replace(
        limits,
        wall_s=limits.wall_s / 2,
        cpu_s=limits.cpu_s / 2,
        memory_bytes=max(min(limits.memory_bytes, 64 << 20), limits.memory_bytes // 2),
        processes=max(min(limits.processes, 8), limits.processes // 2),
    )

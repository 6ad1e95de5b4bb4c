"""The capacity model: CPU of every process for a rollout, and how many processes a rate needs. Pure.

Two loads are measured: rollouts of one turn that runs nothing (`answer`), and rollouts of several turns that each run
a command in a sandbox that costs nothing (`turns`). Between and beyond them every process is taken to be linear in what
it sees: the gateway in turns, the sandbox service in executions, the server in hops between stages, the others in the
turns that a message carries. Invariant: the two measured loads are predicted exactly. Left out: waiting times, memory,
prompts much longer than a kibibyte.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

SERVER = "nats"
CARRIERS = ("sampler", "verifier", "aggregator", "trainer")
"""What they do for a rollout depends on it only by the size of its messages."""
SERVICES = ("sampler", "gateway", "sandbox", "verifier", "aggregator", "trainer")
SINGLE = frozenset({"sampler", "trainer"})
"""One of each is active in a run."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the costs' file."""


class Measured(_Part, frozen=True):
    """CPU milliseconds of a rollout by process, in one load."""

    turns: int
    executed: int
    """Turns of them that ran a command."""
    cpu_ms: dict[str, float]
    rate: float = 0.0
    """Rollouts per second, as many as the machine gave."""
    engine_ms: float = 0.0
    """CPU of the simulated engine, which the machine gave as well."""


class Guest(_Part, frozen=True):
    """CPU milliseconds of real sandboxes, which the load test replaces by nothing."""

    start: float = 120.0
    """A sandbox until it is ready, and its end."""
    command: float = 30.0
    """One command, the program itself not counted."""


class Costs(_Part, frozen=True):
    """What was measured."""

    machine: str
    """On what, and when."""
    cores: int
    answer: Measured
    turns: Measured
    guest: Guest = Guest()


class Work(_Part, frozen=True):
    """What a rollout of one domain asks of the system."""

    domain: str
    share: float = 1.0
    """Of all rollouts."""
    turns: float = 1.0
    executed: float = 0.0
    """Turns that run a command."""
    jobs: float = 0.0
    """Grading jobs."""
    tokens: int = 64
    """Of one answer."""

    @property
    def hops(self) -> float:
        """Messages at generate and execute; a grading job is one at execute and one more at verify."""
        return self.turns + self.executed + 2 * self.jobs


def rollout_ms(costs: Costs, work: Work) -> dict[str, float]:
    """CPU milliseconds of a rollout by process, without what runs inside sandboxes."""
    one, many = costs.answer, costs.turns
    answered = work.turns - work.executed
    execution = many.cpu_ms["sandbox"] / many.executed
    found = {
        "gateway": one.cpu_ms["gateway"] * answered + many.cpu_ms["gateway"] / many.turns * work.executed,
        "sandbox": execution * (work.executed + work.jobs),
        SERVER: _line((1, one.cpu_ms[SERVER]), (many.turns + many.executed, many.cpu_ms[SERVER]), work.hops),
    }
    for name in CARRIERS:
        found[name] = _line((one.turns, one.cpu_ms[name]), (many.turns, many.cpu_ms[name]), work.turns)
    found["verifier"] *= 1 + work.jobs
    return found


def guest_ms(costs: Costs, work: Work) -> float:
    """CPU milliseconds inside sandboxes for a rollout: a session where turns run, and a fresh one for each job."""
    sessions = 1.0 if work.executed else 0.0
    return costs.guest.start * (sessions + work.jobs) + costs.guest.command * (work.executed + work.jobs)


def _line(one: tuple[float, float], other: tuple[float, float], at: float) -> float:
    """The straight line through two points, never below 0."""
    slope = (other[1] - one[1]) / (other[0] - one[0])
    return max(0.0, one[1] + slope * (at - one[0]))


def mean_ms(costs: Costs, works: Sequence[Work]) -> dict[str, float]:
    """`rollout_ms` over domains by their shares."""
    whole = sum(work.share for work in works)
    found: dict[str, float] = {}
    for work in works:
        for name, value in rollout_ms(costs, work).items():
            found[name] = found.get(name, 0.0) + value * work.share / whole
    return found


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """How many of one service."""

    service: str
    cpu_ms: float
    """Of a rollout."""
    cores: float
    """That are busy with it at the rate."""
    count: int
    why: str
    """What decides the number."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a size is asked for."""

    rate: float
    busy: float = 0.7
    """Share of its core that a process shall use at most; above it waiting times grow quickly."""
    turn_s: float = 2.0
    """Seconds that an engine takes for a turn, on average."""
    slots: int = 256
    """Turns that a gateway has in flight at most."""
    node_cores: int = 8
    """Of a machine that runs sandboxes."""
    engine_tokens: float = 0.0
    """Tokens a second that one engine samples; 0: engines are not counted."""


def size(costs: Costs, works: Sequence[Work], terms: Terms) -> list[Need]:
    """How many of each service the rate needs. ValueError when there is nothing to do."""
    if not works or not terms.rate > 0:
        raise ValueError("expected a rate above 0 and at least one domain")
    means = mean_ms(costs, works)
    needs = [_processes(name, means[name], terms) for name in SERVICES if name not in ("sandbox", "gateway")]
    needs.insert(1, _gateways(means["gateway"], works, terms))
    needs.insert(2, _sandboxes(costs, means["sandbox"], works, terms))
    needs.append(_server(means[SERVER], terms))
    if terms.engine_tokens:
        tokens = _mean(works, [work.turns * work.tokens for work in works]) * terms.rate
        engines = math.ceil(tokens / terms.engine_tokens)
        needs.append(Need(service="engine", cpu_ms=0.0, cores=0.0, count=engines, why=f"{tokens:.0f} tokens a second"))
    return needs


def _processes(name: str, cpu_ms: float, terms: Terms) -> Need:
    cores = cpu_ms * terms.rate / 1e3
    count = max(1, math.ceil(cores / terms.busy))
    why = "CPU" if count > 1 else "one is enough"
    if name in SINGLE and count > 1:
        count, why = 1, f"one at most: it carries {terms.busy / cpu_ms * 1e3:.0f} a second"
    return Need(service=name, cpu_ms=cpu_ms, cores=cores, count=count, why=why)


def _gateways(cpu_ms: float, works: Sequence[Work], terms: Terms) -> Need:
    need = _processes("gateway", cpu_ms, terms)
    in_flight = _mean(works, [work.turns for work in works]) * terms.rate * terms.turn_s
    by_slots = math.ceil(in_flight / terms.slots)
    if by_slots <= need.count:
        return need
    return msgspec.structs.replace(
        need, count=by_slots, why=f"{in_flight:.0f} turns in flight, {terms.slots} slots each"
    )


def _sandboxes(costs: Costs, cpu_ms: float, works: Sequence[Work], terms: Terms) -> Need:
    whole = cpu_ms + _mean(works, [guest_ms(costs, work) for work in works])
    cores = whole * terms.rate / 1e3
    count = max(1, math.ceil(cores / (terms.busy * terms.node_cores)))
    why = f"CPU of sandboxes, {terms.node_cores} cores a machine" if count > 1 else "one is enough"
    return Need(
        service="sandbox", cpu_ms=whole, cores=cores, count=count if cores else 0, why=why if cores else "no use"
    )


def _server(cpu_ms: float, terms: Terms) -> Need:
    cores = cpu_ms * terms.rate / 1e3
    wanted = max(1, math.ceil(cores / terms.busy))
    return Need(
        service=SERVER, cpu_ms=cpu_ms, cores=cores, count=1, why=f"with {wanted} cores; three of them in production"
    )


def _mean(works: Sequence[Work], values: Iterable[float]) -> float:
    whole = sum(work.share for work in works)
    return sum(work.share * value for work, value in zip(works, values, strict=True)) / whole


def busy_share(measured: Measured, cores: int) -> float:
    """Share of the machine's CPU that a saturating load used, the simulated engine's included."""
    return measured.rate * (sum(measured.cpu_ms.values()) + measured.engine_ms) / 1e3 / cores


def capacity(costs: Costs, works: Sequence[Work], cores: int | None = None) -> float:
    """Rollouts per second that one machine carries with everything on it, as busy as the measured loads made it."""
    cores = cores or costs.cores
    share = (busy_share(costs.answer, costs.cores) + busy_share(costs.turns, costs.cores)) / 2
    engine = costs.answer.engine_ms / costs.answer.turns * _mean(works, [work.turns for work in works])
    return cores * share * 1e3 / (sum(mean_ms(costs, works).values()) + engine)


def assumptions(costs: Costs, terms: Terms) -> list[str]:
    """What a size rests on, for people."""
    one, many = costs.answer, costs.turns
    return [
        f"CPU was measured on {costs.machine}; other cores are faster or slower",
        f"messages grow with turns as measured between {one.turns} and {many.turns} turns, prompts of about 1 KiB",
        f"a process uses at most {terms.busy:.0%} of one core; every rollout takes all turns that its domain allows",
        f"an engine answers a turn in {terms.turn_s:g} s on average, and a gateway has {terms.slots} slots",
        f"a sandbox costs {costs.guest.start:g} CPU ms, and {costs.guest.command:g} a command, programs not counted",
        "the trainer is counted for taking groups in and packing them, not for its training steps",
        "one copy of each message; three servers that keep three copies cost about three times the server's CPU",
    ]

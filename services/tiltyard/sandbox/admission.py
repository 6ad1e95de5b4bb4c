"""Who may have a sandbox now: quotas per run (the tenant) and per domain, in a bounded queue that knows deadlines.

A quota is a number of sandboxes at a time and a rate of new ones (a token bucket). Those who must wait do so in the
order in which they came, as far as their own quotas let them. Invariants: what was admitted is counted until it is
released, once; a full queue, a wait that is too long and a deadline that can't be kept are said at once, not after
waiting; nobody overtakes a waiter of the same run and domain. Left out: what a refusal becomes (`guard`).
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping

import anyio
import msgspec

from tiltyard.kit.ranges import Amount, Positive, Whole

OTHERS = "*"
"""Name of the quota of all that have none of their own; each of them has it for itself."""


class Quota(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run or one domain may have."""

    sandboxes: Whole = 0
    """At a time; 0: no limit."""
    rate: Amount = 0.0
    """New ones a second, over time; 0: no limit."""
    burst: Positive = 16
    """New ones at once, when there were none for a while; a group of rollouts comes all at once."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """For whom a sandbox is."""

    tenant: str
    """The run."""
    domain: str


class Busy(Exception):
    """Not now; worth asking again after `after_s` seconds."""

    def __init__(self, reason: str, after_s: float, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.after_s, self.detail = reason, after_s, detail


class TooLate(Exception):
    """It can't start before its deadline."""


class Bucket:
    """A token bucket: `rate` tokens a second, at most `burst`."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst = rate, burst
        self._tokens, self._at = burst, now

    def wait_s(self, now: float) -> float:
        """Seconds until there is a token."""
        self._tokens = min(self.burst, self._tokens + max(0.0, now - self._at) * self.rate)
        self._at = max(now, self._at)
        return max(0.0, (1.0 - self._tokens) / self.rate)

    def take(self) -> None:
        self._tokens -= 1.0


def quota_of(quotas: Mapping[str, Quota], name: str) -> Quota | None:
    """The quota of a name: its own, that of the longest dotted beginning, or everybody's."""
    at = name
    while at:
        if at in quotas:
            return quotas[at]
        at = at.rpartition(".")[0]
    return quotas.get(OTHERS)


class Admission:
    """Counts, buckets and the queue. Times are seconds of the monotonic clock."""

    def __init__(
        self,
        tenants: Mapping[str, Quota],
        domains: Mapping[str, Quota],
        *,
        queue: int,
        queue_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.quotas: dict[str, Mapping[str, Quota]] = {"tenant": tenants, "domain": domains}
        """May be replaced while the service runs."""
        self.queue, self.queue_s, self.clock = queue, queue_s, clock
        self.running: Counter[tuple[str, str]] = Counter()
        """Sandboxes by kind ('tenant', 'domain') and name."""
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._waiting: OrderedDict[int, Owner] = OrderedDict()
        self._tickets = 0
        self._changed = anyio.Event()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def full(self, owner: Owner) -> str:
        """Which of the owner's quotas of sandboxes is used up: 'tenant', 'domain' or ''."""
        for key, quota in self._quotas(owner):
            if quota.sandboxes and self.running[key] >= quota.sandboxes:
                return key[0]
        return ""

    def rate_wait_s(self, owner: Owner) -> float:
        """Seconds until the owner's rates let one more through."""
        now = self.clock()
        found = [self._bucket(key, quota, now).wait_s(now) for key, quota in self._quotas(owner) if quota.rate]
        return max(found, default=0.0)

    async def acquire(self, owner: Owner, within_s: float | None = None) -> None:
        """Wait until the owner may have one more; `within_s`: until its deadline. Busy or TooLate otherwise.

        Each call that returns is answered by one `release`.
        """
        patience = self.queue_s if within_s is None else max(0.0, min(self.queue_s, within_s))
        self._check(owner, within_s, patience)
        ticket = self._tickets = self._tickets + 1
        self._waiting[ticket] = owner
        try:
            with anyio.move_on_after(patience) as waited:
                while not self._mine(ticket, owner):
                    await self._until_changed(owner)
        finally:
            del self._waiting[ticket]
            self._notify()
        if waited.cancelled_caught:
            if within_s is not None and within_s <= patience:
                raise TooLate(f"no sandbox within {within_s:.1f} s, when its deadline passes")
            raise Busy(self.full(owner) or "rate", self.queue_s / 2, f"no sandbox for {owner} within {patience:g} s")
        self._take(owner)

    def kept_waiting(self) -> list[Owner]:
        """Those who wait since a quota of theirs is full, each once."""
        return [owner for owner in dict.fromkeys(self._waiting.values()) if self.full(owner)]

    def release(self, owner: Owner) -> None:
        """One of the owner's sandboxes has gone."""
        for key in (("tenant", owner.tenant), ("domain", owner.domain)):
            self.running[key] -= 1
            if self.running[key] <= 0:
                del self.running[key]
        self._notify()

    # ------------------------------------------------------------ inside

    def _check(self, owner: Owner, within_s: float | None, patience: float) -> None:
        wait, full = self.rate_wait_s(owner), self.full(owner)
        if not wait and not full:
            return
        if within_s is not None and wait >= within_s:
            raise TooLate(f"it could start in {wait:.1f} s at the earliest, its deadline is in {within_s:.1f} s")
        if wait > patience:
            raise Busy("rate", wait, f"the rate of new sandboxes of {owner} is used up for {wait:.1f} s")
        if len(self._waiting) >= self.queue:
            raise Busy("queue", self.queue_s / 2, f"{self.queue} wait for a sandbox already")

    def _mine(self, ticket: int, owner: Owner) -> bool:
        """May this waiter go, and is it the first of those that share a quota with it?"""
        for earlier, other in self._waiting.items():
            if earlier == ticket:
                break
            if other == owner:
                return False
        return not self.full(owner) and self.rate_wait_s(owner) <= 0

    async def _until_changed(self, owner: Owner) -> None:
        wait = self.rate_wait_s(owner)
        with anyio.move_on_after(max(0.001, wait) if wait and not self.full(owner) else None):
            await self._changed.wait()

    def _take(self, owner: Owner) -> None:
        now = self.clock()
        for key, quota in self._quotas(owner):
            if quota.rate:
                self._bucket(key, quota, now).take()
        self.running["tenant", owner.tenant] += 1
        self.running["domain", owner.domain] += 1

    def _quotas(self, owner: Owner) -> list[tuple[tuple[str, str], Quota]]:
        names = {"tenant": owner.tenant, "domain": owner.domain}
        found = [((kind, name), quota_of(self.quotas[kind], name)) for kind, name in names.items()]
        return [(key, quota) for key, quota in found if quota is not None]

    def _bucket(self, key: tuple[str, str], quota: Quota, now: float) -> Bucket:
        bucket = self._buckets.get(key)
        if bucket is None or (bucket.rate, bucket.burst) != (quota.rate, quota.burst):
            bucket = self._buckets[key] = Bucket(quota.rate, quota.burst, now)
        return bucket

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

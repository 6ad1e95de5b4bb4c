"""What the service does from time to time: look for remains, take over changed quotas, let sessions rest.

Invariants: a reconciliation touches what bears this service's own instance id and nothing else; quotas that can't be
read leave those in force as they are. Left out: leases and lifetimes (`guard`), sessions (`app`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import anyio
import msgspec
import structlog

from tiltyard.kit.bus import Bus
from tiltyard.kit.errors import BusError
from tiltyard_proto import topology

from . import metrics
from .admission import Admission, Quota
from .backend import Backend
from .guard import Guard

QUOTAS_KEY = "sandbox_quotas"
"""In the bucket of weights: JSON, {"tenants": {NAME: {...}}, "domains": {NAME: {...}}}."""
FOLLOW_S = 5.0
log = structlog.get_logger()


@runtime_checkable
class Reconciles(Protocol):
    """A back-end that can look for remains."""

    async def reconcile(self) -> int: ...


class Quotas(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Quotas that replace those of the settings while the service runs."""

    tenants: dict[str, Quota] = {}
    domains: dict[str, Quota] = {}


async def reconcile_often(backend: Backend, every_s: float) -> None:
    """Until cancelled; harmless where the back-end has nothing to reconcile."""
    while isinstance(backend, Reconciles):
        await anyio.sleep(every_s)
        await reconcile_once(backend)
        metrics.LEAKED.set(backend.leaked)


async def reconcile_once(backend: Reconciles) -> int:
    """Remove remains; how many were found."""
    found = await backend.reconcile()
    if found:
        metrics.STRAYS.inc(found)
        log.error("sandbox_strays", found=found)
    return found


async def rest_often(guard: Guard, every_s: float = 0.5) -> None:
    """Let waiting sessions rest, until cancelled. Apart from the guard's own round, which must not wait for them."""
    while True:
        await anyio.sleep(every_s)
        await guard.rest()


async def follow_quotas(bus: Bus, admission: Admission) -> None:
    """Take over the quotas in the key-value bucket when they change, until cancelled."""
    settings, seen = dict(admission.quotas), b""
    while True:
        try:
            entry = await bus.kv(topology.WEIGHTS_BUCKET).get(QUOTAS_KEY)
            body = b"" if entry is None else entry[0]
            if body != seen:
                seen = body
                take_over(admission, settings, body)
        except BusError as error:
            log.info("quotas_unread", error=str(error))
        await anyio.sleep(FOLLOW_S)


def take_over(admission: Admission, settings: dict[str, Mapping[str, Quota]], body: bytes) -> None:
    """Put the quotas of `body` in force, those of the settings when it is empty; unreadable ones change nothing."""
    if not body:
        admission.quotas = dict(settings)
        return
    try:
        found = msgspec.json.decode(body, type=Quotas)
    except msgspec.MsgspecError as error:
        log.warning("quotas_refused", error=str(error))
        return
    admission.quotas = {"tenant": found.tenants, "domain": found.domains}
    log.info("quotas_changed", tenants=sorted(found.tenants), domains=sorted(found.domains))

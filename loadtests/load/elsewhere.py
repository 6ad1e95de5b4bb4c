"""A bus that was there before: whether a load may go to it, and taking away what the load left on it.

Invariants: nothing is begun where others have work under way, since the services of a load take whatever comes; only
messages of the load's own domains and keys of its own run are removed. Left out: secured servers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from load.scenario import RUN

from tiltyard.kit.bus import Bus
from tiltyard.kit.depth import depth
from tiltyard.kit.errors import NotFound
from tiltyard.kit.provision import flow_consumer
from tiltyard_proto import keys, topology
from tiltyard_proto.messages import RunStatus
from tiltyard_proto.topology import PREFIX, STAGES


class InUse(RuntimeError):
    """Others have work under way on that bus."""


@asynccontextmanager
async def borrowed(bus: Bus, domains: Iterable[str]) -> AsyncIterator[None]:
    """The bus holds nothing of the load before and after the block. InUse when others work there."""
    tokens = [keys.domain_token(domain) for domain in domains]
    await _check(bus)
    await clean(bus, tokens)
    try:
        yield
    finally:
        await clean(bus, tokens)


async def _check(bus: Bus) -> None:
    try:
        for stage in (stage for stage in STAGES if stage.work):
            found = await depth(bus, stage)
            if found.waiting + found.in_flight:
                raise InUse(f"stage {stage.name} has {found.waiting + found.in_flight} messages under way")
        runs = bus.kv(topology.RUNS_BUCKET)
        for key in await runs.keys():
            entry = await runs.read(key, RunStatus)
            if key != RUN and entry is not None and entry[0] is not None and entry[0].state != "finished":
                raise InUse(f"run {key} is {entry[0].state} there")
    except NotFound:  # nothing was ever provisioned
        return


async def clean(bus: Bus, tokens: Iterable[str]) -> None:
    """Remove the load's messages, keys and consumers."""
    chosen = list(tokens)
    try:
        for stage in STAGES:
            for token in chosen:
                await _purge(bus, stage.stream, f"{PREFIX}.{stage.name}.{token}.>")
        await _purge_keys(bus, topology.POLICY.stream, f"{PREFIX}.policy.policy.")
        for bucket in topology.BUCKETS:
            await _purge_keys(bus, f"KV_{bucket}", f"$KV.{bucket}.")
    except NotFound:
        return
    for stage in (stage for stage in STAGES if stage.shared):
        for token in chosen:
            try:
                await bus.js.api(f"CONSUMER.DELETE.{stage.stream}.{flow_consumer(stage, token)}")
            except NotFound:
                continue


async def _purge(bus: Bus, stream: str, subject: str) -> None:
    await bus.js.api(f"STREAM.PURGE.{stream}", {"filter": subject})


async def _purge_keys(bus: Bus, stream: str, prefix: str) -> None:
    """Keys of the load's run: its name, or what begins with it and a dash."""
    info = await bus.js.api(f"STREAM.INFO.{stream}", {"subjects_filter": f"{prefix}>"})
    while subjects := info["state"].get("subjects"):
        mine = [each for each in subjects if each == f"{prefix}{RUN}" or each.startswith(f"{prefix}{RUN}-")]
        for subject in mine:
            await _purge(bus, stream, subject)
        if not mine:
            break
        info = await bus.js.api(f"STREAM.INFO.{stream}", {"subjects_filter": f"{prefix}>"})

"""What the trainer's streams promise, held against the bus and its fake."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest
from support import training

from tiltyard.kit.bus import Bus
from tiltyard.trainer.backend import BusStreams, MemoryStreams, Streams
from tiltyard_proto.messages import Group, Policy
from tiltyard_proto.topology import GROUP

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["bus", "memory"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Both:
    """Streams, and a way to put groups on them."""

    def __init__(self, streams: Streams, bus: Bus | None) -> None:
        self.streams, self._bus = streams, bus

    async def add(self, *groups: Group) -> None:
        for group in groups:
            if self._bus is not None:
                await self._bus.publish(GROUP, group)
            else:
                assert isinstance(self.streams, MemoryStreams)
                self.streams.add(group)


@pytest.fixture
def both(kind: str, request: pytest.FixtureRequest) -> Callable[[], Both]:
    """Made lazily, so that the fake needs no server."""
    if kind == "memory":
        return lambda: Both(MemoryStreams(), None)
    bus = request.getfixturevalue("bus")
    return lambda: Both(BusStreams(bus), bus)


async def test_groups_come_in_order_from_a_position_and_then_live(both: Callable[[], Both]) -> None:
    """Following after position 1 gives the second group, then groups as they are added."""
    made = both()
    groups = [training.simple_group(i) for i in range(4)]
    await made.add(*groups[:2])
    seen: list[tuple[int, str]] = []
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.add, *groups[2:])
            async for sequence, group in made.streams.groups(1):
                seen.append((sequence, group.id))
                if len(seen) == 3:
                    break
            tasks.cancel_scope.cancel()
    assert seen == [(2, "run-t-1"), (3, "run-t-2"), (4, "run-t-3")]


async def test_the_first_publication_of_a_version_stands(both: Callable[[], Both]) -> None:
    """Publishing a version again changes nothing and gives what was there first."""
    streams = both().streams
    first = Policy(run="run", version=3, path="first", metrics={"loss": 1.0})
    assert await streams.publish(first) == first
    assert await streams.publish(Policy(run="run", version=3, path="second", final=True)) == first
    later = Policy(run="run", version=4, path="second")
    assert await streams.publish(later) == later

"""What a standing word means, and who passes the lane with whom."""

from __future__ import annotations

import anyio
import msgspec
import pytest
from support.waiting import until

from tiltyard.kit.suspects import NOTHING, Lane, Past

pytestmark = pytest.mark.anyio


def held(by: str, *, alone: bool = False, **fields: int) -> Past:
    return Past(holder=by, alone=alone, **fields)


def test_a_word_that_stands_is_a_death() -> None:
    """Another process's word counts as a death, alone or not; no word and one's own word count as none."""
    assert NOTHING.found_by("me") == NOTHING
    assert held("me", failures=2).found_by("me") == Past(failures=2)
    assert held("you", failures=2).found_by("me") == Past(failures=2, deaths=1)
    assert held("you", alone=True, deaths=1).found_by("me") == Past(deaths=2, deaths_alone=1)


def test_who_finds_a_word_again_counts_it_once() -> None:
    """A worker that dies while the message waits for the lane has written nothing, so the next one counts the same."""
    past = held("you")
    assert past.found_by("me") == past.found_by("another") == Past(deaths=1)
    mine = msgspec.structs.replace(past.found_by("me"), holder="me", alone=True)
    assert mine.found_by("another") == Past(deaths=2, deaths_alone=1)


def test_suspects_are_those_whose_worker_died() -> None:
    """Failures of a handler make no suspect; a death does."""
    assert not Past(failures=5).suspect
    assert Past(deaths=1).suspect


async def test_a_suspect_waits_and_is_waited_for() -> None:
    """It goes in when the others are out; who comes meanwhile goes in after it; two suspects go in one by one."""
    lane, order = Lane(), list[str]()
    leave = {name: anyio.Event() for name in ("one", "two", "suspect", "second", "late")}

    async def go(name: str) -> None:
        alone = name in ("suspect", "second")
        await lane.enter(alone=alone)
        order.append(name)
        await leave[name].wait()
        lane.leave(alone=alone)

    async with anyio.create_task_group() as tasks:
        for name in ("one", "two"):
            tasks.start_soon(go, name)
        await until(lambda: order == ["one", "two"])
        for name in ("suspect", "late", "second"):
            tasks.start_soon(go, name)
        await until(lambda: lane.closed)
        leave["one"].set()
        await anyio.wait_all_tasks_blocked()
        assert order == ["one", "two"]
        leave["two"].set()
        await until(lambda: len(order) == 3)
        first = order[2]
        assert first in ("suspect", "second")
        await anyio.wait_all_tasks_blocked()
        assert order == ["one", "two", first]
        leave[first].set()
        await until(lambda: len(order) == 4)
        assert order[3] in {"suspect", "second"} - {first}
        leave[order[3]].set()
        await until(lambda: len(order) == 5)
        leave["late"].set()
    assert not lane.closed


async def test_a_suspect_that_is_called_off_opens_the_lane() -> None:
    """A suspect that is cancelled while it waits holds nobody up."""
    lane = Lane()
    await lane.enter(alone=False)
    with anyio.move_on_after(0.01):
        await lane.enter(alone=True)
    assert not lane.closed
    with anyio.fail_after(1):
        await lane.enter(alone=False)
    lane.leave(alone=False)
    lane.leave(alone=False)
    with anyio.fail_after(1):
        await lane.enter(alone=True)

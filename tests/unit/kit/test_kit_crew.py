"""Workers that handle one piece after another: who is asked, and what becomes of what was handed over."""

from __future__ import annotations

import asyncio
import gc
import weakref

import anyio
import pytest
from support.waiting import until

from tiltyard.kit.crew import Crew

pytestmark = pytest.mark.anyio


class Job:
    """Something to be done, until it is let go."""

    def __init__(self) -> None:
        self.worker: asyncio.Task[object] | None = None
        self.go = anyio.Event()
        self.done = self.called_off = False

    async def run(self) -> None:
        self.worker = asyncio.current_task()
        try:
            await self.go.wait()
        except anyio.get_cancelled_exc_class():
            self.called_off = True
            raise
        self.done = True


async def test_a_worker_that_is_idle_takes_the_next() -> None:
    """Two at a time need two tasks, however many come one after another."""
    jobs = [Job() for _ in range(6)]
    async with anyio.create_task_group() as tasks:
        crew = Crew(tasks, Job.run)
        for first, second in zip(jobs[::2], jobs[1::2], strict=True):
            for job in (first, second):
                crew.hand(job)
                job.go.set()
            await until(lambda both=(first, second): all(job.done for job in both))
            await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert len({job.worker for job in jobs}) == 2


async def test_what_is_handed_over_is_begun_though_the_crew_is_called_off() -> None:
    """An idle worker and a new one that are cancelled in the turn in which they are asked begin, and hear of it."""
    warm, idle, new = Job(), Job(), Job()
    async with anyio.create_task_group() as tasks:
        crew = Crew(tasks, Job.run)
        crew.hand(warm)
        warm.go.set()
        await until(lambda: warm.done)
        await anyio.wait_all_tasks_blocked()
        crew.hand(idle)
        crew.hand(new)
        tasks.cancel_scope.cancel()
    assert idle.worker is warm.worker
    assert (idle.called_off, new.called_off) == (True, True)


async def test_a_worker_that_was_called_off_is_not_asked() -> None:
    """What is handed over while the crew ends goes to a task that lives."""
    warm, late = Job(), Job()
    async with anyio.create_task_group() as tasks:
        crew = Crew(tasks, Job.run)
        crew.hand(warm)
        warm.go.set()
        await until(lambda: warm.done)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        crew.hand(late)
    assert late.called_off


async def test_an_error_ends_the_group() -> None:
    """What a piece raises is raised by the task group."""

    async def fails(_: int) -> None:
        raise KeyError("broken")

    with pytest.raises(ExceptionGroup) as found:
        async with anyio.create_task_group() as tasks:
            Crew(tasks, fails).hand(1)
    assert isinstance(found.value.exceptions[0], KeyError)


async def test_an_idle_worker_holds_nothing() -> None:
    """What has been done is let go, though its worker waits for the next."""
    async with anyio.create_task_group() as tasks:
        crew = Crew(tasks, Job.run)
        for _ in range(2):  # the second through a worker that was idle
            job = Job()
            job.go.set()
            crew.hand(job)
            await until(lambda each=job: each.done)
            await anyio.wait_all_tasks_blocked()
        kept = weakref.ref(job)
        del job
        gc.collect()
        assert kept() is None
        tasks.cancel_scope.cancel()

"""Results of deterministic grading jobs."""

from __future__ import annotations

import anyio
import msgspec
import pytest
from support import build

from tiltyard.sandbox.cache import Result, ResultCache, keeps, key_of
from tiltyard_proto.messages import BlobRef, Command, Execution, Job
from tiltyard_proto.outcomes import Grade, Outcome, policy_for

pytestmark = pytest.mark.anyio
JOB = Job(rollout=build.rollout(), command=Command(argv=("true",), files={"a": b"1", "b": b"2"}), profile="python")


def result(outcome: Outcome = Outcome.FINISHED, size: int = 0) -> Result:
    return Result(execution=Execution(outcome=outcome, stdout=b"x" * size, claim_s=1.0))


def test_the_key_is_the_content() -> None:
    """Jobs of different rollouts with the same content share a key; any part of the content changes it."""
    other = msgspec.structs.replace(JOB, rollout=build.rollout(member=1))
    reordered = msgspec.structs.replace(JOB, command=Command(argv=("true",), files={"b": b"2", "a": b"1"}))
    assert key_of(JOB) == key_of(other) == key_of(reordered)
    blob = BlobRef(uri="x", size=1, sha256="1")
    changed = [
        msgspec.structs.replace(JOB, profile="other"),
        msgspec.structs.replace(JOB, workspace=blob),
        msgspec.structs.replace(JOB, collect=("x",)),
        msgspec.structs.replace(JOB, command=Command(argv=("true",), files={"a": b"1", "b": b"3"})),
    ]
    assert len({key_of(job) for job in (JOB, *changed)}) == 5


def test_only_results_about_the_code_are_kept() -> None:
    """Failures of the infrastructure and wall limits are not kept; a CPU limit, which does not depend on load, is."""
    for outcome in Outcome:
        expected = policy_for(outcome).grade is Grade.YES and outcome is not Outcome.WALL_LIMIT
        assert keeps(result(outcome)) == expected
    assert keeps(Result(execution=Execution(outcome=Outcome.WALL_LIMIT, signal=24)))


async def test_identical_jobs_run_once() -> None:
    """Jobs that arrive together run once; the copies say that they are."""
    cache, runs = ResultCache(10_000), 0
    found: list[Result] = []

    async def run() -> Result:
        nonlocal runs
        runs += 1
        await anyio.sleep(0.02)
        return result()

    async def ask() -> None:
        found.append(await cache.get("key", run))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    found.append(await cache.get("key", run))
    assert runs == 1
    assert [one.execution.cached for one in found] == [False, True, True, True, True, True]
    assert found[-1].execution.claim_s == 0.0


async def test_a_failed_run_is_repeated_by_the_next() -> None:
    """When the run fails or is not worth keeping, those who waited run it themselves."""
    cache, outcomes = ResultCache(10_000), [Outcome.SANDBOX_LOST, Outcome.FINISHED]
    found: list[Result] = []

    async def run() -> Result:
        await anyio.sleep(0.01)
        return result(outcomes.pop(0))

    async def ask() -> None:
        found.append(await cache.get("key", run))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
    assert sorted(one.execution.cached for one in found) == [False, False, True]
    assert outcomes == []

    async def broken() -> Result:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await cache.get("other", broken)
    assert (await cache.get("other", lambda: run_ok())).execution.outcome is Outcome.FINISHED


async def run_ok() -> Result:
    return result()


async def test_the_oldest_go_first() -> None:
    """The bytes kept stay under the limit; what was used least recently goes."""
    cache = ResultCache(3000)
    runs: list[str] = []

    async def ask(key: str) -> Result:
        async def run() -> Result:
            runs.append(key)
            return result(size=500)

        return await cache.get(key, run)

    for key in ("a", "b", "c", "a", "d"):
        await ask(key)
    assert cache.bytes <= 3000
    assert runs == ["a", "b", "c", "d"]
    await ask("a")
    await ask("b")
    assert runs == ["a", "b", "c", "d", "b"]

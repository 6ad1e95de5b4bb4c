"""The handlers' loop over a real server: the four endings, redelivery, dead letters, drain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest
from support import build

from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.serve import Reject, Retry, retry_delay, serve
from tiltyard_proto import flow
from tiltyard_proto.messages import DeadLetter, Rollout
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import DLQ, GENERATE, VERDICT, VERIFY

pytestmark = pytest.mark.anyio
Handler = Callable[[Rollout], Awaitable[Sequence[Out]]]


async def until(check: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    with anyio.fail_after(seconds):
        while not await check():  # noqa: ASYNC110  any condition, not one event
            await anyio.sleep(0.02)


async def acked(bus: Bus) -> bool:
    info = await bus.js.api(f"CONSUMER.INFO.{GENERATE.stream}.generate_work")
    return bool(info["num_pending"] == 0 and info["num_ack_pending"] == 0 and info["delivered"]["consumer_seq"] > 0)


async def run_until(bus: Bus, handler: Handler, check: Callable[[], Awaitable[bool]], bury: Any = None) -> None:
    stop = anyio.Event()
    async with anyio.create_task_group() as tg:

        async def go() -> None:
            await serve(bus, GENERATE, handler, slots=4, stop=stop, bury=bury)

        tg.start_soon(go)
        await until(check)
        stop.set()


async def letters(bus: Bus) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    with anyio.move_on_after(1.0):
        async for _, letter in bus.follow(DLQ):
            found.append(letter)
    return found


async def test_outputs_are_published_then_acknowledged(bus: Bus) -> None:
    """A handler's outputs are stored under their keys and the input is acknowledged."""
    rollout = build.rollout()
    done = flow.finish(flow.add_turn(rollout, build.turn()), Outcome.FINISHED)

    async def handler(_: Rollout) -> Sequence[Out]:
        return [(VERIFY, done)]

    await bus.publish(GENERATE, rollout)
    await run_until(bus, handler, lambda: acked(bus))
    assert await bus.get(VERIFY, VERIFY.subject(done)) == done


async def test_retry_comes_back(bus: Bus) -> None:
    """Retry delivers again after its delay; the second try may succeed."""
    times: list[float] = []

    async def handler(_: Rollout) -> Sequence[Out]:
        times.append(anyio.current_time())
        if len(times) == 1:
            raise Retry(0.3, "busy")
        return []

    await bus.publish(GENERATE, build.rollout())
    await run_until(bus, handler, lambda: acked(bus))
    assert len(times) == 2
    assert times[1] - times[0] > 0.25


async def test_reject_is_a_dead_letter_and_the_group_hears(bus: Bus) -> None:
    """Reject stores the original bytes with reason, and the rollout's terminal verdict follows."""

    async def handler(_: Rollout) -> Sequence[Out]:
        raise Reject("validation", "no such profile")

    def bury(rollout: Rollout, outcome: Outcome, detail: str) -> Sequence[Out]:
        return [(VERDICT, flow.ungraded(rollout, outcome, detail))]

    rollout = build.rollout()
    await bus.publish(GENERATE, rollout)
    await run_until(bus, handler, lambda: acked(bus), bury)
    (letter,) = await letters(bus)
    assert letter.reason == "validation"
    assert letter.subject == GENERATE.subject(rollout)
    stored = await bus.js.by_sequence(GENERATE.stream, letter.sequence)
    assert stored is not None
    assert letter.body == stored.body
    verdict = await bus.get(VERDICT, f"tilt.v1.verdict.math__test.{rollout.id}")
    assert verdict is not None
    assert verdict.score is None
    assert verdict.outcome is Outcome.POISON


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xff", b"{not json", b'{"type": "nonsense"}', b"\x93" * 5000, b"[" * 100000]
)
async def test_undecodable_bytes_are_dead_letters(bus: Bus, body: bytes) -> None:
    """Bytes that are no message end in the dead-letter queue unchanged, and the neighbour is served."""
    served: list[str] = []

    async def handler(rollout: Rollout) -> Sequence[Out]:
        served.append(rollout.id)
        return []

    await bus.js.publish("tilt.v1.generate.math__test.bad", body, {})
    await bus.publish(GENERATE, build.rollout())
    await run_until(bus, handler, lambda: acked(bus))
    (letter,) = await letters(bus)
    assert (letter.reason, letter.body) == ("schema" if b"nonsense" in body else "decode", body)
    assert served == [build.rollout().id]


async def test_json_is_accepted(bus: Bus) -> None:
    """A message published as JSON is read like MessagePack."""
    import msgspec

    seen: list[Rollout] = []

    async def handler(rollout: Rollout) -> Sequence[Out]:
        seen.append(rollout)
        return []

    rollout = build.rollout()
    await bus.js.publish(GENERATE.subject(rollout), msgspec.json.encode(rollout), {})
    await run_until(bus, handler, lambda: acked(bus))
    assert seen == [rollout]


async def test_lost_worker_does_not_lose_the_message(bus: Bus) -> None:
    """A handler that is cancelled in the middle hands its message back, and the next server takes it at once."""
    started = anyio.Event()

    async def hang(_: Rollout) -> Sequence[Out]:
        started.set()
        await anyio.sleep_forever()
        return []

    await bus.publish(GENERATE, build.rollout())
    stop = anyio.Event()
    async with anyio.create_task_group() as tg:

        async def go() -> None:
            await serve(bus, GENERATE, hang, slots=4, stop=stop, drain_s=0.1)

        tg.start_soon(go)
        with anyio.fail_after(10):
            await started.wait()
        stop.set()
    got: list[str] = []

    async def handler(rollout: Rollout) -> Sequence[Out]:
        got.append(rollout.id)
        return []

    with anyio.fail_after(10):
        await run_until(bus, handler, lambda: acked(bus))
    assert got == [build.rollout().id]


async def test_never_more_in_hand_than_slots(bus: Bus) -> None:
    """With 4 slots and 20 messages at most 4 handlers run, and all messages are handled once."""
    now = peak = 0
    seen: list[str] = []

    async def handler(rollout: Rollout) -> Sequence[Out]:
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        await anyio.sleep(0.01)
        now -= 1
        seen.append(rollout.id)
        return []

    for i in range(20):
        await bus.publish(GENERATE, build.rollout(member=i))

    async def all_done() -> bool:
        return len(seen) >= 20 and await acked(bus)

    await run_until(bus, handler, all_done)
    assert peak <= 4
    assert len(set(seen)) == len(seen) == 20


async def test_served_across_a_killed_server(bus: Bus, nats_server: Any) -> None:
    """Work goes on after the server was killed and started again."""
    seen: set[str] = set()

    async def handler(rollout: Rollout) -> Sequence[Out]:
        seen.add(rollout.id)
        return []

    async def first() -> bool:
        return "run-t-0-0" in seen

    stop = anyio.Event()
    async with anyio.create_task_group() as tg:

        async def go() -> None:
            await serve(bus, GENERATE, handler, slots=4, stop=stop)

        tg.start_soon(go)
        await bus.publish(GENERATE, build.rollout(member=0))
        await until(first)
        nats_server.kill()
        nats_server.start()
        await bus.publish(GENERATE, build.rollout(member=1))

        async def second() -> bool:
            return "run-t-0-1" in seen

        await until(second)
        stop.set()


def test_retry_delays_grow_to_a_bound() -> None:
    """Delays double from half a second and stop at thirty."""
    assert [retry_delay(n) for n in (1, 2, 3, 20)] == [0.5, 1.0, 2.0, 30.0]

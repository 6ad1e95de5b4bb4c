"""Dead letters on a real server: states, replay, what became of it, edit, discard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import pytest
from support import build, letters
from support.services import stored

from tiltyard.kit import replay as replay_module
from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.deadletters import DISCARDED, OPEN, REPLAYING, RESOLVED, SUPERSEDED, Entry, Filter, Letters
from tiltyard.kit.intake import REPLAY_OF
from tiltyard.kit.jetstream import BusUnavailable
from tiltyard.kit.replay import Replayer
from tiltyard.kit.serve import serve
from tiltyard.kit.settle import Settler
from tiltyard_proto import topology
from tiltyard_proto.messages import GroupRecord, Purpose, Rollout, Task
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import DLQ, GENERATE, GROUP, GROUPS_BUCKET, TASK, VERDICT, VERIFY

pytestmark = pytest.mark.anyio


async def settled(bus: Bus, which: Filter | None = None) -> list[Entry]:
    entries = await Settler(Letters(bus, "tester")).settle()
    return [entry for entry in entries if which is None or which.takes(entry)]


async def test_a_replay_is_handled_and_resolved(bus: Bus) -> None:
    """A replay keeps bytes and headers, is marked, is handled under the old keys, and its letter is resolved."""
    (entry,) = await letters.make_letters(bus, 1)
    assert await Replayer(Letters(bus, "tester")).replay(entry)
    (sent,) = await Letters(bus).all()
    assert (sent.state.state, sent.state.replays) == (REPLAYING, 1)
    assert sent.state.subject == f"{entry.letter.subject}.replay.0"
    again = await bus.js.by_sequence(GENERATE.stream, sent.state.sequence)
    assert again is not None
    assert again.body == entry.letter.body
    assert again.headers[REPLAY_OF] == entry.id
    assert again.headers["Tilt-Schema"] == "rollout/1"
    (waiting,) = await settled(bus)
    assert waiting.state.state == REPLAYING  # nobody took it yet
    await letters.serve_all(bus, letters.take)
    (ended,) = await settled(bus)
    assert (ended.state.state, ended.state.result) == (RESOLVED, "processed")
    assert [action.action for action in ended.state.history] == ["replay", "resolve"]
    assert {action.by for action in ended.state.history} == {"tester"}
    assert len(await stored(bus, VERIFY)) == 1


async def test_repeating_a_replay_changes_nothing(bus: Bus) -> None:
    """A letter that is under way or resolved is left alone."""
    (entry,) = await letters.make_letters(bus, 1)
    replayer = Replayer(Letters(bus))
    assert await replayer.replay(entry)
    assert not await replayer.replay(entry)  # with a stale view of it
    (now,) = await Letters(bus).all()
    assert not await replayer.replay(now)
    await letters.serve_all(bus, letters.take)
    (ended,) = await settled(bus)
    assert not await replayer.replay(ended)
    assert len(await stored(bus, GENERATE)) == 2


async def test_two_people_at_one_letter(bus: Bus) -> None:
    """Of many replays at a time one wins, and one message is sent."""
    (entry,) = await letters.make_letters(bus, 1)
    won: list[bool] = []

    async def go() -> None:
        won.append(await Replayer(Letters(bus)).replay(entry))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(go)
    assert won.count(True) == 1
    assert len(await stored(bus, GENERATE)) == 2


@pytest.mark.parametrize("after_publishing", [False, True])
async def test_a_replay_that_crashed_is_finished(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, after_publishing: bool
) -> None:
    """Whoever died between writing the state and noting the position: the next one sends that replay, once."""
    (entry,) = await letters.make_letters(bus, 1)
    publish = Replayer._publish

    async def dies(self: Replayer, *arguments: Any) -> int:
        if after_publishing:
            await publish(self, *arguments)
        raise BusUnavailable("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(replay_module.Replayer, "_publish", dies)
        with pytest.raises(BusUnavailable):
            await Replayer(Letters(bus)).replay(entry)
    (half,) = await settled(bus)
    assert (half.state.state, half.state.sequence) == (REPLAYING, 0)
    assert await Replayer(Letters(bus)).replay(half)
    await letters.serve_all(bus, letters.take)
    (ended,) = await settled(bus)
    assert (ended.state.state, ended.state.replays) == (RESOLVED, 1)
    assert len(await stored(bus, GENERATE)) == 2


async def test_a_replay_that_fails_again(bus: Bus) -> None:
    """Its letter is superseded by the new one, which can be replayed in turn, under the next number."""
    (entry,) = await letters.make_letters(bus, 1)
    await Replayer(Letters(bus)).replay(entry)
    await letters.serve_all(bus, letters.refuse)
    first, second = await settled(bus)
    assert (first.state.state, first.state.result) == (SUPERSEDED, second.id)
    assert second.letter.headers[REPLAY_OF] == first.id
    assert second.state.state == OPEN
    assert await Replayer(Letters(bus)).replay(second)
    await letters.serve_all(bus, letters.take)
    first, second = await settled(bus)
    assert second.state.subject == f"{entry.letter.subject}.replay.1"
    assert (second.state.state, second.state.result) == (RESOLVED, "processed")


async def test_replaying_what_had_succeeded_is_a_no_op(bus: Bus) -> None:
    """The effect's key is the same, so the first result stays."""
    rollout = build.rollout()
    (entry,) = await letters.make_letters(bus, 1)
    rollout = await bus.unwrap(GENERATE, entry.letter.body, entry.letter.headers)
    first = letters.done(msgspec.structs.replace(rollout, detail="the first"))
    await bus.publish(VERIFY, first)
    await Replayer(Letters(bus)).replay(entry)
    await letters.serve_all(bus, letters.take)
    assert await bus.get(VERIFY, VERIFY.subject(first)) == first
    (ended,) = await settled(bus)
    assert ended.state.state == RESOLVED


async def test_late_replays_are_reported_and_never_trained(bus: Bus) -> None:
    """A rollout that was ended by its burial, or whose group has closed without it, comes late."""
    (buried,) = await letters.make_letters(bus, 1, domain="math.buried", bury=letters.bury)
    (closed,) = await letters.make_letters(bus, 1, domain="math.closed")
    rollout = await bus.unwrap(GENERATE, closed.letter.body, closed.letter.headers)
    record = GroupRecord(
        id=rollout.group.id,
        run="run",
        domain="math.closed",
        task_id=rollout.task.id,
        template="one",
        purpose=Purpose.TRAIN,
        version=0,
        size=1,
        deadline=2.0,
        opened=1.0,
        closed=True,
    )
    await bus.kv(GROUPS_BUCKET).create(record.id, msgspec.msgpack.encode(record))
    for entry in (buried, closed):
        await Replayer(Letters(bus)).replay(entry)
    await letters.serve_all(bus, letters.take)
    assert [entry.state.result for entry in await settled(bus)] == ["late", "late"]
    (subject,) = [subject for subject in await stored(bus, VERDICT) if "buried" in subject]
    verdict = await bus.get(VERDICT, subject)
    assert verdict is not None
    assert (verdict.outcome, verdict.score) == (Outcome.POISON, None)


async def test_a_lost_replay_is_open_again(bus: Bus) -> None:
    """When nobody took the replay before it was trimmed, its letter can be replayed again under the next number."""
    (entry,) = await letters.make_letters(bus, 1)
    await Replayer(Letters(bus)).replay(entry)
    await bus.js.api(f"STREAM.PURGE.{GENERATE.stream}", {"filter": f"{entry.letter.subject}.replay.0"})
    (lost,) = await settled(bus)
    assert (lost.state.state, lost.state.history[-1].action) == (OPEN, "reopen")
    assert await Replayer(Letters(bus)).replay(lost)
    await letters.serve_all(bus, letters.take)
    (ended,) = await settled(bus)
    assert ended.state.subject.endswith(".replay.1")
    assert ended.state.state == RESOLVED


async def test_an_edit_sends_the_corrected_message(bus: Bus) -> None:
    """What can't be decoded is replaced by a JSON text; the difference is kept."""
    rollout = build.rollout()
    await bus.js.publish(GENERATE.subject(rollout), b"{broken", {})
    await letters.serve_all(bus, letters.take)
    (entry,) = await Letters(bus).all()
    assert entry.letter.reason == "decode"
    difference = await Replayer(Letters(bus, "tester")).edit(entry, msgspec.json.encode(rollout))
    assert '+  "id": "run-t-0-0",' in difference
    await letters.serve_all(bus, letters.take)
    (ended,) = await settled(bus)
    assert (ended.state.state, ended.state.result) == (RESOLVED, "processed")
    edit = ended.state.history[0]
    assert (edit.action, edit.by, edit.detail) == ("edit", "tester", difference)
    assert await stored(bus, VERIFY) == [VERIFY.subject(letters.done(rollout))]
    assert ended.letter.body == b"{broken"


async def test_an_edit_may_mend_the_subject_and_be_large(bus: Bus) -> None:
    """A message on the wrong subject goes to its own; a body over the inline limit travels by reference."""
    rollout = build.rollout(build.task(text="x" * 200_000))
    await bus.js.publish("tilt.v1.generate.math__test.elsewhere", b"{}", {"Tilt-Claim": ""})
    await letters.serve_all(bus, letters.take)
    (entry,) = await Letters(bus).all()
    await Replayer(Letters(bus)).edit(entry, msgspec.json.encode(rollout))
    seen: list[Rollout] = []

    async def handler(message: Rollout) -> Sequence[Out]:
        seen.append(message)
        return []

    await letters.serve_all(bus, handler)
    assert seen == [rollout]
    (ended,) = await settled(bus)
    assert ended.state.subject == f"{GENERATE.subject(rollout)}.replay.0"
    assert ended.state.state == RESOLVED


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"type":"task"}', b'{"type":"rollout"}', b"\xff"])
async def test_an_edit_that_would_fail_is_refused(bus: Bus, text: bytes) -> None:
    """Nothing is sent and the letter stays open."""
    (entry,) = await letters.make_letters(bus, 1)
    with pytest.raises(ValueError, match=r"expected|message|validation|schema"):
        await Replayer(Letters(bus)).edit(entry, text)
    (now,) = await Letters(bus).all()
    assert (now.state.state, now.revision) == (OPEN, 0)


async def test_discarding_is_for_good_and_accounted(bus: Bus) -> None:
    """The letter goes, its account stays; discarding again and replaying it are no-ops."""
    first, second = await letters.make_letters(bus, 2)
    assert await Letters(bus, "tester").discard(first)
    assert await Letters(bus).all() == [second]
    assert not await Replayer(Letters(bus)).replay(first)
    assert not await Letters(bus).discard(first)
    states = await Letters(bus)._all_states()
    state, _ = states[first.id]
    assert state.state == DISCARDED
    assert state.history[-1].by == "tester"


@pytest.mark.timeout(180)
async def test_a_thousand_letters(bus: Bus) -> None:
    """All are accounted for, in the end once each; a second replay changes nothing."""
    count, buried = 1000, 300
    entries = await letters.make_letters(bus, buried, domain="math.buried", bury=letters.bury)
    entries += await letters.make_letters(bus, count - buried)
    assert len(entries) == count
    replayer = Replayer(Letters(bus))
    sent: list[bool] = []

    async def send(some: Sequence[Entry]) -> None:
        for entry in some:
            sent.append(await replayer.replay(entry))

    async with letters.serving(bus, letters.take, slots=64):
        async with anyio.create_task_group() as tasks:
            for start in range(16):
                tasks.start_soon(send, entries[start::16])
        await letters.until_idle(bus)
        ended = await settled(bus)
        assert sum(sent) == count
        results = [(entry.state.state, entry.state.result) for entry in ended]
        assert results == [(RESOLVED, "late")] * buried + [(RESOLVED, "processed")] * (count - buried)
        effects = await stored(bus, VERIFY)
        assert len(effects) == count
        assert not any([await replayer.replay(entry) for entry in ended])
        assert await settled(bus) == ended
    assert len(await stored(bus, GENERATE)) == 2 * count
    assert await stored(bus, VERIFY) == effects


async def test_filters(bus: Bus) -> None:
    """By stage, class, domain (and what lies below it), time and state."""
    await letters.make_letters(bus, 2, domain="math.test")
    await letters.make_letters(bus, 3, domain="code.python.functions")
    held = Letters(bus)

    async def count(**fields: Any) -> int:
        return len(await held.all(Filter(**fields)))

    assert await count() == 5
    assert await count(domain="code") == 3
    assert await count(domain="code.python.functions") == 3
    assert await count(domain="cod") == 0
    assert await count(stage="generate", reason="validation", state="open") == 5
    assert await count(stage="verify") == await count(reason="decode") == await count(state="resolved") == 0
    newest = max(entry.letter.failed for entry in await held.all())
    assert await count(since=newest) == 1
    assert await count(until=newest) == 4


async def test_bad_tasks_are_letters_and_can_be_mended(bus: Bus) -> None:
    """A task published straight to the subject is reported by whoever follows, once; a corrected one is followed."""
    from tiltyard.kit.deadletters import follow_checked

    good, fixed = build.task(text="good"), build.task(text="fixed")
    await bus.js.publish("tilt.v1.task.math__test.bad", b"\xff", {})
    await bus.publish(TASK, good)
    bad = msgspec.structs.replace(build.task(), split="test")
    await bus.js.publish(TASK.subject(bad), topology.encode(bad), {})
    for _ in range(2):
        seen: list[Task | None] = []
        async for followed in follow_checked(bus, TASK, "sampler"):
            seen.append(followed.message)
            if not followed.pending:
                break
        assert seen == [None, good, None]
    first, second = await Letters(bus).all()
    assert [(first.letter.stage, first.letter.reason), second.letter.reason] == [("task", "decode"), "validation"]
    assert "split" in second.letter.detail
    await Replayer(Letters(bus)).edit(first, msgspec.json.encode(fixed))
    assert [entry.state.state for entry in await settled(bus)] == [RESOLVED, OPEN]
    async for followed in follow_checked(bus, TASK, "sampler", after=3):
        assert followed.message == fixed
        break
    assert len(await stored(bus, DLQ)) == 2


async def test_groups_and_policies_are_never_sent_again(bus: Bus) -> None:
    """Their readers count positions; every follower passes over what can't be worked on, by the same check."""
    from tiltyard.kit.deadletters import follow_checked

    good, bad = build.group([0.0, 1.0], index=0), build.group([0.0, float("nan")], index=1)
    for group in (bad, good):
        await bus.js.publish(GROUP.subject(group), topology.encode(group), {})
    async for followed in follow_checked(bus, GROUP, "sampler"):
        if not followed.pending:
            break
    async for sequence, group in bus.follow(GROUP):
        assert (sequence, group) == (2, good)
        break
    (entry,) = await Letters(bus).all()
    assert entry.letter.reason == "validation"
    assert not await Replayer(Letters(bus)).replay(entry)
    with pytest.raises(ValueError, match="positions"):
        await Replayer(Letters(bus)).edit(entry, msgspec.json.encode(good))
    assert await stored(bus, GROUP) == [GROUP.subject(good), GROUP.subject(bad)]


async def test_large_letters(bus: Bus) -> None:
    """A letter larger than the inline limit travels by reference and comes back bit for bit."""
    body = b"{" + bytes(range(256)) * 2000
    await bus.js.publish("tilt.v1.generate.math__test.big", body, {})
    await letters.serve_all(bus, letters.take)
    (entry,) = await Letters(bus).all()
    assert entry.letter.body == body


async def test_a_failing_burial_does_not_stop_the_stage(bus: Bus) -> None:
    """When the group can't be told, the letter is there and the next message is served."""
    await bus.publish(GENERATE, build.rollout(member=0))
    await bus.publish(GENERATE, build.rollout(member=1))
    asked: list[str] = []

    def bury(rollout: Rollout, outcome: Outcome, detail: str) -> Sequence[Out]:
        asked.append(rollout.id)
        raise ValueError("no group to tell")

    await letters.serve_all(bus, letters.refuse, bury=bury)
    assert sorted(asked) == ["run-t-0-0", "run-t-0-1"]
    assert len(await Letters(bus).all()) == 2


async def test_a_replay_to_a_stage_with_fair_shares(bus: Bus) -> None:
    """Where every domain and lane has a consumer of its own, that one's answer ends the replay."""
    stop = anyio.Event()
    evaluation = build.rollout()
    evaluation = msgspec.structs.replace(
        evaluation, group=msgspec.structs.replace(evaluation.group, purpose=Purpose.EVAL)
    )
    await bus.publish(GENERATE, evaluation)
    await letters.serve_all(bus, letters.refuse)
    (entry,) = await Letters(bus).all()
    assert (entry.domain, entry.letter.subject) == ("math.test", GENERATE.subject(evaluation))
    await Replayer(Letters(bus)).replay(entry)
    async with anyio.create_task_group() as tasks:

        async def go() -> None:
            await serve(bus, GENERATE, letters.take, slots=2, stop=stop, fair=True)

        tasks.start_soon(go)
        with anyio.fail_after(20):
            while (await settled(bus))[0].state.state != RESOLVED:  # noqa: ASYNC110  (nobody announces it)
                await anyio.sleep(0.05)
        stop.set()
    assert len(await stored(bus, VERIFY)) == 1

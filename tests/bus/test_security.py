"""Least privilege on a real server: what each service needs works, and what it must not do is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from support import build
from support.examples import EXAMPLES
from support.secured import Secured, bare
from support.waiting import until

from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.provision import durable, provision
from tiltyard.kit.serve import Reject, serve
from tiltyard_proto import permissions, topology
from tiltyard_proto.messages import GroupRecord, Message, Policy, RunStatus
from tiltyard_proto.permissions import inbox, names, services
from tiltyard_proto.topology import BUCKETS, DLQ, GROUPS_BUCKET, POLICY, RUNS_BUCKET, STAGES, TASK, Stage

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("secured"))
    yield secured
    secured.stop()


@pytest.fixture(scope="module")
async def operator(server: Secured) -> AsyncIterator[Bus]:
    """The supervisor's connection, on a provisioned bus."""
    async with server.bus("supervisor") as bus:
        await provision(bus)
        yield bus


def carried(stage: Stage[Any]) -> list[Message]:
    return [example for example in EXAMPLES.values() if stage.accepts(example)]


# ---------------------------------------------------------------- what is needed


@pytest.mark.parametrize("user", services())
async def test_a_service_publishes_what_it_sends(server: Secured, operator: Bus, user: str) -> None:
    """Every message type of every stage that names the service as sender is stored, and can be read back."""
    async with server.bus(user) as bus:
        for stage in STAGES:
            if user in names(stage.sender):
                for message in carried(stage):
                    await bus.publish(stage, message, patience_s=5)
                    assert await bus.get(stage, stage.subject(message)) == message


@pytest.mark.parametrize("user", services())
async def test_a_service_works_its_stages(server: Secured, operator: Bus, user: str) -> None:
    """It pulls and acknowledges its work, buries what it rejects, and follows what it must hear of."""
    for stage in (stage for stage in STAGES if user in names(stage.receiver)):
        subject = f"tilt.v1.{stage.name}.security.{user}"
        await put(operator, server, stage, subject)
        async with server.bus(user) as bus:
            if stage.work:
                await work(bus, operator, stage, subject)
            else:
                assert await heard(bus, stage, subject)


async def put(operator: Bus, server: Secured, stage: Stage[Any], subject: str) -> None:
    """A message on `subject`, by whoever may send it."""
    sender = next(iter(sorted(names(stage.sender))), "cli")
    async with server.bus(sender) as bus:
        await bus.js.publish(subject, topology.encode(carried(stage)[0]), {}, expect=0)


async def work(bus: Bus, operator: Bus, stage: Stage[Any], subject: str) -> None:
    stop = anyio.Event()

    async def handler(_: Any) -> Sequence[Out]:
        raise Reject("validation", "on purpose")

    async def finished() -> bool:
        info = await operator.js.api(f"CONSUMER.INFO.{stage.stream}.{durable(stage)}")
        return bool(info["num_pending"] == 0 and info["num_ack_pending"] == 0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(bus, stage, handler, slots=4, stop=stop))
        with anyio.fail_after(20):
            while not await finished():  # noqa: ASYNC110  (nobody announces it)
                await anyio.sleep(0.02)
        stop.set()
    sequence = (await operator.js.last(stage.stream, subject)).sequence  # type: ignore[union-attr]
    places = [f"tilt.v1.dlq.{stage.name}.{why}-{stage.stream}-{sequence}" for why in ("validation", "subject")]
    assert [place for place in places if await operator.js.last(DLQ.stream, place) is not None]


async def heard(bus: Bus, stage: Stage[Any], subject: str) -> bool:
    return await delivered(bus, stage.stream, stage.subjects, subject)


async def delivered(bus: Bus, stream: str, subjects: str, subject: str) -> bool:
    """Does following the stream bring a message on `subject`?"""
    with anyio.fail_after(10):
        async with aclosing(bus.follow_raw(stream, subjects)) as deliveries:  # type: ignore[type-var]
            async for delivery in deliveries:
                if delivery.subject == subject:
                    return True
    return False


async def test_the_sampler_keeps_groups_and_runs(server: Secured, operator: Bus) -> None:
    """It creates, lists and reads records of groups, and writes the status of runs."""
    async with server.bus("sampler") as bus:
        groups, runs = bus.kv(GROUPS_BUCKET), bus.kv(RUNS_BUCKET)
        record, status = EXAMPLES["group_record"], EXAMPLES["run_status"]
        assert isinstance(record, GroupRecord)
        assert isinstance(status, RunStatus)
        await groups.create("sampler-1", topology.encode(record))
        assert "sampler-1" in await groups.keys()
        assert await groups.get("sampler-1") is not None
        await runs.put(status.run, topology.encode(status))
        assert await runs.get(status.run) is not None
        for stage in permissions.INFOS["sampler"]:
            await bus.js.api(f"STREAM.INFO.{stage.stream}")


async def test_the_aggregator_keeps_groups(server: Secured, operator: Bus) -> None:
    """It changes records by compare-and-set and watches the bucket."""
    async with server.bus("aggregator") as bus:
        groups = bus.kv(GROUPS_BUCKET)
        revision = await groups.put("aggregator-1", b"a")
        assert await groups.update("aggregator-1", b"b", revision)
        assert await delivered(bus, groups.stream, f"$KV.{groups.bucket}.>", groups.subject("aggregator-1"))


async def test_the_gateway_asks_for_the_newest_policy(server: Secured, operator: Bus) -> None:
    """Polling for weights works with the gateway's rights."""
    policy = EXAMPLES["policy"]
    assert isinstance(policy, Policy)
    async with server.bus("trainer") as bus:
        await bus.publish(POLICY, policy, patience_s=5)
    async with server.bus("gateway") as bus:
        assert await bus.latest_policy(policy.run) == policy


async def test_people_publish_tasks_and_look(server: Secured, operator: Bus) -> None:
    """`cli` publishes tasks, sees the depth of queues and reads any message; it can't change a stream."""
    async with server.bus("cli") as bus:
        await bus.publish(TASK, build.task(text="from people"), patience_s=5)
        for stage in STAGES:
            await bus.js.api(f"STREAM.INFO.{stage.stream}")
        assert await heard(bus, TASK, TASK.subject(build.task(text="from people")))
        assert await bus.js.publish("tilt.v1.generate.security.one.replay.1", b"x", {}, expect=0)
    async with server.bus("provisioner") as bus:
        await provision(bus)
    async with server.bus("monitor") as bus:
        assert (await bus.js.api(f"CONSUMER.LIST.{STAGES[1].stream}"))["consumers"]


# ---------------------------------------------------------------- what is forbidden


def forbidden_publishes(user: str) -> list[str]:
    """What `user` must not publish, written down without asking its permissions."""
    found = ["$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.INFO", "$SYS.REQ.SERVER.PING", "anything", "$JS.x"]
    found += [f"{inbox(other)}.abc" for other in permissions.users()]
    for stage in STAGES:
        if user not in names(stage.sender):
            found.append(f"tilt.v1.{stage.name}.domain.key")
        found += [f"tilt.v1.{stage.name}.domain.key.replay.1", f"tilt.v1.{stage.name}.domain"]
        if user not in names(stage.receiver) and stage not in permissions.FOLLOWS.get(user, ()):
            found += [
                f"$JS.API.CONSUMER.MSG.NEXT.{stage.stream}.{durable(stage)}",
                f"$JS.ACK.{stage.stream}.{durable(stage)}.1.1.1.1700000000000000000.0",
                f"$JS.API.CONSUMER.CREATE.{stage.stream}",
                f"tilt.v1.dlq.{stage.name}.decode-X-1",
            ]
        for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "MSG.GET", "SNAPSHOT", "RESTORE"):
            found.append(f"$JS.API.STREAM.{verb}.{stage.stream}")
        for verb in ("DELETE", "PAUSE", "DURABLE.CREATE", "RESET", "UNPIN"):
            found.append(f"$JS.API.CONSUMER.{verb}.{stage.stream}.{durable(stage)}")
    for bucket in BUCKETS:
        found += [f"$JS.API.STREAM.PURGE.KV_{bucket}", f"$JS.API.STREAM.DELETE.KV_{bucket}"]
        if user not in {access.user for access in permissions.KEPT if access.bucket == bucket}:
            found += [f"$KV.{bucket}.key", f"$JS.API.DIRECT.GET.KV_{bucket}.$KV.{bucket}.key"]
    return found


@pytest.mark.parametrize("user", services())
async def test_forbidden_publishes_are_refused(server: Secured, operator: Bus, user: str) -> None:
    """Other stages, other consumers, streams and their management, others' inboxes: each is refused, none is stored."""
    before = {stage.name: (await operator.js.api(f"STREAM.INFO.{stage.stream}"))["state"] for stage in STAGES}
    async with bare(server, user) as attempts:
        subjects = forbidden_publishes(user)
        assert len(subjects) > 130
        assert await attempts.publish(subjects) == []
        assert attempts.client.is_connected
    for stage in STAGES:
        state = (await operator.js.api(f"STREAM.INFO.{stage.stream}"))["state"]
        assert state["messages"] == before[stage.name]["messages"]
        assert state["last_seq"] == before[stage.name]["last_seq"]


@pytest.mark.parametrize("user", permissions.users())
async def test_forbidden_subscriptions_are_refused(server: Secured, operator: Bus, user: str) -> None:
    """Everything, others' inboxes, stages, advisories and the system's subjects can't be listened to."""
    wanted = [">", "*", "tilt.>", "tilt.v1.generate.>", "$JS.>", "$JS.EVENT.ADVISORY.>", "$SYS.>", "$KV.>", "_INBOX.>"]
    wanted += [f"{inbox(other)}.>" for other in permissions.users() if other != user]
    wanted += ["*.>", "*.*"]
    async with bare(server, user) as attempts:
        assert await attempts.subscribe(wanted) == []
        assert await attempts.subscribe([f"{inbox(user)}.mine"]) == [f"{inbox(user)}.mine"]


async def test_operators_are_bounded_too(server: Secured, operator: Bus) -> None:
    """People can't forge results or delete streams; the provisioner can't delete or publish; dashboards only look."""
    streams = [stage.stream for stage in STAGES]
    deletes = [f"$JS.API.STREAM.DELETE.{stream}" for stream in streams]
    purges = [f"$JS.API.STREAM.PURGE.{stream}" for stream in streams]
    messages = [f"tilt.v1.{stage.name}.d.k" for stage in STAGES if stage not in (TASK, DLQ)]
    refused = {
        "cli": [*deletes, *messages, *(p for p in purges if DLQ.stream not in p)],
        "provisioner": [*deletes, *purges, *messages, "tilt.v1.task.d.k"],
        "monitor": [*deletes, *purges, *messages, f"$JS.API.DIRECT.GET.{streams[0]}", "$JS.API.STREAM.CREATE.X"],
        "janitor": [*deletes, *messages, "tilt.v1.task.d.k", "$KV.tilt_groups.k"],
        "supervisor": [*deletes, *messages, "$JS.API.STREAM.CREATE.OTHER"],
    }
    for user, subjects in refused.items():
        async with bare(server, user) as attempts:
            assert await attempts.publish(subjects) == [], user


async def test_a_refusal_names_the_user_in_the_servers_log(server: Secured, operator: Bus) -> None:
    """Whoever runs the server sees who tried what."""
    async with bare(server, "sandbox") as attempts:
        await attempts.publish(["tilt.v1.group.d.seen_in_the_log"])
    await until(lambda: "tilt.v1.group.d.seen_in_the_log" in server.log)
    (line,) = [line for line in server.log.splitlines() if "seen_in_the_log" in line]
    assert "Publish Violation" in line

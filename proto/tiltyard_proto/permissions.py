"""Who may do what on the bus: publish and subscribe permissions of every user, derived from the topology.

Invariants: nothing is allowed that is not listed; a service publishes to the stages that name it as sender and to the
dead letters of the stages that name it as receiver, pulls and acknowledges on its own work streams only, and
subscribes to its own inbox and nothing else. The stream of a stage is the boundary: wildcards in a subject match whole
tokens, so consumers within one stream are not told apart. `READS`, `INFOS` and `KEPT` hold what the code reads beyond
that; a missing row shows as a refused request in the test that runs the whole loop under these permissions.
Left out: keys and certificates (`tiltyard credentials`), and what a server's configuration looks like.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from .topology import (
    ATTEMPTS_BUCKET,
    BUCKETS,
    DLQ,
    GROUP,
    GROUPS_BUCKET,
    PAUSES_BUCKET,
    POLICY,
    PREFIX,
    RUNS_BUCKET,
    STAGES,
    TASK,
    VERDICT,
    WEIGHTS_BUCKET,
    Stage,
)

API = "$JS.API"
NOT_SERVICES = frozenset({"cli", "people", "any stage"})
"""Names in the topology that are no service of ours."""
OPERATORS = ("cli", "provisioner", "janitor", "monitor", "supervisor")
"""Users beside the services: people, the job that creates streams, the one that trims them, dashboards, `up`."""


class Permissions(msgspec.Struct, frozen=True):
    """Subjects that one user may publish to and subscribe to; everything else is refused."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


class Access(msgspec.Struct, frozen=True):
    """What one user does with one key-value bucket."""

    user: str
    bucket: str
    write: bool = False
    list: bool = False
    follow: bool = False


READS: dict[str, tuple[Stage[Any], ...]] = {"gateway": (POLICY,), "aggregator": (VERDICT,)}
"""Stages whose messages a service reads by subject although it does not send to them."""
FOLLOWS: dict[str, tuple[Stage[Any], ...]] = {"sampler": (DLQ,)}
"""Stages that a service follows although it is no receiver: the sampler counts dead letters for alerts."""
WORKERS = ("gateway", "sandbox", "verifier", "aggregator")
"""Services that take work from a stage."""
LETTERS_BUCKET = "tilt_letters"
"""How each dead letter stands."""
INFOS: dict[str, tuple[Stage[Any], ...]] = {
    "sampler": (TASK, GROUP, POLICY),
    "gateway": (POLICY,),
    "aggregator": (GROUP, POLICY),
}
"""Stages whose positions and subjects a service asks for."""
KEPT: tuple[Access, ...] = (
    Access("sampler", GROUPS_BUCKET, write=True, list=True),
    Access("sampler", RUNS_BUCKET, write=True),
    Access("sampler", LETTERS_BUCKET, follow=True),
    Access("aggregator", GROUPS_BUCKET, write=True, follow=True),
    Access("gateway", WEIGHTS_BUCKET),
    Access("sandbox", WEIGHTS_BUCKET),
    *(Access(user, ATTEMPTS_BUCKET, write=True, list=True) for user in WORKERS),
    *(Access(user, PAUSES_BUCKET, write=True, follow=True) for user in WORKERS),
    Access("sampler", PAUSES_BUCKET, list=True, follow=True),
)
"""Use of key-value buckets by services; whoever is listed may read."""


def names(of: Iterable[str]) -> set[str]:
    """Senders or receivers of a stage as users: 'aggregator (archive)' is the aggregator."""
    return {name.split(" ", 1)[0] for name in of if name not in NOT_SERVICES}


def services() -> tuple[str, ...]:
    """Every service that has a place in the topology."""
    return tuple(sorted({name for stage in STAGES for name in names((*stage.sender, *stage.receiver))}))


def users() -> tuple[str, ...]:
    """Every user of the bus."""
    return (*services(), *OPERATORS)


def inbox(user: str) -> str:
    """The prefix of a user's inboxes: nobody else may subscribe there, so nobody else can read its answers."""
    return f"_INBOX_{user}"


# ---------------------------------------------------------------- what an access means in subjects


def _read(stream: str, subjects: str) -> str:
    return f"{API}.DIRECT.GET.{stream}.{subjects}"


def _info(stream: str) -> str:
    return f"{API}.STREAM.INFO.{stream}"


def _follow(stream: str) -> tuple[str, ...]:
    """By position: where the stream ends says whether the position is still good."""
    return _info(stream), f"{API}.CONSUMER.CREATE.{stream}", f"{API}.CONSUMER.MSG.NEXT.{stream}.*"


def _work(stream: str) -> tuple[str, ...]:
    return (
        f"{API}.CONSUMER.MSG.NEXT.{stream}.*",
        f"{API}.CONSUMER.INFO.{stream}.*",
        f"{API}.CONSUMER.LIST.{stream}",
        f"$JS.ACK.{stream}.>",
    )


def _flows(stage: Stage[Any]) -> tuple[str, ...]:
    """Where domains share a stage, its receiver indexes arrivals and makes a consumer for each domain and lane."""
    return (
        _info(stage.stream),
        f"{API}.CONSUMER.CREATE.{stage.stream}",
        f"{API}.CONSUMER.CREATE.{stage.stream}.*.{stage.subjects}",
    )


def _bucket_stream(bucket: str) -> str:
    return f"KV_{bucket}"


def _bucket(access: Access) -> Iterator[str]:
    stream, keys = _bucket_stream(access.bucket), f"$KV.{access.bucket}"
    yield _read(stream, f"{keys}.>")
    if access.write:
        yield f"{keys}.*"
    if access.list:
        yield _info(stream)
    if access.follow:
        yield from _follow(stream)


def _service(user: str) -> Iterator[str]:
    for stage in STAGES:
        if user in names(stage.sender):
            yield f"{PREFIX}.{stage.name}.*.*"
            yield _read(stage.stream, stage.subjects)  # who lost the race for a key reads what stands there
        if user in names(stage.receiver):
            yield f"{PREFIX}.{DLQ.name}.{stage.name}.*"
            yield from _work(stage.stream) if stage.work else _follow(stage.stream)
            yield from _flows(stage) if stage.shared else ()
    yield from (_read(stage.stream, stage.subjects) for stage in READS.get(user, ()))
    yield from (_info(stage.stream) for stage in INFOS.get(user, ()))
    for stage in FOLLOWS.get(user, ()):
        yield from _follow(stage.stream)
    for access in KEPT:
        if access.user == user:
            yield from _bucket(access)


# ---------------------------------------------------------------- operators


def _streams() -> list[str]:
    return [*(stage.stream for stage in STAGES), *map(_bucket_stream, BUCKETS)]


def _monitor() -> Iterator[str]:
    for stream in _streams():
        yield _info(stream)
        yield f"{API}.CONSUMER.INFO.{stream}.*"
        yield f"{API}.CONSUMER.LIST.{stream}"


def _reader() -> Iterator[str]:
    yield from _monitor()
    for stream in _streams():
        yield f"{API}.DIRECT.GET.{stream}"
        yield f"{API}.DIRECT.GET.{stream}.>"
        yield from _follow(stream)


def _cli() -> Iterator[str]:
    """Reads all, publishes tasks, sends dead letters again under replay subjects, settles them."""
    yield from _reader()
    yield f"{PREFIX}.{TASK.name}.*.*"
    for stage in STAGES:
        if stage is not DLQ:
            yield f"{PREFIX}.{stage.name}.*.*.replay.>"
    yield f"{PREFIX}.{DLQ.name}.*.*"
    yield f"{API}.STREAM.PURGE.{DLQ.stream}"
    yield f"{API}.STREAM.MSG.DELETE.{DLQ.stream}"
    used = {access.bucket for access in KEPT if access.write} - {PAUSES_BUCKET}  # people end what services begin
    yield from (f"$KV.{bucket}.*" for bucket in BUCKETS if bucket not in used)


def _provisioner() -> Iterator[str]:
    """Creates and updates; deletes and reads nothing."""
    yield f"{API}.INFO"
    for stream in _streams():
        yield from (f"{API}.STREAM.{verb}.{stream}" for verb in ("CREATE", "UPDATE", "INFO"))
        yield from (f"{API}.CONSUMER.{verb}.{stream}.*" for verb in ("DURABLE.CREATE", "CREATE", "INFO"))


def _janitor() -> Iterator[str]:
    """Reads all and trims the streams of stages; publishes nothing."""
    yield from _reader()
    for stage in STAGES:
        yield f"{API}.STREAM.PURGE.{stage.stream}"
        yield f"{API}.STREAM.MSG.DELETE.{stage.stream}"


def _supervisor() -> Iterator[str]:
    """`tiltyard up` provisions, publishes the run's tasks, watches and trims in one process."""
    yield from _provisioner()
    yield from _cli()
    yield from _janitor()


_OPERATORS = {
    "cli": _cli,
    "provisioner": _provisioner,
    "janitor": _janitor,
    "monitor": _monitor,
    "supervisor": _supervisor,
}


def permissions(user: str) -> Permissions:
    """What `user` may do; ValueError for a name that is no user."""
    if user not in users():
        raise ValueError(f"user {user!r}: expected one of {', '.join(users())}")
    allowed = _OPERATORS[user]() if user in _OPERATORS else _service(user)
    return Permissions(tuple(sorted(set(allowed))), (f"{inbox(user)}.>",))


def matches(pattern: str, subject: str) -> bool:
    """Does a subject fall under a pattern (`*` one token, `>` one or more at the end)?"""
    tokens, parts = pattern.split("."), subject.split(".")
    for index, token in enumerate(tokens):
        if token == ">":
            return len(parts) > index
        if index >= len(parts) or token not in ("*", parts[index]):
            return False
    return len(tokens) == len(parts)


def may_publish(user: str, subject: str) -> bool:
    """Would the server take a publish of `user` to `subject`?"""
    return any(matches(pattern, subject) for pattern in permissions(user).publish)


def table() -> str:
    """Users and what they may publish to, for people."""
    rows = [f"{user}\n" + "\n".join(f"    {subject}" for subject in permissions(user).publish) for user in users()]
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())

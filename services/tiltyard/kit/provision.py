"""Create the streams, consumers and buckets of the topology.

Idempotent: what exists and agrees is left alone, what differs is updated. Services bind to what is here and never
create; whoever starts the system (`tiltyard up`, or one `tiltyard provision` job) calls this first.
Left out: removing what a newer topology no longer has.
"""

from __future__ import annotations

from typing import Any

from tiltyard_proto import topology
from tiltyard_proto.topology import Stage

from .bus import Bus
from .jetstream import MAX_MESSAGE, ApiError, NotFound

DEDUP_WINDOW_S = 2.0
FLOW_IDLE_S = 86400.0


def stream_config(stage: Stage[Any], replicas: int = 1) -> dict[str, Any]:
    """A limits stream with one message per subject that refuses new ones when full."""
    return {
        "name": stage.stream,
        "subjects": [stage.subjects],
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "discard": "new",
        "discard_new_per_subject": True,
        "max_msgs_per_subject": 1,
        "max_age": int(stage.max_age_s * 1e9),
        "max_bytes": 2 << 30,
        "max_msg_size": MAX_MESSAGE,
        "duplicate_window": int(DEDUP_WINDOW_S * 1e9),
        "allow_direct": True,
        "description": stage.what,
    }


def consumer_config(stage: Stage[Any]) -> dict[str, Any]:
    """The durable that shares a stage's work out. The server never gives up on a message: that is decided by us."""
    return {
        "durable_name": durable(stage),
        "ack_policy": "explicit",
        "ack_wait": int(stage.ack_wait_s * 1e9),
        "max_deliver": -1,
        "max_ack_pending": 20000,
        "deliver_policy": "all",
    }


def durable(stage: Stage[Any]) -> str:
    """Name of the stage's work consumer."""
    return f"{stage.name}_work"


def flow_consumer(stage: Stage[Any], token: str) -> str:
    """Name of the consumer of one flow (domain and lane, as in the subject) of a stage."""
    return f"{stage.name}_d_{token}"


def flow_config(stage: Stage[Any], token: str, after: int = 0) -> dict[str, Any]:
    """The consumer of one flow, from position `after` on. In memory on one server: cheap, and made again when lost."""
    return {
        "durable_name": flow_consumer(stage, token),
        "name": flow_consumer(stage, token),
        "filter_subject": f"{topology.PREFIX}.{stage.name}.{token}.>",
        "ack_policy": "explicit",
        "ack_wait": int(stage.ack_wait_s * 1e9),
        "max_deliver": -1,
        "max_ack_pending": 20000,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": int(FLOW_IDLE_S * 1e9),
        **({"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1} if after else {"deliver_policy": "all"}),
    }


def bucket_config(bucket: str, replicas: int = 1) -> dict[str, Any]:
    """A key-value bucket with the newest value of each key."""
    return {
        "name": f"KV_{bucket}",
        "subjects": [f"$KV.{bucket}.>"],
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "discard": "new",
        "max_msgs_per_subject": 1,
        "max_age": int(topology.BUCKET_AGE_S.get(bucket, 0) * 1e9),
        "max_bytes": 256 << 20,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
    }


async def provision(bus: Bus, replicas: int = 1) -> None:
    """Make the server hold what the topology declares."""
    for stage in topology.STAGES:
        await _ensure_stream(bus, stream_config(stage, replicas))
        if stage.work:
            payload = {"stream_name": stage.stream, "config": consumer_config(stage)}
            await bus.js.api(f"CONSUMER.DURABLE.CREATE.{stage.stream}.{durable(stage)}", payload)
    for bucket in topology.BUCKETS:
        await _ensure_stream(bus, bucket_config(bucket, replicas))


async def _ensure_stream(bus: Bus, config: dict[str, Any]) -> None:
    try:
        await bus.js.api(f"STREAM.INFO.{config['name']}")
    except NotFound:
        await bus.js.api(f"STREAM.CREATE.{config['name']}", config)
        return
    try:
        await bus.js.api(f"STREAM.UPDATE.{config['name']}", config)
    except ApiError as error:
        raise ApiError(
            error.code,
            error.err_code,
            f"stream {config['name']} exists with another configuration: {error}; "
            "move its store away or drain it first",
        ) from error

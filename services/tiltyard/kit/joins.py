"""Spans of those who follow a stream by position: a group's opening and close, and the training step it went into.

Many rollouts meet in a group, many groups in a step, so neither is the child of one rollout. A group and a step have a
trace of their own, whose root span is linked to what came in; and every rollout's trace has a span `group`, from the
opening to the close, and a span `train`, each linked to that root. So a rollout's trace says how long it waited for
its group and when it was trained on, and one click leads to the others.

Invariants: ids are derived, so whoever says the same again (a restart, a second aggregator) says it under the same
ids; without a collector each call is one comparison. Left out: the handling of messages (`tracing`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from tiltyard_proto.messages import Group, GroupRecord, Policy, Rollout

from . import tracing


def rollout_root(rollout: Rollout) -> str:
    """The traceparent of a rollout's root span."""
    return tracing.root(f"rollout {rollout.id} {rollout.created}")


def group_root(group: str, opened: float) -> str:
    """The traceparent of a group's root span."""
    return tracing.root(f"group {group} {opened}")


def policy_root(policy: Policy) -> str:
    """The traceparent of the root span of the step that made a policy."""
    return tracing.root(f"policy {policy.run} {policy.version} {policy.created}")


def opened(record: GroupRecord, rollouts: Iterable[Rollout], started: float) -> None:
    """A sampler has opened a group and sent its rollouts; `started` in seconds since the epoch."""
    export = tracing.exporter()
    if export is None:
        return
    root = group_root(record.id, record.opened)
    export.derived(
        "open",
        tracing.child(root, f"open {record.id}"),
        parent=root,
        links=[rollout_root(rollout) for rollout in rollouts],
        between=(started, time.time()),
        attributes=_of_group(record),
    )


def closed(group: Group) -> None:
    """An aggregator has seen a group that is closed."""
    export = tracing.exporter()
    if export is None:
        return
    root, between = group_root(group.id, group.opened), (group.opened, group.closed)
    attributes = _of_group(group) | {"tiltyard.reason": group.reason or "trains", "tiltyard.missing": group.missing}
    rollouts = [member.verdict.rollout for member in group.members]
    export.derived(
        "group",
        root,
        parent="",
        links=[rollout_root(each) for each in rollouts],
        between=between,
        attributes=attributes,
    )
    for rollout in rollouts:
        _in_rollout("group", rollout, root, between, attributes)


def trained(policy: Policy, groups: Sequence[Group], started: float) -> None:
    """A trainer has made `policy` from `groups` since `started`, seconds since the epoch."""
    export = tracing.exporter()
    if export is None:
        return
    root, between = policy_root(policy), (started, policy.created)
    attributes: dict[str, str | int] = {"tiltyard.run": policy.run, "tiltyard.version": policy.version}
    links = [group_root(group.id, group.opened) for group in groups]
    export.derived("train", root, parent="", links=links, between=between, attributes=attributes)
    for group in groups:
        for member in group.members:
            if group.trainable and member.trains:
                _in_rollout("train", member.verdict.rollout, root, between, attributes)


def _in_rollout(
    name: str, rollout: Rollout, whole: str, between: tuple[float, float], attributes: dict[str, str | int]
) -> None:
    """A span in a rollout's trace, linked to the root of what the rollout is part of."""
    parent = rollout_root(rollout)
    export = tracing.exporter()
    assert export is not None
    export.derived(
        name,
        tracing.child(parent, f"{name} {whole}"),
        parent=parent,
        links=[whole],
        between=between,
        attributes=attributes | {"tiltyard.rollout": rollout.id},
    )


def _of_group(group: Group | GroupRecord) -> dict[str, str | int]:
    return {
        "tiltyard.run": group.run,
        "tiltyard.group": group.id,
        "tiltyard.domain": group.domain,
        "tiltyard.version": group.version,
    }

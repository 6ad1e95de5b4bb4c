"""Reads that lag behind: a replica that does not have a verdict yet does not cost the group its member."""

from __future__ import annotations

import pytest
from support import build

from tiltyard.aggregator.backend import MemoryLedger, encode
from tiltyard.aggregator.groups import Groups
from tiltyard.aggregator.settings import AggregatorSettings
from tiltyard_proto import keys
from tiltyard_proto.messages import Group, GroupRecord, Purpose, Verdict
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import VERDICT

pytestmark = pytest.mark.anyio


class Lagging(MemoryLedger):
    """Every verdict is read as absent the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    async def verdict(self, subject: str) -> Verdict | None:
        if subject not in self.asked:
            self.asked.add(subject)
            return None
        return await super().verdict(subject)


async def test_a_lagging_replica_costs_no_member() -> None:
    """The group closes with both members though each verdict is read as absent at first."""
    ledger, name = Lagging(), keys.group_id("run", Purpose.TRAIN, 0)
    record = GroupRecord(
        id=name, run="run", domain="math.test", task_id="t", template="one", purpose=Purpose.TRAIN, version=0, size=2,
        deadline=2e9, opened=1.0,
    )  # fmt: skip
    ledger.records[name] = (encode(record), 1)
    groups, closed = Groups(ledger, AggregatorSettings()), list[Group]()
    for member in range(2):
        of = build.rollout(member=member, group=name, turns=(build.turn(),), outcome=Outcome.FINISHED)
        verdict = build.verdict(of, float(member))
        ledger.verdicts[VERDICT.subject(verdict)] = verdict
        closed += [message for _, message in await groups.on_verdict(verdict) if isinstance(message, Group)]
    (group,) = closed
    assert [member.verdict.rollout.member for member in group.members] == [0, 1]
    assert group.missing == 0

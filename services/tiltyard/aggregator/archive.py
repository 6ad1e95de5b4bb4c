"""The archive: every finished rollout and every policy step of a run as Parquet parts, read with DuckDB.

Invariants: a part is named after the stream positions it covers and renamed into place when whole, so where to go on
is read off the names and a crash at most writes the same rows again; readers take one row per key.
Left out: token arrays (they stay on the bus as long as the streams keep them); deleting old runs.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from tiltyard_proto import flow
from tiltyard_proto.messages import Execution, Group, Member, Policy
from tiltyard_proto.tokens import count

ROLLOUT_COLUMNS = {
    "run": "VARCHAR", "rollout": "VARCHAR", "group_id": "VARCHAR", "domain": "VARCHAR", "template": "VARCHAR",
    "task": "VARCHAR", "purpose": "VARCHAR", "version": "INTEGER", "first_version": "INTEGER",
    "last_version": "INTEGER", "member": "INTEGER", "attempt": "INTEGER", "turns": "INTEGER", "outcome": "VARCHAR",
    "score": "DOUBLE", "passed": "BOOLEAN", "reward": "DOUBLE", "advantage": "DOUBLE", "trains": "BOOLEAN",
    "group_reason": "VARCHAR", "prompt_tokens": "INTEGER", "action_tokens": "INTEGER", "generate_s": "DOUBLE",
    "claim_s": "DOUBLE[]", "start_s": "DOUBLE[]", "sandbox_cpu_s": "DOUBLE", "sandboxes": "INTEGER",
    "cached": "INTEGER", "created": "DOUBLE", "closed": "DOUBLE", "action": "VARCHAR", "observation": "VARCHAR",
    "reasons": "VARCHAR", "detail": "VARCHAR", "verifier": "VARCHAR",
}  # fmt: skip
POLICY_COLUMNS = {
    "run": "VARCHAR", "version": "INTEGER", "path": "VARCHAR", "final": "BOOLEAN", "created": "DOUBLE",
    "metrics": "MAP(VARCHAR, DOUBLE)",
}  # fmt: skip


def rollout_row(group: Group, member: Member) -> dict[str, Any]:
    """One rollout as a row of `ROLLOUT_COLUMNS`."""
    verdict, rollout = member.verdict, member.verdict.rollout
    runs: list[Execution] = [turn.execution for turn in rollout.turns if turn.execution is not None]
    if verdict.grading is not None:
        runs.append(verdict.grading)
    fresh = [run for run in runs if not run.cached]
    spans = [span for turn in rollout.turns for span in turn.versions]
    return {
        "run": group.run, "rollout": rollout.id, "group_id": group.id, "domain": group.domain,
        "template": group.template, "task": group.task_id, "purpose": group.purpose.value, "version": group.version,
        "first_version": flow.first_version(rollout), "last_version": spans[-1].version if spans else None,
        "member": rollout.member, "attempt": rollout.attempt, "turns": len(rollout.turns),
        "outcome": verdict.outcome.value, "score": verdict.score, "passed": verdict.passed, "reward": member.reward,
        "advantage": member.advantage, "trains": member.trains, "group_reason": group.reason,
        "prompt_tokens": sum(count(turn.context_ids) for turn in rollout.turns),
        "action_tokens": sum(count(turn.action_ids) for turn in rollout.turns),
        "generate_s": sum(turn.seconds for turn in rollout.turns),
        "claim_s": [run.claim_s for run in fresh], "start_s": [run.start_s for run in fresh if run.start_s > 0],
        "sandbox_cpu_s": sum(run.cpu_s for run in fresh), "sandboxes": len(fresh),
        "cached": len(runs) - len(fresh), "created": rollout.created, "closed": group.closed,
        "action": "\n---\n".join(turn.text for turn in rollout.turns),
        "observation": "\n---\n".join(turn.observation for turn in rollout.turns if turn.observation),
        "reasons": "; ".join(verdict.reasons), "detail": rollout.detail, "verifier": verdict.verifier,
    }  # fmt: skip


def policy_row(policy: Policy) -> dict[str, Any]:
    """One policy version as a row of `POLICY_COLUMNS`."""
    return {name: getattr(policy, name) for name in POLICY_COLUMNS}


class PartWriter:
    """Parts of one table of one run, in `directory`."""

    def __init__(self, directory: Path, columns: dict[str, str]) -> None:
        self.directory = directory
        self.columns = columns
        directory.mkdir(parents=True, exist_ok=True)

    def position(self) -> int:
        """The last stream position that a whole part covers; 0 without parts."""
        return max((int(path.stem.split("-")[2]) for path in self.directory.glob("part-*.parquet")), default=0)

    def write(self, rows: list[dict[str, Any]], first: int, last: int) -> Path:
        """Write rows that cover positions first..last; the part's path."""
        target = self.directory / f"part-{first:012d}-{last:012d}.parquet"
        if not rows:
            return target
        with tempfile.TemporaryDirectory(dir=self.directory, prefix=".part-") as scratch:
            source, part = Path(scratch) / "rows.ndjson", Path(scratch) / "part.parquet"
            source.write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
            with duckdb.connect() as db:
                table = db.read_json(str(source), columns=self.columns, format="newline_delimited")
                table.write_parquet(str(part), compression="zstd")
            os.replace(part, target)
        return target

"""Read a run's archive with DuckDB into what the report needs.

Invariants: a rollout or version that was archived twice counts once. Left out: how it is shown (`report`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import msgspec

NO_POLICIES = "version INTEGER, path VARCHAR, final BOOLEAN, created DOUBLE, metrics MAP(VARCHAR, DOUBLE)"


class DomainEval(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluation of one domain at one policy version."""

    domain: str
    version: int
    rollouts: int
    passed: int
    ungraded: int
    mean_score: float
    by_task: dict[str, float]
    """Pass rate of each task."""
    versions: tuple[int, int]
    """Lowest and highest policy version that sampled any of its tokens."""


class Archive:
    """A run's Parquet parts as two views: `rollouts` and `policies`."""

    def __init__(self, run_path: Path) -> None:
        self.db = duckdb.connect()
        self.db.execute("SET threads TO 1")
        self.damaged: list[Path] = []
        """Parts that can't be read; what they held is left out."""
        self.empty = not self._view(run_path, "rollouts", "rollout", "closed")
        if not self._view(run_path, "policies", "version", "created"):
            self.db.execute(f"CREATE TABLE policies ({NO_POLICIES})")

    def _view(self, run_path: Path, table: str, key: str, order: str) -> bool:
        parts = sorted((run_path / "archive" / table).glob("part-*.parquet"))
        files = ", ".join(_quoted(part) for part in parts if self._readable(part))
        if not files:
            return False
        self.db.execute(
            f"CREATE VIEW {table} AS SELECT DISTINCT ON ({key}) * "
            f"FROM read_parquet([{files}], union_by_name=true) ORDER BY {key}, {order}"
        )
        return True

    def _readable(self, part: Path) -> bool:
        try:
            self.db.execute(f"SELECT count(*) FROM read_parquet({_quoted(part)})")
        except (duckdb.InvalidInputException, duckdb.IOException):
            self.damaged.append(part)
            return False
        return True

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.db.execute(sql, list(parameters)).fetchall()
        return found

    def evaluations(self) -> list[DomainEval]:
        """Every evaluation of every domain, by domain and version."""
        found: list[DomainEval] = []
        grouped = self.rows(
            "SELECT domain, version, count(*), count(*) FILTER (passed), count(*) FILTER (score IS NULL), "
            "coalesce(avg(score), 0), min(first_version), max(last_version) "
            "FROM rollouts WHERE purpose = 'eval' GROUP BY ALL ORDER BY ALL"
        )
        for domain, version, total, passed, ungraded, mean, low, high in grouped:
            tasks = self.rows(
                "SELECT task, avg(passed::INT) FROM rollouts WHERE purpose = 'eval' AND domain = ? AND version = ? "
                "AND score IS NOT NULL GROUP BY task",
                domain,
                version,
            )
            found.append(
                DomainEval(
                    domain=domain,
                    version=version,
                    rollouts=total - ungraded,
                    passed=passed,
                    ungraded=ungraded,
                    mean_score=mean,
                    by_task=dict(tasks),
                    versions=(low if low is not None else version, high if high is not None else version),
                )
            )
        return found

    def policies(self) -> list[dict[str, Any]]:
        """Versions in order, each with its step's metrics."""
        rows = self.rows("SELECT version, path, final, created, metrics FROM policies ORDER BY version")
        names = ("version", "path", "final", "created", "metrics")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def numbers(self, column: str) -> list[float]:
        """All values of a list column of durations."""
        assert column in ("claim_s", "start_s")
        return [row[0] for row in self.rows(f"SELECT unnest({column}) FROM rollouts")]

    def totals(self) -> dict[str, Any]:
        """Counts over the whole run."""
        row = self.rows(
            "SELECT count(*), sum(action_tokens), sum(sandboxes), sum(cached), sum(sandbox_cpu_s), "
            "min(created), max(closed), count(DISTINCT group_id) FILTER (purpose = 'train'), "
            "count(DISTINCT group_id) FILTER (purpose = 'train' AND group_reason <> ''), "
            "count(*) FILTER (score IS NULL), count(*) FILTER (attempt > 0) FROM rollouts"
        )[0]
        names = (
            "rollouts", "tokens", "sandboxes", "cached", "sandbox_cpu_s", "first", "last", "train_groups",
            "dropped_groups", "ungraded", "retried",
        )  # fmt: skip
        return dict(zip(names, row, strict=True))


def _quoted(path: Path) -> str:
    """A path as an SQL string."""
    text = str(path).replace("'", "''")
    return f"'{text}'"

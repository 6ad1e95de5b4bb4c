"""Kind sql: rows on hidden data, what may run, what is a fault of the task, limits."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support.grading import KINDS, grade

from tiltyard.domains.interfaces import code_of
from tiltyard.verifier import limits
from tiltyard.verifier.kinds.base import BrokenTask, canonical
from tiltyard.verifier.kinds.sql.probes import FORGED
from tiltyard_proto.messages import Task, Verification

SETUPS = (
    "CREATE TABLE t(id INTEGER, name VARCHAR, n INTEGER, d DATE); INSERT INTO t VALUES (1, 'a', 5, '2025-01-02'), "
    "(2, 'b', 7, '2025-02-03'), (3, 'a', NULL, '2025-01-05');",
    "CREATE TABLE t(id INTEGER, name VARCHAR, n INTEGER, d DATE); INSERT INTO t VALUES (4, 'c', 1, '2025-03-01'), "
    "(9, 'a', 2, '2025-03-02'), (5, 'c', 4, '2025-04-01');",
)
SUMS = "SELECT name, sum(n) FROM t GROUP BY name"


@pytest.fixture(scope="module", autouse=True)
def children() -> Iterator[None]:
    yield
    limits.close()


def task(query: str = SUMS, **options: object) -> Task:
    data = {"query": query, "setups": list(SETUPS)}
    verification = Verification(kind="sql", data=data, options=options)
    return Task(id="t", domain="code.sql", prompt=(), verification=verification, reference=f"```sql\n{query}\n```")


@pytest.mark.parametrize(
    ("query", "right"),
    [
        (SUMS, True),
        (f"{SUMS};", True),
        ("SELECT name AS x, sum(n)::DOUBLE AS y FROM t GROUP BY ALL ORDER BY 2 DESC", True),
        ("WITH s AS (SELECT * FROM t) SELECT name, sum(n) FROM s GROUP BY name", True),
        ("SELECT sum(n), name FROM t GROUP BY name", False),
        ("SELECT name, sum(n) + 1 FROM t GROUP BY name", False),
        ("SELECT name, sum(n) FROM t WHERE n IS NOT NULL AND name <> 'b' GROUP BY name", False),
        ("SELECT * FROM (VALUES ('a', 5), ('b', 7)) v(x, y)", False),
        ("", False),
        ("SELECT", False),
        ("(" * 290 + "1", False),
    ],
)
def test_rows_decide(query: str, right: bool) -> None:
    """The rows on every data set decide; names of columns and an order that nobody asked for don't."""
    assert grade(task(), f"```sql\n{query}\n```").passed is right


@pytest.mark.parametrize(
    ("reference", "submission", "options", "right"),
    [
        ("SELECT id, n FROM t ORDER BY id", "SELECT id, n FROM t ORDER BY id DESC", {}, False),
        ("SELECT id, n FROM t ORDER BY id", "SELECT id, n FROM t ORDER BY id DESC", {"order": "any"}, True),
        ("SELECT id, n FROM t WHERE id > 0", "SELECT id, n FROM t ORDER BY n", {}, True),
        ("SELECT id, n FROM t", "SELECT n, id FROM t", {"columns": "any"}, True),
        ("SELECT avg(n) FROM t", "SELECT avg(n) + 1e-9 FROM t", {}, True),
        ("SELECT avg(n) FROM t", "SELECT avg(n) + 0.01 FROM t", {}, False),
        ("SELECT d FROM t", "SELECT strftime(d, '%Y-%m-%d') FROM t", {}, True),
        ("SELECT name FROM t", "SELECT upper(name) FROM t", {}, False),
        ("SELECT n > 2 FROM t WHERE n IS NOT NULL", "SELECT (n > 2)::INT FROM t WHERE n IS NOT NULL", {}, False),
    ],
)
def test_what_counts(reference: str, submission: str, options: dict[str, object], right: bool) -> None:
    """Order counts where the reference sorts; values count by what they are, numbers within the tolerance."""
    assert grade(task(reference, **options), submission).passed is right


@pytest.mark.parametrize(
    "reference",
    ["SELECT id FROM t LIMIT 1", "SELECT name FROM t WHERE n > 99", "SELECT nope FROM t", "SELECT first(n) FROM t"],
)
def test_a_faulty_reference_breaks_the_task(reference: str) -> None:
    """A reference that fails, is empty everywhere, or hangs on the order of insertion is the task's fault."""
    with pytest.raises(BrokenTask):
        grade(task(reference), "SELECT 1")


@pytest.mark.parametrize("name", sorted(FORGED))
def test_forgeries_and_bombs_are_rejected_in_time(name: str) -> None:
    """Statements that do more than read, files, and queries without end score 0 and use little CPU time."""
    before = limits.spent()
    verdict = grade(task(), f"```sql\n{FORGED[name]}\n```")
    assert (verdict.score, verdict.passed) == (0.0, False)
    assert limits.spent() - before < 3.0


def test_the_same_query_gets_the_same_bytes() -> None:
    """Judging is deterministic, also for a query that fails."""
    for query in (SUMS, "SELECT nope FROM t"):
        assert canonical(grade(task(), query)) == canonical(grade(task(), query))


def test_harmless_changes_pass() -> None:
    """The gate's own changes of the reference pass."""
    one = task()
    for probe in KINDS["sql"].probes(one):
        if probe.wanted == "accept":
            assert code_of(probe.texts[0])
            assert grade(one, *probe.texts).passed, probe.name


def test_a_bomb_does_not_slow_the_next_verdict() -> None:
    """After a query without end an honest one is judged at once, in the same pool."""
    grade(task(), "SELECT count(*) FROM range(1000000) a, range(1000000) b")
    begun = time.process_time()
    assert grade(task(), SUMS).passed
    assert time.process_time() - begun < 1.0

"""What the entry gate tries on a task of kind `sql`."""

from __future__ import annotations

from collections.abc import Mapping

from tiltyard.verifier.kinds.base import Probe

FORGED: Mapping[str, str] = {
    "nothing of anything": "SELECT NULL",
    "a constant": "SELECT 1",
    "no rows": "SELECT 1 WHERE false",
    "a table that isn't there": "SELECT * FROM no_such_table",
    "the catalogue": "SELECT * FROM duckdb_tables()",
    "settings": "SELECT * FROM duckdb_settings()",
    "reads a file": "SELECT * FROM read_text('/etc/passwd')",
    "reads a file by its name": "SELECT * FROM '/etc/passwd'",
    "reads all files": "SELECT * FROM glob('/proc/self/*')",
    "writes a file": "COPY (SELECT 1) TO '/tmp/out.csv'",
    "opens a data base": "ATTACH '/tmp/other.db'",
    "takes the lock off": "SET enable_external_access = true",
    "loads an extension": "INSTALL httpfs",
    "a pragma": "PRAGMA version",
    "changes the data": "CREATE TABLE mine AS SELECT 1",
    "drops everything": "DROP SCHEMA main CASCADE",
    "two statements": "SELECT 1; SELECT 2",
    "explains": "EXPLAIN SELECT 1",
    "a macro": "CREATE MACRO equal(a) AS true",
    "rows without end": "SELECT * FROM range(100000000)",
    "a product without end": "SELECT count(*) FROM range(1000000) a, range(1000000) b",
    "recursion without end": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT sum(n) FROM t",
    "all memory": "SELECT list(range) FROM range(1000000000)",
    "a long text": "SELECT repeat('x', 2000000000)",
    "chance": "SELECT random()",
}


def probes(query: str) -> tuple[Probe, ...]:
    """The reference written in other ways, and queries that must not pass."""
    good = {
        "fenced": f"```sql\n{query}\n```",
        "a semicolon": f"```sql\n{query};\n```",
        "a comment": f"```sql\n-- this is it\n{query}\n```",
        "prose around": f"This does it:\n```sql\n{query}\n```\nIt reads the tables once.",
    }
    bad = {name: f"```sql\n{text}\n```" for name, text in FORGED.items()}
    bad["the reference and a drop"] = f"```sql\n{query};\nDROP TABLE IF EXISTS x\n```"
    return (
        *(Probe(name=name, texts=(text,)) for name, text in good.items()),
        *(Probe(name=name, texts=(text,), wanted="reject") for name, text in bad.items()),
    )

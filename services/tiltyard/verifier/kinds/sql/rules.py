"""Running two queries on fresh data bases and comparing their rows. Only children of `limits` import this.

Invariants: duckdb without access to files or the network and with a locked configuration; a submission is one SELECT,
as duckdb's own parser sees it; it has its own copy of the data; it ends by CPU time, memory or rows with a rejection,
so that a bomb is the submission's fault; a reference that fails, is empty everywhere or hangs on the order in which
the rows were inserted makes the task broken.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from datetime import date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

MAX_ROWS = 10_000
MAX_CELLS = 200_000
CPU_S = 0.8
"""Of a submission on one setup."""
CONFIG = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "threads": "1",
    "memory_limit": "128MB",
    "max_temp_directory_size": "0MB",
}
Rows = list[tuple[Any, ...]]


class Broken(Exception):
    """The reference is at fault."""


class Wrong(Exception):
    """The submission is at fault."""


def check(task: dict[str, Any]) -> dict[str, str]:
    """{} when the submission is right, else {'wrong': why} or {'broken': why}."""
    _stand_somewhere()
    try:
        _check(task)
    except Wrong as error:
        return {"wrong": str(error)[:300]}
    except Broken as error:
        return {"broken": str(error)[:300]}
    return {}


def _stand_somewhere() -> None:
    """duckdb refuses to work in a directory that was removed, and a child may outlive the one it was started in."""
    try:
        os.getcwd()
    except FileNotFoundError:
        os.chdir("/")


def _check(task: dict[str, Any]) -> None:
    ordered = task["order"] == "rows" or (task["order"] == "auto" and sorts(task["query"], task["dialect"]))
    wanted = [_reference(setup, task["query"], ordered) for setup in task["setups"]]
    if not any(wanted):
        raise Broken("the reference gives no rows on any setup")
    one_select(task["submission"])
    for number, (setup, want) in enumerate(zip(task["setups"], wanted, strict=True), 1):
        got = _run(setup, task["submission"])
        if why := differs(got, want, ordered, task["columns"], task["tolerance"]):
            raise Wrong(f"on data set {number}: {why}")


def sorts(query: str, dialect: str) -> bool:
    """Does a query sort its rows at the top? Broken when it can't be parsed."""
    try:
        tree: Any = sqlglot.parse_one(query, dialect=dialect)
    except (SqlglotError, RecursionError) as error:
        raise Broken(f"the reference doesn't parse: {error}") from error
    while isinstance(tree, exp.Subquery) and not tree.args.get("order"):
        tree = tree.this
    return tree.args.get("order") is not None


def one_select(query: str) -> None:
    """Wrong unless the text is one statement that only reads."""
    with closing(duckdb.connect(":memory:", config=CONFIG)) as connection:
        try:
            statements = connection.extract_statements(query)
        except (duckdb.Error, UnicodeError, RuntimeError) as error:
            raise Wrong(f"it doesn't parse: {_line(error)}") from error
    if len(statements) != 1:
        raise Wrong(f"one statement is wanted, there are {len(statements)}")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise Wrong(f"a query is wanted, this is {statements[0].type.name}")


def _reference(setup: str, query: str, ordered: bool) -> Rows:
    """The reference's rows; Broken when it fails, or when they change with the order of insertion."""
    try:
        rows = _run(setup, query)
        turned = _run(setup, query, turned=True)
    except Wrong as error:
        raise Broken(f"the reference: {error}") from error
    if why := differs(turned, rows, ordered, "position", 1e-6):
        raise Broken(f"the data doesn't determine the reference's rows: {why}")
    return rows


def _run(setup: str, query: str, *, turned: bool = False) -> Rows:
    """The rows of a query on a fresh data base, `turned`: one whose tables hold their rows the other way round."""
    with closing(duckdb.connect(":memory:", config=CONFIG)) as connection:
        try:
            connection.execute(setup)
        except duckdb.Error as error:
            raise Broken(f"the setup fails: {_line(error)}") from error
        if turned:
            _turn(connection)
        connection.execute("SET lock_configuration = true")
        with _Watch(connection):
            try:
                rows: Rows = connection.execute(query).fetchmany(MAX_ROWS + 1)
            except (duckdb.Error, MemoryError, RuntimeError, ValueError, OverflowError) as error:
                raise Wrong(f"{type(error).__name__}: {_line(error)}") from error
    if len(rows) > MAX_ROWS or sum(map(len, rows)) > MAX_CELLS:
        raise Wrong(f"it gives more than {MAX_ROWS} rows or {MAX_CELLS} cells")
    return rows


class _Watch:
    """Interrupts a connection after `CPU_S` of this process's CPU time."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, args=(time.process_time() + CPU_S,), daemon=True)

    def _watch(self, until: float) -> None:
        while not self.over.wait(0.02):
            if time.process_time() > until:
                self.connection.interrupt()

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


def _turn(connection: Any) -> None:
    """Every table with its rows in the opposite order; one that others depend on stays as it is."""
    tables = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
    for name in tables:
        quoted = '"' + name.replace('"', '""') + '"'
        with suppress(duckdb.Error):
            connection.execute(f"CREATE TEMP TABLE turned_copy AS SELECT * FROM {quoted} ORDER BY rowid DESC")
            connection.execute(f"DELETE FROM {quoted}")
            connection.execute(f"INSERT INTO {quoted} SELECT * FROM turned_copy ORDER BY rowid")
        with suppress(duckdb.Error):
            connection.execute("DROP TABLE IF EXISTS temp.turned_copy")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


# ------------------------------------------------------------ comparing


def differs(got: Rows, want: Rows, ordered: bool, columns: str, tolerance: float) -> str:
    """Why two results aren't the same; '' when they are."""
    if len(got) != len(want):
        return f"there are {len(got)} rows, right are {len(want)}"
    if want and len(got[0]) != len(want[0]):
        return f"there are {len(got[0])} columns, right are {len(want[0])}"
    for order in _orders(got, want, columns):
        turned = [tuple(row[index] for index in order) for row in got]
        if _same_rows(turned, want, ordered, tolerance):
            return ""
    return "the rows are others" if not ordered else "the rows are others, or in another order"


def _orders(got: Rows, want: Rows, columns: str) -> list[tuple[int, ...]]:
    """Arrangements of the columns of `got` to try; with 'any' those whose columns hold the same values."""
    width = len(want[0]) if want else 0
    if columns == "position" or width > 6:
        return [tuple(range(width))]
    sums = [[Counter(repr(_plain(row[at])) for row in rows) for at in range(width)] for rows in (got, want)]
    found = [order for order in itertools.permutations(range(width)) if all(
        sums[0][order[at]] == sums[1][at] for at in range(width))]  # fmt: skip
    return found[:24] or [tuple(range(width))]


def _same_rows(got: Rows, want: Rows, ordered: bool, tolerance: float) -> bool:
    left, right = [tuple(map(_plain, row)) for row in got], [tuple(map(_plain, row)) for row in want]
    if not ordered:
        left, right = sorted(left, key=_key), sorted(right, key=_key)
    return all(_same(a, b, tolerance) for a, b in zip(left, right, strict=True))


def _key(row: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """Sorts rows of mixed types; numbers by their value, to few enough digits that rounding puts none elsewhere."""
    return [("n", float(f"{float(cell):.5g}")) if _numeric(cell) else (type(cell).__name__, repr(cell)) for cell in row]


def _numeric(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    """A cell as it is compared."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() and abs(value) < 10**30 else float(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, datetime) and value.tzinfo is None and value.time() == clock():
        return value.date().isoformat()
    if isinstance(value, date | clock):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return tuple((str(key), _plain(item)) for key, item in value.items())
    return value


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b, [tolerance] * len(a)))
    if _numeric(a) and _numeric(b):
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and bool(a == b)

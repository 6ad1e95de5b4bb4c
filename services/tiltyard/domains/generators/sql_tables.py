"""Small data bases for SQL tasks: schemas that people know, filled at random.

Invariants: keys and names are unique, and some rows match nothing on the other side
of a join. Left out: the questions are `sql_queries`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_FIRST = ("Ann", "Bob", "Cora", "Dan", "Eve", "Finn", "Gina", "Hugo", "Ida", "Jon", "Kim", "Leo", "Mia", "Ned", "Ola")
_LAST = ("Adler", "Berg", "Cruz", "Diaz", "Engel", "Frank", "Gold", "Hahn", "Ito", "Jung")
_CITIES = ("Bonn", "Lima", "Oslo", "Pisa", "Riga")
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Schema:
    """A pair of tables: a parent and a child that refers to it. Roles give the columns' meaning to the questions."""

    name: str
    create: str
    parent: str
    """Table with columns id, `label` (unique text) and `group` (few values)."""
    label: str
    group: str
    child: str
    """Table with columns id, `key` (to the parent; may be null), `amount`, `kind` and `day`."""
    key: str
    amount: str
    kind: str
    day: str
    groups: tuple[str, ...]
    kinds: tuple[str, ...]
    money: bool
    say: str
    """One parent, many parents, one child, many children: words for the questions, separated by '|'."""


def _schema(name: str, parent: str, label: str, group: str, child: str, key: str, amount: str, kind: str, day: str,
            groups: Sequence[str], kinds: Sequence[str], money: bool, say: str) -> Schema:  # fmt: skip
    number = "DECIMAL(9, 2)" if money else "INTEGER"
    create = (
        f"CREATE TABLE {parent} (id INTEGER PRIMARY KEY, {label} VARCHAR, {group} VARCHAR);\n"
        f"CREATE TABLE {child} (id INTEGER PRIMARY KEY, {key} INTEGER, {amount} {number}, {kind} VARCHAR, {day} DATE);"
    )
    columns = (parent, label, group, child, key, amount, kind, day)
    return Schema(name, create, *columns, tuple(groups), tuple(kinds), money, say)


SCHEMAS: tuple[Schema, ...] = (
    _schema("shop", "customers", "name", "city", "orders", "customer_id", "total", "status", "ordered_on",
            _CITIES, ("open", "paid", "sent", "returned"), True, "customer|customers|order|orders"),
    _schema("library", "readers", "name", "branch", "loans", "reader_id", "days", "shelf", "lent_on",
            ("north", "south", "east", "harbour"), ("novel", "science", "comic", "travel"), False,
            "reader|readers|loan|loans"),
    _schema("clinic", "doctors", "name", "ward", "visits", "doctor_id", "minutes", "reason", "visited_on",
            ("heart", "eye", "child", "bone"), ("check", "pain", "vaccine", "advice"), False,
            "doctor|doctors|visit|visits"),
    _schema("factory", "machines", "code", "hall", "jobs", "machine_id", "cost", "state", "started_on",
            ("A", "B", "C", "D"), ("done", "failed", "waiting", "running"), True, "machine|machines|job|jobs"),
    _schema("school", "pupils", "name", "class", "tests", "pupil_id", "points", "subject", "written_on",
            ("5a", "5b", "6a", "6b"), ("maths", "art", "biology", "music"), False, "pupil|pupils|test|tests"),
    _schema("harbour", "ships", "name", "flag", "calls", "ship_id", "tons", "cargo", "arrived_on",
            ("NO", "PA", "GR", "JP"), ("ore", "grain", "cars", "oil"), False, "ship|ships|call|calls"),
)  # fmt: skip


def setup(schema: Schema, rng: random.Random) -> str:
    """Statements that make the tables and fill them."""
    people = [f"{first} {last}" for first in _FIRST for last in _LAST]
    labels = [f"M{number:03d}" for number in range(1, 200)] if schema.label == "code" else people
    count = rng.randint(8, 14)
    parents: list[Row] = [
        (number, label, rng.choice(schema.groups)) for number, label in enumerate(rng.sample(labels, count), 1)
    ]
    keys: list[int | None] = [number for number, *_ in parents if rng.random() < 0.75] or [1]
    children: list[Row] = []
    for number in range(1, rng.randint(25, 45)):
        day = f"2025-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        amount = rng.randint(100, 50000) / 100 if schema.money else rng.randint(1, 90)
        key = None if rng.random() < 0.06 else rng.choice(keys)
        children.append((number, key, amount, rng.choice(schema.kinds), day))
    return f"{schema.create}\n{_insert(schema.parent, parents)}\n{_insert(schema.child, children)}"


def _insert(table: str, rows: Sequence[Row]) -> str:
    values = ", ".join("(" + ", ".join(map(_literal, row)) + ")" for row in rows)
    return f"INSERT INTO {table} VALUES {values};"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value)


Fill = Callable[[Schema, random.Random], dict[str, Any]]


def words(schema: Schema, rng: random.Random) -> dict[str, Any]:
    """What the patterns of questions and queries are filled with."""
    one, many, child_one, child_many = schema.say.split("|")
    first, second, other = rng.sample(schema.kinds, 3)
    return {
        "P": schema.parent, "label": schema.label, "group": schema.group, "C": schema.child, "key": schema.key,
        "amount": schema.amount, "kind": schema.kind, "day": schema.day, "one": one, "many": many,
        "child": child_one, "children": child_many, "g": rng.choice(schema.groups), "k1": first, "k2": second,
        "other": other,
        "x": rng.randint(20, 70) * (5 if schema.money else 1), "n": rng.randint(2, 5), "month": rng.randint(3, 10),
    }  # fmt: skip

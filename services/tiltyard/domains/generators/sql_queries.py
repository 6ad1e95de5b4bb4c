"""Questions over two tables, answered by one query each and judged on hidden rows.

Invariants: the prompt shows the tables, the hidden rows are others than those of any prompt; sorted results have no ties
(the query sorts by a unique column at last); a question says which columns are wanted and in which order.
Left out: grading is the verifier kind `sql`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from tiltyard.domains.drafts import Draft, Request

from .sql_tables import SCHEMAS, Schema, setup, words

SETUPS = 2
Template = tuple[str, str]
"""Question and query, patterns over `sql_tables.words`."""
SELECT: Mapping[str, Template] = {
    "equal": ("the {label} of every one of the {many} whose {group} is '{g}'",
              "SELECT {label} FROM {P} WHERE {group} = '{g}'"),
    "above": ("id and {amount} of all {children} whose {amount} is greater than {x}, the greatest {amount} first and "
              "equal ones by id",
              "SELECT id, {amount} FROM {C} WHERE {amount} > {x} ORDER BY {amount} DESC, id"),
    "two_kinds": ("the id of all {children} whose {kind} is '{k1}' or '{k2}' and whose {amount} is at most {x}",
                  "SELECT id FROM {C} WHERE {kind} IN ('{k1}', '{k2}') AND {amount} <= {x}"),
    "missing": ("the id of all {children} that have no {key}", "SELECT id FROM {C} WHERE {key} IS NULL"),
    "month": ("id and {day} of the {children} in month {month} of 2025, the earliest first and equal days by id",
              "SELECT id, {day} FROM {C} WHERE month({day}) = {month} ORDER BY {day}, id"),
    "first": ("the {label} of the first {n} {many} in alphabetical order of {label}, in this order",
              "SELECT {label} FROM {P} ORDER BY {label} LIMIT {n}"),
    "distinct": ("each {kind} that occurs among the {children} with {amount} greater than {x}, once, sorted",
                 "SELECT DISTINCT {kind} FROM {C} WHERE {amount} > {x} ORDER BY {kind}"),
}  # fmt: skip
AGGREGATE: Mapping[str, Template] = {
    "count_group": ("each {group} with the number of its {many}, sorted by {group}",
                    "SELECT {group}, count(*) FROM {P} GROUP BY {group} ORDER BY {group}"),
    "sum_kind": ("each {kind} with the sum of {amount} of its {children}, sorted by {kind}",
                 "SELECT {kind}, sum({amount}) FROM {C} GROUP BY {kind} ORDER BY {kind}"),
    "average_above": ("each {kind} whose {children} have an average {amount} above {x}, with that average",
                      "SELECT {kind}, avg({amount}) FROM {C} GROUP BY {kind} HAVING avg({amount}) > {x}"),
    "per_month": ("each month of 2025 as a number with the number of {children} in it, months without any left out, by month",
                  "SELECT month({day}), count(*) FROM {C} GROUP BY month({day}) ORDER BY month({day})"),
    "share": ("each {kind} with the share of its {children} whose {amount} is above {x} (from 0 to 1)",
              "SELECT {kind}, avg(CASE WHEN {amount} > {x} THEN 1.0 ELSE 0 END) FROM {C} GROUP BY {kind}"),
    "range": ("smallest, greatest and number of different values of {amount} over all {children} with {kind} '{k1}'",
              "SELECT min({amount}), max({amount}), count(DISTINCT {amount}) FROM {C} WHERE {kind} = '{k1}'"),
}  # fmt: skip
JOIN: Mapping[str, Template] = {
    "with_label": ("the id of each of the {children} with {kind} '{k1}' and the {label} of its {one}; {children} without "
                   "one are left out; sorted by id",
                   "SELECT c.id, p.{label} FROM {C} c JOIN {P} p ON p.id = c.{key} WHERE c.{kind} = '{k1}' ORDER BY c.id"),
    "without": ("the {label} of all {many} that have no {children}, sorted",
                "SELECT {label} FROM {P} p WHERE NOT EXISTS (SELECT 1 FROM {C} c WHERE c.{key} = p.id) ORDER BY {label}"),
    "count_all": ("the {label} of every one of the {many} and the number of its {children}, 0 included, sorted by {label}",
                  "SELECT p.{label}, count(c.id) FROM {P} p LEFT JOIN {C} c ON c.{key} = p.id GROUP BY p.id, p.{label} "
                  "ORDER BY p.{label}"),
    "sum_by_group": ("each {group} with the sum of {amount} over all {children} of its {many}; a {group} without any "
                     "{children} is left out",
                     "SELECT p.{group}, sum(c.{amount}) FROM {P} p JOIN {C} c ON c.{key} = p.id GROUP BY p.{group}"),
    "both_kinds": ("the {label} of the {many} that have {children} of {kind} '{k1}' and also of {kind} '{k2}', sorted",
                   "SELECT p.{label} FROM {P} p JOIN {C} c ON c.{key} = p.id WHERE c.{kind} IN ('{k1}', '{k2}') "
                   "GROUP BY p.id, p.{label} HAVING count(DISTINCT c.{kind}) = 2 ORDER BY p.{label}"),
    "same_group": ("the {label} of each two different {many} that have the same {group}, the alphabetically smaller "
                   "{label} first in each row; every pair once",
                   "SELECT a.{label}, b.{label} FROM {P} a JOIN {P} b ON a.{group} = b.{group} AND a.{label} < b.{label}"),
}  # fmt: skip
WINDOW: Mapping[str, Template] = {
    "rank": ("{kind}, id and {amount} of the {children} with the greatest {amount} of their {kind}; of equal ones the one "
             "with the smallest id; sorted by {kind}",
             "SELECT {kind}, id, {amount} FROM (SELECT *, row_number() OVER (PARTITION BY {kind} ORDER BY {amount} DESC, id) "
             "r FROM {C}) WHERE r = 1 ORDER BY {kind}"),
    "running": ("id and, for each of the {children} in the order of id, the sum of {amount} up to and with it, in that order",
                "SELECT id, sum({amount}) OVER (ORDER BY id) FROM {C} ORDER BY id"),
    "above_own": ("the id of all {children} whose {amount} is above the average {amount} of their own {kind}, sorted",
                  "SELECT id FROM (SELECT id, {amount}, avg({amount}) OVER (PARTITION BY {kind}) a FROM {C}) "
                  "WHERE {amount} > a ORDER BY id"),
    "gap": ("the id of each of the {children} and its {amount} minus the {amount} of the one with the next smaller id (null "
            "for the first), sorted by id",
            "SELECT id, {amount} - lag({amount}) OVER (ORDER BY id) FROM {C} ORDER BY id"),
    "top_group": ("each {group} with the {label} of that of its {many} with the most {children} (0 counts; of equal ones the "
                  "alphabetically first), sorted by {group}",
                  "WITH n AS (SELECT p.{group} g, p.{label} l, count(c.id) k FROM {P} p LEFT JOIN {C} c ON c.{key} = p.id "
                  "GROUP BY p.id, p.{group}, p.{label}) SELECT g, l FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER "
                  "BY k DESC, l) r FROM n) WHERE r = 1 ORDER BY g"),
    "months_above": ("each month of 2025 as a number in which the sum of {amount} was above the average of the monthly sums "
                     "(of months with {children}), sorted",
                     "WITH m AS (SELECT month({day}) mo, sum({amount}) s FROM {C} GROUP BY 1) SELECT mo FROM m WHERE s > "
                     "(SELECT avg(s) FROM m) ORDER BY mo"),
}  # fmt: skip
TOPICS: Mapping[str, Mapping[str, Template]] = {
    "select": SELECT, "aggregate": AGGREGATE, "join": JOIN, "window": WINDOW,
}  # fmt: skip


def generate(request: Request) -> Iterator[Draft]:
    """Questions of some topics, endlessly, every template in turn. Options: topics."""
    topics = request.options["topics"]
    rng = random.Random(f"sql/{'+'.join(topics)}/{request.split}/{request.seed}")
    templates = [(f"{topic}.{name}", one) for topic in topics for name, one in TOPICS[topic].items()]
    while True:
        for schema in SCHEMAS:
            wanted = [(name, one) for name, one in templates if request.wants(name, schema.name)]
            for name, template in rng.sample(wanted, len(wanted)):
                yield _draft(name, template, schema, rng)
        if not any(request.wants(name, schema.name) for name, _ in templates for schema in SCHEMAS):
            return


def _has_rows(made: str, query: str) -> bool:
    """Does our own query give anything on our own data?"""
    try:
        import duckdb
    except ImportError as error:
        raise ValueError("code.sql needs duckdb: pip install duckdb") from error
    with duckdb.connect(":memory:", config={"threads": "1"}) as connection:
        connection.execute(made)
        return bool(connection.execute(query).fetchone())


def _restricted(filled: Mapping[str, Any], rng: random.Random) -> tuple[str, str]:
    """Only some rows of the child table are looked at: in words, and as a subquery in its place."""
    w = dict(filled, most=rng.randint(18, 40), low=rng.randint(3, 15), before=rng.randint(8, 12), x2=rng.randint(5, 15))
    conditions = rng.sample(
        (
            ("an id of at most {most}", "id <= {most}"),
            ("an id above {low}", "id > {low}"),
            ("{day} before month {before} of 2025", "{day} < DATE '2025-{before:02d}-01'"),
            ("{amount} above {x2}", "{amount} > {x2}"),
            ("a {kind} other than '{other}'", "{kind} <> '{other}'"),
        ),
        2,
    )
    said = " and ".join(text.format(**w) for text, _ in conditions)
    where = " AND ".join(text.format(**w) for _, text in conditions)
    return f"Look only at {w['children']} with {said}.", f"(SELECT * FROM {w['C']} WHERE {where})"


def _draft(name: str, template: Template, schema: Schema, rng: random.Random) -> Draft:
    while True:
        filled = words(schema, rng)
        said, rows = _restricted(filled, rng)
        question = template[0].format(**filled)
        query = template[1].format(**{**filled, "C": rows})
        setups = [setup(schema, rng) for _ in range(SETUPS)]
        if all(_has_rows(one, query) for one in setups):
            break
    return Draft(
        template=name,
        source=schema.name,
        fields={"tables": schema.create, "question": question, "restriction": said},
        data={"query": query, "setups": setups},
        reference=f"```sql\n{query}\n```",
        labels={"schema": schema.name},
    )

"""Questions about real tables that the package vega-datasets carries; the prompt shows some of the rows as CSV.

A template is a way of asking; whole ways are held out for evaluation. Levels differ in how many rows are shown and what
is asked. Invariants: answers are computed exactly from what is shown; a question whose answer hangs on a tie isn't
asked, or allows each of the tied. The files are read as they are; the package itself isn't imported.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from tiltyard.domains.drafts import Draft, Request

Row = dict[str, str]
Asked = tuple[str, dict[str, Any], dict[str, Any], str]
"""Question, verification data, options, what the answer looks like."""
TABLES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "cars": ("cars.json", ("Cylinders", "Origin"), ("Horsepower", "Weight_in_lbs", "Acceleration", "Miles_per_Gallon")),
    "barley": ("barley.json", ("variety", "site", "year"), ("yield",)),
    "weather": ("seattle-weather.csv", ("weather",), ("precipitation", "temp_max", "temp_min", "wind")),
    "stocks": ("stocks.csv", ("symbol",), ("price",)),
    "iris": ("iris.json", ("species",), ("sepalLength", "sepalWidth", "petalLength", "petalWidth")),
    "electricity": ("iowa-electricity.csv", ("source",), ("net_generation",)),
    "driving": ("driving.json", ("side",), ("miles", "gas", "year")),
}
"""File, columns that group, columns that measure."""
_SHOWN = 5


@lru_cache(16)
def _rows(name: str) -> tuple[Row, ...]:
    """The rows of a table with a value in each column that is asked about."""
    file, groups, numbers = TABLES[name]
    spec = find_spec("vega_datasets")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError("the tables need the package vega-datasets: pip install vega-datasets")
    text = (Path(spec.submodule_search_locations[0]) / "_data" / file).read_text("utf-8")
    found = (
        json.loads(text, parse_float=str, parse_int=str)
        if file.endswith(".json")
        else csv.DictReader(io.StringIO(text))
    )
    return tuple(row for row in found if all(row.get(each) not in (None, "", "null") for each in (*groups, *numbers)))


def generate(request: Request) -> Iterator[Draft]:
    """Questions, endlessly. Options: `table`, `rows` (shown), `ask` (templates)."""
    options = request.options
    _, groups, numbers = TABLES[options["table"]]
    everything = _rows(options["table"])
    templates = [name for name in options["ask"] if request.wants(name)]
    rng = random.Random(f"tables/{options['table']}/{request.split}/{request.seed}/{options['rows']}")
    while templates:
        chosen = rng.sample(everything, min(options["rows"], len(everything)))
        rows = [{"id": f"r{number}", **row} for number, row in enumerate(chosen, 1)]
        template, group, number = rng.choice(templates), rng.choice(groups), rng.choice(numbers)
        if asked := ASK[template](rng, rows, group, number):
            yield _draft(template, rows, (*groups, *numbers), asked)


def _draft(template: str, rows: list[Row], columns: tuple[str, ...], asked: Asked) -> Draft:
    question, data, options, form = asked
    shown = ("id", *columns[: _SHOWN + 2])
    table = "\n".join(",".join(each) for each in (shown, *([row[column] for column in shown] for row in rows)))
    value = data["value"]
    answer = json.dumps(value + data.get("tied", [])[: data.get("choose", 0)]) if isinstance(value, list) else value
    return Draft(
        template=template,
        fields={
            "prompt": f"{table}\n\n{question}\n\nThink as long as you like, then end with a line `Answer: {form}`."
        },
        data=data,
        options=options,
        reference=f"Answer: {answer}",
        labels={"rows": str(len(rows))},
    )


def _values(rows: list[Row], column: str) -> list[Decimal]:
    return [Decimal(row[column]) for row in rows]


def _of_group(rng: random.Random, rows: list[Row], group: str) -> tuple[str, list[Row]]:
    """A value of a column and its rows."""
    value = rng.choice(sorted({row[group] for row in rows}))
    return value, [row for row in rows if row[group] == value]


def _number(value: Decimal) -> str:
    return f"{value:f}"


def _rounded(value: Decimal, places: int) -> str:
    return f"{value.quantize(Decimal(1).scaleb(-places)):f}"


def _count_above(rng: random.Random, rows: list[Row], group: str, number: str) -> Asked:
    limit = rng.choice(_values(rows, number))
    count = sum(value > limit for value in _values(rows, number))
    return (
        f"How many rows have a {number} above {_number(limit)}?",
        {"type": "integer", "value": str(count)},
        {},
        "<number>",
    )


def _count_group(rng: random.Random, rows: list[Row], group: str, number: str) -> Asked:
    value, found = _of_group(rng, rows, group)
    limit = rng.choice(_values(rows, number))
    count = sum(Decimal(row[number]) <= limit for row in found)
    question = f"How many rows have {group} {value} and a {number} of at most {_number(limit)}?"
    return question, {"type": "integer", "value": str(count)}, {}, "<number>"


def _largest(rng: random.Random, rows: list[Row], group: str, number: str) -> Asked:
    word, pick = rng.choice((("largest", max), ("smallest", min)))
    extreme = pick(_values(rows, number))
    ids = [row["id"] for row in rows if Decimal(row[number]) == extreme]
    question = f"Which row has the {word} {number}? If several have, name any one of them."
    return question, {"type": "text", "value": ids[0], "others": ids[1:]}, {}, "<id>"


def _range(rng: random.Random, rows: list[Row], group: str, number: str) -> Asked:
    values = _values(rows, number)
    question = f"What is the difference between the largest and the smallest {number}?"
    return question, {"type": "number", "value": _number(max(values) - min(values))}, {}, "<number>"


def _mean(rng: random.Random, rows: list[Row], group: str, number: str) -> Asked:
    value, found = _of_group(rng, rows, group)
    mean = sum(_values(found, number), Decimal(0)) / len(found)
    question = f"What is the mean {number} of the rows with {group} {value}, to 2 decimal places?"
    return question, {"type": "number", "value": _number(mean.quantize(Decimal("1e-9")))}, {"places": 2}, "<number>"


def _median(rng: random.Random, rows: list[Row], group: str, number: str) -> Asked:
    value, found = _of_group(rng, rows, group)
    middle = median(_values(found, number))
    question = f"What is the median {number} of the rows with {group} {value}, to 2 decimal places?"
    return question, {"type": "number", "value": _number(middle)}, {"places": 2}, "<number>"


def _share(rng: random.Random, rows: list[Row], group: str, number: str) -> Asked:
    value, found = _of_group(rng, rows, group)
    share = _rounded(Decimal(100 * len(found)) / len(rows), 4)
    question = f"Which percentage of the rows has {group} {value}, to 1 decimal place? Write the number without a sign."
    return question, {"type": "number", "value": share}, {"places": 1}, "<number>"


def _top(rng: random.Random, rows: list[Row], group: str, number: str) -> Asked | None:
    ranked = sorted(rows, key=lambda row: Decimal(row[number]), reverse=True)
    values = _values(ranked, number)
    if len(set(values[:3])) < 3:
        return None  # a tie above the last place has no order
    tied = [row["id"] for row in ranked[2:] if Decimal(row[number]) == values[2]]
    data: dict[str, Any] = {"type": "list", "value": [row["id"] for row in ranked[:2]], "tied": tied, "choose": 1}
    question = (
        f"Which three rows have the largest {number}? From the largest down; of rows that tie for third, any one."
    )
    return question, data, {"ordered": True}, '["<id>", "<id>", "<id>"]'


def _distinct(rng: random.Random, rows: list[Row], group: str, number: str) -> Asked | None:
    limit = rng.choice(_values(rows, number))
    found = sorted({row[group] for row in rows if Decimal(row[number]) >= limit})
    if len(found) == len({row[group] for row in rows}):
        return None  # the condition would not matter
    question = f"Which values of {group} have at least one row with a {number} of {_number(limit)} or more?"
    return question, {"type": "list", "value": found}, {"distinct": True}, '["<value>", ...]'


def _sums(rng: random.Random, rows: list[Row], group: str, number: str) -> Asked | None:
    names = sorted({row[group] for row in rows})
    if not 2 <= len(names) <= 8:
        return None
    sums = [
        [name, _number(sum(_values([row for row in rows if row[group] == name], number), Decimal(0)))] for name in names
    ]
    question = f"What is the sum of {number} for each {group}? One pair for each, in any order."
    return question, {"type": "rows", "value": sums}, {}, '[["<value>", <sum>], ...]'


def _best_group(rng: random.Random, rows: list[Row], group: str, number: str) -> Asked | None:
    found = {name: [row for row in rows if row[group] == name] for name in {row[group] for row in rows}}
    means = sorted((sum(_values(each, number), Decimal(0)) / len(each), name) for name, each in found.items())
    if len(means) < 3 or means[-1][0] == means[-2][0]:
        return None
    question = f"Which value of {group} has the largest mean {number}?"
    return question, {"type": "text", "value": means[-1][1]}, {}, "<value>"


ASK: dict[str, Callable[[random.Random, list[Row], str, str], Asked | None]] = {
    "count_above": _count_above,
    "count_group": _count_group,
    "largest": _largest,
    "range": _range,
    "mean": _mean,
    "median": _median,
    "share": _share,
    "top": _top,
    "distinct": _distinct,
    "sums": _sums,
    "best_group": _best_group,
}

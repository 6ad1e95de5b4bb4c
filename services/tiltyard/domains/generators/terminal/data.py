"""CSV and JSON files: columns, filters, conversion, joins."""

from __future__ import annotations

import json
import random

from .work import NAMES, WORDS, Templates, Work, file, lines

Row = dict[str, object]


def _rows(rng: random.Random, count: int = 0) -> list[Row]:
    names = rng.sample(NAMES, count or rng.randint(5, 9))
    return [{"name": n, "tree": rng.choice(WORDS[:5]), "count": rng.randint(1, 90)} for n in names]


def _csv(rows: list[Row]) -> str:
    return lines([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)])


def _column(rng: random.Random) -> Work:
    rows, column = _rows(rng), rng.choice(("name", "tree", "count"))
    at = list(rows[0]).index(column) + 1
    return Work(f"write the column {column} of table.csv into {column}s.txt, one value a line, without the heading",
                [file(f"{column}s.txt", lines(row[column] for row in rows))],
                f"tail -n +2 table.csv | cut -d, -f{at} > {column}s.txt", {"table.csv": _csv(rows)})  # fmt: skip


def _value(rng: random.Random) -> Work:
    owner, key = rng.choice(NAMES), rng.choice(WORDS)
    value = rng.randint(100, 999)
    found = {"owner": {"name": owner, "codes": {key: value, "other": rng.randint(1, 99)}}, "size": rng.randint(1, 9)}
    return Work(f"data.json holds, under owner and codes, a number named {key}; write it into answer.txt",
                [file("answer.txt", str(value), "number")], f"jq .owner.codes.{key} data.json > answer.txt",
                {"data.json": json.dumps(found, indent=2)})  # fmt: skip


def _filter(rng: random.Random) -> Work:
    rows, least = _rows(rng), rng.randint(20, 60)
    kept = [row for row in rows if int(str(row["count"])) >= least]
    text = lines(["name,tree,count", *(",".join(map(str, row.values())) for row in kept)])
    return Work(f"write table.csv with its heading but only the rows whose count is at least {least} into big.csv",
                [file("big.csv", text, "csv")], f"awk -F, 'NR == 1 || $3 >= {least}' table.csv > big.csv",
                {"table.csv": _csv(rows)})  # fmt: skip


def _to_json(rng: random.Random) -> Work:
    rows, name = _rows(rng), rng.choice(("rows", "items", "list"))
    say = f"turn table.csv into {name}.json: a list with an object for each row, its keys the headings, count a number"
    command = ("python3 - <<'PY'\nimport csv, json\nrows = list(csv.DictReader(open('table.csv')))\n"
               f"for row in rows: row['count'] = int(row['count'])\njson.dump(rows, open('{name}.json', 'w'))\nPY")  # fmt: skip
    return Work(say, [file(f"{name}.json", json.dumps(rows), "json")], command, {"table.csv": _csv(rows)})


def _select(rng: random.Random) -> Work:
    rows, least = _rows(rng), rng.randint(15, 50)
    found = sorted(str(row["name"]) for row in rows if int(str(row["count"])) > least)
    say = f"people.json is a list of objects; write the names of those whose count is greater than {least} into names.json as a sorted list of strings"
    return Work(say, [file("names.json", json.dumps(found), "json")],
                f"jq '[.[] | select(.count > {least}) | .name] | sort' people.json > names.json",
                {"people.json": json.dumps(rows)})  # fmt: skip


def _update(rng: random.Random) -> Work:
    rows, add = _rows(rng), rng.randint(2, 9)
    chosen = str(rng.choice(rows)["name"])
    after = [{**row, "count": int(str(row["count"])) + add} if row["name"] == chosen else row for row in rows]
    say = f"in people.json, a list of objects, make the count of {chosen} greater by {add}; leave the rest as it is"
    command = f"jq 'map(if .name == \"{chosen}\" then .count += {add} else . end)' people.json > /tmp/p && cp /tmp/p people.json"
    return Work(
        say, [file("people.json", json.dumps(after), "json")], command, {"people.json": json.dumps(rows, indent=1)}
    )


def _join(rng: random.Random) -> Work:
    rows = _rows(rng, 7)
    prices = {tree: rng.randint(2, 30) for tree in sorted({str(row["tree"]) for row in rows})[1:] or ["oak"]}
    found = [
        f"{row['name']},{int(str(row['count'])) * prices[str(row['tree'])]}" for row in rows if row["tree"] in prices
    ]
    say = "write into costs.csv, under the heading 'name,cost', a row for each row of table.csv whose tree is in prices.csv: its count times the tree's price, in the order of table.csv"
    command = ("awk -F, 'NR == FNR { if (FNR > 1) p[$1] = $2; next } FNR == 1 { print \"name,cost\"; next } "
               "$2 in p { print $1 \",\" $3 * p[$2] }' prices.csv table.csv > costs.csv")  # fmt: skip
    files = {"table.csv": _csv(rows), "prices.csv": lines(["tree,price", *(f"{t},{p}" for t, p in prices.items())])}
    return Work(say, [file("costs.csv", lines(["name,cost", *found]), "csv")], command, files)


def _group(rng: random.Random) -> Work:
    rows = _rows(rng, 8)
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        one = found.setdefault(str(row["tree"]), {"people": 0, "total": 0})
        one["people"] += 1
        one["total"] += int(str(row["count"]))
    say = "write summary.json: an object with a key for each tree of table.csv, its value an object with 'people' (the number of rows) and 'total' (the sum of count)"
    command = ("python3 - <<'PY'\nimport csv, json\nout = {}\nfor row in csv.DictReader(open('table.csv')):\n"
               "    one = out.setdefault(row['tree'], {'people': 0, 'total': 0})\n    one['people'] += 1\n"
               "    one['total'] += int(row['count'])\njson.dump(out, open('summary.json', 'w'))\nPY")  # fmt: skip
    return Work(say, [file("summary.json", json.dumps(found), "json")], command, {"table.csv": _csv(rows)})


def _merge(rng: random.Random) -> Work:
    first, second = _rows(rng, 5), _rows(rng, 5)
    found = {str(row["name"]): row for row in [*first, *second]}
    merged = [found[name] for name in sorted(found)]
    say = "write all.json, a list of the objects of old.json and new.json sorted by name; where a name is in both, only the object of new.json"
    command = "jq -s '(.[0] + .[1]) | group_by(.name) | map(.[-1])' old.json new.json > all.json"
    return Work(say, [file("all.json", json.dumps(merged), "json")], command,
                {"old.json": json.dumps(first), "new.json": json.dumps(second)})  # fmt: skip


TEMPLATES: Templates = {
    "easy": {"column": _column, "value": _value, "filter": _filter},
    "medium": {"to_json": _to_json, "select": _select, "update": _update},
    "hard": {"join": _join, "group": _group, "merge": _merge},
}

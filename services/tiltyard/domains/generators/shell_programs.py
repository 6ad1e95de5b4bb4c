"""Shell programs that turn input into output, judged by hidden runs.

A template is a sentence, a bash solution, a reference implementation in Python, and how its input is drawn.
Invariants: expected output comes from the reference implementation; a task's runs have different outputs, none of which
is the input itself. Left out: grading is the verifier kind `program_runs`.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tiltyard.domains.drafts import Draft, Request

RUNS = 4
_NAMES = ("ann", "bob", "cat", "dan", "eve", "fay", "gus", "hal", "ida", "jon")
_WORDS = ("oak", "pine", "fir", "elm", "ash", "box", "yew", "bay", "fig", "plum")
_LEVELS = ("INFO", "WARN", "ERROR", "DEBUG")
Lines = list[str]
Consts = Mapping[str, Any]


@dataclass(frozen=True)
class Program:
    """One program; `<n>`, `<w>` and `<t>` are constants in `say` and `bash`."""

    say: str
    bash: str
    f: Callable[[Consts, Lines], Lines]
    input: str = "words"
    """Kind of lines: words, numbers, few (of which some repeat), pairs, csv, log, paths."""


def _line(kind: str, rng: random.Random) -> str:
    number = rng.randint(0, 99)
    match kind:
        case "numbers":
            return str(rng.randint(-50, 120))
        case "few":
            return f"{rng.choice(_NAMES[:4])} {rng.randint(1, 2)}"
        case "pairs":
            return f"{rng.choice(_NAMES)} {number}"
        case "csv":
            return f"{rng.choice(_NAMES)},{rng.choice(_WORDS)},{number}"
        case "log":
            clock = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}"
            return f"2026-03-{rng.randint(1, 9):02d} {clock} {rng.choice(_LEVELS)} {rng.choice(_NAMES)} {number}"
        case "paths":
            folder = "/".join(rng.choice(_WORDS) for _ in range(rng.randint(1, 3)))
            return f"/{folder}/{rng.choice(_NAMES)}.{rng.choice(('txt', 'log', 'md'))}"
    return " ".join(rng.choice(_WORDS) for _ in range(rng.randint(1, 4)))


def _totals(lines: Lines) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in lines:
        name, number = line.split()
        found[name] = found.get(name, 0) + int(number)
    return found


EASY: dict[str, Program] = {
    "count_with": Program(
        "prints how many lines contain the word <w>",
        "grep -c -w -- '<w>' || true",
        lambda k, v: [str(sum(k["w"] in line.split() for line in v))],
    ),
    "first_words": Program(
        "prints the first word of every line in capital letters",
        "awk '{ print toupper($1) }'",
        lambda k, v: [line.split()[0].upper() for line in v],
    ),
    "sum_above": Program(
        "prints the sum of the numbers greater than <n> (one number a line; 0 if there are none)",
        "awk '$1 > <n> { s += $1 } END { print s + 0 }'",
        lambda k, v: [str(sum(int(x) for x in v if int(x) > k["n"]))],
        "numbers",
    ),
    "number_lines": Program(
        "prints every line with its number and a colon before it, as in '3:oak pine'",
        "awk '{ print NR \":\" $0 }'",
        lambda k, v: [f"{i}:{line}" for i, line in enumerate(v, 1)],
    ),
    "every_nth": Program(
        "prints every <n>th line, beginning with line <n>",
        "awk 'NR % <n> == 0'",
        lambda k, v: v[k["n"] - 1 :: k["n"]],
    ),
    "swap_words": Program(
        "prints every line, a name and a number, with the number first",
        "awk '{ print $2, $1 }'",
        lambda k, v: [" ".join(reversed(line.split())) for line in v],
        "pairs",
    ),
    "replace_word": Program(
        "prints the input with every whole word <w> replaced by <t>",
        "sed 's/\\b<w>\\b/<t>/g'",
        lambda k, v: [" ".join(k["t"] if word == k["w"] else word for word in line.split()) for line in v],
    ),
}
MEDIUM: dict[str, Program] = {
    "count_words": Program(
        "prints each different word with its count, as 'count word', by falling count and then by word",
        "tr ' ' '\\n' | LC_ALL=C sort | uniq -c | LC_ALL=C sort -k1,1nr -k2 | awk '{ print $1, $2 }'",
        lambda k, v: [f"{n} {w}" for w, n in sorted(Counter(" ".join(v).split()).items(), key=lambda p: (-p[1], p[0]))],
    ),
    "totals": Program(
        "reads lines of a name and a number and prints for each name 'name total', sorted by name",
        "awk '{ t[$1] += $2 } END { for (n in t) print n, t[n] }' | LC_ALL=C sort",
        lambda k, v: [f"{name} {total}" for name, total in sorted(_totals(v).items())],
        "pairs",
    ),
    "csv_filter": Program(
        "reads lines 'name,tree,number' and prints the names of those whose number is at least <m>, each name once, sorted",
        "awk -F, '$3 >= <m> { print $1 }' | LC_ALL=C sort -u",
        lambda k, v: sorted({line.split(",")[0] for line in v if int(line.split(",")[2]) >= k["m"]}),
        "csv",
    ),
    "log_levels": Program(
        "reads log lines 'date time LEVEL user number' and prints 'LEVEL count' for each level that occurs, sorted by level",
        "awk '{ c[$3]++ } END { for (l in c) print l, c[l] }' | LC_ALL=C sort",
        lambda k, v: [f"{a} {n}" for a, n in sorted(Counter(line.split()[2] for line in v).items())],
        "log",
    ),
    "extensions": Program(
        "reads paths and prints 'ending count' for each file name ending (without the dot), by ending",
        "sed 's/.*\\.//' | LC_ALL=C sort | uniq -c | awk '{ print $2, $1 }'",
        lambda k, v: [f"{a} {n}" for a, n in sorted(Counter(line.rsplit(".", 1)[1] for line in v).items())],
        "paths",
    ),
    "longest": Program(
        "prints the longest line (the first of them) and then its length on a line of its own",
        "awk 'length($0) > n || NR == 1 { n = length($0); l = $0 } END { print l; print n }'",
        lambda k, v: [best := max(v, key=len), str(len(best))],
    ),
    "drop_repeats": Program(
        "prints the lines without those that occurred before, in their order",
        "awk '!seen[$0]++'",
        lambda k, v: list(dict.fromkeys(v)),
        "few",
    ),
}
HARD: dict[str, Program] = {
    "median": Program(
        "reads one number a line and prints the median; of an even count the smaller of the two in the middle",
        "sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'",
        lambda k, v: [str(sorted(map(int, v))[(len(v) - 1) // 2])], "numbers",
    ),
    "best_per_tree": Program(
        "reads lines 'name,tree,number' and prints for each tree 'tree name number' with its greatest number (of equal "
        "ones the first), sorted by tree",
        "awk -F, '!($2 in b) || $3 > b[$2] { b[$2] = $3; n[$2] = $1 } END { for (t in b) print t, n[t], b[t] }' | LC_ALL=C sort",
        lambda k, v: [
            f"{tree} {name} {best}"
            for tree in sorted({line.split(",")[1] for line in v})
            for best in [max(int(line.split(",")[2]) for line in v if line.split(",")[1] == tree)]
            for name in [next(x.split(",")[0] for x in v if x.split(",")[1:] == [tree, str(best)])]
        ], "csv",
    ),
    "errors_by_hour": Program(
        "reads log lines 'date time LEVEL user number' and prints 'hour count' (two digits) for each hour with an ERROR "
        "or WARN line, by hour",
        "awk '$3 == \"ERROR\" || $3 == \"WARN\" { c[substr($2, 1, 2)]++ } END { for (h in c) print h, c[h] }' | LC_ALL=C sort",
        lambda k, v: [
            f"{h} {n}" for h, n in sorted(Counter(
                line.split()[1][:2] for line in v if line.split()[2] in ("ERROR", "WARN")).items())
        ], "log",
    ),
    "folders": Program(
        "reads paths and prints each directory that holds files directly, with the count, as 'count directory', sorted by "
        "directory",
        "sed 's,/[^/]*$,,' | LC_ALL=C sort | uniq -c | awk '{ print $1, $2 }'",
        lambda k, v: [f"{n} {d}" for d, n in sorted(Counter(line.rsplit("/", 1)[0] for line in v).items())], "paths",
    ),
    "running": Program(
        "reads lines of a name and a number and prints after each line 'name total', the name's total so far; a name whose "
        "total passes <m> is followed by ' *'",
        "awk '{ t[$1] += $2; print $1, t[$1] (t[$1] > <m> ? \" *\" : \"\") }'",
        lambda k, v: [
            f"{line.split()[0]} {total}{' *' if total > k['m'] else ''}"
            for i, line in enumerate(v) for total in [_totals(v[: i + 1])[line.split()[0]]]
        ], "pairs",
    ),
    "transpose": Program(
        "reads lines 'name,tree,number' and prints three lines: the names, the trees and the numbers, each joined with ';'",
        "awk -F, '{ for (i = 1; i <= 3; i++) r[i] = r[i] (NR > 1 ? \";\" : \"\") $i } END { for (i = 1; i <= 3; i++) print r[i] }'",
        lambda k, v: [";".join(column) for column in zip(*(line.split(",") for line in v), strict=True)], "csv",
    ),
    "users_with_both": Program(
        "reads log lines 'date time LEVEL user number' and prints the users that have both an INFO and an ERROR line, "
        "sorted; or NONE",
        "awk '$3 == \"INFO\" { a[$4] } $3 == \"ERROR\" { b[$4] } END { for (u in a) if (u in b) { print u; n++ } "
        "if (!n) print \"NONE\" }' | LC_ALL=C sort",
        lambda k, v: sorted(
            {line.split()[3] for line in v if " INFO " in line} & {line.split()[3] for line in v if " ERROR " in line}
        ) or ["NONE"], "log",
    ),
}  # fmt: skip
LEVELS: Mapping[str, dict[str, Program]] = {"easy": EASY, "medium": MEDIUM, "hard": HARD}


def generate(request: Request) -> Iterator[Draft]:
    """Programs of one level, endlessly, every template in turn. Options: level."""
    level = request.options["level"]
    rng = random.Random(f"shell_programs/{level}/{request.split}/{request.seed}")
    names = [name for name in LEVELS[level] if request.wants(name)]
    while names:
        for name in names:
            yield _draft(name, LEVELS[level][name], rng)


def _draft(name: str, program: Program, rng: random.Random) -> Draft:
    while True:
        w, t = rng.sample(_WORDS, 2)
        k = {"n": rng.randint(2, 4), "m": rng.randint(20, 80), "w": w, "t": t}
        inputs = [[_line(program.input, rng) for _ in range(rng.randint(4, 14))] for _ in range(RUNS)]
        runs = [(_text(lines), _text(program.f(k, lines))) for lines in inputs]
        if len({out for _, out in runs}) == RUNS and all(out.strip() and out != given for given, out in runs):
            break
    shown, out = _text(lines := inputs[0][:5]), _text(program.f(k, lines))
    say = re.sub(r"<(\w)>", lambda match: str(k[match[1]]), program.say)
    bash = re.sub(r"<(\w)>", lambda match: str(k[match[1]]), program.bash)
    return Draft(
        template=name,
        fields={"what": say, "input": shown.rstrip("\n"), "output": out.rstrip("\n")},
        data={"runs": [{"stdin": given, "stdout": out} for given, out in runs]},
        reference=f"```bash\n{bash}\n```",
        labels={"input": program.input},
    )


def _text(lines: Lines) -> str:
    return "".join(f"{line}\n" for line in lines)

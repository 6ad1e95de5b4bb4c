"""Text files: sorting, counting, columns, totals."""

from __future__ import annotations

import random
from collections import Counter

from .work import NAMES, WORDS, Templates, Work, absent, file, lines, some, two


def _unique(rng: random.Random) -> Work:
    a, b = two(rng)
    words, turned = some(rng, 6, 12), rng.random() < 0.5
    order = "reverse alphabetical" if turned else "alphabetical"
    say = f"write the different lines of {a}.txt into {b}.txt, each once, in {order} order"
    return Work(say, [file(f"{b}.txt", lines(sorted(set(words), reverse=turned)))],
                f"LC_ALL=C sort -u{'r' if turned else ''} {a}.txt > {b}.txt", {f"{a}.txt": lines(words)})  # fmt: skip


def _replace(rng: random.Random) -> Work:
    a, _ = two(rng)
    rows = [" ".join(some(rng, 2, 4)) for _ in range(rng.randint(4, 8))]
    old, new = rng.choice(" ".join(rows).split()), rng.choice(NAMES)
    after = [" ".join(new if word == old else word for word in row.split()) for row in rows]
    say = f"in {a}.txt replace every word {old} by {new}, in place"
    return Work(
        say, [file(f"{a}.txt", lines(after))], f"sed -i 's/\\b{old}\\b/{new}/g' {a}.txt", {f"{a}.txt": lines(rows)}
    )


def _middle(rng: random.Random) -> Work:
    a, b = two(rng)
    rows = [f"{rng.choice(WORDS)} {rng.randint(1, 99)}" for _ in range(rng.randint(9, 14))]
    low = rng.randint(2, 4)
    high = low + rng.randint(2, 4)
    return Work(f"write lines {low} to {high} of {a}.txt into {b}.txt", [file(f"{b}.txt", lines(rows[low - 1 : high]))],
                f"sed -n '{low},{high}p' {a}.txt > {b}.txt", {f"{a}.txt": lines(rows)})  # fmt: skip


def _frequent(rng: random.Random) -> Work:
    a, b = two(rng)
    words, n = some(rng, 14, 24, WORDS[:7]), rng.randint(2, 4)
    ranked = sorted(Counter(words).items(), key=lambda pair: (-pair[1], pair[0]))[:n]
    say = f"write the {n} most frequent lines of {a}.txt into {b}.txt as 'count word', the most frequent first, equal ones in alphabetical order"
    command = f"LC_ALL=C sort {a}.txt | uniq -c | LC_ALL=C sort -k1,1nr -k2 | head -n {n} | awk '{{ print $1, $2 }}' > {b}.txt"
    return Work(say, [file(f"{b}.txt", lines(f"{n} {w}" for w, n in ranked))], command, {f"{a}.txt": lines(words)})


def _common(rng: random.Random) -> Work:
    a, b = two(rng)
    first, second = some(rng, 6, 10), some(rng, 6, 10)
    only = rng.random() < 0.5
    found = sorted(set(first) - set(second)) if only else sorted(set(first) & set(second))
    say = f"write the lines that are in {a}.txt {'but not' if only else 'and also'} in {b}.txt into out.txt, each once, sorted"
    files = {f"{a}.txt": lines(first), f"{b}.txt": lines(second)}
    flags = "-23" if only else "-12"
    command = f"LC_ALL=C sort -u {a}.txt > /tmp/a; LC_ALL=C sort -u {b}.txt > /tmp/b; LC_ALL=C comm {flags} /tmp/a /tmp/b > out.txt"
    return Work(say, [file("out.txt", lines(found))], command, files)


def _totals(rng: random.Random) -> Work:
    a, b = two(rng)
    rows = [(rng.choice(NAMES[:5]), rng.randint(1, 60)) for _ in range(rng.randint(7, 14))]
    totals: Counter[str] = Counter()
    for name, number in rows:
        totals[name] += number
    say = f"{a}.txt has lines 'name number'; write 'name total' for each name into {b}.txt, sorted by name"
    command = f"awk '{{ t[$1] += $2 }} END {{ for (n in t) print n, t[n] }}' {a}.txt | LC_ALL=C sort > {b}.txt"
    return Work(say, [file(f"{b}.txt", lines(f"{n} {t}" for n, t in sorted(totals.items())))], command,
                {f"{a}.txt": lines(f"{n} {x}" for n, x in rows)})  # fmt: skip


def _split(rng: random.Random) -> Work:
    a, b = two(rng)
    rows = [(rng.choice(NAMES[:4]), rng.choice(WORDS)) for _ in range(rng.randint(8, 14))]
    names = sorted({name for name, _ in rows})
    say = f"{a}.txt has lines 'name word'; write the words of each name, in their order, into {b}/NAME.txt, then remove {a}.txt"
    checks = [file(f"{b}/{name}.txt", lines(w for n, w in rows if n == name)) for name in names]
    command = f'mkdir -p {b}\nawk \'{{ print $2 > ("{b}/" $1 ".txt") }}\' {a}.txt\nrm {a}.txt'
    return Work(say, [*checks, absent(f"{a}.txt")], command, {f"{a}.txt": lines(f"{n} {w}" for n, w in rows)})


def _paragraphs(rng: random.Random) -> Work:
    a, b = two(rng)
    parts = [[" ".join(some(rng, 2, 5)) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(3, 6))]
    word = rng.choice(" ".join(" ".join(part) for part in parts).split())
    found = [part for part in parts if word in " ".join(part).split()]
    say = f"{a}.txt holds paragraphs with an empty line between; write those that contain the word {word} into {b}.txt, in their order, each as one line"
    text = "\n".join(lines(part) for part in parts)
    command = (
        f'awk -v RS= -v w={word} \'{{ gsub(/\\n/, " "); if ((" " $0 " ") ~ (" " w " ")) print }}\' {a}.txt > {b}.txt'
    )
    return Work(say, [file(f"{b}.txt", lines(" ".join(part) for part in found))], command, {f"{a}.txt": text})


def _running(rng: random.Random) -> Work:
    a, b = two(rng)
    rows = [(rng.choice(NAMES[:4]), rng.randint(1, 40)) for _ in range(rng.randint(8, 14))]
    limit, totals, found = rng.randint(25, 60), Counter[str](), []
    for name, number in rows:
        totals[name] += number
        if totals[name] > limit and name not in found:
            found.append(name)
    say = f"{a}.txt has lines 'name number'; write into {b}.txt the names in the order in which their running total first passes {limit}, one a line (an empty file if none does)"
    command = f"awk '{{ t[$1] += $2; if (t[$1] > {limit} && !d[$1]++) print $1 }}' {a}.txt > {b}.txt"
    return Work(say, [file(f"{b}.txt", lines(found))], command, {f"{a}.txt": lines(f"{n} {x}" for n, x in rows)})


TEMPLATES: Templates = {
    "easy": {"unique": _unique, "replace": _replace, "middle": _middle},
    "medium": {"frequent": _frequent, "common": _common, "totals": _totals},
    "hard": {"split": _split, "paragraphs": _paragraphs, "running": _running},
}

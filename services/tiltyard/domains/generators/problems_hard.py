"""Problems that need dynamic programming, number theory or parsing."""

from __future__ import annotations

import itertools
import random
from functools import cache
from typing import Any

from .problems import Consts, Problem


def _small(k: Consts, rng: random.Random) -> tuple[Any, ...]:
    return ([rng.randint(1, 15) for _ in range(rng.randint(0, 7))],)


def _near_words(k: Consts, rng: random.Random) -> tuple[Any, ...]:
    word = rng.choice(("kitten", "sunday", "flaw", "garden", "planet", "abc", ""))
    other = [c for c in word if rng.random() < 0.8]
    for _ in range(rng.randint(0, 2)):
        other.insert(rng.randint(0, len(other)), rng.choice("aeinst"))
    return word, "".join(other)


def _edit(k: Consts, a: str, b: str) -> int:
    @cache
    def cost(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        same = cost(i - 1, j - 1) + (0 if a[i - 1] == b[j - 1] else k["n"])
        return min(same, cost(i - 1, j) + 1, cost(i, j - 1) + 1)

    return cost(len(a), len(b))


def _ways(k: Consts, x: int) -> int:
    @cache
    def ways(left: int, coins: tuple[int, ...]) -> int:
        if left == 0:
            return 1
        return sum(ways(left - coin, coins[i:]) for i, coin in enumerate(coins) if coin <= left)

    return ways(x, (1, k["n"], k["m"]))


def _sum_text(k: Consts, rng: random.Random) -> tuple[Any, ...]:
    text = str(rng.randint(0, 30))
    for _ in range(rng.randint(0, 5)):
        text += rng.choice("+-*") + str(rng.randint(0, 12))
    return (text,)


HARD: tuple[Problem, ...] = (
    Problem(
        "rising", ("ints",), "int",
        "returns <n> times the length of the longest strictly rising sequence that is left when some values are removed",
        "def solve(values):\n    best = []\n    for i, x in enumerate(values):\n"
        "        best.append(1 + max((best[j] for j in range(i) if values[j] < x), default=0))\n"
        "    return <n> * max(best, default=0)",
        "function solve(values) {\n  const best = values.map(() => 1);\n  for (let i = 0; i < values.length; i++)\n"
        "    for (let j = 0; j < i; j++) if (values[j] < values[i]) best[i] = Math.max(best[i], best[j] + 1);\n"
        "  return <n> * Math.max(0, ...best);\n}",
        "long long solve(int *values, int count) {\n    int best[1024], most = 0;\n"
        "    for (int i = 0; i < count; i++) {\n        best[i] = 1;\n        for (int j = 0; j < i; j++)\n"
        "            if (values[j] < values[i] && best[j] + 1 > best[i]) best[i] = best[j] + 1;\n"
        "        if (best[i] > most) most = best[i];\n    }\n    return <n> * most;\n}",
        lambda k, v: k["n"] * max(
            size for size in range(len(v) + 1)
            if any(all(a < b for a, b in itertools.pairwise(part)) for part in itertools.combinations(v, size))
        ),
        lambda k, rng: ([rng.randint(-9, 20) for _ in range(rng.randint(0, 9))],),
    ),
    Problem(
        "edit_distance", ("text", "text"), "int",
        "returns the least cost to turn the first text into the second, where adding or removing a character costs 1 and "
        "replacing one costs <n>",
        "def solve(a, b):\n    row = list(range(len(b) + 1))\n    for i, x in enumerate(a, 1):\n        last, row[0] = row[0], i\n"
        "        for j, y in enumerate(b, 1):\n"
        "            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (0 if x == y else <n>))\n"
        "    return row[-1]",
        "function solve(a, b) {\n  let row = Array.from({ length: b.length + 1 }, (_, j) => j);\n"
        "  for (let i = 1; i <= a.length; i++) {\n    const next = [i];\n    for (let j = 1; j <= b.length; j++)\n"
        "      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : <n>));\n"
        "    row = next;\n  }\n  return row[b.length];\n}",
        "long long solve(const char *a, const char *b) {\n    int row[1024], n = strlen(b);\n"
        "    for (int j = 0; j <= n; j++) row[j] = j;\n    for (int i = 1; a[i - 1]; i++) {\n        int last = row[0];\n"
        "        row[0] = i;\n        for (int j = 1; j <= n; j++) {\n"
        "            int best = last + (a[i - 1] == b[j - 1] ? 0 : <n>);\n            last = row[j];\n"
        "            if (row[j] + 1 < best) best = row[j] + 1;\n            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;\n"
        "            row[j] = best;\n        }\n    }\n    return row[n];\n}",
        _edit, _near_words,
    ),
    Problem(
        "coin_ways", ("int",), "int",
        "returns in how many ways the amount, 0 or more, can be paid with coins of 1, <n> and <m>, order not counting",
        "def solve(x):\n    ways = [1] + [0] * x\n    for coin in (1, <n>, <m>):\n        for v in range(coin, x + 1):\n"
        "            ways[v] += ways[v - coin]\n    return ways[x]",
        "function solve(x) {\n  const ways = [1, ...new Array(x).fill(0)];\n  for (const coin of [1, <n>, <m>])\n"
        "    for (let v = coin; v <= x; v++) ways[v] += ways[v - coin];\n  return ways[x];\n}",
        "long long solve(long long x) {\n    static long long ways[100000];\n    int coins[] = {1, <n>, <m>};\n"
        "    ways[0] = 1;\n    for (int c = 0; c < 3; c++)\n"
        "        for (long long v = coins[c]; v <= x; v++) ways[v] += ways[v - coins[c]];\n    return ways[x];\n}",
        _ways,
        lambda k, rng: (rng.choice((0, 1, k["n"], k["m"], rng.randint(5, 90), rng.randint(50, 160))),),
    ),
    Problem(
        "best_stretch", ("ints",), "int",
        "returns the greatest sum of <n> or more neighbouring values, or 0 if there are fewer than <n> values",
        "def solve(values):\n    sums = [sum(values[i:j]) for i in range(len(values)) "
        "for j in range(i + <n>, len(values) + 1)]\n    return max(sums, default=0)",
        "function solve(values) {\n  let best = values.length < <n> ? 0 : -Infinity;\n"
        "  for (let i = 0; i < values.length; i++) {\n    let total = 0;\n    for (let j = i; j < values.length; j++) {\n"
        "      total += values[j];\n      if (j - i + 1 >= <n>) best = Math.max(best, total);\n    }\n  }\n  return best;\n}",
        "long long solve(int *values, int count) {\n    long long best = count < <n> ? 0 : LLONG_MIN;\n"
        "    for (int i = 0; i < count; i++) {\n        long long total = 0;\n        for (int j = i; j < count; j++) {\n"
        "            total += values[j];\n            if (j - i + 1 >= <n> && total > best) best = total;\n        }\n    }\n"
        "    return best;\n}",
        lambda k, v: max(
            (sum(v[a:b]) for a, b in itertools.combinations(range(len(v) + 1), 2) if b - a >= k["n"]), default=0
        ),
        lambda k, rng: ([rng.randint(-15, 15) for _ in range(rng.choice((1, k["n"] - 1, k["n"], 7, 9, 10)))],),
    ),
    Problem(
        "prime_factors", ("int",), "int",
        "returns the sum of the different prime factors of the number, 1 or more, that are not <n> (0 if there are none)",
        "def solve(x):\n    total, p = 0, 2\n    while x > 1:\n        if x % p == 0:\n"
        "            total += p if p != <n> else 0\n            while x % p == 0:\n                x //= p\n"
        "        p += 1\n    return total",
        "function solve(x) {\n  let total = 0;\n  for (let p = 2; x > 1; p++) {\n    if (x % p) continue;\n"
        "    if (p !== <n>) total += p;\n    while (x % p === 0) x /= p;\n  }\n  return total;\n}",
        "long long solve(long long x) {\n    long long total = 0;\n    for (long long p = 2; x > 1; p++) {\n"
        "        if (x % p) continue;\n        if (p != <n>) total += p;\n        while (x % p == 0) x /= p;\n    }\n"
        "    return total;\n}",
        lambda k, x: sum(
            p for p in range(2, x + 1) if x % p == 0 and p != k["n"] and all(p % d for d in range(2, int(p**0.5) + 1))
        ),
        lambda k, rng: (rng.choice((1, k["n"], k["n"] ** 2, rng.randint(2, 100), k["n"] * rng.randint(2, 120), 997)),),
    ),
    Problem(
        "palindrome", ("text",), "int",
        "returns the length of the longest part of the text that reads the same backwards, plus <m>",
        "def solve(text):\n    n = len(text)\n"
        "    parts = [j - i for i in range(n) for j in range(i + 1, n + 1) if text[i:j] == text[i:j][::-1]]\n"
        "    return max(parts, default=0) + <m>",
        "function solve(text) {\n  let best = 0;\n  for (let i = 0; i < text.length; i++)\n    for (const odd of [0, 1]) {\n"
        "      let a = i, b = i + odd;\n      while (a >= 0 && b < text.length && text[a] === text[b]) { a--; b++; }\n"
        "      best = Math.max(best, b - a - 1);\n    }\n  return best + <m>;\n}",
        "long long solve(const char *text) {\n    int n = strlen(text), best = 0;\n    for (int i = 0; i < n; i++)\n"
        "        for (int odd = 0; odd < 2; odd++) {\n            int a = i, b = i + odd;\n"
        "            while (a >= 0 && b < n && text[a] == text[b]) { a--; b++; }\n"
        "            if (b - a - 1 > best) best = b - a - 1;\n        }\n    return best + <m>;\n}",
        lambda k, s: k["m"] + next(
            size for size in range(len(s), -1, -1)
            if any(s[i:i + size] == s[i:i + size][::-1] for i in range(len(s) - size + 1))
        ),
    ),
    Problem(
        "expression", ("text",), "int",
        "returns the value of a sum like '3+4*2-1', made of whole numbers, '+', '-' and '*' without brackets, with '*' "
        "before '+' and '-', and adds <m>",
        "def solve(text):\n    import re\n    total, sign, product = 0, 1, None\n"
        "    for number, sign_after in re.findall(r'(\\d+)([-+*]?)', text):\n"
        "        product = int(number) if product is None else product * int(number)\n        if sign_after != '*':\n"
        "            total, product = total + sign * product, None\n            sign = -1 if sign_after == '-' else 1\n"
        "    return total + <m>",
        "function solve(text) {\n  const terms = text.match(/[-+]?\\d+(\\*\\d+)*/g);\n"
        "  return terms.map((t) => t.split('*').map(Number).reduce((a, b) => a * b)).reduce((a, b) => a + b, <m>);\n}",
        "long long solve(const char *text) {\n    long long total = <m>, sign = 1;\n    char *at = (char *)text;\n"
        "    for (;;) {\n        long long product = strtoll(at, &at, 10);\n"
        "        while (*at == '*') product *= strtoll(at + 1, &at, 10);\n        total += sign * product;\n"
        "        if (!*at) return total;\n        sign = *at++ == '-' ? -1 : 1;\n    }\n}",
        lambda k, s: k["m"] + sum(
            _product(term) for part in s.replace("-", "+-").split("+") for term in [part]
        ),
        _sum_text,
    ),
    Problem(
        "best_fill", ("ints",), "int",
        "returns the greatest sum, at most <m>, of some of the values, each 1 or more and used at most once (0 for none)",
        "def solve(values):\n    sums = {0}\n    for x in values:\n        sums |= {s + x for s in sums if s + x <= <m>}\n"
        "    return max(sums)",
        "function solve(values) {\n  const can = [true];\n  for (const x of values)\n"
        "    for (let s = <m>; s >= x; s--) if (can[s - x]) can[s] = true;\n  return can.lastIndexOf(true);\n}",
        "long long solve(int *values, int count) {\n    char can[<m> + 1];\n    memset(can, 0, sizeof can);\n    can[0] = 1;\n"
        "    for (int i = 0; i < count; i++)\n        for (int s = <m>; s >= values[i]; s--) can[s] |= can[s - values[i]];\n"
        "    int best = <m>;\n    while (!can[best]) best--;\n    return best;\n}",
        lambda k, v: max(
            total for size in range(len(v) + 1) for part in itertools.combinations(v, size)
            if (total := sum(part)) <= k["m"]
        ),
        _small,
    ),
)  # fmt: skip


def _product(term: str) -> int:
    value = 1
    for factor in term.lstrip("-").split("*"):
        value *= int(factor)
    return -value if term.startswith("-") else value

"""Problems that one loop solves."""

from __future__ import annotations

from .problems import Problem

EASY: tuple[Problem, ...] = (
    Problem(
        "sum_multiples", ("ints",), "int", "returns the sum of those values that are divisible by <n>",
        "def solve(values):\n    return sum(x for x in values if x % <n> == 0)",
        "function solve(values) {\n  return values.filter((x) => x % <n> === 0).reduce((a, b) => a + b, 0);\n}",
        "long long solve(int *values, int count) {\n    long long total = 0;\n"
        "    for (int i = 0; i < count; i++) if (values[i] % <n> == 0) total += values[i];\n    return total;\n}",
        lambda k, v: sum(x for x in v if not abs(x) % k["n"]),
    ),
    Problem(
        "count_between", ("ints",), "int", "returns how many of the values lie from <low> to <high>, both included",
        "def solve(values):\n    return sum(<low> <= x <= <high> for x in values)",
        "function solve(values) {\n  return values.filter((x) => x >= <low> && x <= <high>).length;\n}",
        "long long solve(int *values, int count) {\n    int found = 0;\n"
        "    for (int i = 0; i < count; i++) found += values[i] >= <low> && values[i] <= <high>;\n    return found;\n}",
        lambda k, v: len([x for x in v if x in range(k["low"], k["high"] + 1)]),
    ),
    Problem(
        "digit_sum", ("int",), "int", "returns <n> times the sum of the decimal digits of the number, which is 0 or more",
        "def solve(x):\n    return <n> * sum(int(d) for d in str(x))",
        "function solve(x) {\n  let total = 0;\n  while (x > 0) { total += x % 10; x = Math.floor(x / 10); }\n"
        "  return <n> * total;\n}",
        "long long solve(long long x) {\n    long long total = 0;\n    for (; x > 0; x /= 10) total += x % 10;\n"
        "    return <n> * total;\n}",
        lambda k, x: k["n"] * sum(map(int, f"{x:d}")),
    ),
    Problem(
        "largest_step", ("ints",), "int",
        "returns the largest absolute difference between two neighbouring values, or 0 if there are fewer than two",
        "def solve(values):\n    return max((abs(a - b) for a, b in zip(values, values[1:])), default=0)",
        "function solve(values) {\n  let best = 0;\n"
        "  for (let i = 1; i < values.length; i++) best = Math.max(best, Math.abs(values[i] - values[i - 1]));\n"
        "  return best;\n}",
        "long long solve(int *values, int count) {\n    int best = 0;\n    for (int i = 1; i < count; i++) {\n"
        "        int step = abs(values[i] - values[i - 1]);\n        if (step > best) best = step;\n    }\n"
        "    return best;\n}",
        lambda k, v: max([0, *(abs(v[i] - v[i + 1]) for i in range(len(v) - 1))]),
    ),
    Problem(
        "count_letter", ("text",), "int", "returns how often the letter '<c>' occurs in the text, in small or capital form",
        "def solve(text):\n    return text.lower().count('<c>')",
        "function solve(text) {\n  return text.toLowerCase().split('<c>').length - 1;\n}",
        "long long solve(const char *text) {\n    int found = 0;\n"
        "    for (; *text; text++) found += tolower(*text) == '<c>';\n    return found;\n}",
        lambda k, s: sum(x in (k["c"], k["c"].upper()) for x in s),
        lambda k, rng: (
            "".join(rng.choice((k["c"], k["c"].upper(), "x", "Y", " ", "oe")) for _ in range(rng.randint(0, 12))),
        ),
    ),
    Problem(
        "clamped_sum", ("ints",), "int",
        "returns the sum of the values after each value below <low> is replaced by <low> and each above <high> by <high>",
        "def solve(values):\n    return sum(min(max(x, <low>), <high>) for x in values)",
        "function solve(values) {\n  let total = 0;\n"
        "  for (const x of values) total += Math.min(Math.max(x, <low>), <high>);\n  return total;\n}",
        "long long solve(int *values, int count) {\n    long long total = 0;\n    for (int i = 0; i < count; i++)\n"
        "        total += values[i] < <low> ? <low> : values[i] > <high> ? <high> : values[i];\n    return total;\n}",
        lambda k, v: sum(sorted((k["low"], x, k["high"]))[1] for x in v),
    ),
    Problem(
        "divisions", ("int",), "int",
        "returns how many times the number, 0 or more, must be divided by <n> (dropping the remainder) until it is 0",
        "def solve(x):\n    steps = 0\n    while x > 0:\n        x //= <n>\n        steps += 1\n    return steps",
        "function solve(x) {\n  let steps = 0;\n  while (x > 0) { x = Math.floor(x / <n>); steps++; }\n  return steps;\n}",
        "long long solve(long long x) {\n    int steps = 0;\n    for (; x > 0; x /= <n>) steps++;\n    return steps;\n}",
        lambda k, x: next(i for i in range(99) if k["n"] ** i > x),
    ),
    Problem(
        "keep_every", ("text",), "text", "returns every <n>-th character of the text, beginning with the first",
        "def solve(text):\n    return text[::<n>]",
        "function solve(text) {\n  return [...text].filter((_, i) => i % <n> === 0).join('');\n}",
        "const char *solve(const char *text) {\n    static char out[4096];\n    int at = 0;\n"
        "    for (int i = 0; text[i]; i++) if (i % <n> == 0) out[at++] = text[i];\n    out[at] = 0;\n    return out;\n}",
        lambda k, s: "".join(s[i] for i in range(0, len(s), k["n"])),
    ),
    Problem(
        "alternate_sum", ("ints",), "int",
        "returns the first value minus the second plus the third minus the fourth and so on, the whole times <n>",
        "def solve(values):\n    return <n> * (sum(values[::2]) - sum(values[1::2]))",
        "function solve(values) {\n  return <n> * values.reduce((total, x, i) => (i % 2 ? total - x : total + x), 0);\n}",
        "long long solve(int *values, int count) {\n    long long total = 0;\n"
        "    for (int i = 0; i < count; i++) total += i % 2 ? -values[i] : values[i];\n    return <n> * total;\n}",
        lambda k, v: sum(k["n"] * x * (-1) ** i for i, x in enumerate(v)),
    ),
)  # fmt: skip

"""Problems that need state, nested loops or a stack."""

from __future__ import annotations

import itertools
import random
from typing import Any

from .problems import Consts, Problem


def _brackets(k: Consts, rng: random.Random) -> tuple[Any, ...]:
    text = ""
    for _ in range(rng.randint(0, 4)):
        a, b = rng.choice(("()", "[]"))
        text = rng.choice((f"{a}{text}{b}", f"{text}{a}{b}", f"{a}{b}{text}", f"{a}{text}"))
    return (text,)


def _depth(k: Consts, text: str) -> int:
    pairs = {")": "(", "]": "["}
    open_: list[str] = []
    best = 0
    for char in text:
        if char in pairs:
            if not open_ or open_.pop() != pairs[char]:
                return -1
        else:
            open_.append(char)
            best = max(best, len(open_))
    return -1 if open_ else best


def _runs(k: Consts, rng: random.Random) -> tuple[Any, ...]:
    return ("".join(rng.choice("abk") * rng.randint(1, 5) for _ in range(rng.randint(0, 5))),)


MEDIUM: tuple[Problem, ...] = (
    Problem(
        "longest_run", ("ints",), "int",
        "returns <n> times the length of the longest run of equal neighbouring values (0 for no values)",
        "def solve(values):\n    best = run = 0\n    for i, x in enumerate(values):\n"
        "        run = run + 1 if i and x == values[i - 1] else 1\n        best = max(best, run)\n    return <n> * best",
        "function solve(values) {\n  let best = 0, run = 0;\n  values.forEach((x, i) => {\n"
        "    run = i && x === values[i - 1] ? run + 1 : 1;\n    best = Math.max(best, run);\n  });\n  return <n> * best;\n}",
        "long long solve(int *values, int count) {\n    int best = 0, run = 0;\n    for (int i = 0; i < count; i++) {\n"
        "        run = i && values[i] == values[i - 1] ? run + 1 : 1;\n        if (run > best) best = run;\n    }\n"
        "    return <n> * best;\n}",
        lambda k, v: k["n"] * max((len(list(g)) for _, g in itertools.groupby(v)), default=0),
    ),
    Problem(
        "bracket_depth", ("text",), "int",
        "returns how deep the round and square brackets of the text are nested, plus <n>, or -1 if they don't match",
        "def solve(text):\n    pairs = {')': '(', ']': '['}\n    stack, best = [], 0\n    for char in text:\n"
        "        if char in pairs:\n            if not stack or stack.pop() != pairs[char]:\n                return -1\n"
        "        else:\n            stack.append(char)\n            best = max(best, len(stack))\n"
        "    return -1 if stack else best + <n>",
        "function solve(text) {\n  const pairs = { ')': '(', ']': '[' };\n  const stack = [];\n  let best = 0;\n"
        "  for (const char of text) {\n    if (char in pairs) {\n      if (stack.pop() !== pairs[char]) return -1;\n"
        "    } else {\n      stack.push(char);\n      best = Math.max(best, stack.length);\n    }\n  }\n"
        "  return stack.length ? -1 : best + <n>;\n}",
        "long long solve(const char *text) {\n    char stack[4096];\n    int depth = 0, best = 0;\n"
        "    for (; *text; text++) {\n        if (*text == '(' || *text == '[') {\n            stack[depth++] = *text;\n"
        "            if (depth > best) best = depth;\n        } else {\n"
        "            if (!depth || stack[--depth] != (*text == ')' ? '(' : '[')) return -1;\n        }\n    }\n"
        "    return depth ? -1 : best + <n>;\n}",
        lambda k, s: d + k["n"] if (d := _depth(k, s)) >= 0 else -1,
        _brackets,
    ),
    Problem(
        "run_lengths", ("text",), "text",
        "returns the text, which is made of small letters, with each run of equal letters replaced by the letter and the "
        "length of the run, for example 'aab' by 'a2b1'; runs of <n> or more letters get a capital letter",
        "def solve(text):\n    out, i = '', 0\n    while i < len(text):\n        j = i\n"
        "        while j < len(text) and text[j] == text[i]:\n            j += 1\n"
        "        out += (text[i].upper() if j - i >= <n> else text[i]) + str(j - i)\n        i = j\n    return out",
        "function solve(text) {\n  let out = '';\n  for (let i = 0; i < text.length; ) {\n    let j = i;\n"
        "    while (j < text.length && text[j] === text[i]) j++;\n"
        "    out += (j - i >= <n> ? text[i].toUpperCase() : text[i]) + (j - i);\n    i = j;\n  }\n  return out;\n}",
        "const char *solve(const char *text) {\n    static char out[8192];\n    char *at = out;\n    *at = 0;\n"
        "    while (*text) {\n        int run = 0;\n        while (text[run] == *text) run++;\n"
        '        at += sprintf(at, "%c%d", run >= <n> ? toupper(*text) : *text, run);\n        text += run;\n    }\n'
        "    return out;\n}",
        lambda k, s: "".join(
            (c.upper() if (m := len(list(g))) >= k["n"] else c) + str(m) for c, g in itertools.groupby(s)
        ),
        _runs,
    ),
    Problem(
        "caesar", ("text",), "text",
        "returns the text with each small letter moved <n> places on in the alphabet, from z on to a; all else stays",
        "def solve(text):\n    return ''.join(chr((ord(c) - 97 + <n>) % 26 + 97) if 'a' <= c <= 'z' else c for c in text)",
        "function solve(text) {\n"
        "  return text.replace(/[a-z]/g, (c) => String.fromCharCode(((c.charCodeAt(0) - 97 + <n>) % 26) + 97));\n}",
        "const char *solve(const char *text) {\n    static char out[4096];\n    int i = 0;\n    for (; text[i]; i++)\n"
        "        out[i] = islower(text[i]) ? (text[i] - 'a' + <n>) % 26 + 'a' : text[i];\n    out[i] = 0;\n"
        "    return out;\n}",
        lambda k, s: s.translate(
            {97 + i: "abcdefghijklmnopqrstuvwxyz"[i + k["n"] - 26 * (i + k["n"] > 25)] for i in range(26)}
        ),
    ),
    Problem(
        "count_pairs", ("ints",), "int", "returns how many pairs of values at different places have the sum <m>",
        "def solve(values):\n    n = len(values)\n"
        "    return sum(values[i] + values[j] == <m> for i in range(n) for j in range(i + 1, n))",
        "function solve(values) {\n  let found = 0;\n  for (let i = 0; i < values.length; i++)\n"
        "    for (let j = i + 1; j < values.length; j++) if (values[i] + values[j] === <m>) found++;\n  return found;\n}",
        "long long solve(int *values, int count) {\n    int found = 0;\n    for (int i = 0; i < count; i++)\n"
        "        for (int j = i + 1; j < count; j++) found += values[i] + values[j] == <m>;\n    return found;\n}",
        lambda k, v: sum(a + b == k["m"] for a, b in itertools.combinations(v, 2)),
        lambda k, rng: (
            [rng.choice((a := rng.randint(-5, 30), k["m"] - a, k["m"] // 2)) for _ in range(rng.randint(2, 9))],
        ),
    ),
    Problem(
        "rotate", ("ints",), "ints", "moves every value <n> places to the right, from the end on to the beginning",
        "def solve(values):\n    if not values:\n        return values\n    n = <n> % len(values)\n"
        "    return values[-n:] + values[:-n] if n else values",
        "function solve(values) {\n  const n = values.length;\n"
        "  return values.map((_, i) => values[(((i - <n>) % n) + n) % n]);\n}",
        "void solve(int *values, int count) {\n    for (int k = 0; count && k < <n> % count; k++) {\n"
        "        int last = values[count - 1];\n        for (int i = count - 1; i > 0; i--) values[i] = values[i - 1];\n"
        "        values[0] = last;\n    }\n}",
        lambda k, v: [v[(i - k["n"]) % len(v)] for i in range(len(v))],
    ),
    Problem(
        "digits_in_base", ("int",), "int",
        "returns how many zeros the number, 1 or more, has when it is written in base <n> without leading zeros",
        "def solve(x):\n    zeros = 0\n    while x > 0:\n        zeros += x % <n> == 0\n        x //= <n>\n    return zeros",
        "function solve(x) {\n  let zeros = 0;\n  for (; x > 0; x = Math.floor(x / <n>)) if (x % <n> === 0) zeros++;\n"
        "  return zeros;\n}",
        "long long solve(long long x) {\n    int zeros = 0;\n    for (; x > 0; x /= <n>) zeros += x % <n> == 0;\n"
        "    return zeros;\n}",
        lambda k, x: len([i for i in range(40) if k["n"] ** i <= x and x // k["n"] ** i % k["n"] == 0]),
        lambda k, rng: (k["n"] ** rng.randint(0, 6) * rng.randint(1, 12) + rng.choice((0, 0, 1)),),
    ),
    Problem(
        "local_peaks", ("ints",), "int",
        "returns the sum of the values that are greater than each of their neighbours and greater than <low>; the first "
        "and the last value have one neighbour, a single value has none",
        "def solve(values):\n    total = 0\n    for i, x in enumerate(values):\n"
        "        near = values[max(0, i - 1):i] + values[i + 1:i + 2]\n"
        "        if x > <low> and all(x > y for y in near):\n            total += x\n    return total",
        "function solve(values) {\n  let total = 0;\n  values.forEach((x, i) => {\n"
        "    const left = i === 0 || x > values[i - 1], right = i === values.length - 1 || x > values[i + 1];\n"
        "    if (x > <low> && left && right) total += x;\n  });\n  return total;\n}",
        "long long solve(int *values, int count) {\n    long long total = 0;\n    for (int i = 0; i < count; i++) {\n"
        "        int left = i == 0 || values[i] > values[i - 1];\n"
        "        int right = i == count - 1 || values[i] > values[i + 1];\n"
        "        if (values[i] > <low> && left && right) total += values[i];\n    }\n    return total;\n}",
        lambda k, v: sum(
            b
            for a, b, c in zip([-(10**9), *v], v, [*v[1:], -(10**9)], strict=False)
            if b > a and b > c and b > k["low"]
        ),
    ),
)  # fmt: skip

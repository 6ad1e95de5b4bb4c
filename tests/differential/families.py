# ruff: noqa: E501
"""Benign programs made from a table: encodings, digests, compressions, archives, exits, signals, sizes, algorithms."""

from __future__ import annotations

ENCODINGS = "ascii latin-1 cp1252 utf-8-sig utf-16 utf-32-be utf-7 shift_jis euc_jp gb18030 big5 euc_kr koi8_r cp437 mac_roman idna punycode"
CODEC = """
text = {text!r}
data = text.encode("{name}")
print(len(data), data.hex())
print(data.decode("{name}") == text, "caf\\u00e9 \\u6f22 \\U0001f600".encode("{name}", "{errors}"))
open("out", "w", encoding="{name}", newline="\\r\\n").write(text + "\\n" + text)
print(open("out", "rb").read().count(b"\\n"), open("out", encoding="{name}").read().count(text))
"""
HASH = "import hashlib\nopen('f', 'wb').write(bytes(range(256)) * 300)\nwith open('f', 'rb') as f:\n    d = hashlib.file_digest(f, '{0}')\nprint(d.name, d.digest_size, d.hexdigest())\n"
COMPRESS = """
import {module} as c, random
r = random.Random({seed})
data = bytes(r.choice(b"abcdefgh ") for _ in range(20000)) + bytes(5000)
packed = {pack}
print(len(packed), c.decompress(packed) == data)
try:
    c.decompress(packed[: len(packed) // 2] + b"??")
except Exception as error:
    print(type(error).__name__)
open("packed", "wb").write(packed)
"""
ARCHIVE = """
import os, pathlib, shutil, sys
root = pathlib.Path("tree/sub"); root.mkdir(parents=True)
for n in range(20):
    (root / f"f{{n}}").write_bytes(bytes([n]) * n * 50)
os.utime(root, (1e9, 1e9))
name = shutil.make_archive("packed", "{kind}", "tree")
shutil.unpack_archive(name, "out")
print(sorted((str(p), p.stat().st_size) for p in pathlib.Path("out").rglob("f1*")))
os.remove(name)
"""
ALGORITHMS = {
    "sieve": "n = 20000\ns = bytearray([1]) * n\nfor i in range(2, 142):\n    if s[i]:\n        s[i*i::i] = bytes(len(range(i*i, n, i)))\nprint(sum(s[2:]))",
    "queens": "def q(n, r=0, c=0, d=0, e=0):\n    return 1 if r == n else sum(q(n, r+1, c | 1 << k, (d | 1 << k) << 1, (e | 1 << k) >> 1) for k in range(n) if not (c | d | e) >> k & 1)\nprint([q(n) for n in range(1, 8)])",
    "dijkstra": "import heapq, random\nr = random.Random(3)\ng = {n: [(r.randrange(200), r.randrange(1, 20)) for _ in range(6)] for n in range(200)}\nd, h = {}, [(0, 0)]\nwhile h:\n    c, n = heapq.heappop(h)\n    if n not in d:\n        d[n] = c\n        [heapq.heappush(h, (c + w, m)) for m, w in g[n]]\nprint(len(d), sum(d.values()), max(d.values()))",
    "edit distance": "def e(a, b):\n    p = list(range(len(b) + 1))\n    for i, x in enumerate(a):\n        q = [i + 1]\n        for j, y in enumerate(b):\n            q.append(min(p[j] + (x != y), p[j + 1] + 1, q[-1] + 1))\n        p = q\n    return p[-1]\nprint(e('kitten' * 10, 'sitting' * 10), e('', 'abc'))",
    "matrix": "import random\nr = random.Random(1)\na = [[r.random() for _ in range(40)] for _ in range(40)]\nm = lambda a, b: [[sum(x * y for x, y in zip(p, q)) for q in zip(*b)] for p in a]\nb = m(m(a, a), a)\nprint(repr(sum(map(sum, b))), repr(b[3][7]))",
    "life": "g = {(1, 0), (2, 1), (0, 2), (1, 2), (2, 2)}\nfrom collections import Counter\nfor _ in range(100):\n    c = Counter((x + i, y + j) for x, y in g for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)\n    g = {p for p, n in c.items() if n == 3 or n == 2 and p in g}\nprint(sorted(g))",
    "big integers": "a, b = 0, 1\nfor _ in range(5000):\n    a, b = b, a + b\nprint(a.bit_length(), a % 10 ** 20, pow(7, 10 ** 6, 10 ** 9 + 7))\nimport sys\nsys.set_int_max_str_digits(0)\nprint(len(str(3 ** 20000)))",
    "logistic map": "x = 0.5\nfor _ in range(10000):\n    x = 3.9 * x * (1 - x)\nprint(repr(x), x.hex())",
}
EXITS = (0, 1, 2, 3, 42, 125, 126, 127, 128, 130, 255, 256, -1)
SIGNALS = ["TERM", "INT", "HUP", "QUIT", "KILL", "SEGV", "ABRT", "FPE", "ILL", "BUS", "ALRM", "USR1", "PIPE", "XCPU"]
SIZES = (0, 1, 4095, 4096, 65536, 65537, 1000000)
SIZE = "import sys\ndata = bytes(range(256)) * ({0} // 256 + 1)\nopen('f', 'wb').write(data[:{0}])\nback = open('f', 'rb').read()\nsys.stdout.buffer.write(back[-100:])\nprint(len(back), sum(back), back == data[:{0}])\n"


def python() -> dict[str, str]:
    """Scripts, by name."""
    found = {f"algorithm {name}": source for name, source in ALGORITHMS.items()}
    for name in ENCODINGS.split():
        text = {
            "idna": "b\u00fccher.example",
            "ascii": "plain text",
            "cp437": "na\u00efve",
            "koi8_r": "\u043f\u0440",
        }.get(name, "hello")
        errors = "replace" if name not in ("idna", "punycode") else "strict"
        found[f"codec {name}"] = CODEC.format(name=name, text=text, errors=errors)
    for name in ("md5", "sha1", "sha224", "sha384", "sha512", "sha3_256", "blake2s", "blake2b"):
        found[f"digest {name}"] = HASH.format(name)
    packs = {"zlib": "c.compress(data, {0})", "gzip": "c.compress(data, {0}, mtime=0)", "bz2": "c.compress(data, {0})"}
    for seed, level in enumerate((1, 6, 9)):
        for module, pack in packs.items():
            found[f"{module} level {level}"] = COMPRESS.format(module=module, seed=seed, pack=pack.format(level))
    found["lzma"] = COMPRESS.format(module="lzma", seed=9, pack="c.compress(data)")
    for kind in ("tar", "gztar", "bztar", "xztar", "zip"):
        found[f"archive {kind}"] = ARCHIVE.format(kind=kind)
    found |= {f"a file of {size} bytes": SIZE.format(size) for size in SIZES}
    return found


def shell() -> dict[str, str]:
    """Shell scripts, by name."""
    found = {f"exit {code}": f"echo before; exit {code}" for code in EXITS}
    found |= {f"dies of {name}": f"echo before; kill -{name} $$; echo never" for name in SIGNALS}
    found |= {f"child dies of {name}": f"sh -c 'kill -{name} $$' 2> /dev/null; echo $?" for name in SIGNALS[:6]}
    return found

# ruff: noqa: E501
"""Benign Python scripts around files, data and the standard library. Name to source."""

from __future__ import annotations

FILES = {
    "modes and stat": """
import os, stat
with open("f", "w") as file:
    file.write("x" * 1000)
os.chmod("f", 0o640)
s = os.stat("f")
print(oct(s.st_mode), s.st_size, s.st_nlink, s.st_uid, stat.filemode(s.st_mode))
os.utime("f", (1, 2)); print(os.stat("f").st_mtime, os.access("f", os.X_OK))
os.mkdir("d", 0o700); print(oct(os.stat("d").st_mode), os.path.isdir("d"))
""",
    "seek and truncate": """
with open("f", "w+b") as file:
    file.write(b"0123456789"); file.seek(3); file.write(b"ABC"); file.seek(-2, 2); print(file.read(), file.tell())
    file.truncate(6); file.seek(0); print(file.read()); file.seek(12); file.write(b"z"); file.seek(0); print(file.read())
with open("f", "ab") as file:
    print(file.tell()); file.write(b"!")
print(open("f", "rb").read()[-3:])
""",
    "errors of files": """
import errno, os
os.mkdir("d"); open("f", "w").close(); os.symlink("l", "l")
for call in (lambda: open("none"), lambda: open("d"), lambda: os.mkdir("d"), lambda: os.rmdir("f"), lambda: open("l"),
             lambda: os.listdir("f"), lambda: open("f/x"), lambda: open("x" * 300), lambda: os.unlink("d"),
             lambda: os.rename("none", "x"), lambda: os.link("d", "e"), lambda: os.readlink("f")):
    try:
        call(); print("fine")
    except OSError as error:
        print(errno.errorcode[error.errno])
""",
    "directories": """
import os, pathlib, shutil
for path in ("a/b/c", "a/d", "e"):
    pathlib.Path(path).mkdir(parents=True)
    (pathlib.Path(path) / "f.txt").write_text(path)
for root, folders, files in sorted(os.walk(".")):
    print(root, sorted(folders), sorted(files))
print(sorted(map(str, pathlib.Path().rglob("*.txt"))), sorted(e.name for e in os.scandir("a") if e.is_dir()))
shutil.copytree("a", "copy"); shutil.rmtree("a"); shutil.move("e", "copy/e"); print(sorted(map(str, pathlib.Path().rglob("*"))))
""",
    "rename over and unlink open": """
import os
open("a", "w").write("A"); open("b", "w").write("B")
held = open("b")
os.replace("a", "b"); print(open("b").read(), held.read(), os.path.exists("a"))
again = open("b"); os.unlink("b"); print(again.read(), os.fstat(again.fileno()).st_nlink)
os.rename("/tmp", "/tmp2") if False else None
""",
    "locks": """
import fcntl, os
a, b = open("l", "w"), open("l", "w")
fcntl.flock(a, fcntl.LOCK_EX)
try:
    fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError as error:
    print("held", error.errno)
fcntl.flock(a, fcntl.LOCK_UN); fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
fcntl.lockf(a, fcntl.LOCK_EX, 10)
pid = os.fork()
if pid == 0:
    try:
        fcntl.lockf(open("l", "w"), fcntl.LOCK_EX | fcntl.LOCK_NB, 5)
    except OSError:
        os._exit(7)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""",
    "mmap": """
import mmap, os
with open("f", "w+b") as file:
    file.write(bytes(8192)); file.flush()
    with mmap.mmap(file.fileno(), 0) as shared:
        shared[10:15] = b"hello"; print(shared.find(b"llo"), len(shared)); shared.flush()
    file.seek(10); print(file.read(5))
anonymous = mmap.mmap(-1, 4096)
if os.fork() == 0:
    anonymous[:5] = b"child"; os._exit(0)
os.wait(); print(anonymous[:5])
""",
    "pipes and nonblocking": """
import fcntl, os
r, w = os.pipe()
os.set_blocking(r, False)
try:
    os.read(r, 1)
except BlockingIOError:
    print("empty")
os.set_blocking(w, False)
total = 0
try:
    while True:
        total += os.write(w, bytes(4096))
except BlockingIOError:
    print("full", total, len(os.read(r, 1 << 20)))
print(fcntl.fcntl(r, fcntl.F_GETFL) & os.O_NONBLOCK != 0, os.dup2(r, 50), os.get_inheritable(50))
""",
    "vectors and positions": """
import os
f = os.open("f", os.O_RDWR | os.O_CREAT)
print(os.writev(f, [b"ab", b"cd", b""]), os.pread(f, 2, 1), os.pwrite(f, b"Z", 10), os.lseek(f, 0, os.SEEK_END))
parts = [bytearray(3), bytearray(4)]; os.lseek(f, 0, 0); print(os.readv(f, parts), parts)
g = os.open("g", os.O_RDWR | os.O_CREAT); os.lseek(f, 0, 0); print(os.sendfile(g, f, 0, 4), os.fstat(g).st_size)
try:
    os.open("f", os.O_CREAT | os.O_EXCL)
except FileExistsError as error:
    print(error)
""",
    "relative to descriptors": """
import os
os.mkdir("d"); d = os.open("d", os.O_RDONLY)
f = os.open("x", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=d); os.write(f, b"1"); os.close(f)
os.symlink("x", "s", dir_fd=d); os.rename("x", "y", src_dir_fd=d, dst_dir_fd=d)
print(sorted(os.listdir(d)), os.stat("s", dir_fd=d, follow_symlinks=False).st_size, os.readlink("s", dir_fd=d))
os.fchdir(d); print(os.path.basename(os.getcwd()), os.path.exists("s"), os.path.lexists("s"))
os.unlink("s"); os.unlink("y"); os.chdir(".."); os.rmdir("d")
""",
    "temporary files": """
import os, pathlib, tempfile
with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryDirectory() as folder:
    file.write(b"x"); file.flush(); print(os.path.getsize(file.name), os.path.dirname(file.name), oct(os.stat(folder).st_mode))
    (pathlib.Path(folder) / "f").touch()
print(os.path.exists(file.name), os.path.exists(folder), tempfile.gettempdir())
with tempfile.SpooledTemporaryFile(10) as spool:
    spool.write(b"a" * 20); spool.seek(0); print(len(spool.read()))
""",
    "extended names": """
import os
for name in ("\\u00e4", "\\u6f22", "a b", "n\\nl", "x" * 255, b"\\xff\\xfe".decode("utf-8", "surrogateescape")):
    open(name, "w").close()
print(len(os.listdir()), sorted(os.listdir(b"."))[-1], sorted(map(len, os.listdir())))
for name in os.listdir(b"."):
    if name != b"main.py":
        os.unlink(name)
print(os.listdir())
""",
    "inotify by hand": """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(0); watch = libc.inotify_add_watch(fd, b".", 0x100 | 0x200)
open("made", "w").close(); os.unlink("made")
data, at, seen = os.read(fd, 4096), 0, []
while at < len(data):
    _, mask, _, size = struct.unpack_from("iIII", data, at)
    seen.append((mask, data[at + 16 : at + 16 + size].rstrip(b"\\0"))); at += 16 + size
print(fd > 2, watch, seen)
""",
    "event descriptors": """
import os, select, ctypes
e = os.eventfd(3); print(os.eventfd_read(e)); os.eventfd_write(e, 5); p = select.epoll(); p.register(e, select.EPOLLIN)
print([mask for _, mask in p.poll(1)], os.eventfd_read(e), p.poll(0))
m = os.memfd_create("m"); os.write(m, b"memory"); print(os.pread(m, 9, 0), os.fstat(m).st_size)
""",
}
DATA = {
    "sqlite queries": """
import sqlite3
db = sqlite3.connect("d.db")
db.executescript("create table t(id integer primary key, g text, v real); create index i on t(g);")
db.executemany("insert into t(g, v) values(?, ?)", [(chr(97 + n % 3), n * 1.5) for n in range(30)])
db.commit()
for query in ("select g, count(*), sum(v), avg(v) from t group by g order by g", "select max(v), min(v), total(v) from t where v > 10",
              "select a.id, b.id from t a join t b on a.v = b.v + 1.5 where a.id < 5 order by 1", "pragma integrity_check",
              "select g, v, row_number() over (partition by g order by v desc) r from t order by r, g limit 4",
              "with recursive f(n, a, b) as (select 1, 1, 1 union all select n + 1, b, a + b from f where n < 10) select group_concat(a) from f"):
    print(db.execute(query).fetchall())
""",
    "sqlite transactions": """
import os, sqlite3
a, b = sqlite3.connect("d.db", timeout=0.1, isolation_level=None), sqlite3.connect("d.db", timeout=0.1, isolation_level=None)
a.execute("create table t(x unique)"); a.execute("begin immediate"); a.execute("insert into t values(1)")
try:
    b.execute("insert into t values(2)")
except sqlite3.OperationalError as error:
    print(error)
a.execute("rollback"); b.execute("insert into t values(2)")
try:
    a.execute("insert into t values(2)")
except sqlite3.IntegrityError as error:
    print(error)
a.execute("pragma journal_mode=wal"); a.execute("insert into t values(3)")
print(b.execute("select * from t").fetchall(), a.execute("select json_extract('{\\"a\\":[1,2]}', '$.a[1]')").fetchone())
a.close(); b.close(); os.remove("d.db")
""",
    "json and csv": """
import csv, io, json
value = {"a": [1, 2.5, None, True, "\\u00e9\\n"], "b": {"c": 1e100, "d": -0.0, "e": 10 ** 20}}
print(json.dumps(value, sort_keys=True), json.dumps(value, ensure_ascii=False, indent=1) == json.dumps(json.loads(json.dumps(value)), ensure_ascii=False, indent=1))
for bad in ("{", "[1,]", "nul", '"\\x01"'):
    try:
        json.loads(bad)
    except json.JSONDecodeError as error:
        print(error)
out = io.StringIO(); csv.writer(out).writerows([["a", 'q"x', "l\\n2"], [1, None, 2.5]]); print(repr(out.getvalue()), list(csv.reader(io.StringIO(out.getvalue()))))
""",
    "configuration formats": """
import configparser, tomllib, xml.etree.ElementTree as tree, html.parser, plistlib
c = configparser.ConfigParser(); c.read_string("[s]\\nk = 1\\nj = %(k)s2\\n"); print(dict(c["s"]))
print(tomllib.loads('a = 1\\n[b]\\nc = [1.5, "x"]\\nd = 1979-05-27T07:32:00Z'))
root = tree.fromstring("<r a='1'><c>x</c><c>y</c></r>"); print([e.text for e in root.findall("c")], root.attrib, tree.tostring(root))
print(plistlib.loads(plistlib.dumps({"k": [1, b"x"]})))
""",
    "pickles and copies": """
import copy, marshal, pickle, shelve
class P:
    def __init__(self, x): self.x = x
    def __eq__(self, o): return self.x == o.x
a = P([1, {2: (3,)}]); a.me = a
b = pickle.loads(pickle.dumps(a)); c = copy.deepcopy(a)
print(a == b == c, b.me is b, b is not a, [len(pickle.dumps(list(range(99)), p)) for p in range(6)], marshal.loads(marshal.dumps({1: (2.5, "x")})))
with shelve.open("s") as s:
    s["k"] = [1, 2]
with shelve.open("s") as s:
    print(dict(s))
import glob, os
[os.remove(n) for n in glob.glob("s*") if n != "main.py"]
""",
    "sorting and heaps": """
import bisect, heapq, itertools, random
r = random.Random(7); xs = [r.randrange(1000) for _ in range(500)]
print(sorted(xs) == list(heapq.merge(*(sorted(xs[n::5]) for n in range(5)))), heapq.nlargest(3, xs), bisect.bisect(sorted(xs), 500))
print(sorted("The quick Brown fox".split(), key=str.lower), sorted([(2, "b"), (1, "z"), (2, "a")], key=lambda p: (-p[0], p[1])))
print([k for k, _ in itertools.groupby("aabbbc")], list(itertools.islice(itertools.permutations("abc"), 4)), sum(1 for _ in itertools.combinations(range(12), 5)))
""",
    "numbers": """
import cmath, decimal, fractions, math, statistics
print(0.1 + 0.2, 1e16 + 1, math.fsum([0.1] * 10), 2 ** 200, -7 // 2, -7 % 3, round(2.5), round(-0.5), (0.1).hex(), float("inf") - 1)
print(math.comb(50, 25), math.gcd(48, 36), math.isqrt(10 ** 30), math.factorial(25), cmath.sqrt(-2), math.exp(1), math.sin(1e6), math.gamma(5.5))
decimal.getcontext().prec = 40; print(decimal.Decimal(2).sqrt(), decimal.Decimal("0.1") + decimal.Decimal("0.2"), fractions.Fraction(1, 3) + fractions.Fraction(1, 6))
print(statistics.median([3, 1, 2]), statistics.pstdev([1, 2, 3, 4]), int("zz", 36), bin(-5), pow(3, 100, 7), divmod(-7, 2))
""",
    "randomness": "import random, uuid, secrets, os\nr = random.Random(42)\nprint(r.random(), r.randint(1, 100), r.sample(range(50), 5), r.gauss(0, 1), r.choices('abc', k=4))\nprint(len(os.urandom(16)), os.urandom(8) != os.urandom(8), uuid.uuid5(uuid.NAMESPACE_DNS, 'x.org'), len(secrets.token_hex(8)), hash('x') == hash('x'))\nprint(hash('tiltyard'), list({'a', 'b', 'c', 'd'}))\n",
    "regular expressions": """
import re, difflib, textwrap, string
print(re.findall(r"(\\w+)@(\\w+)\\.com", "a@b.com, c.d@e.com"), re.sub(r"(?P<y>\\d{4})-(\\d\\d)", r"\\2/\\g<y>", "2026-11"), re.split(r"[,;]\\s*", "a, b;c"))
print(re.match(r"(?i)(a|b)*c$", "ABAbc").span(), re.compile(r"^x", re.M).sub("y", "x\\nx"), re.fullmatch(r"\\w+", "\\u00fc\\u6f22") is not None)
print("\\n".join(difflib.unified_diff("a\\nb\\n".splitlines(), "a\\nc\\n".splitlines(), lineterm="")), textwrap.fill("one two three four", 9), string.Template("$a-${b}").substitute(a=1, b=2))
""",
    "dataclasses and typing": """
import abc, collections, contextlib, dataclasses, enum, functools, typing
@dataclasses.dataclass(order=True, frozen=True)
class D:
    x: int; y: list = dataclasses.field(default_factory=list, compare=False)
print(D(1) < D(2), D(1, [2]), dataclasses.replace(D(1), x=5), collections.Counter("banana").most_common(2))
class C(enum.Flag):
    A = 1; B = 2
print(C.A | C.B, C(3), functools.reduce(lambda a, b: a * b, range(1, 6)), typing.get_type_hints(D)["x"])
with contextlib.ExitStack() as stack:
    stack.callback(print, "closed"); print("open")
match {"k": [1, 2]}:
    case {"k": [a, *rest]}: print(a, rest)
""",
    "tracebacks": "def f(n):\n    return 1 / n if n == 0 else f(n - 1)\ntry:\n    f(2)\nexcept ZeroDivisionError as error:\n    import traceback\n    print(''.join(traceback.format_exception(error)))\nraise RuntimeError('the end') from ValueError('why')\n",
    "recursion and warnings": "import sys, warnings\nsys.setrecursionlimit(200)\ndef f(): f()\ntry:\n    f()\nexcept RecursionError as error:\n    print(error)\nwarnings.warn('careful')\nprint(sys.flags.utf8_mode, sys.byteorder, sys.getfilesystemencoding(), sys.stdout.encoding, sys.maxsize, sys.version_info[:2])\n",
    "modules of one's own": "import importlib.util, os, sys\nos.mkdir('pkg')\nopen('pkg/__init__.py', 'w').write('from .m import v')\nopen('pkg/m.py', 'w').write('v = 41 + 1\\n__all__ = [\"v\"]')\nimport pkg\nprint(pkg.v, pkg.__file__, 'pkg.m' in sys.modules)\nopen('pkg/m.py', 'w').write('v = 43  # longer')\nprint(importlib.reload(pkg.m).v, importlib.util.find_spec('none'))\n",
    "unit tests": "import unittest\nclass T(unittest.TestCase):\n    def test_good(self): self.assertEqual(1, 1)\n    def test_bad(self): self.assertIn(3, [1, 2])\n    @unittest.skip('later')\n    def test_skipped(self): pass\n    def test_sub(self):\n        for n in range(3):\n            with self.subTest(n=n): self.assertLess(n, 2)\nresult = unittest.TextTestRunner(stream=open('/dev/null', 'w')).run(unittest.defaultTestLoader.loadTestsFromTestCase(T))\nprint(result, len(result.failures))\nraise SystemExit(not result.wasSuccessful())\n",
    "standard input": "import sys, fileinput\nfirst = sys.stdin.readline()\nprint(repr(first), [len(line) for line in sys.stdin], sys.stdin.read() == '', sys.stdin.isatty())\ntry:\n    input()\nexcept EOFError as error:\n    print(error)\n",
    "output and exit": "import atexit, os, sys\natexit.register(print, 'at exit')\nprint('a', 'b', sep='-', end='|')\nsys.stderr.write('to stderr\\n')\nos.write(1, b'first, unbuffered\\n')\nsys.exit('a message')\n",
}

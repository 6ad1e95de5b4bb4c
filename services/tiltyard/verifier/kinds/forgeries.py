"""Further submissions of Python code that must not pass; `tampering` has the first sixteen.

Patterns over the function's name `{f}`. Each was thought up against one way of grading: shared modules, shared
descriptors, shared processes, values that are not what they seem, and limits.
"""

from __future__ import annotations

from collections.abc import Mapping

MORE: Mapping[str, str] = {
    "a dict that is equal to everything": (
        "class Same(dict):\n    def __eq__(self, other): return True\n    def __len__(self): return 1\n"
        "def {f}(*a, **k):\n    return Same(x=1)"
    ),
    "a text that is equal to everything": (
        "class Same(str):\n    def __eq__(self, other): return True\n    __hash__ = str.__hash__\n"
        "def {f}(*a, **k):\n    return Same('x')"
    ),
    "a list of such": (
        "class Same:\n    def __eq__(self, other): return True\n    def __repr__(self): return '1'\n"
        "def {f}(*a, **k):\n    return [Same() for _ in range(3)]"
    ),
    "a type that names itself int": (
        "class int(object):\n    def __eq__(self, other): return True\n    def __index__(self): return 1\n"
        "def {f}(*a, **k):\n    return int()"
    ),
    "a lying __class__": (
        "class Same:\n    __class__ = property(lambda self: int)\n    def __eq__(self, other): return True\n"
        "    bit_length = lambda self: 1\ndef {f}(*a, **k):\n    return Same()"
    ),
    "a metaclass": (
        "class Meta(type):\n    def __eq__(cls, other): return True\n    def __hash__(cls): return 0\n"
        "    def __instancecheck__(cls, one): return True\nclass Same(metaclass=Meta): pass\ndef {f}(*a, **k):\n    return Same"
    ),
    "patched encoder": (
        "import sys\nmain = sys.modules['__main__']\nfor name in ('encode_value', 'describe', '_text'):\n"
        "    if hasattr(main, name): setattr(main, name, lambda *a: 'true')\ndef {f}(*a, **k):\n    return None"
    ),
    "patched builtins under the runner": (
        "import builtins\nbuiltins.type = lambda *a: bool\nbuiltins.len = lambda x: 0\nbuiltins.isinstance = lambda *a: True\n"
        "builtins.len = lambda x: 3\ndef {f}(*a, **k):\n    return None"
    ),
    "patched os.write": (
        "import os\nwrite = os.write\nos.write = lambda fd, data: write(fd, data.replace(b'null', b'true').replace(b'error', b'value'))\n"
        "def {f}(*a, **k):\n    return None"
    ),
    "rewrites the results at exit": (
        "import atexit\natexit.register(lambda: open('results.jsonl', 'w').write(''.join("
        '\'{{"call": %d, "value": 1}}\\n\' % i for i in range(9))))\ndef {f}(*a, **k):\n    return None'
    ),
    "replaces the results by a link": (
        "import os\ntry:\n    os.unlink('results.jsonl'); os.symlink('/etc/passwd', 'results.jsonl')\nexcept OSError: pass\n"
        "def {f}(*a, **k):\n    return None"
    ),
    "results without end": (
        "import os\nfor fd in range(3, 12):\n    try:\n        for _ in range(2000): os.write(fd, b'{{\"call\": 1}}' * 90 + b'\\n')\n"
        "    except OSError: pass\ndef {f}(*a, **k):\n    return None"
    ),
    "garbled results": (
        "import os\nfor fd in range(1, 20):\n    try: os.write(fd, b'\\xff\\x00[[[[{{\"value\":' * 900 + b'\\n')\n"
        "    except OSError: pass\ndef {f}(*a, **k):\n    return None"
    ),
    "deep results": "def {f}(*a, **k):\n    x = []\n    for _ in range(100000): x = [x]\n    return x",
    "cyclic results": "def {f}(*a, **k):\n    x = []\n    x.append(x)\n    return x",
    "a result of many digits": "def {f}(*a, **k):\n    return 10 ** 100000",
    "takes all memory": "x = []\nwhile True: x.append(bytearray(1 << 24))\ndef {f}(*a, **k): return None",
    "forks without end": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\ndef {f}(*a, **k): return None",
    "fills the disk": (
        "try:\n    with open('big', 'wb') as file:\n        while True: file.write(bytes(1 << 20))\nexcept OSError: pass\n"
        "def {f}(*a, **k): return None"
    ),
    "floods its output": "import sys\nwhile True: sys.stdout.write('x' * 65536)\ndef {f}(*a, **k): return None",
    "ignores signals": (
        "import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\ndef {f}(*a, **k):\n    while True: pass"
    ),
    "raises what can't be shown": (
        "class Odd(BaseException):\n    def __str__(self): raise Odd\n    __repr__ = __str__\ndef {f}(*a, **k):\n    raise Odd"
    ),
    "stops the interpreter": "import ctypes\nctypes.string_at(0)\ndef {f}(*a, **k): return None",
    "a skipped test": "import unittest\nraise unittest.SkipTest('no')\ndef {f}(*a, **k): return None",
    "patched test framework": (
        "import sys, types\nfor n in ('pytest', '_pytest', '_pytest.python', 'unittest', 'json'):\n"
        "    sys.modules[n] = types.ModuleType(n)\ndef {f}(*a, **k):\n    return True"
    ),
}

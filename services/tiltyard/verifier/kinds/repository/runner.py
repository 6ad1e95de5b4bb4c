"""Runs inside the sandbox as the grader: hidden tests in this process, the repository beside it as another user.

`guest` puts `guest_values` in front of this file and the call of `main` behind it. What tests import from the
repository is a stand-in whose every use is a request to `candidate.py` on descriptor 3, answered on 4 by plain values,
so nothing of the repository is ever run here. A stand-in is neither true nor false nor equal to anything, so that no
object decides over a test. Standard input: JSON with nonce, ids, tests, packages. Standard output: the nonce, then JSON
{"passed": [index], "failed": {index: why}}. Left out: fixtures, classes of tests, comparing objects of the repository.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

REPLY_S = 5.0
MAX_REPLY = 1 << 20


class Gone(Exception):
    """The repository's process has ended, hangs, or writes what can't be read."""


class Line:
    """The line to the repository's process."""

    def __init__(self, requests: int, replies: int) -> None:
        self.requests, self.replies, self.rest, self.dead = requests, replies, b"", ""
        self.classes: dict[str, type] = {}

    def ask(self, *request: object) -> "Any":
        """What the repository answers; its exceptions are raised here as classes of the same names."""
        import json

        if self.dead:
            raise Gone(self.dead)
        try:
            os.write(self.requests, (repr(request) + "\n").encode())
            reply = json.loads(self.line())
            if "value" in reply:
                return decode(reply["value"])
            names = [str(name) for name in reply["classes"]]
            if "object" in reply:
                return self.kind(names) if self.raised(names) else Remote(self, int(reply["object"]))
            error = self.kind(names)(str(reply["error"]).partition(": ")[2])
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
            self.dead = self.dead or "its answer can not be read"
            raise Gone(self.dead) from problem
        raise error

    def line(self) -> bytes:
        """One line of at most `MAX_REPLY` bytes."""
        import select

        while b"\n" not in self.rest:
            if not self.dead and not select.select([self.replies], [], [], REPLY_S)[0]:
                self.dead = "it does not answer"
            data = b"" if self.dead else os.read(self.replies, 65536)
            if not data or len(self.rest) > MAX_REPLY:
                self.dead = self.dead or "it has ended"
                raise Gone(self.dead)
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def raised(self, names: "list[str]") -> bool:
        """Is this a class of exceptions?"""
        return "builtins.Exception" in names

    def kind(self, names: "list[str]") -> "type[Exception]":
        """The class of exceptions here that stands for the one with these names."""
        import builtins

        found: type = Exception
        for name in reversed(names):
            module, _, short = name.rpartition(".")
            real = getattr(builtins, short, None) if module == "builtins" else None
            if real is None and self.raised(names) and module != "builtins":
                found = self.classes.setdefault(name, type(short, (found,), {}))
            elif isinstance(real, type) and issubclass(real, Exception):
                found = real
        return found if self.raised(names) else Gone


class Remote:
    """Stands in for an object of the repository."""

    def __init__(self, line: Line, number: int) -> None:
        self.__dict__.update(_line=line, _number=number)

    def __repr__(self) -> str:
        return f"H({self._number})"

    def __getattr__(self, name: str) -> "Any":
        return self._line.ask("get", self, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._line.ask("set", self, name, value)

    def __call__(self, *args: object, **named: object) -> "Any":
        return self._line.ask("call", self, args, named)

    def __getitem__(self, key: object) -> "Any":
        return self._line.ask("item", self, key)

    def __len__(self) -> int:
        return int(self._line.ask("len", self))

    def __iter__(self) -> "Iterator[Any]":
        return iter(self._line.ask("list", self))

    def __contains__(self, item: object) -> bool:
        return self._line.ask("has", self, item) is True

    def __str__(self) -> str:
        return str(self._line.ask("str", self))

    def __bool__(self) -> bool:
        raise TypeError("an object of the repository is neither true nor false here")


class Missing:
    """What a module doesn't have; says so when it's used."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __call__(self, *args: object, **named: object) -> None:
        raise AttributeError(self.why)

    def __bool__(self) -> bool:
        raise AttributeError(self.why)


def decode(value: "Any") -> "Any":
    """The value behind the tags of `guest_values`."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, inner),) = value.items()
    if tag == "int":
        return int(inner, 16)
    if tag == "float":
        return float(inner)
    if tag == "tuple":
        return tuple(decode(item) for item in inner)
    return {decode(key): decode(item) for key, item in inner}


class Finder:
    """Finds the repository's modules, none of which is run here."""

    def __init__(self, line: Line, packages: "list[str]") -> None:
        self.line, self.packages = line, packages

    def find_spec(self, name: str, path: object = None, target: object = None) -> "Any":
        """A stand-in's spec; none for what isn't the repository's."""
        if name.partition(".")[0] not in self.packages:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: "Any") -> "Any":
        line, name = self.line, spec.name

        class Module(type(sys)):  # type: ignore[misc]
            """Asks for what it doesn't have."""

            def __getattr__(self, attribute: str) -> "Any":
                if attribute.startswith("__"):
                    raise AttributeError(attribute)
                try:
                    return line.ask("get", line.ask("import", name), attribute)
                except AttributeError as error:
                    missing = Missing(str(error))
                try:
                    return line.ask("import", f"{name}.{attribute}")
                except ImportError:
                    return missing

        return Module(name)

    def exec_module(self, module: "Any") -> None:
        """Nothing to do."""


class Raises:
    """`pytest.raises`."""

    def __init__(self, wanted: "Any", match: str = "") -> None:
        self.wanted, self.match, self.value = wanted, match, None

    def __enter__(self) -> "Raises":
        return self

    def __exit__(self, kind: "Any", error: "Any", trace: object) -> bool:
        import re

        if kind is None:
            raise AssertionError("nothing was raised")
        self.value = error
        assert not self.match or re.search(self.match, str(error)), f"the message is {str(error)[:80]!r}"
        return issubclass(kind, self.wanted) and not issubclass(kind, Gone)


class Approx:
    """`pytest.approx` for numbers and lists of them."""

    def __init__(self, wanted: "Any", rel: float = 1e-6, abs: float = 1e-12) -> None:
        self.wanted, self.rel, self.abs = wanted, rel, abs

    def __eq__(self, other: object) -> bool:
        if isinstance(self.wanted, (list, tuple)):
            return (
                type(other) is type(self.wanted)
                and len(other) == len(self.wanted)
                and all(Approx(a, self.rel, self.abs) == b for a, b in zip(self.wanted, other, strict=True))
            )
        number = type(other) in (int, float)
        return number and abs(other - self.wanted) <= max(self.rel * abs(self.wanted), self.abs)


def framework() -> "Any":
    """What tests get for `import pytest`."""
    module = type(sys)("pytest")

    def parametrize(names: str, values: "list[Any]", ids: "list[str] | None" = None) -> "Any":
        def mark(test: "Any") -> "Any":
            test.cases = (names.replace(",", " ").split(), values, ids)
            return test

        return mark

    mark = type(sys)("mark")
    mark.__dict__["parametrize"] = parametrize
    module.__dict__.update(raises=Raises, approx=Approx, mark=mark)
    return module


def cases(test: "Any") -> "Iterator[tuple[str, dict[str, Any]]]":
    """Suffix of the id, and arguments, of each run of a test."""
    if not hasattr(test, "cases"):
        yield "", {}
        return
    names, values, ids = test.cases
    for index, value in enumerate(values):
        given = dict(zip(names, value if len(names) > 1 else (value,), strict=True))
        label = ids[index] if ids else "-".join(map(str, value if len(names) > 1 else (value,)))
        yield f"[{label}]", given


def attempt(path: str, source: str, found: "dict[str, str]") -> None:
    """Run the tests of one file; id to '' or why it failed. A file that can't be loaded has none."""
    scope: dict[str, Any] = {"__name__": path.rpartition("/")[2].removesuffix(".py")}
    try:
        exec(compile(source, path, "exec"), scope)
    except Exception as error:  # most likely the repository's
        found[path] = why(error)
        return
    for name, test in list(scope.items()):
        if name.startswith("test_") and callable(test):
            for suffix, given in cases(test):
                try:
                    test(**given)
                    found[f"{path}::{name}{suffix}"] = ""
                except Exception as error:  # whatever a test raises, it has failed
                    found[f"{path}::{name}{suffix}"] = why(error)


def why(error: Exception) -> str:
    """One short line."""
    return (type(error).__name__ + ": " + str(error))[:90].replace("\n", " ")


def main(encode: "Callable[[object], str]", describe: "Callable[[BaseException], str]") -> None:
    """Run all tests and say how they went."""
    sys.path[:] = [path for path in sys.path if not os.path.abspath(path).startswith(os.getcwd())]
    import json

    job = json.load(sys.stdin)
    sys.meta_path.insert(0, Finder(Line(3, 4), job["packages"]))
    sys.modules["pytest"] = framework()
    found: dict[str, str] = {}
    for path, source in job["tests"].items():
        attempt(path, source, found)
    passed = [index for index, name in enumerate(job["ids"]) if found.get(name) == ""]
    failed = {
        index: found.get(name) or found.get(name.partition("::")[0]) or "there is no such test"
        for index, name in enumerate(job["ids"])
        if found.get(name) != ""
    }
    ending = json.dumps({"passed": passed, "failed": dict(list(failed.items())[:10])})
    print("\n" + job["nonce"], ending, flush=True)

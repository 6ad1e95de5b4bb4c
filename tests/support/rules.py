"""Functions that tests of the limits run in children."""

from __future__ import annotations

import os
import time


def echo(value: object) -> object:
    return value


def number(_: object) -> int:
    return os.getpid()


def group(_: object) -> int:
    return os.getpgid(0)


def parent(_: object) -> int:
    return os.getppid()


def spin(_: object) -> None:
    while True:
        pass


def power(_: object) -> int:
    """Native code that no Python signal handler would interrupt."""
    return len(str(9**9 ** int("9")))


def grow(_: object) -> int:
    return len(bytearray(8 << 30))


def recurse(value: object) -> object:
    return [recurse(value)]


def fail(_: object) -> None:
    raise KeyError("what went wrong")


def leave(_: object) -> None:
    os._exit(7)


def sleep(_: object) -> None:
    time.sleep(60)


def secret(_: object) -> list[str]:
    return sorted(os.environ)

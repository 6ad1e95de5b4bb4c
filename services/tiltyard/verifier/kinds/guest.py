"""What is sent into the sandbox: a kind's runner behind the code that encodes values, as one script.

One file, because a runner must work in a fresh interpreter and through runpy in a forked one, where nothing of ours
can be imported and the script's folder needn't be on the path.
"""

from __future__ import annotations

from importlib.resources import files

_PACKAGE = "tiltyard.verifier.kinds"


def script(kind: str, part: str = "runner") -> bytes:
    """A script of a built-in kind: `guest_values.py`, the kind's `<part>.py`, and the call of `main`."""
    values = (files(_PACKAGE) / "guest_values.py").read_bytes()
    runner = (files(f"{_PACKAGE}.{kind}") / f"{part}.py").read_bytes()
    return values + b"\n\n" + runner + b"\n\nmain(encode_value, describe)\n"

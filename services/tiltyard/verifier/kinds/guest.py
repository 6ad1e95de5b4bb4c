"""What is sent into the sandbox: a kind's runner behind the code that encodes values, as one script.

One file, because a runner must work in a fresh interpreter and through runpy in a forked one, where nothing of ours
can be imported and the script's folder needn't be on the path.
"""

from __future__ import annotations

from importlib.resources import files

_PACKAGE = "tiltyard.verifier.kinds"


def script(kind: str, part: str = "runner", after: tuple[str, ...] = ()) -> bytes:
    """A script of a built-in kind: `guest_values.py`, the kind's `<part>.py`, and the call of `main`.

    `after`: kinds whose runners come in between, for what is defined there; the last `main` is the one that's called.
    """
    parts = [files(_PACKAGE) / "guest_values.py"]
    parts += [files(f"{_PACKAGE}.{name}") / "runner.py" for name in after]
    parts.append(files(f"{_PACKAGE}.{kind}") / f"{part}.py")
    return b"\n\n".join(path.read_bytes() for path in parts) + b"\n\nmain(encode_value, describe)\n"

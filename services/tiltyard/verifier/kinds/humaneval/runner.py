"""Runs inside the sandbox: the check program in this process, the submission in a child that only answers calls.

`guest` puts `guest_values` in front of this file and the call of `main` behind it. The child is forked before anything
secret is read. It gets arguments as literals over a pipe and returns plain values; it has neither the check nor the
nonce, and its output goes nowhere. Standard input: JSON with nonce, function, prompt, check. Standard output:
'<nonce> passed <calls>' or '<nonce> failed <why>'. Works as a script and through runpy.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Wrong(Exception):
    """The submission did not answer a call."""


class Candidate:
    """Stands in for the submitted function: each call goes to the child."""

    def __init__(self, function: str, requests: int, replies: int) -> None:
        self.function = function
        self.requests = os.fdopen(requests, "w", encoding="utf-8")
        self.replies = os.fdopen(replies, "rb")
        self.calls = 0

    def __call__(self, *args: object, **named: object) -> object:
        import json

        try:
            self.requests.write(repr((self.function, args, named)) + "\n")
            self.requests.flush()
            reply = json.loads(self.replies.readline(1 << 20) or b"{}")
            if "value" in reply:
                self.calls += 1
                return decode(reply["value"])
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            raise Wrong("the answer of the submission can not be read") from None
        raise Wrong(str(reply.get("error", "the submission ended before it answered"))[:200])


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


def serve(
    requests: int, replies: int, encode: "Callable[[object], str]", describe: "Callable[[BaseException], str]"
) -> None:
    """The child: load the submission, answer one call a line."""
    import sys

    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    sys.stdin = os.fdopen(0)
    sys.stdout = os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w")
    out = os.fdopen(replies, "wb", buffering=0)
    with open("submission.py", encoding="utf-8") as file:
        source = file.read()
    module = type(sys)("submission")
    sys.modules["submission"] = module
    exec(compile(source, "submission.py", "exec"), module.__dict__)
    for line in os.fdopen(requests, "r", encoding="utf-8"):
        name, args, named = eval(line, {"__builtins__": {}})
        try:
            text = f'{{"value": {encode(module.__dict__[name](*args, **named))}}}'
        except BaseException as error:  # whatever the submission raises is its answer
            text = f'{{"error": {describe(error)}}}'
        out.write(text.encode() + b"\n")


def hide() -> None:
    """Make this process's memory and descriptors unreadable for others of the same user, where the system can."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    except (ImportError, OSError, AttributeError):
        pass


def start(encode: "Callable[[object], str]", describe: "Callable[[BaseException], str]") -> "tuple[int, int]":
    """Fork the child; returns where requests go and where replies come from."""
    request_read, request_write = os.pipe()
    reply_read, reply_write = os.pipe()
    if os.fork() == 0:
        try:
            os.close(request_write)
            os.close(reply_read)
            serve(request_read, reply_write, encode, describe)
        finally:
            os._exit(0)
    os.close(request_read)
    os.close(reply_write)
    return request_write, reply_read


def main(encode: "Callable[[object], str]", describe: "Callable[[BaseException], str]") -> None:
    """Run the check on the child's answers and say how it ended."""
    requests, replies = start(encode, describe)  # before anything secret is in memory
    hide()
    import json
    import sys

    job = json.load(sys.stdin)
    candidate = Candidate(job["function"], requests, replies)
    scope: dict[str, Any] = {"__name__": "check"}
    try:
        exec(job["prompt"] + "\n    pass\n\n" + job["check"], scope)
        scope[job["function"]] = candidate  # some checks call the function by its name
        scope["check"](candidate)
        ending = f"passed {candidate.calls}"
    except Exception as error:  # whatever the check raises, the submission has failed it
        ending = "failed " + (type(error).__name__ + ": " + str(error))[:200].replace("\n", " ")
    print("\n" + job["nonce"], ending, flush=True)

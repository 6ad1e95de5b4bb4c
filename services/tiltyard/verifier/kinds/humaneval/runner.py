"""Runs inside the sandbox as the grader: the check program in this process, the submission beside it as another user.

`guest` puts `guest_values` in front of this file and the call of `main` behind it. Calls go to `candidate.py` on
descriptor 3 and its answers come back on 4, as plain values, so nothing of the submission is ever run here. Standard
input: JSON with nonce, function, prompt, check. Standard output: '<nonce> passed <calls>' or '<nonce> failed <why>'.
Works as a script and through runpy.
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


def main(encode: "Callable[[object], str]", describe: "Callable[[BaseException], str]") -> None:
    """Run the check on the candidate's answers and say how it ended."""
    import json
    import sys

    job = json.load(sys.stdin)
    candidate = Candidate(job["function"], 3, 4)
    scope: dict[str, Any] = {"__name__": "check"}
    try:
        exec(job["prompt"] + "\n    pass\n\n" + job["check"], scope)
        scope[job["function"]] = candidate  # some checks call the function by its name
        scope["check"](candidate)
        ending = f"passed {candidate.calls}"
    except Exception as error:  # whatever the check raises, the submission has failed it
        ending = "failed " + (type(error).__name__ + ": " + str(error))[:200].replace("\n", " ")
    print("\n" + job["nonce"], ending, flush=True)

"""Runs inside the sandbox as the policy's user: loads the submission and answers calls, one a line.

`guest` puts `guest_values` in front of this file and the call of `main` behind it. Arguments come as literals on
standard input, plain values go to standard output; what the submission itself reads or prints goes nowhere. It has
neither the check nor the nonce, and it can't reach the checking process, which belongs to another user.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def main(encode: "Callable[[object], str]", describe: "Callable[[BaseException], str]") -> None:
    """Load `submission.py`, then answer."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
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

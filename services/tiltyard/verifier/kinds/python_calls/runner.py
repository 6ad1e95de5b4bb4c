"""Runs inside the sandbox: loads `submission.py` and makes the calls of `calls.txt`, one result a line.

`guest` puts `guest_values` in front of this file and the call of `main` behind it. Expected values never come here, so
whatever the submission does to this process, it can only score by returning what is right.
`calls.txt`: the function's name, then one `(arguments, keywords)` literal a line. `results.jsonl`: {"call": index,
"value": ...} or {"call": index, "error": ...}; index -1 says that the submission couldn't be loaded.
Works as a script and through runpy.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def main(encode: "Callable[[object], str]", describe: "Callable[[BaseException], str]") -> None:
    """Load the submission and make the calls."""
    with open("calls.txt", encoding="utf-8") as lines:
        name = lines.readline().strip()
        calls = [eval(line, {"__builtins__": {}}) for line in lines]
    with open("submission.py", encoding="utf-8") as file:
        source = file.read()
    results = os.open("results.jsonl", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def put(index: int, key: str, text: str) -> None:
        os.write(results, f'{{"call": {index}, "{key}": {text}}}\n'.encode())

    module = type(sys)("submission")
    sys.modules["submission"] = module
    try:
        exec(compile(source, "submission.py", "exec"), module.__dict__)
        function = module.__dict__[name]
    except BaseException as error:  # whatever the submission raises is its answer
        put(-1, "error", describe(error))
        return
    for index, (args, named) in enumerate(calls):
        try:
            put(index, "value", encode(function(*args, **named)))
        except BaseException as error:  # here too
            put(index, "error", describe(error))

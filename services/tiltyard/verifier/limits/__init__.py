"""Rule code that parses what a policy wrote, in child processes with limits.

`call("package.module:function", argument)` runs the function there. Use it for whatever may take long, grow, recurse or
crash on hostile input: a computer algebra system, parsers, compilers of patterns. The child holds no secret and runs
nothing of the submission; it is a limit, not a sandbox. What fails there is a `Quarantine`, never a score.
"""

from .pool import Crashed, Limits, TimedOut, call, close, processes, spent

__all__ = ["Crashed", "Limits", "TimedOut", "call", "close", "processes", "spent"]

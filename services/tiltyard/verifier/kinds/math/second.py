"""A second opinion: what math-verify says of the same pair. Imported by a child of `limits` only.

math-verify is asked with the reference first, since it isn't symmetric, and without its own timeouts, which need the
main thread and SIGALRM; the child has limits of its own.
"""

from __future__ import annotations

import logging
from typing import Any

from math_verify import parse, verify

from .tidy import bare, tidy

logging.disable(logging.CRITICAL)


def opinion(request: dict[str, Any]) -> bool | None:
    """Are `answer` and `got` equal to math-verify? None: it reads nothing in one of them."""
    right, got = (_parsed(request[key]) for key in ("answer", "got"))
    if not right or not got:
        return None
    return bool(verify(right, got, timeout_seconds=None))


def _parsed(text: str) -> Any:
    return parse(f"${tidy(bare(text))}$", parsing_timeout=None)

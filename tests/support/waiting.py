"""Waiting for a state instead of sleeping."""

from __future__ import annotations

from collections.abc import Callable

import anyio


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Until `condition` holds; TimeoutError after `within_s` seconds."""
    with anyio.fail_after(within_s):
        while not condition():  # noqa: ASYNC110  any condition, not one event
            await anyio.sleep(0.002)

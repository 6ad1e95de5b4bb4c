"""Requests that share one subscription for their answers."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from support.waiting import until

from tiltyard.kit.replies import Answer, Replies
from tiltyard.kit.wire import NotConnected

pytestmark = pytest.mark.anyio


class Client:
    """A connection whose subscription takes as long as the test says, and that answers each request."""

    def __init__(self) -> None:
        self.lost: list[Any] = []
        self.refusals: list[Any] = []
        self.gates: list[asyncio.Future[None]] = []
        self.tapped: Any = None

    def new_inbox(self) -> str:
        return "inbox"

    async def tap(self, subject: str, tap: Any) -> None:
        self.gates.append(asyncio.get_running_loop().create_future())
        await self.gates[-1]
        self.tapped = tap

    def send(self, frame: bytes) -> None:
        reply = frame.split(b" ")[2]
        asyncio.get_running_loop().call_soon(self.tapped, reply, b"", b"", b"answer")


@pytest.mark.parametrize("refused", [False, True])
async def test_who_waits_for_a_subscription_that_fails_makes_the_next(refused: bool) -> None:
    """A request whose neighbour is called off, or refused, while it subscribes for both is answered all the same."""
    client = Client()
    replies = Replies(client, 5.0)  # type: ignore[arg-type]
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await replies.ask("other", b"", b""))

    first = asyncio.create_task(replies.ask("first", b"", b""))
    async with anyio.create_task_group() as tasks:
        await until(lambda: len(client.gates) == 1)
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        if refused:
            client.gates[0].set_exception(NotConnected("closed"))
        else:
            first.cancel()
        await until(lambda: len(client.gates) == 2)
        client.gates[1].set_result(None)
        await until(lambda: bool(answers))
    (ended,) = await asyncio.gather(first, return_exceptions=True)
    assert isinstance(ended, NotConnected if refused else asyncio.CancelledError)
    assert answers == [(b"", b"answer")]

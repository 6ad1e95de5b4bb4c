"""The control socket, with a handler that fails."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tiltyard.sandbox.backend import Busy
from tiltyard.sandbox.control import Answer, ControlError, Exec, List, Reap, ask, serve_control
from tiltyard_proto.messages import Command

pytestmark = pytest.mark.anyio


async def test_what_a_sandbox_says_is_an_answer(tmp_path: Path) -> None:
    """A session that takes no more is told to who asked, and the door stays open."""

    async def handler(request: List | Exec | Reap) -> Answer:
        raise Busy("sandbox s1 has 16 background commands")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_control, tmp_path, handler)
        said: list[str] = []
        with anyio.fail_after(5):
            while said[-2:] != ["sandbox s1 has 16 background commands"] * 2:
                await anyio.sleep(0.001)
                with pytest.raises(ControlError) as caught:
                    await ask(tmp_path, Exec(command=Command(argv=("true",), background=True), sandbox="s1"))
                said.append(str(caught.value))
        tasks.cancel_scope.cancel()

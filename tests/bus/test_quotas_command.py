"""`tiltyard quotas` as a person calls it, and what a running sandbox service makes of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from tiltyard.cli import connection
from tiltyard.cli.main import main
from tiltyard.kit.bus import Bus
from tiltyard.sandbox import housekeeping
from tiltyard.sandbox.admission import Quota

pytestmark = pytest.mark.anyio
FILE = '[tenants]\n"*" = { sandboxes = 3 }\n[domains]\n"code.python" = { sandboxes = 2 }\n'


async def test_quotas_are_set_and_cleared_live(
    bus: Bus, nats_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A service takes a file's quotas up, keeps them when the next file is wrong, and goes back when cleared."""
    monkeypatch.setattr(connection.log_setup, "setup", lambda *_, **__: None)
    monkeypatch.setattr(housekeeping, "FOLLOW_S", 0.05)
    own = {"tenant": {"nightly": Quota(sandboxes=8)}, "domain": {}}
    admission: Any = SimpleNamespace(quotas=dict(own))
    (tmp_path / "good.toml").write_text(FILE)
    (tmp_path / "bad.toml").write_text('[tenants]\n"*" = { boxes = 3 }\n')

    async def call(*arguments: str) -> int:
        return await anyio.to_thread.run_sync(
            main,
            ["quotas", *arguments, "--set", f'bus.servers=["{nats_server.url}"]', "--set", f"data.root={tmp_path}"],
        )

    async def until(wanted: Any) -> None:
        with anyio.fail_after(10):
            while admission.quotas != wanted:  # noqa: ASYNC110  (the service polls as well)
                await anyio.sleep(0.02)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(housekeeping.follow_quotas, bus, admission)
        assert await call("set", str(tmp_path / "good.toml")) == 0
        both = {"tenant": {"*": Quota(sandboxes=3)}, "domain": {"code.python": Quota(sandboxes=2)}}
        await until(both)
        assert await call("set", str(tmp_path / "bad.toml")) == 2
        assert "bad.toml" in capsys.readouterr().err
        assert await call("ls") == 0
        assert '"sandboxes": 3' in capsys.readouterr().out
        assert admission.quotas == both
        assert await call("clear") == 0
        await until(own)
        tasks.cancel_scope.cancel()

"""The production server's configuration works with what `tiltyard credentials` makes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tiltyard.kit import credentials
from tiltyard.kit.embedded import find_binary

CONFIG = Path(__file__).parents[2] / "infra" / "nats" / "nats-server.conf"


def test_the_production_configuration_is_valid(tmp_path: Path) -> None:
    """nats-server accepts infra/nats/nats-server.conf beside a made security folder, and syncs every write."""
    credentials.make(tmp_path / "made")
    (tmp_path / "security").symlink_to(tmp_path / "made" / "server")
    config = tmp_path / "nats-server.conf"
    text = CONFIG.read_text()
    assert "sync_interval: always" in text
    config.write_text(text.replace("/data/jetstream", str(tmp_path / "js")))
    done = subprocess.run([find_binary(), "-t", "-c", str(config)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

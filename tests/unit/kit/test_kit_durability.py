"""Production durability is refused on settings and servers that do not have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tiltyard.kit.cluster import Cluster
from tiltyard.kit.durability import NotDurable, check_durability, judge
from tiltyard.kit.settings import BusSettings, SettingsError, Source, section

pytestmark = pytest.mark.anyio
MONITORS = ["http://a:1", "http://b:1", "http://c:1"]


def bus(**table: Any) -> BusSettings:
    return section(Source({"bus": table}, {}, "t.toml"), "bus", BusSettings)


def page(number: int, *, always: bool = True, cluster: str = "c") -> tuple[str, dict[str, Any]]:
    config = {"sync_interval": 1, "sync_always": always}
    found = {"server_id": str(number), "jetstream": {"config": config}, "cluster": {"name": cluster}}
    return f"http://{number}", found


def test_durability_fixes_the_replicas() -> None:
    """One copy in development, three in production."""
    assert bus().replicas == 1
    assert bus(durability="production", embedded=False, monitors=MONITORS).replicas == 3


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"durability": "production"}, "embedded = false"),
        ({"durability": "production", "embedded": False, "monitors": MONITORS[:2]}, "monitoring URLs"),
        ({"durability": "paper"}, "paper"),
    ],
)
def test_settings_that_cannot_be_durable_are_refused(table: dict[str, Any], words: str) -> None:
    """An embedded server, too few monitors or an unknown word is a settings error that says what to set."""
    with pytest.raises(SettingsError, match=words):
        bus(**table)


@pytest.mark.parametrize(
    ("pages", "words"),
    [
        ([page(1), page(2, always=False), page(3)], "http://2: .* sync_interval: always"),
        ([page(1), page(2)], "three servers of one cluster"),
        ([page(1), page(1), page(1)], "1 servers"),
        ([page(1), page(2), page(3, cluster="d")], "one cluster"),
        ([("http://1", {"server_id": "1"})], "no JetStream"),
    ],
)
def test_servers_that_are_not_durable_are_refused(pages: list[Any], words: str) -> None:
    """Every server must sync always, and three must be of one cluster."""
    with pytest.raises(NotDurable, match=words):
        judge(pages)


def test_three_servers_that_sync_always_are_durable() -> None:
    """Nothing is said of three synced servers of one cluster."""
    judge([page(1), page(2), page(3)])


@pytest.mark.parametrize("sync", ["always", "2m"])
async def test_real_servers_are_asked(tmp_path: Path, sync: str) -> None:
    """A real cluster passes with `sync_interval: always`, and is refused with the default; so is one that is away."""
    cluster = Cluster.under(tmp_path, sync=sync)
    settings = BusSettings(
        durability="production", embedded=False, monitors=tuple(node.monitor_url for node in cluster.nodes)
    )
    with pytest.raises(NotDurable, match="/varz"):
        await check_durability(settings)
    cluster.start()
    try:
        if sync == "always":
            await check_durability(settings)
        else:
            with pytest.raises(NotDurable, match="sync_interval: always"):
                await check_durability(settings)
    finally:
        cluster.stop()

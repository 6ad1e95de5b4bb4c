"""Does the cluster keep what `bus.durability` promises? Asked once at start-up, of every server's monitoring page.

JetStream acknowledges a write that only lies in the page cache unless `sync_interval` is `always`: with the default of
two minutes a power cut loses everything acknowledged since (measured; nats-io/nats-server#7564). The API does not tell
the setting, so it is read from `/varz`. Invariant: 'production' is refused unless every server says that it syncs
always, and at least three say that they are of one cluster. Left out: the disks' own caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import msgspec

from .settings import BusSettings

TIMEOUT_S = 5.0


class NotDurable(ValueError):
    """The servers do not have what the settings ask for; the message names the server and the line to mend."""


async def check_durability(settings: BusSettings) -> None:
    """NotDurable when `settings` asks for production and a server does not have it."""
    if settings.durability != "production":
        return
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        pages = [(url, await _page(session, url)) for url in settings.monitors]
    judge(pages)


async def _page(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    try:
        async with session.get(f"{url.rstrip('/')}/varz") as reply:
            page = msgspec.json.decode(await reply.read())
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
        why = f"{error}" or type(error).__name__
        raise NotDurable(f"bus.monitors: {url}/varz: {why}; does the server have an `http` port?") from error
    if not isinstance(page, dict):
        raise NotDurable(f"bus.monitors: {url}/varz is no monitoring page of a NATS server")
    return page


def judge(pages: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """NotDurable unless the pages (URL and content) are those of one cluster of three or more that syncs always."""
    for url, page in pages:
        config = (page.get("jetstream") or {}).get("config") or {}
        if not config:
            raise NotDurable(f"{url}: this server has no JetStream; bus.durability 'production' needs it")
        if not config.get("sync_always"):
            raise NotDurable(
                f"{url}: this server acknowledges writes before they are synced; bus.durability 'production' needs "
                "sync_interval: always in its jetstream block"
            )
    servers = {str(page.get("server_id")) for _, page in pages}
    clusters = {str((page.get("cluster") or {}).get("name")) for _, page in pages}
    if len(servers) < 3 or len(clusters) != 1 or clusters == {"None"}:
        raise NotDurable(
            f"bus.monitors: {len(servers)} servers of cluster {', '.join(sorted(clusters))}; bus.durability "
            "'production' needs three servers of one cluster"
        )

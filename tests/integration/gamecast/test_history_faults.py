"""History across the restart of a node that comes back with less than it had, and while an epoch's end is held up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
import redis

import gamecast
from adapters.embedded.server import EmbeddedServer
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.network import RedisNetwork
from adapters.redis.relays import RedisRelays
from gamecast import Client, Event, Receipt
from gamecast.client import regionhistory
from gamecast.client.regionhistory import RegionHistory
from tests.integration.gamecast.test_faults import casts_on
from tests.integration.networks import register
from tests.patience import patience


async def published(cast: Client, payload: str) -> Receipt:
    """Publish when the network can: before a plan knows of a restart it cannot."""
    async with patience(20):
        while True:
            with suppress(gamecast.GamecastError):
                return await cast.publish("a", payload)
            await asyncio.sleep(0.05)


def told(items: Iterable[Any]) -> list[str]:
    """Events of region a by their payloads, gaps in it by where they begin and end, as far as that is known."""
    return [
        item.payload if isinstance(item, Event) else f"{item.epoch}: {item.first_sequence}-{item.last_sequence}"
        for item in items
        if item.region == "a"
    ]


@pytest.mark.parametrize("shared", [False, True])
async def test_what_a_node_lost_is_a_gap_in_history_and_what_it_has_is_found(shared: bool) -> None:
    async with EmbeddedServer() as server, EmbeddedServer(settings={"save": "3600 1"}) as node:
        await register(server.url, {"n1": node.url}, may_lose=True)
        async with (
            gamecast.connect(server.url, name="one") as one,
            gamecast.connect(server.url, name="two") as two,
            gamecast.share(server.url) as process,
        ):
            for cast in (one, two):
                await cast.subscribe("a", "b")
            kept = await two.publish("a", "kept")
            with redis.Redis.from_url(node.url) as client:
                client.save()
            late = process.connect(name="late") if shared else gamecast.connect(server.url, name="late")
            async with late:
                lost = await two.publish("a", "lost")
                # Its history is of before the restart, and is read after it.
                await late.subscribe("a", "b", since=0)
                node.kill()
                node.restart()
                after = await published(two, "after")
                assert after.epoch > lost.epoch >= kept.epoch
                found = list[str]()
                async with patience(20):
                    async for item in late:
                        found += told([item])
                        if found and found[-1] == "after":
                            break
            history = RegionHistory(RedisNetwork(server.url, ordering="acyclic", retention_events=1))
            pages = {}
            for position in ("0-0", *(f"{receipt.epoch}-{receipt.sequence}" for receipt in (kept, lost))):
                async with patience(20):
                    pages[position] = told((await history.page("a", after=position, events_max=10)).items)
            await history.close()
    first, *gaps, last = found
    assert (first, last) == ("kept", "after")
    # What was joined live ended somewhere in what is lost: one gap up to there, and one behind it.
    assert gaps[0].startswith(f"{kept.epoch}: {kept.sequence + 1}-")
    assert gaps[-1].endswith("-0")
    assert pages == {
        "0-0": ["kept", f"{kept.epoch}: {kept.sequence + 1}-0", "after"],
        f"{kept.epoch}-{kept.sequence}": [f"{kept.epoch}: {kept.sequence + 1}-0", "after"],
        f"{lost.epoch}-{lost.sequence}": [f"{lost.epoch}: {lost.sequence + 1}-0", "after"],
    }


async def test_pages_wait_for_the_end_of_an_epoch_that_no_relay_brings(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regionhistory, "END_S_MAX", 0.2)
    control = LeaderControl(redis_server.url)
    for number in range(3):
        await control.register_node(f"n{number}", "")
    history = RegionHistory(RedisNetwork(redis_server.url, ordering="acyclic", retention_events=1))
    relays = RedisRelays(redis_server.url)
    relays.start()
    async with casts_on(redis_server.url) as casts, patience(30):
        plan = await casts["s0"].plan()
        assert plan is not None
        [region, *_] = (region for region, path in plan.paths.items() if len(path) > 1)
        await relays.stop()
        await casts["s0"].publish(region, "late")
        joining = asyncio.create_task(casts["s0"].subscribe(*"abcd"))
        newest = plan
        while newest.epoch_of(region) == plan.epoch_of(region):
            for record in await control.news(newest, block_ms=1_000):
                newest = record.plan
        page = await history.page(region, after="0-0", events_max=10)
        assert ([*page.items], page.more, page.is_late) == ([], False, True)
        relays = RedisRelays(redis_server.url)
        relays.start()
        await joining
        await casts["s0"].publish(region, "new")
        found = list[Any]()
        while len(found) < 2:
            page = await history.page(region, after=page.next, events_max=10)
            found += page.items
        assert [getattr(item, "payload", item) for item in found] == ["late", "new"]
    await relays.stop()
    await history.close()
    await control.close()

"""History across many epochs: the control Redis keeps where each was, as long as the nodes keep the events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import redis

import gamecast
from adapters.embedded.server import EmbeddedServer
from adapters.redis import leadercontrol, ledger
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.network import RedisNetwork
from gamecast import Event
from gamecast.client.regionhistory import RegionHistory
from tests.integration.networks import register, relaying
from tests.patience import patience, until

EPOCHS = 12


@asynccontextmanager
async def three_nodes(url: str) -> AsyncIterator[None]:
    await register(url, {f"n{number}": "" for number in range(3)})
    async with relaying(url):
        yield


async def test_events_of_epochs_whose_plans_are_no_news_any_more_are_replayed(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "NEWS_KEPT", 2)
    monkeypatch.setattr(ledger, "FOR_ALL_EVERY", 1)
    async with three_nodes(redis_server.url), patience(60):
        async with gamecast.connect(redis_server.url, name="walker") as walker:
            receipts = []
            for number in range(EPOCHS):
                # Regions with another subscriber each, so that they end apart and walking begins epochs.
                async with gamecast.connect(redis_server.url, name=f"other-{number}") as other:
                    await other.subscribe(f"far-{number}", f"near-{number}")
                    await walker.subscribe("forest", f"near-{number}")
                    receipts.append(await walker.publish("forest", number))
            epochs = {receipt.epoch for receipt in receipts}
            assert len(epochs) > 4, "the test wants more epochs than plans are kept as news"
            async with gamecast.connect(redis_server.url, name="late") as late:
                await late.subscribe("forest", since=0)
                seen = await late.fetch(EPOCHS, timeout=20)
                while len(seen) < EPOCHS:
                    seen += await late.fetch(EPOCHS - len(seen), timeout=20)
            assert [item.payload if isinstance(item, Event) else item for item in seen] == [*range(EPOCHS)]
            async with gamecast.connect(redis_server.url, name="back") as back:
                first = receipts[0]
                await back.subscribe("forest", since=f"{first.epoch}-{first.sequence}")
                item = await anext(aiter(back))
                assert isinstance(item, Event), item
                assert item.payload == 1
        history = RegionHistory(RedisNetwork(redis_server.url, ordering="acyclic", retention_events=1))
        page = await history.page("forest", after="0-0", events_max=100)
        await history.close()
        assert [item.payload if isinstance(item, Event) else item for item in page.items] == [*range(EPOCHS)]


async def test_what_is_kept_of_the_past_is_forgotten_when_its_time_is_over(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadercontrol, "PAST_KEPT_MS", 300)
    async with three_nodes(redis_server.url), patience(60):
        async with gamecast.connect(redis_server.url, name="walker") as walker:
            for number in range(4):
                async with gamecast.connect(redis_server.url, name=f"other-{number}") as other:
                    await other.subscribe(f"far-{number}", f"near-{number}")
                    await walker.subscribe("forest", f"near-{number}")
                    await walker.publish("forest", number)
        with redis.Redis.from_url(redis_server.url) as client:
            await until(lambda: not any(client.keys(f"{ControlKeys.past}*")))

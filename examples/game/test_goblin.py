"""The game on a network in this process, without Redis."""

from __future__ import annotations

import asyncio

import pytest

import gamecast
from gamecast.testing import memory_url
from region_server import Server
from world import REGIONS


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAMECAST_URL", memory_url(nodes=3))


async def started(home: str) -> Server:
    server = Server(await gamecast.connect(name=f"server-{home}"), home)
    await server.start()
    return server


async def play() -> None:
    async with asyncio.timeout(30), gamecast.connect(name="ana") as ana:
        servers = [await started(home) for home in REGIONS]
        for _ in range(100):  # ticks: to the river and back
            for server in servers:
                await server.tick()
            await ana.publish(("meadow", "forest"), {"shoots_into": "forest"})
            assert sum(server.goblin is not None for server in servers) <= 1
        for server in servers:
            await server.client.close()


def test_servers_agree_about_each_shot(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(play())
    printed = capsys.readouterr().out.splitlines()
    hits, misses = (printed.count(f"ana shoots into the forest: {what}") for what in ("hit", "missed"))
    assert hits > 0
    assert misses > 0
    assert hits % 3 == misses % 3 == 0  # all three servers say the same


async def restart() -> None:
    first = await started("meadow")
    paused, first.goblin = first.goblin, None
    second = Server(await gamecast.connect(name="other"), "meadow")
    await second.start()
    assert second.goblin is None  # created once
    await first.client.close()
    again = await started("meadow")
    assert again.goblin is not None
    assert paused is not None
    with pytest.raises(gamecast.GamecastError):
        await paused.publish({"x": 5})
    for server in (second, again):
        await server.client.close()


def test_a_server_that_restarts_has_its_goblin_again() -> None:
    asyncio.run(restart())

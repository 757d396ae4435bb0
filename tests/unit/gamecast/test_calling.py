"""How connections are opened, and regions are given, in each of the ways that are usual."""

from __future__ import annotations

import pytest

import gamecast
from gamecast import blocking
from gamecast.testing import memory_url


def payloads(items: list[gamecast.Item]) -> list[object]:
    return [item.payload for item in items if isinstance(item, gamecast.Event)]


LISTS = ["a", "b"], ("a", "b"), {"a", "b"}, dict.fromkeys("ab").keys()


@pytest.mark.parametrize("regions", LISTS, ids=lambda regions: type(regions).__name__)
async def test_regions_are_given_one_by_one_or_as_a_list(regions: list[str]) -> None:
    async with gamecast.connect(memory_url(nodes=2)) as client:
        assert {*await client.subscribe(regions)} == {"a", "b"}
        await client.publish_batch([("a", 1), ("b", 2)])
        assert len(await client.fetch(2, timeout=None)) == 2
        await client.publish("a", "dropped")
        await client.unsubscribe(regions)
        assert {*await client.subscribe("b", ["c"])} == {"b", "c"}
        await client.publish("a", "not followed")
        await client.publish("c", "last")
        assert payloads(await client.fetch(timeout=None)) == ["last"]


@pytest.mark.parametrize("regions", LISTS, ids=lambda regions: type(regions).__name__)
def test_a_blocking_connection_takes_lists_too(regions: list[str]) -> None:
    with blocking.connect(memory_url()) as client:
        assert {*client.subscribe(regions)} == {"a", "b"}
        client.publish_batch([("a", "dropped"), ("b", "dropped")])
        next(iter(client))
        client.unsubscribe(regions)
        client.subscribe(["c"])
        client.publish("c", "last")
        assert payloads(client.fetch(timeout=None)) == ["last"]


async def test_a_connection_and_what_is_shared_open_when_they_are_awaited() -> None:
    client = await gamecast.connect(memory_url(), name="alone")
    assert client.status.name == "connected"
    assert (await client.publish("a", 1)).region == "a"
    await client.close()
    shared = await gamecast.share(memory_url())
    one = await shared.connect(name="one")
    assert (await one.publish("a", 1)).region == "a"
    await shared.close()

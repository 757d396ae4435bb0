"""Events published in one call: in order, all or none refused at once, and one future for their fates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import gamecast
import gamecast.blocking
import gamecast.classic
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from gamecast import Client, Receipt
from gamecast.testing import memory_url
from sequencing.publisher import FRAME_EVENTS_MAX
from tests.events import take
from tests.integration.networks import register


@pytest.fixture(params=["memory", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    return memory_url() if request.param == "memory" else request.getfixturevalue("redis_server").url


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    async with gamecast.connect(url, name="client") as client:
        await client.subscribe("a", "b")
        yield client


def positions(receipts: list[Receipt]) -> list[tuple[str, str]]:
    return [(receipt.region, f"{receipt.epoch}-{receipt.sequence}") for receipt in receipts]


async def test_receipts_are_in_the_order_of_the_call_and_each_region_in_it_too(client: Client) -> None:
    events: list[tuple[str, Any]] = [("ab"[number % 3 == 0], number) for number in range(5 * FRAME_EVENTS_MAX)]
    between = client.publish_async("a", "before")
    receipts = await client.publish_batch(events)
    after = client.publish_async("a", "after")
    found = await take(client, len(events) + 2)
    assert [receipt.region for receipt in receipts] == [region for region, _ in events]
    delivered = {(event.region, event.position): event.payload for event in found}
    assert [delivered[place] for place in positions(receipts)] == [payload for _, payload in events]
    for region in "ab":
        payloads = [event.payload for event in found if event.region == region]
        mine = [payload for where, payload in events if where == region]
        assert payloads == (["before", *mine, "after"] if region == "a" else mine)
    assert delivered["a", positions([await between])[0][1]] == "before"
    assert delivered["a", positions([await after])[0][1]] == "after"


async def test_bytes_and_json_mix_in_order(client: Client) -> None:
    payloads: list[Any] = [b"\x00\xff[", {"ä": "✓"}, b"", b"\n", [], "text", b"x", None, 7]
    assert len(await client.publish_batch(("a", payload) for payload in payloads)) == len(payloads)
    assert [event.payload for event in await take(client, len(payloads))] == payloads


async def test_calls_that_share_frames_are_each_told_of_their_own(client: Client) -> None:
    calls = [client.publish_batch([("a", [turn, number]) for number in range(turn % 4)]) for turn in range(40)]
    alone = [client.publish_async("a", ["alone", turn]) for turn in range(3)]
    calls += [client.publish_batch([("a", ["again", number]) for number in range(3)])]
    receipts = [receipt for call in await asyncio.gather(*calls[:-1]) for receipt in call]
    receipts += [*await asyncio.gather(*alone), *await calls[-1]]
    assert [receipt.sequence for receipt in receipts] == [event.sequence for event in await take(client, len(receipts))]


async def test_a_cancelled_call_hinders_no_other(client: Client) -> None:
    calls = [client.publish_batch([("a", turn), ("b", turn)]) for turn in range(3)]
    calls[1].cancel()
    alone = client.publish_async("a", "cancelled too")
    alone.cancel()
    assert [len(await calls[turn]) for turn in (0, 2)] == [2, 2]
    assert len(await take(client, 7)) == 7


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (("a", object()), gamecast.InvalidPayload),
        (("a", b"x" * 2_000_000), gamecast.PayloadTooLarge),
        (("", 1), gamecast.InvalidName),
    ],
)
async def test_what_can_never_be_published_is_refused_with_all_that_came_with_it(
    client: Client, event: tuple[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.publish_batch([("a", "fine"), event])
    assert await client.publish_batch([]) == []
    await client.publish("a", "alone")
    assert [event.payload for event in await take(client, 1)] == ["alone"]


async def test_a_full_buffer_refuses_the_call_and_a_closed_connection_too(url: str) -> None:
    async with gamecast.connect(url, name="full", buffer_events_max=5, when_full="refuse") as client:
        await client.subscribe("a")
        first = client.publish_batch([("a", number) for number in range(7)])
        with pytest.raises(gamecast.BufferFull):
            client.publish_batch([("a", "too much")])
        assert len(await first) == 7
        assert len(await client.publish_batch([("a", "room again")])) == 1
        assert len(await take(client, 8)) == 8
    with pytest.raises(gamecast.NotConnected):
        client.publish_batch([("a", "too late")])


async def test_when_one_of_two_nodes_is_down_the_error_tells_which_events_are_published() -> None:
    async with EmbeddedServer() as control, EmbeddedServers(2) as nodes:
        await register(control.url, {f"n{number}": node for number, node in enumerate(nodes.urls)})
        async with gamecast.connect(control.url, name="client", publish_timeout_s=2.0) as client:
            regions = [f"region-{number}" for number in range(8)]
            await client.publish_batch([(region, "there") for region in regions])
            plan = await client.plan()
            assert plan is not None
            down = {region for region in regions if plan.nodes[plan.paths[region][0]] == nodes.urls[0]}
            assert down
            assert down < set(regions)
            nodes.servers[0].kill()
            with pytest.raises(gamecast.PartlyPublished) as raised:
                await client.publish_batch([(region, "after") for region in regions])
            fates = dict(zip(regions, raised.value.outcomes, strict=True))
            assert {region for region, fate in fates.items() if isinstance(fate, gamecast.GamecastError)} == down
            assert all(isinstance(fates[region], Receipt) for region in set(regions) - down)


def test_a_blocking_connection_waits_for_the_receipts(redis_server: EmbeddedServer) -> None:
    with gamecast.blocking.connect(redis_server.url, name="blocking") as client:
        client.subscribe("a", "b")
        receipts = client.publish_batch([("a", 1), ("b", 2), ("a", 3)])
        assert [receipt.region for receipt in receipts] == ["a", "b", "a"]
        events = iter(client)
        assert sorted(event.payload for _ in receipts if isinstance(event := next(events), gamecast.Event)) == [1, 2, 3]


async def test_a_classic_protocol_takes_events_together_too() -> None:
    url = memory_url()
    async with gamecast.classic.connect(url, name="p1", protocol="fifo", processes=["p1"]) as client:
        [group] = client.setup.groups
        assert [receipt.sequence for receipt in await client.publish_batch([(group, 1), (group, 2)])] == [1, 2]
        with pytest.raises(gamecast.PartlyPublished):
            await client.publish_batch([(group, 3), ("nowhere", 4)])

"""A client that connects again when its session has ended, and resumes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import gamecast
from gamecast.lasting import LastingClient
from gamecast.testing import faults, memory_url
from tests.patience import patience


@pytest.fixture
def url() -> str:
    return memory_url()


@pytest.fixture
async def client(url: str) -> AsyncIterator[LastingClient]:
    client = LastingClient(url, name="server")
    await client.open()
    yield client
    await client.close()


async def payloads(client: LastingClient, came: list[object]) -> None:
    """Note what comes: payloads of events, and other items as they are."""
    async for item in client.items():
        is_event = isinstance(item, gamecast.Event) and not isinstance(item, gamecast.State)
        came += [item.payload if is_event else item]  # type: ignore[union-attr]


async def until(came: list[object], count: int) -> list[object]:
    async with patience(20):
        while len(came) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return came


async def test_it_resumes_after_the_last_event_when_its_session_has_expired(client: LastingClient, url: str) -> None:
    came: list[object] = []
    taking = asyncio.create_task(payloads(client, came))
    async with gamecast.connect(url, name="other") as other:
        await client.subscribe("forest", "river")
        await other.publish("forest", 1)
        await until(came, 1)
        faults(url).expire("server")
        await other.publish("river", 2)
        await other.publish("forest", 3)
        async with patience(20):
            await client.publish("forest", 4)
        assert await until(came, 4) == [1, 2, 3, 4]
    await client.close()
    async with patience(20):
        await taking


async def test_it_has_the_state_again_of_regions_that_it_had_with_their_state(client: LastingClient, url: str) -> None:
    came: list[object] = []
    taking = asyncio.create_task(payloads(client, came))
    async with gamecast.connect(url, name="other") as other:  # keeps the network, which ends with its last client
        await other.publish("forest", "open", key="gate")
        await client.subscribe("forest", state=True)
        await until(came, 1)
        faults(url).expire("server")
        await until(came, 2)
    states = [state for state in came if isinstance(state, gamecast.State)]
    assert [state.values["forest"]["gate"].payload for state in states] == ["open", "open"]
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)


async def test_regions_that_were_left_are_not_joined_again(client: LastingClient, url: str) -> None:
    came: list[object] = []
    taking = asyncio.create_task(payloads(client, came))
    async with gamecast.connect(url, name="other") as other:
        await client.subscribe("forest", "river")
        await client.unsubscribe("forest")
        faults(url).expire("server")
        await other.publish("forest", "left")
        await other.publish("river", "had")
        assert await until(came, 1) == ["had"]
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)


async def test_calls_of_a_closed_one_are_refused(client: LastingClient) -> None:
    await client.close()
    with pytest.raises(gamecast.NotConnected):
        await client.publish("forest", 1)
    with pytest.raises(gamecast.NotConnected):
        await client.subscribe("forest")


async def test_a_call_connects_again_where_nothing_iterates(client: LastingClient, url: str) -> None:
    async with gamecast.connect(url, name="other") as other:
        await other.subscribe("forest")
        await client.subscribe("forest")
        faults(url).expire("server")
        async with patience(20):
            await client.subscribe("river")
            await client.publish("forest", 1)
            event = await anext(aiter(other))
    assert isinstance(event, gamecast.Event)
    assert event.payload == 1


async def test_what_subscribes_while_it_handles_an_event_waits_for_nothing_and_has_nothing_twice(
    client: LastingClient, url: str
) -> None:
    came: list[object] = []

    async def take() -> None:
        async for item in client.items():
            assert isinstance(item, gamecast.Event)
            came.append(item.payload)
            if item.payload == 2:
                faults(url).expire("server")
                await client.subscribe("river")

    async with gamecast.connect(url, name="other") as other:
        await client.subscribe("forest")
        await other.publish_batch([("forest", number) for number in range(1, 6)])
        taking = asyncio.create_task(take())
        await until(came, 5)
        await other.publish("river", 6)
        assert await until(came, 6) == [1, 2, 3, 4, 5, 6]
    await client.close()
    async with patience(20):
        await taking


async def test_what_waits_for_the_next_session_is_published_in_the_order_of_the_calls(
    client: LastingClient, url: str
) -> None:
    came: list[object] = []
    taking = asyncio.create_task(payloads(client, came))
    async with gamecast.connect(url, name="other"):  # keeps the network, which ends with its last client
        await client.subscribe("forest")
        publishing: list[asyncio.Task[object]] = []
        for number in range(300):
            if number % 100 == 50:
                await asyncio.gather(*publishing)  # what is under way may be uncertain
                faults(url).expire("server")
            publishing.append(asyncio.create_task(client.publish("forest", number)))
            await asyncio.sleep(0.001)
        async with patience(20):
            await asyncio.gather(*publishing)
        assert await until(came, 300) == [*range(300)]
    await client.close()
    await taking


async def test_a_call_that_is_cancelled_while_it_connects_again_leaves_no_region_out(
    client: LastingClient, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, subscribe = asyncio.Event(), client._client.subscribe

    async def slowly(*regions: str, **options: Any) -> dict[str, str]:
        began.set()
        await asyncio.sleep(0.05)
        return await subscribe(*regions, **options)

    came: list[object] = []
    async with gamecast.connect(url, name="other") as other:
        await client.subscribe("forest")
        monkeypatch.setattr(client._client, "subscribe", slowly)
        faults(url).expire("server")
        publishing = asyncio.create_task(client.publish("forest", 1))
        async with patience(20):
            await began.wait()
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            taking = asyncio.create_task(payloads(client, came))
            await client.publish("river", 0)
            await other.publish("forest", 2)
        assert await until(came, 1) == [2]
    await client.close()
    await taking

"""What is left when something closes: nothing runs on, waits, or keeps a socket, in whatever order it closes."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

import gamecast
from gamecast import Client
from gamecast.sharing import Shared
from gamecast.testing import memory_url
from tests.patience import patience, until


@pytest.fixture(params=["embedded://", "embedded://?nodes=3", "memory"])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a network, which comes and goes with what is shared."""
    return memory_url() if request.param == "memory" else str(request.param)


async def opened(shared: Shared, number: int) -> Client:
    """Return a client that follows regions, which overlap with those of others."""
    client = await shared.connect(name=f"client{number}").open()
    await client.subscribe(f"r{number % 4}", f"r{(number + 1) % 4}")
    return client


async def ended() -> None:
    """Return when nothing runs but the test."""
    await until(lambda: len(asyncio.all_tasks()) <= 1)


async def test_what_is_shared_ends_its_clients_also_those_that_the_application_has_dropped(url: str) -> None:
    async with patience(60), gamecast.share(url) as shared:
        for number in range(8):
            await opened(shared, number)
    await ended()


@pytest.mark.parametrize("seed", range(3))
async def test_clients_and_what_they_share_close_in_any_order(url: str, seed: int) -> None:
    chance = random.Random(seed)
    async with patience(60):
        shared = await gamecast.share(url).open()
        clients = [await opened(shared, number) for number in range(6)]
        closing = [shared.close, *(client.close for client in clients)]
        chance.shuffle(closing)
        ends = []
        for close in closing:
            ends.append(asyncio.create_task(close()))
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
        await asyncio.gather(*ends)
    await ended()


async def test_a_client_that_opens_while_what_it_shares_closes_opens_or_fails_and_leaves_nothing(url: str) -> None:
    for rounds in range(12):
        async with patience(60):
            shared = await gamecast.share(url).open()
            client = shared.connect(name="late")
            opening = asyncio.create_task(client.open())
            for _ in range(rounds):
                await asyncio.sleep(0)
            await shared.close()
            with suppress(gamecast.GamecastError):
                await opening
            await client.close()
    await ended()


async def test_calls_that_wait_end_when_what_is_shared_closes(url: str) -> None:
    async with patience(60):
        async with gamecast.share(url) as shared:
            client = await opened(shared, 0)
            calls = [asyncio.create_task(call) for call in (anext(client, None), client.next_updates())]
            await asyncio.sleep(0)
        assert await calls[0] is None
        with pytest.raises(gamecast.NotConnected):
            await calls[1]
        with pytest.raises(gamecast.NotConnected):
            await client.subscribe("elsewhere")
        with pytest.raises(gamecast.NotConnected):
            await client.reconnect()


@pytest.mark.parametrize("steps", [0, 1, 20])
async def test_closing_what_is_shared_goes_on_when_its_caller_is_cancelled(url: str, steps: int) -> None:
    async with patience(60):
        shared = await gamecast.share(url).open()
        await opened(shared, 0)
        closing = asyncio.create_task(shared.close())
        for _ in range(1 + steps):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait((closing,))
        await shared.close()
    await ended()


async def test_of_two_tasks_that_open_at_once_one_is_refused_and_nothing_is_left(url: str) -> None:
    async with patience(60), gamecast.share(url) as shared:
        other, client = gamecast.share(shared.url), shared.connect(name="once")
        for both in ([other.open(), other.open()], [client.open(), client.open()]):
            one, two = await asyncio.gather(*both, return_exceptions=True)
            assert not isinstance(one, BaseException)
            assert isinstance(two, gamecast.UsageError)
            assert "opens once" in str(two)
        await other.close()
    await ended()


async def test_of_two_tasks_that_reconnect_at_once_one_is_refused_and_nothing_is_left(url: str) -> None:
    async with patience(60), gamecast.share(url) as shared:
        client = await shared.connect(name="twice").open()
        one, two = await asyncio.gather(client.reconnect(), client.reconnect(), return_exceptions=True)
        assert one is client
        assert isinstance(two, gamecast.UsageError)
        await client.publish("r", 1)
    await ended()


async def test_what_opened_with_await_may_be_entered_then_and_is_closed_at_the_end(url: str) -> None:
    async with patience(60):
        shared = await gamecast.share(url)
        async with shared:
            client = await shared.connect(name="entered")
            async with client as entered:
                assert entered is client
                await client.publish("r", 1)
            with pytest.raises(gamecast.UsageError, match="opens once"):
                await client.open()
    await ended()


async def test_a_client_that_opened_while_what_it_shares_was_closing_is_closed_too(url: str) -> None:
    for rounds in range(24):
        async with patience(60):
            shared = await gamecast.share(url).open()
            await opened(shared, 0)
            client = shared.connect(name="late")
            closing = asyncio.create_task(shared.close())
            opening = asyncio.create_task(client.open())
            for _ in range(rounds % 12):
                await asyncio.sleep(0)
            await asyncio.wait((opening, closing))
            with suppress(gamecast.GamecastError):
                await opening
    await ended()

"""Where two calls of one connection meet: leaving while taking, replays that end, servers that hang."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

import gamecast
from gamecast import Cast, Event, Gap, blocking
from gamecast.testing import memory_url
from tests.events import take
from tests.patience import patience


@pytest.fixture(params=["memory", "embedded"])
async def url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The URL of a fresh network with one node, which lasts as long as the test."""
    async with gamecast.connect(memory_url() if request.param == "memory" else "embedded://") as keeper:
        yield keeper.url


async def arrived(cast: Cast, events: int) -> None:
    """Return when so many events wait for the application."""
    async with patience(10):
        while cast.statistics().inbox_events < events:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("timeout_s", [0, 5, None])
async def test_take_returns_no_event_of_a_region_that_another_task_has_left(url: str, timeout_s: float | None) -> None:
    async with gamecast.connect(url, name="cast") as cast:
        await cast.subscribe("forest", "river")
        await cast.publish_all([("forest", number) for number in range(3)])
        await arrived(cast, 3)
        taking = asyncio.create_task(cast.take(timeout=timeout_s))
        await asyncio.sleep(0)  # it has the three events, and looks whether there are more
        assert not taking.done()
        await cast.unsubscribe("forest")
        await cast.publish("river", "next")
        async with patience(10):
            taken = await taking or await cast.take(timeout=None)
        assert [item.region for item in taken] == ["river"]


async def test_a_cancelled_take_brings_back_no_event_of_a_region_that_was_left(url: str) -> None:
    async with gamecast.connect(url, name="cast") as cast:
        await cast.subscribe("forest", "river")
        await cast.publish_all([("forest", 0), ("river", 1), ("forest", 2)])
        await arrived(cast, 3)
        taking = asyncio.create_task(cast.take())
        await asyncio.sleep(0)
        await cast.unsubscribe("forest")
        taking.cancel()
        await asyncio.wait((taking,))
        assert [event.payload for event in await take(cast, 1)] == [1]


async def taking(cast: Cast, got: list[Event | Gap]) -> None:
    while True:
        got += await cast.take(10, timeout=None)


async def iterating(cast: Cast, got: list[Event | Gap]) -> None:
    async for item in cast:
        got.append(item)
        await asyncio.sleep(0)


async def by_batches(cast: Cast, got: list[Event | Gap]) -> None:
    async for batch in cast.batches():
        got += batch
        await asyncio.sleep(0)


async def handling(cast: Cast, got: list[Event | Gap]) -> None:
    cast.on("*")(got.append)
    await cast.run()


DOORS = {"take": taking, "iterate": iterating, "batches": by_batches, "run": handling}
"""The ways to get events; each adds what it gets to a list."""


def payloads(items: list[Event | Gap]) -> list[object]:
    """Return what the events among some items carry."""
    return [item.payload for item in items if isinstance(item, Event)]


@pytest.mark.parametrize("door", [*DOORS])
async def test_whatever_hands_out_events_has_none_of_a_region_that_was_left_and_all_of_the_others(
    url: str, door: str
) -> None:
    got: list[Event | Gap] = []
    async with gamecast.connect(url, name="cast") as cast, gamecast.connect(url, name="other") as other:
        await cast.subscribe("forest", "river")
        getting = asyncio.ensure_future(DOORS[door](cast, got))
        for number in range(8):
            await other.publish_all([("forest", number), ("river", number)] * 20)
            for _ in range(number):
                await asyncio.sleep(0)
            await cast.unsubscribe("forest")
            before = len(got)
            await other.publish_all([("river", "end")])
            async with patience(10):
                while "end" not in payloads(got[-1:]):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.002)
            assert {item.region for item in got[before:]} == {"river"}
            got.clear()
            await cast.subscribe("forest")
        getting.cancel()
        await asyncio.wait((getting,))


def test_a_thread_gets_no_event_of_a_region_that_another_thread_has_left() -> None:
    with blocking.connect(memory_url(), name="cast") as cast:
        cast.subscribe("forest", "river")
        got: list[Event | Gap] = []
        wait = cast._wait
        came, left = threading.Event(), threading.Event()

        def late(call: object) -> object:
            found = wait(call)  # type: ignore[arg-type, var-annotated]
            if threading.current_thread() is thread:
                came.set()
                left.wait(10)
            return found

        thread = threading.Thread(target=lambda: got.extend(cast.take(timeout=10)))
        cast._wait = late  # type: ignore[method-assign, assignment]
        cast.publish_all([("forest", 1), ("river", 2)])
        thread.start()
        assert came.wait(10)
        cast.unsubscribe("forest")
        left.set()
        thread.join(10)
        assert [item.region for item in got] == ["river"]

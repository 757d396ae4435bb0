"""Regions that are left and entered at once: whichever calls overlap, and however, the one that came last wins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

import gamecast
from adapters.embedded.server import EmbeddedServer
from gamecast import Client, Event, blocking
from gamecast.testing import memory_url
from tests.patience import patience

ENTER: dict[str, dict[str, Any]] = {
    "plain": {},
    "state": {"state": True},
    "since": {"since": 0},
    "presence": {"presence": {"hat": "red"}},
    "watch": {"presence": "watch"},
}
CALLS = ("leave", *ENTER)
PAIRS = [*product(CALLS, repeat=2)]
TRIPLES = [calls for calls in product(CALLS, repeat=3) if "leave" in calls]
ROUNDS = (0, 1, 3)
"""Of the event loop, between one call and the next."""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    """One server for all cases; each takes regions of its own."""
    with EmbeddedServer() as server:
        yield server


async def called(client: Client, region: str, call: str) -> None:
    """Leave a region, or enter it in one of the ways."""
    if call == "leave":
        await client.unsubscribe(region)
    else:
        await client.subscribe(region, **ENTER[call])


async def overlapping(client: Client, region: str, calls: tuple[str, ...], rounds: int) -> list[BaseException | None]:
    """Begin calls one after another, and return what each raised."""
    tasks = []
    for call in calls:
        tasks.append(asyncio.create_task(called(client, region, call)))
        for _ in range(rounds):
            await asyncio.sleep(0)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def require_heard(client: Client, watcher: Client, region: str, told: str, *, is_heard: bool) -> None:
    """Check whether a client is delivered what is published in a region now."""
    await client.subscribe("end")
    await watcher.publish(region, "probe")
    await watcher.publish("end", region)
    awaited = (region, "probe") if is_heard else ("end", region)  # history comes late, and what follows it, too
    with suppress(TimeoutError):
        async with patience(10):
            async for item in client:
                here = (item.region, item.payload) if isinstance(item, Event) else None
                assert is_heard or here != (region, "probe"), f"{told}: followed"
                if here == awaited:
                    return
    pytest.fail(f"{told}: not followed")


async def require_last_wins(client: Client, watcher: Client, region: str, calls: tuple[str, ...], rounds: int) -> None:
    """Check the state after some calls: the last one that did not raise has come true, for the caller and others."""
    await called(client, region, calls[0])
    raised = await overlapping(client, region, calls[1:], rounds)
    told = f"{calls} {rounds} rounds apart: {raised}"
    for call, error in zip(calls[1:], raised, strict=True):
        # Who is in a region already cannot begin with its state.
        assert error is None or (call not in {"leave", "plain"} and isinstance(error, gamecast.UsageError)), told
    if raised[-1] is not None:  # then it has found the region subscribed to
        assert "subscribed to already" in str(raised[-1]), told
        assert calls[-2] != "leave", told
    await require_heard(client, watcher, region, told, is_heard=calls[-1] != "leave")
    if calls[-1] != "leave" and raised[-1] is None:
        async with patience(20):
            await anext(item async for item in watcher if isinstance(item, Event) and item.region == region)
        is_seen = client.name in watcher.present(region)
        assert is_seen is (calls[-1] == "presence") or calls[-1] == "plain", told


async def require_table(url: str, table: Sequence[tuple[str, ...]], rounds: tuple[int, ...]) -> None:
    async with gamecast.connect(url, name="walker") as client, gamecast.connect(client.url, name="watcher") as watcher:
        for number, (calls, between) in enumerate(product(table, rounds)):
            region = f"r{number}"
            await watcher.subscribe(region, presence="watch")
            await require_last_wins(client, watcher, region, calls, between)
            await client.unsubscribe(region)
            await watcher.fetch()
            await watcher.unsubscribe(region)


@pytest.mark.parametrize("before", CALLS)
async def test_the_last_of_two_overlapping_calls_wins(before: str) -> None:
    await require_table(memory_url(), [(before, *calls) for calls in PAIRS], ROUNDS)


@pytest.mark.parametrize("before", ["plain", "presence"])
async def test_the_last_of_three_overlapping_calls_wins(before: str) -> None:
    await require_table(memory_url(), [(before, *calls) for calls in TRIPLES], (0,))


@pytest.mark.parametrize("before", ["plain", "presence"])
async def test_the_last_of_two_overlapping_calls_wins_on_redis(before: str, server: EmbeddedServer) -> None:
    table = [(before, "leave", call) for call in CALLS] + [(before, call, "leave", "plain") for call in CALLS]
    await require_table(server.url, table, (0, 2))


@pytest.mark.parametrize("calls", [("leave", "plain"), ("leave", "leave", "state"), ("leave", "plain", "leave")])
async def test_the_last_call_wins_in_causal_order_where_leaving_waits(calls: tuple[str, ...]) -> None:
    url = memory_url()
    async with (
        gamecast.connect(url, name="walker", ordering="causal") as client,
        gamecast.connect(url, name="watcher", ordering="causal") as watcher,
    ):
        await client.subscribe("r")
        await watcher.subscribe("r", "end")
        client.publish_nowait("r", "own")
        await overlapping(client, "r", calls, 0)
        await require_heard(client, watcher, "r", str(calls), is_heard=calls[-1] != "leave")


def test_a_region_that_one_thread_leaves_and_another_enters_then_is_followed(server: EmbeddedServer) -> None:
    with blocking.connect(server.url, name="threads") as client, blocking.connect(server.url, name="other") as other:
        client.subscribe("square", presence={"hat": "red"})
        leaving = threading.Thread(target=client.unsubscribe, args=("square",))
        leaving.start()
        client.subscribe("square", "after")
        leaving.join()
        if "square" not in client.subscribe("square"):
            pytest.fail("it is not followed")
        other.publish("square", "probe")
        other.publish("after", "end")
        for item in client:
            if isinstance(item, Event) and item.payload == "probe":
                return
            assert not isinstance(item, Event) or item.payload != "end"

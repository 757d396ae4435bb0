"""The promises through each call of the library: blocking, `fetch`, `run`, and a causal connection that skips."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

import gamecast
from adapters.embedded.server import EmbeddedServers
from gamecast import Client, Event, Gap, Item, blocking
from gamecast.blocking import BlockingClient
from gamecast.testing import DeliverySequence, Published, judge, memory_url
from sequencing.checkers import Verdict
from tests.integration.gamecast.test_sharing import published
from tests.integration.networks import register
from tests.patience import patience, scaled

REGIONS = ("forest", "river", "tower", "cave")
ENDS = "end"
"""The payload of the last event of each region."""
WALKS = {
    "steady": REGIONS,
    "take": REGIONS[:3],
    "run": REGIONS[1:],
    "blocking-iterate": (REGIONS[0], REGIONS[2], REGIONS[3]),
    "blocking-take": REGIONS[:2] + REGIONS[3:],
    "blocking-run": REGIONS[::-1],
}
"""How each connection gets its events, and of which regions: every two have two regions in common, or more."""


class Seen:
    """The events and gaps of one connection, until each of its regions has ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.items: list[Item] = []
        self._left = set(WALKS[name])

    def add(self, item: Item) -> bool:
        """Note an item; return whether it was the last."""
        self.items.append(item)
        if isinstance(item, Event) and item.payload == ENDS:
            self._left.discard(item.region)
        return not self._left

    @property
    def gaps(self) -> list[Gap]:
        return [item for item in self.items if isinstance(item, Gap)]

    def sequence(self) -> DeliverySequence:
        events = [item for item in self.items if isinstance(item, Event)]
        return DeliverySequence(
            self.name,
            [f"{event.region} {event.position}" for event in events],
            [event.region for event in events],
            [event.sender for event in events],
        )


async def by_iterating(client: Client, seen: Seen) -> None:
    async for item in client:
        if seen.add(item):
            return


async def by_taking(client: Client, seen: Seen) -> None:
    while True:
        for item in await client.fetch(7, timeout=0.01):
            if seen.add(item):
                return


async def by_running(client: Client, seen: Seen) -> None:
    done = asyncio.Event()

    @client.on("*")
    @client.on_gap
    async def note(item: Item) -> None:
        if seen.add(item):
            done.set()

    running = asyncio.create_task(client.run())
    try:
        await done.wait()
    finally:
        running.cancel()


def blocking_by_iterating(client: BlockingClient, seen: Seen) -> None:
    for item in client:
        if seen.add(item):
            return


def blocking_by_taking(client: BlockingClient, seen: Seen) -> None:
    while True:
        for item in client.fetch(7, timeout=0.05):
            if seen.add(item):
                return


def blocking_by_running(client: BlockingClient, seen: Seen) -> None:
    @client.on("*")
    @client.on_gap
    def note(item: Item) -> None:
        if seen.add(item):
            client.close()

    client.run()


ASYNC = {"steady": by_iterating, "take": by_taking, "run": by_running}
THREADS: dict[str, Callable[[BlockingClient, Seen], None]] = {
    "blocking-iterate": blocking_by_iterating,
    "blocking-take": blocking_by_taking,
    "blocking-run": blocking_by_running,
}


class Listeners:
    """A connection for each of `WALKS`, subscribed, and what reads from it."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url, self._stack = url, stack
        self.seen = {name: Seen(name) for name in WALKS}
        self._threads: list[threading.Thread] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for name, read in ASYNC.items():
            client = await self._stack.enter_async_context(gamecast.connect(self._url, name=name))
            await client.subscribe(*WALKS[name])
            self._tasks.append(asyncio.create_task(read(client, self.seen[name])))
        for name in THREADS:
            await asyncio.to_thread(self._start_thread, name)

    def _start_thread(self, name: str) -> None:
        client = blocking.connect(self._url, name=name).open()
        self._stack.push_async_callback(asyncio.to_thread, client.close)
        client.subscribe(*WALKS[name])
        thread = threading.Thread(target=THREADS[name], args=(client, self.seen[name]), daemon=True)
        thread.start()
        self._threads.append(thread)

    async def finish(self) -> None:
        """Wait until everybody has the last event of each region."""
        async with patience(20):
            await asyncio.gather(*self._tasks)
        for thread in self._threads:
            await asyncio.to_thread(thread.join, scaled(20))
            assert not thread.is_alive(), {name: len(seen.items) for name, seen in self.seen.items()}

    def judge(self, receipts: Sequence[gamecast.Receipt] | None) -> Verdict:
        known = None if receipts is None else [Published(f"{r.region} {r.position}", r.region) for r in receipts]
        return judge([seen.sequence() for seen in self.seen.values()], published=known)


async def test_every_call_of_the_library_returns_the_events_of_several_regions_in_one_order() -> None:
    async with AsyncExitStack() as stack:
        keeper = await stack.enter_async_context(gamecast.connect("embedded://?nodes=3", name="keeper"))
        listeners = Listeners(keeper.url, stack)
        await listeners.start()
        publishers = [
            await stack.enter_async_context(gamecast.connect(keeper.url, name=f"publisher-{number}"))
            for number in range(3)
        ]
        chance = random.Random(3)
        sent: list[asyncio.Future[gamecast.Receipt]] = []
        for number in range(150):
            for client in publishers:
                sent += [client.publish_async(region, number) for region in chance.sample(REGIONS, 2)]
            await asyncio.sleep(chance.random() * 0.006)
        receipts = await asyncio.gather(*sent)
        receipts += [await keeper.publish(region, ENDS) for region in REGIONS]
        await listeners.finish()
        verdict = listeners.judge(receipts)
        assert verdict.fine, verdict.examples
        assert verdict.lost == 0
        assert all(seen.gaps == [] for seen in listeners.seen.values())


async def test_a_gap_comes_in_its_place_through_every_call_of_the_library() -> None:
    async with AsyncExitStack() as stack:
        servers = stack.enter_context(EmbeddedServers(4))
        control, *nodes = servers.urls
        await register(control, {f"n{number}": url for number, url in enumerate(nodes)}, may_lose=True)
        keeper = await stack.enter_async_context(gamecast.connect(control, name="keeper"))
        listeners = Listeners(control, stack)
        await listeners.start()
        before = [await keeper.publish(region, number) for number in range(5) for region in REGIONS]
        plan = await keeper.plan()
        assert plan is not None
        lost = {region for region, node in plan.egresses.items() if node == plan.egresses["river"]}
        victim = servers.servers[1 + int(plan.egresses["river"].removeprefix("n"))]
        victim.kill()
        victim.restart()
        after = [await published(keeper, region, "after") for region in REGIONS]
        assert max(receipt.epoch for receipt in after) > max(receipt.epoch for receipt in before)
        for region in REGIONS:
            await published(keeper, region, ENDS)
        await listeners.finish()
        verdict = listeners.judge(None)
        assert verdict.fine, verdict.examples
        for name, seen in listeners.seen.items():
            told = {gap.region for gap in seen.gaps}
            assert lost & {*WALKS[name]} <= told <= {*WALKS[name]}, f"{name} was not told: {seen.gaps}"
            for region in lost & {*WALKS[name]}:
                of_region = [
                    item for item in seen.items if not isinstance(item, gamecast.State) and item.region == region
                ]
                first = next(place for place, item in enumerate(of_region) if isinstance(item, Gap))
                ends = [place for place, item in enumerate(of_region) if isinstance(item, Event)][-2:]
                assert first < ends[0], "a gap comes before what follows it"


@pytest.fixture(params=["memory", "embedded"])
async def causal_url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A causal network of three nodes."""
    url = memory_url(nodes=3) if request.param == "memory" else "embedded://?nodes=3"
    async with gamecast.connect(url, name="keeper", ordering="causal") as keeper:
        yield keeper.url


async def test_a_causal_connection_that_skips_its_own_events_publishes_on_in_causal_order(causal_url: str) -> None:
    """Around a ring, where an effect overtakes its cause if the skipped event is not counted as delivered."""
    async with AsyncExitStack() as stack:

        async def member(name: str, regions: str, **options: Any) -> Client:
            connecting = gamecast.connect(causal_url, name=name, ordering="causal", **options)
            client = await stack.enter_async_context(connecting)
            await client.subscribe(*regions)
            return client

        slow = await member("slow", "ab", inbox_events_max=10, when_behind="skip")
        watcher = await member("watcher", "ab")
        await member("other", "bc")
        flood = await member("flood", "ca")
        sent: list[asyncio.Future[gamecast.Receipt]] = []
        for number in range(60):
            flooding = [flood.publish_async("a", number) for _ in range(6)]
            one, other = "ab" if number % 2 else "ba"
            sent += [slow.publish_async(one, ["first", number]), slow.publish_async(other, ["second", number])]
            if number % 6 == 5:
                async with patience(20):
                    await asyncio.gather(*flooding)
        async with patience(20):
            own = await asyncio.gather(*sent)
        end = await slow.publish("b", "the end")

        seen: list[tuple[str, int, int]] = []
        skipped: set[tuple[str, int, int]] = set()
        async with patience(20):
            while tuple(end) not in {*seen, *skipped}:
                item = await anext(slow)
                if isinstance(item, Event):
                    seen.append((item.region, item.epoch, item.sequence))
                elif isinstance(item, Gap):
                    numbers = range(item.first_sequence, item.last_sequence + 1)
                    skipped |= {(item.region, item.epoch, number) for number in numbers}
        missed = {tuple(receipt) for receipt in own} & skipped
        assert missed, "nothing of its own was skipped"
        assert skipped.isdisjoint(seen)
        assert {tuple(receipt) for receipt in own} <= skipped | {*seen}

        heard: list[Any] = []
        async with patience(20):
            while not heard or heard[-1] != "the end":
                event = await anext(watcher)
                assert isinstance(event, Event)
                if event.sender == "slow":
                    heard.append(event.payload)
        assert heard == [*([which, number] for number in range(60) for which in ("first", "second")), "the end"]

        await slow.publish("a", "after the gaps")
        for client in (watcher, flood):
            async with patience(20):
                async for item in client:
                    if isinstance(item, Event) and item.payload == "after the gaps":
                        break

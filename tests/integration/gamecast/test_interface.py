"""The public interface over every kind of network: one suite, whatever carries the frames."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from typing import Any

import pytest

import gamecast
from gamecast import Client, Event, Item
from gamecast.testing import memory_url
from tests.events import next_event, take
from tests.integration.networks import Network
from tests.patience import patience, scaled, until


async def test_an_event_comes_to_its_subscribers_and_only_to_them(network: Network) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    await one.subscribe("forest")
    await other.subscribe("river")
    receipt = await one.publish("forest", {"type": "spell", "at": [1, 2.5, None]})
    await other.publish("river", "quiet")
    [event] = await take(one, 1)
    assert (event.region, event.sender, event.payload) == ("forest", "one", {"type": "spell", "at": [1, 2.5, None]})
    assert (event.epoch, event.sequence) == (receipt.epoch, receipt.sequence)
    assert event.position == f"{receipt.epoch}-{receipt.sequence}"
    assert 0 < event.sent_at_ns <= event.delivered_at_ns
    assert [e.payload for e in await take(other, 1)] == ["quiet"]


async def test_servers_that_share_regions_see_one_order(network: Network) -> None:
    regions = [f"cell:{number}" for number in range(6)]
    casts = [await network.connect(f"s{number}") for number in range(4)]
    for number, cast in enumerate(casts):
        await cast.subscribe(*(regions[(number + offset) % 6] for offset in range(4)))
    published: list[asyncio.Future[gamecast.Receipt]] = []
    for burst in range(25):
        for number, cast in enumerate(casts):
            region = regions[(number + burst) % 6]
            published += [cast.publish_async(region, {"id": f"{number}:{burst}:{i}"}) for i in range(4)]
        await asyncio.sleep(0)
    receipts = await asyncio.gather(*published)
    assert len({(receipt.region, receipt.sequence) for receipt in receipts}) == 400
    orders = []
    for number, cast in enumerate(casts):
        mine = {regions[(number + offset) % 6] for offset in range(4)}
        events = await take(cast, sum(receipt.region in mine for receipt in receipts))
        assert {event.region for event in events} <= mine
        orders.append([event.payload["id"] for event in events])
    for one in orders:
        for other in orders:
            common = set(one) & set(other)
            assert [e for e in one if e in common] == [e for e in other if e in common]


@pytest.mark.parametrize("kind", ["embedded", "embedded-3"])
async def test_an_embedded_network_has_one_order(kind: str) -> None:
    async with AsyncExitStack() as stack:
        await test_servers_that_share_regions_see_one_order(await Network.start(kind, stack))


async def test_region_sequences_count_the_events_and_keep_each_publishers_order(network: Network) -> None:
    casts = [await network.connect(f"s{number}") for number in range(2)]
    for cast in casts:
        await cast.subscribe("forest")
    await asyncio.gather(*(cast.publish_async("forest", [cast.name, i]) for i in range(300) for cast in casts))
    for cast in casts:
        events = await take(cast, 600)
        first = events[0].sequence
        assert [event.sequence for event in events] == list(range(first, first + 600))
        for sender in ("s0", "s1"):
            assert [event.payload[1] for event in events if event.sender == sender] == list(range(300))


async def test_bytes_stay_bytes_and_mix_with_json_in_order(network: Network) -> None:
    cast = await network.connect()
    await cast.subscribe("forest")
    payloads: list[Any] = [b"\x00\xff[", {"ä": "✓"}, b"", [], b"\n", "text", None, 7]
    await asyncio.gather(*(cast.publish_async("forest", payload) for payload in payloads))
    assert [event.payload for event in await take(cast, len(payloads))] == payloads


async def test_publishing_where_nobody_subscribes_is_accepted_also_later(network: Network) -> None:
    cast = await network.connect()
    assert (await cast.publish("desert", 1)).sequence == 1
    assert (await cast.publish("swamp", 1)).sequence == 1
    assert (await cast.publish("desert", 2)).sequence == 2


async def test_regions_are_joined_under_traffic_and_nothing_after_that_is_missed(network: Network) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    await one.subscribe("forest", "river")

    async def chatter() -> list[gamecast.Receipt]:
        return [await one.publish(region, f"{region}{i}") for i in range(60) for region in ("forest", "river")]

    talking = asyncio.create_task(chatter())
    await asyncio.sleep(0.02)
    await other.subscribe("river", "forest")
    after = [await one.publish(region, "after") for region in ("forest", "river")]
    receipts = sorted({*await talking, *after})
    mine = [(event.region, event.epoch, event.sequence) for event in await take(one, 122)]
    theirs: list[tuple[str, int, int]] = []
    while not {tuple(receipt) for receipt in after} <= set(theirs):
        [event] = await take(other, 1)
        theirs.append((event.region, event.epoch, event.sequence))
    assert sorted(mine) == [tuple(receipt) for receipt in receipts]
    common = [entry for entry in mine if entry in set(theirs)]
    assert common == theirs
    for region in ("forest", "river"):
        heard = [entry for entry in theirs if entry[0] == region]
        assert heard == [entry for entry in mine if entry[0] == region and heard[0] <= entry <= heard[-1]]


async def test_unsubscribing_before_traffic_takes_the_subscription_back(network: Network) -> None:
    cast = await network.connect()
    await cast.subscribe("forest", "river")
    await cast.unsubscribe("forest")
    await cast.publish("forest", "unheard")
    await cast.publish("river", "heard")
    assert [event.payload for event in await take(cast, 1)] == ["heard"]


async def test_unsubscribing_under_traffic_ends_the_deliveries_of_that_region(network: Network) -> None:
    cast = await network.connect()
    await cast.subscribe("forest", "river")
    await cast.publish("forest", 1)
    assert len(await take(cast, 1)) == 1
    await cast.unsubscribe("forest")
    await cast.publish("forest", 2)
    await cast.publish("river", 3)
    assert [event.payload for event in await take(cast, 1)] == [3]


async def test_walking_through_overlaps_that_were_declared_takes_no_new_epoch(network: Network) -> None:
    regions = [f"cell:{number}" for number in range(6)]
    publisher = await network.connect("publisher")
    await publisher.declare_overlaps(pairwise(regions))
    walkers = [await network.connect(f"walker-{number}") for number in range(3)]
    seen: dict[str, list[str]] = {}

    async def read(cast: Client) -> None:
        async for event in cast:
            assert isinstance(event, Event)
            seen.setdefault(cast.name, []).append(event.payload)

    async def walk(cast: Client, start: int) -> None:
        for here, there in pairwise(regions[start:]):
            await cast.subscribe(here, there)
            await publisher.publish(there, f"{cast.name} is in {there}")
            while not seen.get(cast.name, [""])[-1].endswith(there):  # noqa: ASYNC110 - else it is left unread
                await asyncio.sleep(0.001)
            await cast.unsubscribe(here)

    async with asyncio.TaskGroup() as reading:
        for walker in walkers:
            reading.create_task(read(walker))
        await walkers[0].subscribe(regions[0])
        before = await publisher.plan()
        async with asyncio.TaskGroup() as walking:
            for start, walker in enumerate(walkers):
                walking.create_task(walk(walker, start))
        after = await publisher.plan()
        for walker in walkers:
            await walker.drain()
    assert before is not None
    assert after is not None
    assert (after.epoch, after.atoms) == (before.epoch, before.atoms)
    for start, walker in enumerate(walkers):
        own = [event for event in seen[walker.name] if event.startswith(walker.name)]
        assert own == [f"{walker.name} is in {region}" for region in regions[start + 1 :]]


async def test_a_network_outlives_its_connections_and_begins_a_new_epoch(network: Network) -> None:
    keeper = await network.connect("keeper")
    async with gamecast.connect(network.url, name="a") as first:
        await first.subscribe("forest")
        await first.publish("forest", "old")
    async with gamecast.connect(network.url, name="b") as second:
        await second.subscribe("forest", "river")
        receipt = await second.publish("forest", "new")
        assert receipt.epoch >= 1
        assert [event.payload for event in await take(second, 1)] == ["new"]
    assert keeper.statistics().delivered_events == 0


async def test_what_cannot_be_published_is_refused_at_once_and_disturbs_nothing(network: Network) -> None:
    cast = await network.connect(payload_bytes_max=100)
    await cast.subscribe("forest")
    for region, payload, kind in (
        ("forest", object(), gamecast.InvalidPayload),
        ("forest", {1: "number as key"}, gamecast.InvalidPayload),
        ("forest", 2**70, gamecast.InvalidPayload),
        ("forest", bytearray(b"not bytes"), gamecast.InvalidPayload),
        ("forest", "x" * 200, gamecast.PayloadTooLarge),
        ("forest", b"x" * 101, gamecast.PayloadTooLarge),
        ("", 1, gamecast.InvalidName),
        (" ", 1, gamecast.InvalidName),
        ("a\nb", 1, gamecast.InvalidName),
        ("x" * 201, 1, gamecast.InvalidName),
        (7, 1, gamecast.InvalidName),
    ):
        with pytest.raises(kind):
            await cast.publish(region, payload)  # type: ignore[arg-type]
        with pytest.raises(kind):
            cast.publish_async(region, payload)  # type: ignore[arg-type]
    before = await cast.publish("forest", "fine")
    assert (await cast.publish("forest", "too")).sequence == before.sequence + 1
    assert [event.payload for event in await take(cast, 2)] == ["fine", "too"]


async def test_a_full_buffer_refuses_or_waits_as_configured(network: Network) -> None:
    waiting = await network.connect("waiting", buffer_events_max=5)
    refusing = await network.connect("refusing", buffer_events_max=5, when_full="refuse")
    receipts = await asyncio.gather(*(waiting.publish("forest", i) for i in range(50)))
    assert [receipt.sequence for receipt in receipts] == list(range(1, 51))
    accepted = [refusing.publish_async("forest", i) for i in range(5)]
    with pytest.raises(gamecast.BufferFull) as raised:
        refusing.publish_async("forest", "too much")
    assert raised.value.retriable
    assert raised.value.definite
    with pytest.raises(gamecast.BufferFull):
        await refusing.publish("forest", "too much")
    assert len(await asyncio.gather(*accepted)) == 5
    assert (await refusing.publish("forest", "room again")).sequence == 56


async def test_a_slow_application_bounds_memory_and_misses_nothing(network: Network) -> None:
    slow = await network.connect("slow", inbox_events_max=10)
    quick = await network.connect("quick")
    for cast in (slow, quick):
        await cast.subscribe("forest", "river")
    for start in range(0, 2000, 100):
        await asyncio.gather(*(quick.publish_async(("forest", "river")[i % 2], i) for i in range(start, start + 100)))
    await take(quick, 2000)
    assert slow.statistics().inbox_events < 2000
    order = [(event.region, event.sequence) for event in await take(slow, 2000)]
    assert len(set(order)) == 2000


async def test_large_events_arrive_a_few_at_a_time(network: Network) -> None:
    cast = await network.connect(buffer_bytes_max=3_000_000, inbox_bytes_max=3_000_000)
    regions = [f"cell:{number}" for number in range(6)]
    await cast.subscribe(*regions)
    payloads = [bytes([number]) * 900_000 for number in range(24)]
    publishing = asyncio.gather(*(cast.publish(regions[n % 6], payload) for n, payload in enumerate(payloads)))
    assert sorted(event.payload for event in await take(cast, 24)) == payloads
    await publishing


async def test_waiting_with_a_timeout_loses_no_event(network: Network) -> None:
    cast = await network.connect()
    await cast.subscribe("forest")
    for number in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await anext(cast)
        await cast.publish("forest", number)
        assert [event.payload for event in await take(cast, 1)] == [number]


async def test_unsubscribing_from_one_of_several_twins_keeps_the_others_in_order(network: Network) -> None:
    casts = [await network.connect(f"s{number}") for number in range(3)]
    for cast in casts:
        await cast.subscribe("a", "b", "c")
    await casts[0].publish("a", "first")
    await casts[0].unsubscribe("c")
    futures = [cast.publish_async("abc"[i % 3], i) for i in range(60) for cast in casts]
    await asyncio.gather(*futures)
    orders = []
    for cast, count in zip(casts, (121, 181, 181), strict=True):
        events = await take(cast, count)
        orders.append([(event.region, event.sequence) for event in events if event.region != "c"])
    assert orders[0] == orders[1] == orders[2]


async def test_a_connection_restarted_under_its_name_starts_with_nothing(network: Network) -> None:
    other, crashed = await network.connect("other"), await network.connect("server")
    await crashed.subscribe("a", "b", "c")
    await other.subscribe("a", "b", "c")
    restarted = await network.connect("server")
    await restarted.subscribe("a", "b")
    await crashed.close()
    await asyncio.gather(*(other.publish_async("abc"[i % 3], i) for i in range(90)))
    mine = [(event.region, event.sequence) for event in await take(restarted, 60)]
    theirs = [(event.region, event.sequence) for event in await take(other, 90) if event.region != "c"]
    assert mine == theirs


async def test_a_closed_connection_refuses_everything_and_leaves_nothing_behind(network: Network) -> None:
    keeper = await network.connect("keeper")
    cast = gamecast.connect(network.url, name="gone")
    await cast.open()
    await cast.close()
    for call in (cast.subscribe("a"), cast.unsubscribe("a"), cast.publish("a", 1), cast.plan(), cast.drain()):
        with pytest.raises(gamecast.NotConnected, match="closed"):
            await call
    await keeper.subscribe("b")
    await keeper.publish("b", 1)
    plan = await keeper.plan()
    assert plan is not None
    assert plan.paths.keys() == {"b"}


async def test_closing_goes_on_when_its_caller_is_cancelled(network: Network) -> None:
    cast = gamecast.connect(network.url, name="impatient")
    await cast.open()
    await cast.subscribe("forest")
    futures = [cast.publish_async("forest", number) for number in range(100)]
    closing = asyncio.create_task(cast.close())
    await asyncio.sleep(0)
    closing.cancel()
    await cast.close()
    assert all(future.done() for future in futures)
    for future in futures:
        assert future.exception() is None or isinstance(future.exception(), gamecast.NotConnected)


async def test_draining_ends_iteration_even_where_there_is_nothing_to_deliver(network: Network) -> None:
    cast = await network.connect()
    await cast.subscribe("forest")
    await cast.drain()
    async with patience(10):
        assert [event async for event in cast] == []


async def test_batches_and_handlers_see_the_same_events_in_order(network: Network) -> None:
    batching, handling = await network.connect("batching"), await network.connect("handling")
    seen: list[str] = []

    @handling.on("cell:*")
    async def remember(event: Event) -> None:
        seen.append(event.payload)
        if len(seen) == 20:
            await handling.close()

    for cast in (batching, handling):
        await cast.subscribe("cell:1", "cell:2", "forest")
    await asyncio.gather(*(batching.publish_async(f"cell:{1 + i % 2}", i) for i in range(20)))
    async with patience(20):
        await handling.run()
        got: list[str] = []
        async for batch in batching.batches():
            got += [event.payload for event in batch if isinstance(event, Event)]
            if len(got) == 20:
                break
    assert seen == got


async def test_leaving_the_block_publishes_what_is_buffered(network: Network) -> None:
    listener = await network.connect("listener")
    await listener.subscribe("forest")
    async with gamecast.connect(network.url, name="speaker") as speaker:
        futures = [speaker.publish_async("forest", i) for i in range(100)]
    first = futures[0].result().sequence
    assert [future.result().sequence for future in futures] == list(range(first, first + 100))
    assert len(await take(listener, 100)) == 100


async def test_close_ends_iteration_and_fails_what_was_not_sent(network: Network) -> None:
    cast = await network.connect("cast")
    await cast.subscribe("forest")
    reading = asyncio.create_task(take(cast, 1))
    await asyncio.sleep(0)
    unsent = cast.publish_async("forest", 1)
    async with patience(2):
        await cast.close()
    with suppress(gamecast.NotConnected, AssertionError):
        await reading
    if unsent.exception() is not None:
        assert isinstance(unsent.exception(), gamecast.NotConnected)
    with pytest.raises(gamecast.NotConnected):
        await cast.publish("forest", 2)
    await cast.close()


async def test_drain_delivers_what_is_under_way_and_then_ends_iteration(network: Network) -> None:
    cast = await network.connect("cast")
    await cast.subscribe("forest")
    futures = [cast.publish_async("forest", i) for i in range(50)]
    await cast.drain()
    assert all(future.done() for future in futures)
    async with patience(10):
        assert [event.payload async for event in cast if isinstance(event, Event)] == list(range(50))


async def test_a_newer_connection_of_a_name_fences_the_older_one(network: Network) -> None:
    older = await network.connect("twin")
    assert (await older.publish("forest", 1)).sequence == 1
    await older.ping()
    newer = await network.connect("twin")
    assert (await newer.publish("forest", 2)).sequence == 2
    await newer.ping()
    with pytest.raises(gamecast.Superseded):
        await older.ping()
    with pytest.raises(gamecast.Superseded):
        await older.publish("forest", 3)
    assert (await newer.publish("forest", 4)).sequence == 3


async def test_nothing_is_left_behind(network: Network) -> None:
    tasks_before = {task for task in asyncio.all_tasks() if not task.done()}
    async with gamecast.connect(network.url, name="guest") as guest:
        await guest.subscribe("forest")
        await guest.publish("forest", 1)
        await take(guest, 1)
    assert {task for task in asyncio.all_tasks() if not task.done()} == tasks_before


async def test_using_a_connection_that_is_not_open_says_so() -> None:
    cast = gamecast.connect("memory://unopened")
    with pytest.raises(gamecast.NotConnected, match="async with"):
        await cast.subscribe("forest")
    await cast.close()


def test_the_environment_names_the_default_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAMECAST_URL", "memory://from-the-environment")

    async def url() -> str:
        async with gamecast.connect() as cast:
            return cast.url

    assert asyncio.run(url()) == "memory://from-the-environment"
    assert os.environ["GAMECAST_URL"]


async def test_causes_come_before_effects_for_who_asks_for_it(network: Network) -> None:
    """A ring of three regions: without the wait, an answer overtakes what it answers on the way around."""
    members = {"p": "ab", "q": "bc", "r": "ca"}
    casts = {name: await network.connect(name, ordering="causal") for name in members}
    for name, regions in members.items():
        await casts[name].subscribe(*regions)
    for number in range(40):
        one, other = members["p"][number % 2], members["p"][1 - number % 2]
        casts["p"].publish_async(one, ["first", number])
        casts["p"].publish_async(other, ["second", number])
    seen = [event.payload for event in await take(casts["p"], 80)]
    assert seen == [[which, number] for number in range(40) for which in ("first", "second")]
    with pytest.raises(gamecast.UsageError, match="regions that it subscribes to"):
        await casts["p"].publish("c", 1)
    stranger = await network.connect("stranger")
    with pytest.raises(gamecast.UsageError, match="order is causal"):
        await stranger.publish("a", 1)
    await stranger.subscribe("a")
    await casts["p"].publish("a", "for all")
    assert [event.payload for event in await take(stranger, 1)] == ["for all"]


async def test_who_leaves_a_region_publishes_elsewhere_when_its_own_events_there_have_come_back(
    network: Network,
) -> None:
    other = await network.connect("other", ordering="causal")
    cast = await network.connect("cast", ordering="causal")
    for each in (other, cast):
        await each.subscribe("a", "b")
    for turn in range(5):
        first = cast.publish_async("a", ["first", turn])
        await asyncio.wait_for(cast.unsubscribe("a"), scaled(10))
        await asyncio.wait_for(first, scaled(10))  # it has come back, so it was published; the receipt may come last
        await asyncio.wait_for(cast.publish("b", ["second", turn]), scaled(10))
        await cast.subscribe("a")
    seen = [event.payload for event in await take(other, 10)]
    assert seen == [[which, turn] for turn in range(5) for which in ("first", "second")]


async def test_history_comes_first_and_goes_over_into_what_is_live_without_a_hole(network: Network) -> None:
    early, other = await network.connect("early"), await network.connect("other")
    await early.subscribe("a", "b", "c")
    await other.subscribe("a", "b")
    receipts: list[asyncio.Future[gamecast.Receipt]] = []

    async def publish() -> None:
        for number in range(150):
            for cast, region in ((early, "a"), (other, "b"), (early, "c")):
                receipts.append(cast.publish_async(region, number))
            await asyncio.sleep(0.004)

    publishing = asyncio.create_task(publish())
    await asyncio.sleep(0.2)
    late = await network.connect("late")
    await late.subscribe("c")
    await late.subscribe("a", "b", since=0)
    await publishing
    await asyncio.gather(*receipts)
    seen_early = await take(early, 450)
    seen_late: list[Event] = []
    async with patience(20):
        async for event in late:
            assert isinstance(event, Event), event
            seen_late.append(event)
            if sum(e.region != "c" for e in seen_late) == 300:
                break

    def places(events: list[Event]) -> list[tuple[str, str]]:
        return [(event.region, event.position) for event in events if event.region != "c"]

    assert places(seen_late) == places(seen_early)


async def test_who_comes_back_with_its_position_goes_on_where_it_was(network: Network) -> None:
    keeper, publisher = await network.connect("keeper"), await network.connect("publisher")
    await keeper.subscribe("a")
    first = await network.connect("first")
    await first.subscribe("a")
    for number in range(30):
        publisher.publish_async("a", number)  # one frame, as like as not: a position may be within it
    *_, last = await take(first, 17)
    assert last.payload == 16
    await first.close()
    await publisher.publish("a", 30)
    second = await network.connect("first")
    await second.subscribe("a", since=last.position)
    await publisher.publish("a", 31)
    assert [event.payload for event in await take(second, 15)] == list(range(17, 32))


async def test_who_goes_on_after_a_place_in_each_region_has_the_order_of_who_was_there_all_the_time(
    network: Network,
) -> None:
    steady, first = await network.connect("steady"), await network.connect("walker")
    await steady.subscribe("a", "b", "c")
    begins = await first.subscribe("a", "b", "c")
    assert begins.keys() == {"a", "b", "c"}
    for number in range(30):
        await steady.publish("abc"[number % 3], number)
    seen: list[int] = []
    async with patience(10):
        while len(seen) < 10:
            event = await next_event(first)
            seen.append(event.payload)
            begins[event.region] = event.position
    await first.close()
    with pytest.raises(gamecast.UsageError, match="a position for each region"):
        await steady.subscribe("d", "e", since={"d": 0})
    second = await network.connect("walker")
    assert await second.subscribe("a", "b", "c", since=begins) == begins
    await steady.publish("a", 30)
    order = [event.payload for event in await take(steady, 31)]
    async with patience(10):
        while len(seen) < 31:
            seen.append((await next_event(second)).payload)
    assert seen == order


async def test_history_needs_a_place_to_begin_that_there_is(network: Network) -> None:
    cast = await network.connect()
    for wrong in ("", "3", "x-1", "1-", -1, True, 10**20):
        with pytest.raises(gamecast.UsageError, match="since is an epoch"):
            await cast.subscribe("a", since=wrong)
    with pytest.raises(gamecast.UsageError, match="numbers as large"):
        await cast.subscribe("a", since="99999999999999999999-1")
    with pytest.raises(gamecast.UsageError, match="one of one region"):
        await cast.subscribe("a", "b", since="1-2")
    await cast.subscribe("a")
    with pytest.raises(gamecast.UsageError, match="subscribed to already"):
        await cast.subscribe("a", since=0)


@pytest.mark.parametrize(
    ("epochs", "number", "why"),
    [
        (40, "-7", "its newest is"),
        (0, "-99999999", "its newest is"),
        (40, None, "its newest is"),
        (-1_000_000, "-1", "began with epoch"),
        (-1_000_000, None, "began with epoch"),
    ],
)
async def test_a_position_that_was_never_given_is_told_and_nothing_stays_subscribed(
    network: Network, epochs: int, number: str | None, why: str
) -> None:
    cast, other = await network.connect(), await network.connect("other")
    await other.subscribe("a")
    receipt, *_ = [await other.publish("a", payload) for payload in range(3)]
    epoch = receipt.epoch + epochs
    since = epoch if number is None else f"{epoch}{number}"
    with pytest.raises(
        gamecast.UnknownPosition, match=f"'a' has no position {epoch}-.*{why}.*position is from another network"
    ):
        await cast.subscribe("a", "b", since={"a": since, "b": 0})
    await cast.subscribe("a", since=0)
    assert [event.payload for event in await take(cast, 3)] == [0, 1, 2]
    await other.publish("a", 3)
    assert [event.payload for event in await take(cast, 1)] == [3]


async def test_positions_of_another_network_are_told_from_ones_own(network: Network) -> None:
    async with gamecast.connect(memory_url(), name="before") as before:
        begin = (await before.subscribe("a"))["a"]
        receipts = [await before.publish("a", number) for number in range(3)]
    await asyncio.sleep(0.01)
    cast = await network.connect()
    await cast.subscribe("a")
    for number in range(10):
        await cast.publish("a", number)
    late = await network.connect("late")
    for position in (begin, *(f"{epoch}-{sequence}" for _, epoch, sequence in receipts)):
        with pytest.raises(gamecast.UnknownPosition, match="this network began with epoch"):
            await late.subscribe("a", since=position)


async def test_history_of_regions_that_nobody_had_together_is_refused_where_nothing_orders_them(
    network: Network,
) -> None:
    regions = [f"r{number}" for number in range(6)]
    alone = [await network.connect(region) for region in regions]
    for cast, region in zip(alone, regions, strict=True):
        await cast.subscribe(region)
        await cast.publish(region, region)
    late = await network.connect("late")
    taking = asyncio.create_task(take(late, 6))
    plan = await late.plan()
    assert plan is not None
    if len(set(plan.egresses.values())) == 1:
        await late.subscribe(*regions, since=0)
    else:
        with pytest.raises(gamecast.UnorderedHistory, match=r"in epoch \d+ no subscriber had") as refused:
            await late.subscribe(*regions, since=0)
        assert all(plan.egresses[one] != plan.egresses[other] for one, other in refused.value.pairs)
        assert not taking.done()
        for region in regions:
            await late.subscribe(region, since=0)
    assert sorted(event.payload for event in await taking) == regions


async def test_history_of_regions_that_nobody_has_published_to_needs_no_order(network: Network) -> None:
    for name in ("first", "second"):
        cast = await network.connect(name)
        await cast.subscribe(*(f"r{number}" for number in range(6)), since=0)


@pytest.mark.parametrize("resume_s", [60.0, 0.01])
async def test_who_comes_back_in_time_finds_its_order_kept(network: Network, resume_s: float) -> None:
    # The leader decides for how long; it is the connection that was there first.
    publisher = await network.connect("publisher", resume_s=resume_s)
    await publisher.subscribe("p")
    since = {}
    for name in ("walker", "other"):  # either would do
        cast = await network.connect(name)
        since[name] = await cast.subscribe("a", "b")
        await cast.close()
    await asyncio.sleep(1.2)  # the leader sees that they have gone, and a moment later that it was long ago
    for region in "ab":  # an epoch for both, in which nobody has both
        await (await network.connect(region)).subscribe(region)
        await (await network.connect(region * 2)).subscribe(region, region * 2)
    plan = await publisher.plan()
    assert plan is not None
    kept = plan.egresses["a"] == plan.egresses["b"] or any({"a", "b"} <= {*atom.regions} for atom in plan.atoms)
    for number in range(10):
        await publisher.publish("ab"[number % 2], number)
    seen = []
    for name in ("walker", "other"):
        cast = await network.connect(name)
        if kept:
            await cast.subscribe("a", "b", since=since[name])
            seen.append([event.payload for event in await take(cast, 10)])
        else:
            with pytest.raises(gamecast.UnorderedHistory):
                await cast.subscribe("a", "b", since=since[name])
    assert not seen or seen[0] == seen[1]
    assert kept or resume_s < 1


async def test_who_comes_back_and_asks_for_something_else_first_finds_its_order_kept(network: Network) -> None:
    publisher = await network.connect("publisher")
    walker = await network.connect("walker")
    since = await walker.subscribe("a", "b")
    await walker.close()
    walker = await network.connect("walker")
    await walker.subscribe("lobby", "lobby2")
    for region in "ab":
        for number in range(2):
            await (await network.connect(f"{region}{number}")).subscribe(region, region + "x")
    for number in range(10):
        await publisher.publish("ab"[number % 2], number)
    await walker.subscribe("a", "b", since=since)
    assert sorted(event.payload for event in await take(walker, 10)) == list(range(10))


async def test_a_position_of_an_epoch_to_come_begins_none_and_leaves_nothing_behind(network: Network) -> None:
    cast, other = await network.connect("cast"), await network.connect("other")
    await other.subscribe("a", "b")
    await other.publish("a", 0)
    plan = await cast.plan()
    assert plan is not None
    for epoch in (plan.epoch + 1, plan.epoch + 2, plan.epoch + 1_000_000):
        with pytest.raises(gamecast.UnknownPosition):
            await cast.subscribe("a", since=f"{epoch}-1")
    for _ in range(3):
        await cast.subscribe("b")
        await cast.unsubscribe("b")
    after = await cast.plan()
    assert after is not None
    assert after.epoch == plan.epoch


async def test_of_regions_that_are_asked_for_together_one_may_be_left_before_all_are_joined(network: Network) -> None:
    other, cast = await network.connect("other"), await network.connect("cast")
    await other.subscribe("a", "b")
    await other.publish_batch([("b", number) for number in range(5)])
    subscribing = asyncio.create_task(cast.subscribe("a", "b", since=0))
    await asyncio.sleep(0)
    await cast.unsubscribe("a")
    await subscribing
    await other.publish("b", 5)
    assert [event.payload for event in await take(cast, 6)] == list(range(6))


async def test_there_is_room_again_when_what_filled_the_inbox_is_left(network: Network) -> None:
    cast, other = await network.connect("cast", inbox_events_max=20), await network.connect("other")
    await cast.subscribe("a", "b")
    for number in range(200):
        await other.publish("a", number)
    await until(lambda: cast.statistics().inbox_events >= 20)
    await asyncio.sleep(0.05)
    await cast.unsubscribe("a")
    await other.publish("b", "next")
    assert [event.payload for event in await take(cast, 1)] == ["next"]


async def test_who_goes_from_a_younger_epoch_to_an_older_one_takes_the_region_along(network: Network) -> None:
    """History goes epoch by epoch; so everybody has to."""
    first, walker = await network.connect("first"), await network.connect("walker")
    await first.subscribe("a")
    await walker.subscribe("b")
    await (await network.connect("c")).subscribe("c")
    await (await network.connect("b and c")).subscribe("b", "c")
    await first.publish("b", "before")
    await take(walker, 1)
    await walker.unsubscribe("b")
    await (await network.connect("d")).subscribe("d")
    await (await network.connect("b and d")).subscribe("b", "d")
    await walker.subscribe("a")
    await first.publish("a", "after")
    await take(walker, 1)
    late = await network.connect("late")
    await late.subscribe("a", "b", since=0)
    assert [event.payload for event in await take(late, 2)] == ["before", "after"]


async def test_a_tick_loop_takes_what_is_there_and_no_more_than_it_asked_for(network: Network) -> None:
    cast = await network.connect("cast")
    assert await cast.fetch() == []
    await cast.subscribe("a", "b")
    assert await cast.fetch(timeout=0.05) == []
    await cast.publish_batch([("ab"[number % 2], number) for number in range(100)])
    taken = await cast.fetch(7, timeout=None)
    while len(taken) < 100:
        some = await cast.fetch(30, timeout=scaled(10))
        assert 0 < len(some) <= 30
        taken += some
    await cast.publish("a", 100)
    taken.append(await next_event(cast))  # whoever waits for more is what the tick did not wait for
    assert sorted(event.payload for event in taken if isinstance(event, Event)) == list(range(101))
    with pytest.raises(gamecast.UsageError, match="above 0"):
        await cast.fetch(0)
    await cast.publish("a", 101)
    await cast.drain()
    assert [event.payload for event in await cast.fetch(timeout=None) if isinstance(event, Event)] == [101]
    with pytest.raises(gamecast.NotConnected, match="has been taken"):
        await cast.fetch(timeout=None)


async def test_tasks_that_share_a_connection_take_each_event_once(network: Network) -> None:
    cast, seen = await network.connect("cast"), list[Any]()
    await cast.subscribe("a")

    async def iterate() -> None:
        async for event in cast:
            assert isinstance(event, Event)
            seen.append(event.payload)

    async def tick() -> None:
        while True:
            seen.extend(event.payload for event in await cast.fetch(7, timeout=0.01) if isinstance(event, Event))
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(each()) for each in (iterate, tick, iterate, tick)]
    for start in range(0, 600, 100):
        await cast.publish_batch([("a", start + number) for number in range(100)])
    await until(lambda: len(seen) >= 600, 20)
    for task in tasks:
        task.cancel()
    assert sorted(seen) == list(range(600))


def payloads(items: Sequence[Item]) -> list[Any]:
    return [item.payload for item in items if isinstance(item, Event)]


async def test_what_one_task_leaves_the_next_gets_first(network: Network) -> None:
    cast = await network.connect("cast")
    await cast.subscribe("a")

    async def publish(first: int, count: int) -> None:
        await cast.publish_batch([("a", first + number) for number in range(count)])

    async with patience(30):
        one, other = asyncio.create_task(cast.fetch(1, timeout=None)), asyncio.create_task(cast.fetch(2, timeout=None))
        await asyncio.sleep(0)
        await publish(1, 3)
        assert payloads([*await one, *await other]) == [1, 2, 3]
        await publish(4, 3)
        assert payloads(await cast.fetch(1, timeout=None)) == [4]
        taken: list[Any] = []
        async for batch in cast.batches():
            taken += payloads(batch)
            if len(taken) == 2:
                break
        assert taken == [5, 6]
        waiting = [asyncio.create_task(anext(cast)) for _ in range(3)]
        await asyncio.sleep(0)
        await publish(7, 3)
        assert payloads([await each for each in waiting]) == [7, 8, 9]


@pytest.mark.parametrize("way", ["anext", "batches"])
async def test_tasks_that_share_history_get_each_event_once(network: Network, way: str) -> None:
    other, late = await network.connect("other"), await network.connect("late")
    await other.subscribe("a")
    await other.publish_batch([("a", number) for number in range(300)])
    await late.subscribe("a", since=0)
    await other.publish_batch([("a", 300 + number) for number in range(100)])
    seen: list[Any] = []

    async def read() -> None:
        if way == "anext":
            async for event in late:
                seen.append(event)  # noqa: PERF401 - it does not end
        else:
            async for batch in late.batches():
                seen.extend(batch)

    tasks = [asyncio.create_task(read()) for _ in range(3)]
    await until(lambda: len(seen) >= 400, 20)
    for task in tasks:
        assert not task.done()
        task.cancel()
    assert sorted(event.payload for event in seen) == list(range(400))


async def test_ticks_that_wait_for_nothing_get_on_with_history(network: Network) -> None:
    other, late = await network.connect("other"), await network.connect("late")
    await other.subscribe("a")
    await other.publish_batch([("a", number) for number in range(500)])
    await late.subscribe("a", since=0)
    taken: list[Item] = []
    async with patience(20):
        while len(taken) < 500:
            taken += await late.fetch()
            await asyncio.sleep(0.001)
    assert [event.payload for event in taken if isinstance(event, Event)] == list(range(500))


async def test_run_hands_gaps_to_those_who_ask_and_logs_them_where_nobody_does(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    slow = await network.connect("slow", inbox_events_max=10, when_behind="skip")
    quick = await network.connect("quick")
    await slow.subscribe("a")
    gaps: list[gamecast.Gap] = []
    came = asyncio.Event()
    ends: list[str] = []

    async def told(number: int) -> None:
        ends.append(f"last of {number}")
        for start in range(0, 200, 20):
            await quick.publish_batch([("a", number + start + place) for place in range(20)])
            await asyncio.sleep(0.01)
        async with patience(10):
            while not came.is_set():  # while the inbox is full, it is in the gap as well
                await quick.publish("a", f"last of {number}")
                with suppress(TimeoutError):
                    await asyncio.wait_for(came.wait(), 0.2)
        came.clear()
        ends.pop()

    @slow.on("a")
    async def hear(event: Event) -> None:
        if event.payload in ends:
            came.set()
        await asyncio.sleep(0.002)  # the inbox fills meanwhile

    running = asyncio.create_task(slow.run())
    await told(0)
    assert "no handler takes Gap(region='a'" in caplog.text

    @slow.on_gap
    async def miss(gap: gamecast.Gap) -> None:
        gaps.append(gap)

    await told(1000)
    assert {gap.region for gap in gaps} == {"a"}
    running.cancel()


async def test_a_connection_tells_its_state(network: Network) -> None:
    cast = gamecast.connect(network.url, name="cast")
    states: list[str] = []
    cast.on_status(lambda state: states.append(state.name))
    assert cast.status.name == "opening"
    async with cast:
        assert cast.status == gamecast.Status("connected")
        await cast.subscribe("a")
    assert states == ["connected", "closed"]


async def test_who_casts_and_forgets_is_told_of_what_failed_and_of_nothing_else(network: Network) -> None:
    cast, other = await network.connect("cast"), await network.connect("other")
    failed: list[gamecast.PublishFailure] = []
    cast.on_publish_error(failed.append)
    await other.subscribe("a")
    for number in range(50):
        assert cast.publish_nowait("a", number) is None  # type: ignore[func-returns-value]
        await asyncio.sleep(0)
    assert [event.payload for event in await take(other, 50)] == list(range(50))
    with pytest.raises(gamecast.InvalidPayload):
        cast.publish_nowait("a", object())
    assert failed == []
    cast.publish_nowait("a", "too late")
    await cast.close()
    assert cast.statistics().refused_events == sum(each.events for each in failed)
    with pytest.raises(gamecast.NotConnected):
        cast.publish_nowait("a", 1)


async def test_nothing_of_a_region_is_handed_out_once_it_is_left(network: Network) -> None:
    cast, other = await network.connect("cast"), await network.connect("other")
    for each in (cast, other):
        await each.subscribe("a", "b")
    for number in range(40):
        await other.publish_batch([("a", number), ("b", number)])
    await take(other, 80)
    first = await next_event(cast)  # the batch that it came in has more
    await cast.unsubscribe("a")
    assert first.region == "a"
    assert {event.region for event in await take(cast, 40)} == {"b"}
    await cast.subscribe("a", since=first.position)
    assert [event.payload for event in await take(cast, 39)] == list(range(1, 40))


async def test_who_is_behind_and_asked_to_skip_is_told_what_and_goes_on(network: Network) -> None:
    slow = await network.connect("slow", inbox_events_max=100, when_behind="skip")
    quick = await network.connect("quick")
    for cast in (slow, quick):
        await cast.subscribe("forest", "river")
    for start in range(0, 2000, 100):
        await asyncio.gather(*(quick.publish_async(("forest", "river")[i % 2], i) for i in range(start, start + 100)))
        await asyncio.sleep(0.005)
    everything = {(event.region, event.sequence) for event in await take(quick, 2000)}
    seen: list[tuple[str, int]] = []
    skipped: set[tuple[str, int]] = set()
    async with patience(20):
        async for item in slow:
            if isinstance(item, Event):
                seen.append((item.region, item.sequence))
            elif isinstance(item, gamecast.Gap):
                skipped |= {(item.region, n) for n in range(item.first_sequence, item.last_sequence + 1)}
            if len(seen) + len(skipped & everything) >= 2000:
                break
    assert skipped
    assert skipped.isdisjoint(seen)
    assert everything == skipped & everything | set(seen)


async def test_who_is_behind_and_asked_to_be_disconnected_is_told_after_what_it_has(network: Network) -> None:
    slow = await network.connect("slow", inbox_events_max=100, when_behind="disconnect")
    quick = await network.connect("quick")
    for cast in (slow, quick):
        await cast.subscribe("forest")
    for start in range(0, 1000, 100):
        await asyncio.gather(*(quick.publish_async("forest", i) for i in range(start, start + 100)))
        await asyncio.sleep(0.005)
    await take(quick, 1000)
    seen: list[int] = []

    async def follow() -> None:
        async for event in slow:
            assert isinstance(event, Event)
            seen.append(event.payload)

    with pytest.raises(gamecast.TooSlow):
        await asyncio.wait_for(follow(), scaled(20))
    assert seen == list(range(len(seen)))
    assert 100 <= len(seen) < 1000

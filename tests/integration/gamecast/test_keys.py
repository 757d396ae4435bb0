"""Keys and conditions: of those who require the same, one is accepted, wherever the region is, and whatever fails."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

import gamecast.blocking
from adapters.embedded.server import EmbeddedServer
from gamecast import Client, Conflict, Event
from sequencing.keyed import KEYS_MAX, RESERVED_KEYS
from tests.events import next_event, take
from tests.integration.networks import Network, register
from tests.patience import patience, until


async def conflict(call: Any) -> Conflict:
    with pytest.raises(Conflict) as caught:
        await call
    return caught.value


async def test_of_all_who_take_what_is_free_one_gets_it_and_the_others_hear_who(network: Network) -> None:
    players = [await network.connect(f"p{number}") for number in range(4)]
    for player in players:
        await player.subscribe("forest", "river")
    for sword in range(5):
        takes = (player.publish("forest", player.name, key=f"sword-{sword}", only_if=None) for player in players)
        outcomes = await asyncio.gather(*takes, return_exceptions=True)
        [won] = [each for each in outcomes if isinstance(each, gamecast.Receipt)]
        lost = [each for each in outcomes if isinstance(each, Conflict)]
        assert len(lost) == 3
        assert {(each.region, each.key, each.position) for each in lost} == {("forest", f"sword-{sword}", won.position)}
        assert all(each.definite and not each.retriable for each in lost)
    for player in players:
        events = await take(player, 5)
        assert [event.key for event in events] == [f"sword-{sword}" for sword in range(5)]
    await players[0].publish("river", "the end")
    for player in players:
        assert (await next_event(player)).payload == "the end"


async def test_a_condition_holds_for_the_last_event_that_set_the_key_until_it_is_deleted(network: Network) -> None:
    one = await network.connect("one")
    await one.subscribe("forest", "river")
    first = await one.publish("forest", 1, key="door")
    assert (await conflict(one.publish("forest", 2, key="door", only_if=None))).position == first.position
    second = await one.publish("forest", 2, key="door", only_if=first.position)
    assert (await conflict(one.publish("forest", 3, key="door", only_if=first.position))).position == second.position
    guarded = await one.publish("forest", "hit", only_if={"door": second.position, "window": None})
    refused = await conflict(one.publish("forest", "hit", only_if={"door": second.position, "window": first.position}))
    assert (refused.key, refused.position) == ("window", None)
    assert (await conflict(one.publish("river", 1, only_if={"door": second.position}))).position is None
    await one.publish("forest", None, key="door", only_if=second.position)
    assert (await conflict(one.publish("forest", 3, key="door", only_if=second.position))).position is None
    third = await one.publish("forest", 3, key="door", only_if=None)
    told = [(event.payload, event.key, event.position) for event in await take(one, 5)]
    assert told[:2] == [(1, "door", first.position), (2, "door", second.position)]
    assert told[2] == ("hit", None, guarded.position)
    assert told[3][:2] == (None, "door")
    assert told[4] == (3, "door", third.position)


async def test_keys_go_with_events_that_share_a_frame_and_with_bytes(network: Network) -> None:
    one = await network.connect("one")
    await one.subscribe("forest")
    futures = [
        one.publish_async("forest", number, key=f"k{number}" if number % 3 == 0 else None) for number in range(90)
    ]
    receipts = await asyncio.gather(*futures)
    one.publish_nowait("forest", b"bytes", key="k3")
    events = await take(one, 91)
    assert [event.key for event in events[:90]] == [f"k{n}" if n % 3 == 0 else None for n in range(90)]
    assert (events[90].payload, events[90].key) == (b"bytes", "k3")
    # The heads are those of the events, wherever they were in a frame.
    await one.publish("forest", 1, only_if={f"k{n}": receipts[n].position for n in range(6, 90, 3)})
    assert (await conflict(one.publish("forest", 2, key="k3", only_if=None))).position == events[90].position


async def test_who_lost_waits_until_it_has_had_the_event_that_won(network: Network) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    await other.subscribe("forest")
    with pytest.raises(gamecast.UsageError, match="not subscribed"):
        await other.caught_up("river", "1-1")
    with pytest.raises(gamecast.UsageError, match="position like"):
        await other.caught_up("forest", "first")
    had: list[Any] = []

    async def iterate() -> None:
        async for event in other:
            had.append(event)  # noqa: PERF401 - as they come

    iterating = asyncio.create_task(iterate())
    for number in range(20):
        await one.publish("forest", number, key="chest", only_if=had[-1].position if had else None)
        lost = await conflict(other.publish("forest", "late", key="chest", only_if="1-1"))
        assert lost.position is not None
        async with patience(5):
            await other.caught_up("forest", lost.position)
        assert had[-1].payload == number
    ahead = f"{had[-1].epoch}-{had[-1].sequence + 5}"
    waiting = asyncio.create_task(other.caught_up("forest", ahead))
    leaving = asyncio.create_task(other.caught_up("forest", ahead))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    leaving.cancel()
    await other.unsubscribe("forest")
    with pytest.raises(gamecast.UsageError, match="not subscribed"):
        await waiting
    iterating.cancel()


async def test_what_cannot_be_a_key_or_a_condition_is_refused_before_anything_is_sent(network: Network) -> None:
    one = await network.connect("one")
    await one.publish("forest", 0)
    for key in ("", " ", "new\nline", "x" * 300, 7):
        with pytest.raises(gamecast.InvalidName):
            await one.publish("forest", 1, key=key)  # type: ignore[arg-type]
        with pytest.raises(gamecast.InvalidName):
            one.publish_nowait("forest", 1, only_if={key: None})  # type: ignore[arg-type]
    for only_if in ("1", "1-", "١-١", 5, ("a", "1-1"), {}, {"a": "1"}, {f"k{n}": None for n in range(65)}):
        with pytest.raises(gamecast.UsageError):
            one.publish_async("forest", 1, key="a", only_if=only_if)  # type: ignore[arg-type]
    with pytest.raises(gamecast.UsageError, match="give that, or a mapping"):
        await one.publish("forest", 1, only_if=None)
    assert (await one.publish("forest", 1, key="a", only_if=None)).sequence == 2


async def test_a_region_has_so_many_keys_and_no_more(network: Network) -> None:
    one = await network.connect("one")
    await asyncio.gather(
        *(one.publish_async("forest", 0, key=f"k{number}") for number in range(KEYS_MAX - RESERVED_KEYS))
    )
    with pytest.raises(gamecast.TooManyKeys, match="delete some"):
        await one.publish("forest", 0, key="one more")
    await one.publish("forest", 1, key="k5")
    await one.publish("forest", None, key="k6")
    await one.publish("forest", 0, key="one more", only_if=None)
    with pytest.raises(gamecast.TooManyKeys):
        await one.publish("forest", 0, key="k6")
    await one.publish("river", 0, key="k6")


async def walked(clients: list[Client], regions: list[str], turn: int) -> None:
    """Have somebody join two regions that had no subscriber in common, so that on several nodes an epoch begins."""
    await clients[turn % len(clients)].subscribe(regions[turn % len(regions)], regions[(3 * turn + 1) % len(regions)])


@pytest.mark.parametrize("kind", ["memory-3", "redis-3"])
async def test_the_heads_of_keys_go_with_their_region_to_another_node(kind: str) -> None:
    regions = [f"r{number}" for number in range(6)]
    async with AsyncExitStack() as stack:
        network = await Network.start(kind, stack)
        clients = [await network.connect(f"s{number}") for number in range(6)]
        for client, region in zip(clients, regions, strict=True):
            await client.subscribe(region, f"own {region}")
        heads: dict[str, str] = {}
        entered: set[tuple[str, str]] = set()
        for turn in range(24):
            for region in regions:
                head, other = heads.get(region), heads.get(f"{region} other")
                only_if = {"owner": head, "other": other}
                heads[region] = (await clients[0].publish(region, turn, key="owner", only_if=only_if)).position
                if turn % 5 == 0:
                    key_is = None if turn % 10 else "set"
                    told = await clients[1].publish(region, key_is, key="other", only_if=other)
                    heads[f"{region} other"] = told.position if key_is else None  # type: ignore[assignment]
                lost = await conflict(clients[2].publish(region, "late", key="owner", only_if=head))
                assert lost.position == heads[region]
            plan = await clients[0].plan()
            assert plan is not None
            entered |= {(region, plan.paths[region][0]) for region in regions}
            await walked(clients, regions, turn)
        assert len(entered) > len(regions), "no region entered at another node than before"


async def test_the_heads_of_keys_outlast_a_node_that_keeps_all() -> None:
    async with EmbeddedServer(appendfsync="always") as server, gamecast.connect(server.url, name="one") as one:
        await one.subscribe("forest")
        head: str | None = None
        for number in range(12):
            if number % 3 == 2:
                server.kill()
                server.restart()
            async with patience(20):
                head = (await published(one, number, head)).position
            assert (await conflict(one.publish("forest", "late", key="owner", only_if="1-1"))).position == head
        assert [event.payload for event in await take(one, 12)] == [*range(12)]


async def published(one: Client, number: int, head: str | None) -> gamecast.Receipt:
    """Publish by the condition, again where it is not known whether that was done: then who won may be oneself."""
    while True:
        try:
            return await one.publish("forest", number, key="owner", only_if=head)
        except gamecast.PublishUncertain:
            async for event in one:
                if isinstance(event, Event) and event.payload == number:
                    return gamecast.Receipt("forest", event.epoch, event.sequence)


async def test_what_a_node_lost_of_keys_is_told_to_who_relies_on_them() -> None:
    async with EmbeddedServer() as server, EmbeddedServer() as node:
        await register(server.url, {"n1": node.url}, may_lose=True)
        async with gamecast.connect(server.url, name="one") as one:
            await one.subscribe("forest", "river")
            mine, lost = await one.publish("forest", "ana", key="sword", only_if=None), Conflict()
            node.kill()
            node.restart()
            async with patience(20):
                while True:
                    try:
                        await one.publish("forest", "bo", key="sword", only_if=None)
                    except Conflict as error:
                        lost = error
                        break
                    except gamecast.GamecastError:
                        await asyncio.sleep(0.05)
                    else:
                        raise AssertionError("it was taken for not set, and may have been")
            assert lost.position is not None
            assert lost.position.endswith("-0")
            assert "lost what it knew" in str(lost)
            assert (await conflict(one.publish("forest", "ana", key="sword", only_if=mine.position))).position
            had: list[Any] = []

            async def iterate() -> None:
                async for item in one:
                    had.append(item)  # noqa: PERF401 - as they come

            iterating = asyncio.create_task(iterate())
            async with patience(10):
                await one.caught_up("forest", lost.position)  # no event is there
            iterating.cancel()
            # Who knows that, and goes on all the same, is the first to.
            again = await one.publish("forest", "bo", key="sword", only_if=lost.position)
            assert (
                await conflict(one.publish("forest", 1, key="sword", only_if=lost.position))
            ).position == again.position


async def test_every_way_to_take_events_shows_their_keys(network: Network) -> None:
    one, late, handles = [await network.connect(name) for name in ("one", "late", "handles")]
    seen: list[tuple[Any, str | None]] = []

    @handles.on("forest")
    def _(event: Event) -> None:
        seen.append((event.payload, event.key))

    await handles.subscribe("forest")
    running = asyncio.create_task(handles.run())
    expected = [(0, "door"), (1, None), (2, "door")]
    for number, key in expected:
        await one.publish("forest", number, key=key)
    await late.subscribe("forest", since=0)
    replayed = await take(late, 3)
    assert [(event.payload, event.key, event.replayed) for event in replayed] == [(*each, True) for each in expected]
    await one.publish("forest", 3, key="live")
    async with patience(10):
        assert [(event.payload, event.key) for event in await late.fetch(timeout=None)] == [(3, "live")]  # type: ignore[union-attr]
        await until(lambda: len(seen) >= 4)
    assert seen == [*expected, (3, "live")]
    running.cancel()


async def test_who_goes_on_in_the_middle_of_a_frame_sees_the_keys_of_the_rest(network: Network) -> None:
    one, late = await network.connect("one"), await network.connect("late")
    await one.publish("forest", "begins")
    receipts = await asyncio.gather(
        *(one.publish_async("forest", n, key=f"k{n}" if n % 2 else None) for n in range(10))
    )
    await late.subscribe("forest", since=receipts[4].position)
    assert [(event.payload, event.key) for event in await take(late, 5)] == [
        (n, f"k{n}" if n % 2 else None) for n in range(5, 10)
    ]


def test_threads_publish_on_conditions(redis_server: EmbeddedServer) -> None:
    with gamecast.blocking.connect(redis_server.url, name="one") as one:
        one.subscribe("forest")
        first = one.publish("forest", 1, key="door", only_if=None)
        with pytest.raises(Conflict) as caught:
            one.publish_async("forest", 2, key="door", only_if=None).result(10)
        assert caught.value.position == first.position
        one.publish_nowait("forest", 3, key="door", only_if=first.position)
        events = [next(iter(one)) for _ in range(2)]
        assert [(event.payload, event.key) for event in events if isinstance(event, Event)] == [
            (1, "door"),
            (3, "door"),
        ]

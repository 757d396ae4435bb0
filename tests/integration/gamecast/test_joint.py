"""Events of several regions: once, at one place in the order, to everybody who has any; all or nothing."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from random import Random
from typing import Any

import pytest
import redis.asyncio

import gamecast
from adapters.embedded.server import EmbeddedServer
from adapters.redis.control import RedisControl
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.relays import RedisRelays
from gamecast import Client, Conflict, Event, Gap, Item, JointEvent, NotTogether
from gamecast.testing import faults
from sequencing.record import Request
from tests.events import next_event, take
from tests.integration.networks import Network, register
from tests.patience import patience, scaled, until

BOTH = ("forest", "river")


@pytest.fixture(params=("memory", "memory-3", "redis", "redis-3", "shared", "shared-3"))
async def network(request: pytest.FixtureRequest) -> AsyncIterator[Network]:
    async with AsyncExitStack() as stack:
        yield await Network.start(request.param, stack)


def had(items: Sequence[Item]) -> list[Any]:
    assert all(isinstance(item, Event) for item in items), items
    return [item.payload for item in items if isinstance(item, Event)]


async def test_it_comes_once_to_all_who_have_any_of_its_regions(network: Network) -> None:
    both, one, other, none = [await network.connect(name) for name in ("both", "one", "other", "none")]
    await both.subscribe(*BOTH)
    await one.subscribe("forest")
    await other.subscribe("river", "hill")
    await none.subscribe("hill")
    await both.publish("river", "before")
    receipt = await none.publish(BOTH, {"type": "arrow"})
    assert receipt.region == "forest"
    assert [*receipt.positions] == [*BOTH]
    assert receipt.position == receipt.positions["forest"]
    plain = await both.publish("hill", "after")
    assert plain.positions == {"hill": plain.position}
    _, arrow = await take(both, 2)
    assert (arrow.regions, arrow.positions) == (BOTH, receipt.positions)
    [seen] = await take(one, 1)
    assert (seen.region, seen.regions, seen.positions) == ("forest", ("forest",), {"forest": receipt.position})
    assert had(await take(other, 3)) == ["before", {"type": "arrow"}, "after"]
    assert [event.regions for event in await take(none, 1)] == [("hill",)]
    await both.publish(BOTH, "last")
    assert (await next_event(both)).payload == (await next_event(one)).payload == "last"


async def test_everybody_has_one_order_and_nobody_has_anything_twice(network: Network) -> None:
    random = Random(7)
    regions = [f"cell-{number}" for number in range(5)]
    players = [await network.connect(f"p{number}") for number in range(5)]
    for number, player in enumerate(players):
        await player.subscribe(*regions[number:], *regions[: max(0, number - 2)])
    sent: dict[str, tuple[str, ...]] = {}
    receipts = []
    for number in range(150):
        player, chosen = random.choice(players), tuple(random.sample(regions, random.choice((1, 1, 2, 3))))
        event = f"{player.name} {number}"
        sent[event] = chosen
        receipts.append(player.publish_async(chosen if len(chosen) > 1 else chosen[0], event))
        if random.random() < 0.2:
            await asyncio.sleep(0)
    await asyncio.gather(*receipts)
    place: dict[str, dict[str, int]] = {}
    for player in players:
        wanted = {event for event, chosen in sent.items() if not wanted_of(player).isdisjoint(chosen)}
        got = had(await take(player, len(wanted)))
        assert sorted(got) == sorted(wanted)
        place[player.name] = {event: index for index, event in enumerate(got)}
        assert await player.fetch(10, timeout=0.02) == []
    for one in place.values():
        for other in place.values():
            common = sorted(one.keys() & other.keys(), key=one.__getitem__)
            assert common == sorted(common, key=other.__getitem__)


def wanted_of(player: Client) -> set[str]:
    number = int(player.name[-1])
    regions = [f"cell-{number}" for number in range(5)]
    return {*regions[number:], *regions[: max(0, number - 2)]}


async def test_a_replay_has_it_once_also_beside_a_region_that_came_live(network: Network) -> None:
    one = await network.connect("one")
    live = await network.connect("live")
    await live.subscribe("river")
    for number in range(6):
        await one.publish(BOTH if number % 2 else "forest", number)
    late = await network.connect("late")
    await late.subscribe(*BOTH, since=0)
    assert had(await take(late, 6)) == [0, 1, 2, 3, 4, 5]
    assert had(await take(live, 3)) == [1, 3, 5]
    await live.subscribe("forest", since=0)
    await one.publish(BOTH, "end")
    events = await take(live, 4)
    assert had(events) == [0, 2, 4, "end"]
    assert events[-1].regions == BOTH, "it waits for the history of one of its regions, and is one to resume after"
    await one.publish(BOTH, "after")
    assert (await next_event(live)).regions == BOTH


async def test_who_resumes_with_all_positions_misses_nothing_and_has_nothing_twice(network: Network) -> None:
    one = await network.connect("one")
    async with gamecast.connect(one.url, name="away") as away:
        positions = await away.subscribe(*BOTH)
        for number in range(4):
            await one.publish(BOTH, number)
        for event in await take(away, 2):
            positions |= event.positions
    await one.publish("river", "meanwhile")
    async with gamecast.connect(one.url, name="away") as away:
        await away.subscribe(*BOTH, since=positions)
        assert had(await take(away, 3)) == [2, 3, "meanwhile"]


async def test_what_came_beside_a_replay_does_not_come_again_to_who_resumes_by_the_positions_of_its_events(
    network: Network,
) -> None:
    one = await network.connect("one")
    receipts = [await one.publish("river", number) for number in range(600)]
    async with gamecast.connect(one.url, name="away") as away:
        positions = await away.subscribe("forest")
        await away.subscribe("river", since=receipts[0].position)
        await one.publish(BOTH, "both")
        events = await take(away, 600)
        for event in events:
            positions |= event.positions
    assert had(events) == [*range(1, 600), "both"]
    async with gamecast.connect(one.url, name="away") as away:
        await away.subscribe(*BOTH, since=positions)
        await one.publish(BOTH, "next")
        assert had(await take(away, 1)) == ["next"]


async def test_it_stays_as_one_of_the_regions_that_are_kept(network: Network) -> None:
    one, leaver = await network.connect("one"), await network.connect("leaver")
    await leaver.subscribe(*BOTH)
    for number in range(3):
        await one.publish(BOTH, number)
    await one.publish("river", "end")
    assert (await next_event(leaver)).payload == 0
    await leaver.unsubscribe("forest")
    rest = await take(leaver, 3)
    assert had(rest) == [1, 2, "end"]
    assert {event.regions for event in rest} == {("river",)}


async def test_what_was_dropped_with_a_region_comes_by_another_that_is_joined_meanwhile(network: Network) -> None:
    one, leaver = await network.connect("one"), await network.connect("leaver")
    begin = await leaver.subscribe("forest")
    beginning = await one.publish("river", "begin")
    for number in range(3):
        await one.publish(BOTH, number)
    assert had(await leaver.fetch(1)) == [0]
    await asyncio.sleep(0.05)  # the others are read, and wait
    await leaver.unsubscribe("forest")
    await leaver.subscribe("river", since=beginning.position)
    assert had(await take(leaver, 2)) == [1, 2]
    assert begin.keys() == {"forest"}


async def test_a_trade_between_two_regions_is_one_step(network: Network) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    await one.subscribe(*BOTH)
    sword = await one.publish("forest", "ana", key="sword")
    shield = await one.publish("river", "bo", key="shield")
    agreed = {("forest", "sword"): sword.position, ("river", "shield"): shield.position}
    trades = [player.publish(BOTH, f"{player.name} trades", key="trade", only_if=agreed) for player in (one, other)]
    done = await asyncio.gather(*trades, return_exceptions=True)
    assert all(isinstance(each, gamecast.Receipt) for each in done)  # it sets neither of the two keys
    taken = await one.publish("river", None, key="shield", only_if=shield.position)
    with pytest.raises(Conflict) as conflict:
        await other.publish(BOTH, "too late", only_if=agreed)
    assert (conflict.value.region, conflict.value.key, conflict.value.position) == ("river", "shield", None)
    assert taken.region == "river"
    with pytest.raises(Conflict) as again:
        await one.publish(BOTH, "again", key="trade", only_if=None)
    assert again.value.region == "forest"
    first, second, *traded, last = had(await take(one, 5))
    assert (first, second, sorted(traded), last) == ("ana", "bo", ["one trades", "other trades"], None)


async def test_what_cannot_be_published_so_is_refused_at_once(network: Network) -> None:
    one = await network.connect("one")
    await one.subscribe(*BOTH)
    for several in ((), ("forest", "forest"), tuple(f"r{number}" for number in range(65))):
        with pytest.raises(gamecast.UsageError):
            await one.publish(several, 1)
    for regions in (("forest", ""), ("forest", 7), {"forest", "river"}, ["forest"], 7, None, ("forest", "a\nb")):
        with pytest.raises(gamecast.InvalidName):
            one.publish_nowait(regions, 1)  # type: ignore[arg-type]
    for only_if in ("1-1", {"sword": None}, {("hill", "sword"): None}, {}, {("forest", "sword", 1): None}):
        with pytest.raises(gamecast.UsageError):
            one.publish_async(BOTH, 1, key="sword", only_if=only_if)  # type: ignore[arg-type]
    assert (await one.publish(("forest",), 1)).positions.keys() == {"forest"}
    assert [event.payload for event in await take(one, 1)] == [1]


async def test_by_overlap_on_several_nodes_and_in_causal_order_regions_are_not_together() -> None:
    async with AsyncExitStack() as stack:
        several = await (await Network.start("memory-3", stack)).connect("one", ordering="overlap")
        for region in BOTH:
            await several.publish(region, 1)
        with pytest.raises(NotTogether, match="Publish to each"):
            await several.publish(BOTH, 1)
        with pytest.raises(NotTogether, match="Publish to each"):
            await several.declare_joint([BOTH])
        assert (await several.publish("forest", 1)).sequence
    async with gamecast.connect("memory://causal-joint", name="one", ordering="causal") as causal:
        await causal.subscribe(*BOTH)
        with pytest.raises(gamecast.UsageError, match="causal"):
            await causal.publish(BOTH, 1)


async def test_a_loss_in_one_region_leaves_the_other_the_event() -> None:
    async with gamecast.connect("memory://joint-loss", name="one") as one:
        await one.subscribe(*BOTH)
        await one.publish(BOTH, 1)
        faults("memory://joint-loss").lose("forest", events=1)
        await one.publish(BOTH, 2)
        await one.publish(BOTH, 3)
        items = await one.fetch(10, timeout=0.3)
        assert [item.payload for item in items if isinstance(item, Event)] == [1, 2, 3]
        [gap] = [item for item in items if isinstance(item, Gap)]
        assert gap.region == "forest"


async def test_it_behaves_like_an_event(network: Network) -> None:
    one = await network.connect("one")
    await one.subscribe(*BOTH)
    await one.publish(BOTH, 1, key="k")
    event = await next_event(one)
    assert isinstance(event, JointEvent)
    assert isinstance(event, Event)
    assert event._replace(payload=2).payload == 2
    assert event._replace(payload=2).positions == event.positions
    assert pickle.loads(pickle.dumps(event)) == event
    assert "regions" not in event._fields
    assert "parts=" in repr(event)
    assert (event.key, event._asdict()["key"]) == ("k", "k")
    receipt = await one.publish(BOTH, 2)
    assert pickle.loads(pickle.dumps(receipt)).positions == receipt.positions


async def test_what_was_begun_after_is_no_sign_of_what_was_had(network: Network) -> None:
    one = await network.connect("one")
    async with gamecast.connect(one.url, name="away") as away:
        positions = await away.subscribe("river")
        for number in range(4):
            await one.publish(BOTH, number)
        positions |= await away.subscribe("forest")
    async with gamecast.connect(one.url, name="away") as away:
        await away.subscribe(*BOTH, since=positions)
        assert had(await take(away, 4)) == [0, 1, 2, 3]


async def test_who_leaves_its_regions_one_by_one_with_events_waiting_gets_them_when_it_is_back(
    network: Network,
) -> None:
    one, away = await network.connect("one"), await network.connect("away")
    positions = await away.subscribe(*BOTH)
    for number in range(4):
        await one.publish(("river", "forest"), number)
    await asyncio.sleep(0.05)
    [first] = await away.fetch(1, timeout=5)
    positions |= first.positions  # type: ignore[union-attr]
    await away.unsubscribe("forest")
    await away.unsubscribe("river")
    await away.subscribe(*BOTH, since=positions)
    assert had(await take(away, 3)) == [1, 2, 3]


async def test_many_that_wait_when_a_region_is_left_come_once(network: Network) -> None:
    one, leaver = await network.connect("one"), await network.connect("leaver")
    await leaver.subscribe(*BOTH)
    await asyncio.gather(*(one.publish_async(BOTH, number) for number in range(200)))
    await asyncio.sleep(0.1)
    assert had(await leaver.fetch(1, timeout=5)) == [0]
    await leaver.unsubscribe("forest")
    await one.publish("river", "end")
    assert had(await take(leaver, 200)) == [*range(1, 200), "end"]
    assert await leaver.fetch(10, timeout=0.05) == []


async def test_short_stays_in_one_region_and_a_replay_of_the_other_hand_out_each_event_once() -> None:
    async with gamecast.connect("memory://joint-stays", name="one") as one:
        other = await gamecast.connect("memory://joint-stays", name="other").open()
        for number in range(40):
            await other.subscribe("river")
            await one.publish(BOTH, number)
            assert (await next_event(other)).payload == number
            await other.unsubscribe("river")
        await other.subscribe("forest", since=0)
        await one.publish("forest", "end")
        assert (await next_event(other)).payload == "end"
        await other.close()


async def test_positions_name_no_region_before_it_was_subscribed_to(network: Network) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    await other.subscribe("forest")
    for number in range(3):
        await one.publish(BOTH, number)
    await asyncio.sleep(0.05)
    await other.subscribe("river")
    assert [event.positions.keys() for event in await take(other, 3)] == [{"forest"}] * 3
    await one.publish(BOTH, 3)
    assert (await next_event(other)).positions.keys() == {*BOTH}


async def test_handlers_of_any_of_its_regions_get_it_and_a_batch_may_have_it(network: Network) -> None:
    one = await network.connect("one")
    heard: list[Any] = []
    one.on("river")(lambda event: heard.append(event.payload))
    await one.subscribe(*BOTH)
    running = asyncio.create_task(one.run())
    receipts = await one.publish_batch([("forest", 1), (BOTH, 2), ("river", 3)])
    assert [len(receipt.positions) for receipt in receipts] == [1, 2, 1]
    async with asyncio.timeout(5):
        await until(lambda: len(heard) >= 2)
    assert heard == [2, 3]
    running.cancel()


async def test_a_failure_names_all_regions_so_that_it_can_be_published_again() -> None:
    async with gamecast.connect("memory://joint-failure", name="one") as one:
        await one.subscribe(*BOTH)
        failures: asyncio.Queue[gamecast.PublishFailure] = asyncio.Queue()
        one.on_publish_error(failures.put_nowait)
        await one.publish(BOTH, 1, key="k")
        one.publish_nowait(BOTH, 2, key="k", only_if=None)
        failure = await asyncio.wait_for(failures.get(), 5)
        assert (failure.region, list(failure.payloads)) == (BOTH, [2])
        assert (await one.publish(failure.region, failure.payloads[0])).positions.keys() == {*BOTH}
        assert failures.empty()


async def test_a_declared_set_is_there_before_its_first_event_and_what_cannot_be_declared_is_refused(
    network: Network,
) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    await one.subscribe("forest")
    await other.subscribe("river")
    await one.declare_joint([BOTH, ("river", "hill")])
    await one.declare_joint([])
    await one.publish(BOTH, 1)
    await other.publish(("hill", "river"), 2)
    assert had(await take(other, 2)) == [1, 2]
    assert had(await take(one, 1)) == [1]
    for wrong in ([("forest",)], [()], ["ab"], [("forest", "forest")], [("forest", "")]):
        with pytest.raises(gamecast.UsageError):
            await one.declare_joint(wrong)  # type: ignore[arg-type]


async def test_what_no_plan_has_in_time_fails_also_after_a_declaration_has() -> None:
    async with EmbeddedServer() as server, EmbeddedServer() as node:
        await register(server.url, dict.fromkeys(("n1", "n2"), node.url))
        async with gamecast.connect(server.url, name="one", publish_timeout_s=0.4) as one:
            await one.subscribe("a", "b")
            node.kill()
            for _ in range(2):
                with pytest.raises(gamecast.Unreachable):
                    await one.declare_joint([("a", "c")])
                for regions in (("a", "c"), ("c", "a")):
                    with pytest.raises(gamecast.Unreachable):
                        await asyncio.wait_for(one.publish(regions, 1), scaled(5))
        assert one.statistics().refused_events >= 4


@pytest.mark.parametrize("entry", [b"x\n", b"a\x01b\nc", b"", b"\xff\nq", b"x" * 5000, b"b\na", b"a\0b"])
async def test_a_strange_wish_of_another_program_stops_no_planning(entry: bytes) -> None:
    async with EmbeddedServer() as server:
        await register(server.url, dict.fromkeys(("n1", "n2"), ""))
        relays = RedisRelays(server.url)
        relays.start()
        async with gamecast.connect(server.url, name="one") as one, redis.asyncio.from_url(server.url) as client:
            await one.subscribe("a", "b")
            await client.sadd(ControlKeys.published, entry)
            evil = RedisControl(server.url)
            incarnation = await evil.introduce("evil")
            with suppress(gamecast.GamecastError, UnicodeDecodeError):
                await evil.place("evil", incarnation, [entry])  # type: ignore[list-item]
                await evil.join([("evil", Request(incarnation, 1, {entry: 1}))])  # type: ignore[dict-item]
            await evil.close()
            async with patience(20):
                await one.publish(("a", "c"), 1)
                await one.subscribe("d", "e")
        async with gamecast.connect(server.url, name="two") as two:  # which leads, and reads all that there is
            async with patience(20):
                await two.subscribe("a", "f")
                await two.publish(("f", "g"), 1)
            assert had(await take(two, 1)) == [1]
        await relays.stop()


async def test_a_region_that_is_joined_by_a_new_epoch_is_named_from_its_first_event_on() -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start("memory-3", stack)
        publisher, one, other = [await network.connect(name) for name in ("p", "one", "other")]
        found = 0
        for number in range(25):
            a, b = f"a{number}", f"b{number}"
            await one.subscribe(a)
            await other.subscribe(b, "x")
            await publisher.publish(b, 0)
            joining = asyncio.create_task(one.subscribe(b))
            sent = []
            while not joining.done():
                sent.append(publisher.publish_async((a, b), number))
                sent.append(publisher.publish_async(b, number))
                await asyncio.sleep(0.0005)
            receipts = await asyncio.gather(*sent)
            begins = joining.result()[b]
            of_joint = {receipt.positions[a]: receipt.positions[b] for receipt in receipts[::2]}
            for item in await take(one, len(of_joint)):
                if isinstance(item, JointEvent) and place(of_joint[item.positions[a]]) > place(begins):
                    found += 1
                    assert item.positions.get(b) == of_joint[item.positions[a]], (begins, item)
            await one.unsubscribe(a, b)
            await other.unsubscribe(b)
            await one.fetch(10_000, timeout=0.01)
        assert found


def place(position: str) -> tuple[int, ...]:
    return tuple(map(int, position.split("-")))

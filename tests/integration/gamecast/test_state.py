"""State, then everything after it: the keys of a region as of one place in the order, without a hole or a repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

import gamecast.blocking
from adapters.memoryworld import MemoryNode
from gamecast import Client, Event, Gap, Item, State
from gamecast.testing import Fold, faults, memory_url
from tests.events import next_event, take
from tests.integration.networks import Network
from tests.patience import patience, until


async def state_of(client: Client) -> State:
    [state] = await client.fetch(1, timeout=5)
    assert isinstance(state, State), state
    return state


async def several(client: Client, count: int) -> list[Item]:
    items: list[Item] = []
    async with patience(10):
        while len(items) < count:
            items += await client.fetch(count - len(items), timeout=1)
    return items


async def test_a_late_joiner_has_the_keys_as_they_are_and_then_what_changes(network: Network) -> None:
    one, late = await network.connect("one"), await network.connect("late")
    await one.subscribe("forest")
    await one.publish("forest", {"open": True}, key="door-4")
    await one.publish("forest", "gone soon", key="door-5")
    boat = await one.publish("river", b"bytes", key="boat")
    await one.publish("forest", None, key="door-5")
    await one.publish("forest", "no key")
    positions = await late.subscribe("forest", "river", "hill", state=True)
    states = [await state_of(late)]
    while len(states[-1].values) < 3 - sum(len(state.values) for state in states[:-1]):
        states.append(await state_of(late))  # of another node
    values = {region: known for state in states for region, known in state.values.items()}
    assert {region: {key: event.payload for key, event in known.items()} for region, known in values.items()} == {
        "forest": {"door-4": {"open": True}},
        "river": {"boat": b"bytes"},
        "hill": {},
    }
    assert {region: at for state in states for region, at in state.positions.items()} == positions
    event = values["river"]["boat"]
    assert (event.region, event.sender, event.key, event.replayed) == ("river", "one", "boat", True)
    assert event.position == boat.position
    assert not any(state.incomplete for state in states)
    await one.publish("forest", {"open": False}, key="door-4", only_if=values["forest"]["door-4"].position)
    assert (await next_event(late)).payload == {"open": False}


async def test_the_state_is_what_all_events_up_to_it_make_and_nothing_is_missing_after_it(network: Network) -> None:
    random = Random(3)
    watcher, writers = await network.connect("watcher"), [await network.connect(f"w{number}") for number in range(3)]
    regions = ("forest", "river", "hill")
    await watcher.subscribe(*regions)
    writing = True

    async def write(client: Client) -> int:
        number = 0
        while writing or number < 30:
            number += 1
            key = random.choice(("a", "b", "c", "d", None))
            payload = None if key and random.random() < 0.2 else f"{client.name} {number}"
            client.publish_nowait(random.choice(regions), payload, key=key)
            if number % 4 == 0:
                await asyncio.sleep(0.002)
        await client.publish("hill", "end")
        return number + 1

    writes = [asyncio.create_task(write(writer)) for writer in writers]
    joined: list[tuple[Client, list[Item]]] = []
    for number in range(8):
        joiner = await network.connect(f"j{number}")
        if number % 2:
            await joiner.subscribe("hill")
        wanted = regions[: 1 + number % 2] if number % 2 else random.sample(regions, random.randint(1, 3))
        got: list[Item] = []
        await joiner.subscribe(*wanted, state=True)
        got += await joiner.fetch(1_000, timeout=0)
        joined.append((joiner, got))
    writing = False
    published = sum(await asyncio.gather(*writes))
    everything = await take(watcher, published)
    fold = Fold()
    fold.add(everything)
    place = {(event.region, event.position): index for index, event in enumerate(everything)}
    for joiner, got in joined:
        got += await joiner.fetch(100_000, timeout=0.3)
        for item in got:
            if isinstance(item, State):
                fold.check(item)
        check_joiner(got, everything, place)


def check_joiner(got: Sequence[Item], everything: Sequence[Event], place: dict[tuple[str, str], int]) -> None:
    states = [item for item in got if isinstance(item, State)]
    events = [item for item in got if not isinstance(item, State)]
    assert states
    assert not any(isinstance(item, Gap) for item in events)
    for state in states:
        for region, at in state.positions.items():
            after = [item for item in got[got.index(state) :] if not isinstance(item, State) and item.region == region]
            rest = [event for event in everything if event.region == region and later(event.position, at)]
            assert [item.position for item in after] == [event.position for event in rest]
            before = [item for item in got[: got.index(state)] if not isinstance(item, State) and item.region == region]
            assert not before
    places = [place[item.region, item.position] for item in events if isinstance(item, Event)]
    assert places == sorted(places), "in the order of who was there all the time"


def later(position: str, than: str) -> bool:
    one, other = (tuple(map(int, each.split("-"))) for each in (position, than))
    return one > other


async def test_keys_and_their_values_go_with_a_region_to_another_node() -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start("redis-3", stack)
        one = await network.connect("one")
        await one.subscribe("forest")
        await one.publish("forest", "first", key="a")
        expected = {"a": "first"}
        moves, last_epoch = 0, (await one.publish("forest", 0)).epoch
        for number in range(12):
            other = await network.connect(f"o{number}")
            await other.subscribe("forest", f"cell {number}", f"cell {number + 1}")
            receipt = await one.publish("forest", number, key=f"k{number}")
            expected[f"k{number}"] = number  # type: ignore[assignment]
            moves, last_epoch = moves + (receipt.epoch != last_epoch), receipt.epoch
            late = await network.connect(f"late {number}")
            await late.subscribe("forest", state=True)
            state = await state_of(late)
            assert {key: event.payload for key, event in state.values["forest"].items()} == expected
            await late.close()
        assert moves, "the region was to move"


async def test_an_event_of_several_regions_that_is_in_the_state_of_one_comes_by_the_other() -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start("redis", stack)
        one, other = await network.connect("one"), await network.connect("other")
        await other.subscribe("river")
        await one.publish(("forest", "river"), "arrow", key="arrow")
        await other.subscribe("forest", state=True)
        items = await several(other, 2)
        [arrow] = [item for item in items if isinstance(item, Event) and not isinstance(item, State)]
        [state] = [item for item in items if isinstance(item, State)]
        assert arrow.regions == ("river",)
        assert state.values["forest"]["arrow"].payload == "arrow"
        await one.publish(("forest", "river"), "again", key="arrow")
        assert (await next_event(other)).regions == ("forest", "river")


async def test_a_region_whose_node_lost_keys_says_so() -> None:
    async with gamecast.connect(memory_url(), name="one") as one:
        await one.subscribe("forest")
        assert (await one.subscribe("river", state=True)).keys() == {"river"}
        assert not (await state_of(one)).incomplete
        world = one._network._open_world  # type: ignore[attr-defined]
        [node] = world.nodes.values()
        await one.publish("forest", 1, key="a")
        node.heads["forest"].lost = node.epoch
        late = await gamecast.connect(one.url, name="late").open()
        await late.subscribe("forest", state=True)
        assert (await state_of(late)).incomplete == {"forest"}
        await late.close()


async def test_what_cannot_be_asked_for_is_refused_and_leaving_ends_it(network: Network) -> None:
    one = await network.connect("one")
    await one.subscribe("forest")
    with pytest.raises(gamecast.UsageError, match="since"):
        await one.subscribe("river", since=0, state=True)
    with pytest.raises(gamecast.UsageError, match="subscribed to already"):
        await one.subscribe("forest", "river", state=True)
    await one.publish("river", 1, key="a")
    await one.publish("hill", 2, key="b")
    await one.subscribe("river", "hill", state=True)
    await one.unsubscribe("river")
    assert (await state_of(one)).values.keys() == {"hill"}
    await one.publish("river", "not for us")
    await one.publish("hill", "end")
    assert (await next_event(one)).payload == "end"
    await one.subscribe("river", state=True)
    assert (await state_of(one)).values["river"]["a"].payload == 1


async def not_here(node: MemoryNode, regions: object) -> None:
    """Answer as a node does where the ingress is not, or not yet."""


async def test_a_node_that_does_not_answer_is_told_and_the_events_come_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = memory_url()
    async with gamecast.connect(url, name="one") as one:
        await one.publish("forest", 1, key="a")
        late = await gamecast.connect(url, name="late", subscribe_timeout_s=0.5).open()
        await late.subscribe("hill")
        monkeypatch.setattr(MemoryNode, "snapshots", not_here)
        with pytest.raises(gamecast.Unreachable, match="state of forest"):
            await late.subscribe("forest", state=True)
        await one.publish("forest", 2)
        await one.publish("hill", 3)
        assert [(await next_event(late)).payload for _ in range(2)] == [2, 3]
        await late.close()


async def test_who_skips_what_it_cannot_take_keeps_the_state() -> None:
    url = memory_url()
    async with gamecast.connect(url, name="one") as one:
        await one.publish("forest", 1, key="a")
        slow = await gamecast.connect(url, name="slow", when_behind="skip", inbox_events_max=10).open()
        await slow.subscribe("forest", state=True)
        await asyncio.gather(*(one.publish_async("forest", number) for number in range(100)))
        await asyncio.sleep(0.2)
        state = await state_of(slow)
        assert state.values["forest"]["a"].payload == 1
        assert any(isinstance(item, Gap) for item in await slow.fetch(1_000, timeout=0.2))
        await slow.close()


async def test_handlers_get_states_and_blocking_clients_do() -> None:
    url = memory_url()
    async with gamecast.connect(url, name="one") as one:
        await one.publish("forest", 1, key="a")
        two = await gamecast.connect(url, name="two").open()
        seen: list[Any] = []
        two.on_state(seen.append)
        two.on("*")(seen.append)
        running = asyncio.create_task(two.run())
        await two.subscribe("forest", state=True)
        await one.publish("forest", 2)
        await until(lambda: len(seen) >= 2, 5)
        assert isinstance(seen[0], State)
        assert seen[1].payload == 2
        running.cancel()
        await two.close()


def test_a_blocking_client_begins_with_the_state() -> None:
    with gamecast.blocking.connect("memory://blocking-state", name="one") as one:
        one.subscribe("river")
        one.publish("forest", 1, key="a")
        one.subscribe("forest", "hill", state=True)
        [state] = one.fetch(1, timeout=5)
        assert isinstance(state, State)
        assert state.values.keys() == {"forest", "hill"}


async def test_a_lost_event_after_the_state_is_a_gap() -> None:
    url = memory_url()
    async with gamecast.connect(url, name="one") as one:
        await one.publish("forest", 1, key="a")
        late = await gamecast.connect(url, name="late").open()
        await late.subscribe("forest", state=True)
        faults(url).lose("forest", events=1)
        await one.publish("forest", 2)
        await one.publish("forest", 3)
        state, *items = await several(late, 3)
        assert isinstance(state, State)
        assert [type(item) for item in items] == [Gap, Event]
        await late.close()


async def test_a_fold_finds_what_a_state_has_too_much_too_little_and_too_old() -> None:
    async with gamecast.connect(memory_url(), name="one") as one:
        await one.subscribe("forest", "river")
        first = await one.publish("forest", 1, key="a")
        await one.publish(("river", "forest"), 2, key="b")
        await one.publish("forest", 3, key="a")
        events = await take(one, 3)
        late = await gamecast.connect(one.url, name="late").open()
        await late.subscribe("forest", "river", state=True)
        state = await state_of(late)
        await late.close()
    fold = Fold()
    fold.add(events)
    fold.check(state)
    known = dict(state.values["forest"])
    old = known["a"]._replace(payload=1, sequence=first.sequence)
    for wrong in ({"a": old, "b": known["b"]}, {"b": known["b"]}, known | {"c": known["b"]}, {}):
        with pytest.raises(AssertionError, match="the state of 'forest'"):
            fold.check(State({"forest": wrong}, {"forest": state.positions["forest"]}, frozenset()))
    fold.check(State({"forest": {}}, {"forest": state.positions["forest"]}, frozenset({"forest"})))
    with pytest.raises(gamecast.UsageError, match="a state is no event"):
        fold.add([state])
    with pytest.raises(gamecast.UsageError, match="gap"):
        fold.add([Gap("forest", 1, 1, 2, "lost")])


async def test_a_cancelled_call_takes_no_state_from_the_next_one(network: Network) -> None:
    one, late = await network.connect("one"), await network.connect("late")
    await one.subscribe("forest")
    await one.publish("forest", 1, key="a")
    for _ in range(10):
        cancelled = asyncio.create_task(late.subscribe("forest", state=True))
        await asyncio.sleep(0)
        cancelled.cancel()
        await late.unsubscribe("forest")
        await late.subscribe("forest", state=True)
        assert (await state_of(late)).values["forest"]["a"].payload == 1
        await late.unsubscribe("forest")


async def test_regions_are_left_while_their_state_is_on_its_way(network: Network) -> None:
    one, late = await network.connect("one"), await network.connect("late")
    regions = ("forest", "river", "hill", "lake")
    await one.subscribe(*regions)
    await late.subscribe("sea")
    for _ in range(6):
        for region in regions:
            one.publish_nowait(region, 1, key="a")
        await late.subscribe(*regions, state=True)
        await late.unsubscribe(*regions)
    await one.publish("sea", "end")
    assert (await next_event(late)).payload == "end"


async def test_others_do_not_wait_long_nor_without_bound_for_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryNode, "snapshots", not_here)
    monkeypatch.setattr("gamecast.client.incoming.HOLD_S_MAX", 0.5)
    url = memory_url()
    async with gamecast.connect(url, name="one") as one:
        waiting = await gamecast.connect(url, name="waiting").open()
        skipping = await gamecast.connect(url, name="skipping", when_behind="skip", inbox_events_max=2).open()
        for client in (waiting, skipping):
            await client.subscribe("river")
        asking = [asyncio.create_task(client.subscribe("forest", state=True)) for client in (waiting, skipping)]
        await until(lambda: all("forest" in client._halves()[1]._session.joined for client in (waiting, skipping)), 5)
        await one.publish("forest", 1)
        for _ in range(10):
            await asyncio.gather(*(one.publish_async("river", number) for number in range(20)))
            await asyncio.sleep(0.005)
        assert await waiting.fetch(1) == []
        assert waiting.statistics().inbox_events > 100
        for each in asking:
            with pytest.raises(gamecast.Unreachable, match="To begin with the state, unsubscribe"):
                await each
        assert len(await several(waiting, 201)) == 201
        assert any(isinstance(item, Gap) for item in await skipping.fetch(1_000, timeout=1))
        for client in (waiting, skipping):
            await client.close()


async def test_who_asks_for_a_state_hears_that_the_connection_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryNode, "snapshots", not_here)
    url = memory_url()
    async with gamecast.connect(url, name="one"):
        late = await gamecast.connect(url, name="late").open()
        asking = asyncio.create_task(late.subscribe("forest", state=True))
        await asyncio.sleep(0.2)
        await late.close()
        with pytest.raises(gamecast.NotConnected):
            await asking


async def test_each_hold_has_a_time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = MemoryNode.snapshots

    async def late(node: MemoryNode, regions: Sequence[tuple[str, int]]) -> Any:
        await asyncio.sleep(0.6)
        return await snapshots(node, regions)

    monkeypatch.setattr(MemoryNode, "snapshots", late)
    monkeypatch.setattr("gamecast.client.incoming.HOLD_S_MAX", 1.0)
    url = memory_url()
    async with gamecast.connect(url, name="one") as one:
        other = await gamecast.connect(url, name="other").open()
        for region in ("forest", "river"):
            asking = asyncio.create_task(other.subscribe(region, state=True))
            while not asking.done():
                await one.publish(region, 1, key="a")
                await asyncio.sleep(0.02)
            await asking
        items = await other.fetch(1_000, timeout=0.2)
        assert [[*item.values] for item in items if isinstance(item, State)] == [["forest"], ["river"]]
        await other.close()

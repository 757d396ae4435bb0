"""Updates: the newest of each key beside ordered events, never before what its sender had seen or published."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from typing import Any

import pytest

import gamecast
import gamecast.blocking
from adapters.embedded.network import EmbeddedNetwork
from adapters.embedded.server import EmbeddedServer
from gamecast import Client, Event, Update
from tests.integration.networks import Network
from tests.patience import Deadline, patience, until


async def until_heard(sender: Client, reader: Client, region: str = "forest") -> None:
    """Return when updates come through."""
    async with patience(20):
        number = 0
        while not any(update.key == "hello" for update in reader.updates()):
            sender.update(region, "hello", number)
            number += 1
            await asyncio.sleep(0.01)
            await reader.fetch()
        await asyncio.sleep(0.1)
        reader.updates()


async def test_the_newest_of_each_key_comes_behind_the_events_of_its_sender(network: Network) -> None:
    sender, reader = await network.connect("sender"), await network.connect("reader")
    await sender.subscribe("forest")
    await reader.subscribe("forest", "river")
    await until_heard(sender, reader)
    sender.publish_nowait("forest", "spawn")
    for x in range(10):
        sender.update("forest", "goblin", {"x": x})
    sender.update("forest", "orc", b"\xff")
    await asyncio.sleep(0.3)
    assert reader.updates() == [], "the event that introduces them was not taken"
    async with patience(10):
        [spawn] = await reader.fetch(timeout=None)
    async with patience(10):
        found = {update.key: update for update in await reader.next_updates()}
    assert isinstance(spawn, Event)
    assert {key: update.payload for key, update in found.items()} == {"goblin": {"x": 9}, "orc": b"\xff"}
    assert {(update.region, update.sender) for update in found.values()} == {("forest", "sender")}
    assert reader.updates() == []
    assert sender.updates() == [], "not one's own"
    assert reader.statistics().taken_updates >= 2
    assert sender.statistics().sent_updates >= 2


async def test_an_update_says_up_to_where_its_sender_had_seen_the_region(network: Network) -> None:
    sender, reader = await network.connect("sender"), await network.connect("reader")
    await sender.subscribe("forest")
    await reader.subscribe("forest")
    await until_heard(sender, reader)
    born = await reader.publish("forest", "born")
    async with patience(10):
        await sender.fetch(timeout=None)
    sender.update("forest", "goblin", 1)
    await asyncio.sleep(0.2)
    killed = await reader.publish("forest", "killed")
    async with patience(10):
        taken = [item for _ in range(2) for item in await reader.fetch(1, timeout=None)]
    assert [item.position for item in taken if isinstance(item, gamecast.Event)] == [born.position, killed.position]
    [update] = reader.updates()
    assert update.position == born.position, "it is from before the goblin was killed"
    assert (update.epoch, update.sequence) < (killed.epoch, killed.sequence)


async def test_only_regions_that_are_subscribed_to_are_heard(network: Network) -> None:
    sender, reader = await network.connect("sender"), await network.connect("reader")
    await reader.subscribe("forest", "river")
    await sender.subscribe("river")
    await until_heard(sender, reader)
    await reader.unsubscribe("forest")
    for x in range(5):
        sender.update("forest", "goblin", x)
        sender.update("river", "fish", x)
        sender.update("nowhere", "ghost", x)
        await asyncio.sleep(0.05)
    assert {update.key for update in reader.updates()} == {"fish"}
    await reader.subscribe("forest")
    await until_heard(sender, reader)


async def test_what_cannot_be_an_update_is_refused_at_once(network: Network) -> None:
    client = await network.connect("client")
    for region, key, payload, error in (
        ("", "k", 1, gamecast.InvalidName),
        ("forest", "", 1, gamecast.InvalidName),
        ("forest", "k", object(), gamecast.InvalidPayload),
        ("forest", "k", float("nan"), gamecast.InvalidPayload),
        ("forest", "k", b"x" * 1_000_001, gamecast.PayloadTooLarge),
    ):
        with pytest.raises(error):
            client.update(region, key, payload)
    await client.close()
    with pytest.raises(gamecast.NotConnected):
        client.update("forest", "k", 1)
    with pytest.raises(gamecast.NotConnected):
        client.updates()


async def test_whoever_waits_for_updates_hears_that_the_connection_closes(network: Network) -> None:
    client = await network.connect("client")
    waiting = asyncio.create_task(client.next_updates())
    await asyncio.sleep(0.1)
    await client.close()
    async with patience(10):
        with pytest.raises(gamecast.NotConnected):
            await waiting


async def test_a_state_comes_before_the_updates_of_those_who_had_its_events(network: Network) -> None:
    sender, late = await network.connect("sender"), await network.connect("late")
    late.updates()
    for number in range(20):
        await sender.publish("forest", number, key=f"k{number}")
    stop = asyncio.Event()

    async def moving() -> None:
        while not stop.is_set():
            sender.update("forest", "k3", 0)
            await asyncio.sleep(0.002)

    task = asyncio.create_task(moving())
    joining = asyncio.create_task(late.subscribe("forest", state=True))
    async with patience(20):
        seen: list[Any] = []
        while not any(isinstance(each, Update) for each in seen):
            seen += late.updates()
            seen += await late.fetch(timeout=0.001)
    await joining
    stop.set()
    await task
    assert isinstance(seen[0], gamecast.State), seen[:3]
    assert "k3" in seen[0].values["forest"]


async def test_entities_that_come_move_and_go_are_never_moved_before_they_are_there(network: Network) -> None:
    """Several servers, random pace: each update is of an entity that its reader has seen appear."""
    rng = random.Random(int(os.environ.get("GAMECAST_UPDATES_SEED", "1")))
    servers = [await network.connect(f"s{number}") for number in range(3)]
    for server in servers:
        await server.subscribe("forest", "river")
        server.updates()
    begun = [{"born": 0, "moved": 0, "void": 0} for _ in servers]

    async def play(place: int) -> None:
        server, mine, counted = servers[place], 0, begun[place]
        alive: dict[tuple[str, str], Any] = {}
        dead: dict[tuple[str, str], tuple[int, int]] = {}
        own: list[tuple[str, str]] = []
        for _ in range(300):
            action = rng.random()
            if action < 0.15 or not own:
                region, key = rng.choice(["forest", "river"]), f"{server.name}-{mine}"
                mine += 1
                server.publish_nowait(region, "born", key=key)
                own.append((region, key))
                counted["born"] += 1
            elif action < 0.25:
                region, key = own.pop(rng.randrange(len(own)))
                server.publish_nowait(region, None, key=key)
            for region, key in own:
                server.update(region, key, {"at": rng.random()})
            for event in await server.fetch(rng.choice([1, 5, 100])):
                assert isinstance(event, Event)
                if event.payload is None:
                    alive.pop((event.region, event.key or ""), None)
                    dead[event.region, event.key or ""] = event.epoch, event.sequence
                else:
                    alive[event.region, event.key or ""] = event
            for update in server.updates():
                at = update.region, update.key
                if at in dead:
                    counted["void"] += 1
                else:
                    assert at in alive, update
                    counted["moved"] += 1
            await asyncio.sleep(rng.choice([0, 0.001, 0.004]))

    async with patience(60):
        await asyncio.gather(*map(play, range(len(servers))))
    assert min(each["born"] for each in begun) > 10
    assert min(each["moved"] for each in begun) > 20, begun


async def test_who_does_not_take_updates_keeps_one_of_each_key_and_gets_the_newest() -> None:
    async with (
        gamecast.connect("embedded://", name="sender") as sender,
        gamecast.connect(sender.url, name="reader") as reader,
    ):
        await reader.subscribe("forest")
        await until_heard(sender, reader)
        for x in range(2_000):
            for key in range(5):
                sender.update("forest", f"k{key}", x)
            if not x % 10:
                await asyncio.sleep(0)
        await asyncio.sleep(0.3)
        assert {update.key: update.payload for update in reader.updates()} == {f"k{key}": 1_999 for key in range(5)}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_updates_go_on_when_their_server_is_back(how: signal.Signals) -> None:
    async with (
        EmbeddedServer(settings={"appendonly": "yes", "appendfsync": "always"}) as redis_server,
        gamecast.connect(redis_server.url, name="sender") as sender,
        gamecast.connect(redis_server.url, name="reader") as reader,
    ):
        await reader.subscribe("forest")
        await sender.subscribe("forest")
        await until_heard(sender, reader)
        if how == signal.SIGKILL:
            redis_server.kill()
            for x in range(200):
                sender.update("forest", "k", x)
                await asyncio.sleep(0)
            redis_server.restart()
        else:
            os.kill(redis_server.pid, signal.SIGSTOP)
            for x in range(2_000):
                sender.update("forest", "k", x)
                await asyncio.sleep(0)
            os.kill(redis_server.pid, signal.SIGCONT)
        await until_heard(sender, reader)


async def test_updates_of_another_network_on_the_same_server_are_not_taken(redis_server: EmbeddedServer) -> None:
    async with (
        gamecast.connect(redis_server.url, name="sender") as sender,
        gamecast.connect(redis_server.url, name="reader") as reader,
        gamecast.connect(f"{redis_server.url}/1", name="elsewhere") as elsewhere,
    ):
        await reader.subscribe("forest")
        await elsewhere.subscribe("forest")
        await until_heard(sender, reader)
        elsewhere.updates()
        for x in range(10):
            sender.update("forest", "k", x)
            await asyncio.sleep(0.02)
        assert elsewhere.updates() == []
        assert reader.updates() != []


async def test_servers_of_a_secured_network_send_and_receive_updates_and_publishers_only_send() -> None:
    network = EmbeddedNetwork("embedded://?nodes=2", ordering="acyclic", retention_events=1000, secure=True)
    await network.open()
    try:
        users = network.users
        manager = gamecast.connect(users["manager"].url(network.url), name="manager")
        async with (
            manager,
            gamecast.connect(users["subscriber"].url(network.url), name="reader") as reader,
            gamecast.connect(users["publisher"].url(network.url), name="sender") as sender,
        ):
            await reader.subscribe("forest", "river")
            await until_heard(sender, reader)
            await until_heard(sender, reader, "river")
    finally:
        await network.close()


def test_threads_send_and_take_updates() -> None:
    with (
        gamecast.blocking.connect("embedded://", name="sender") as sender,
        gamecast.blocking.connect(sender.url, name="reader") as reader,
    ):
        reader.subscribe("forest")
        found: list[Update] = []
        deadline = Deadline(20)
        while not found and not deadline.passed:
            sender.update("forest", "k", 1)
            found += reader.updates()
    assert found[0].key == "k"


async def test_updates_go_behind_what_their_sender_had_taken_also_if_it_has_not_taken_all(network: Network) -> None:
    sender, reader, other = [await network.connect(name) for name in ("sender", "reader", "other")]
    await sender.subscribe("forest")
    await reader.subscribe("forest")
    await until_heard(sender, reader)
    await other.publish_batch([("forest", "first"), ("forest", "second"), ("forest", "third")])
    async with patience(10):
        [first] = await sender.fetch(1, timeout=None)
    assert isinstance(first, Event)
    sender.update("forest", "goblin", first.payload)
    await asyncio.sleep(0.3)
    assert reader.updates() == [], "what its sender had taken was not taken here"
    async with patience(10):
        assert await reader.fetch(1, timeout=None)
        assert [update.key for update in await reader.next_updates()] == ["goblin"]


@pytest.mark.parametrize("comes_back", [False, True])
async def test_an_update_goes_behind_what_its_sender_had_seen_also_if_that_leaves_the_region_at_once(
    network: Network, comes_back: bool
) -> None:
    sender, reader = await network.connect("sender"), await network.connect("reader")
    await sender.subscribe("forest")
    await reader.subscribe("forest")
    await until_heard(sender, reader)
    spawned = await reader.publish("forest", "spawn")
    async with patience(10):
        await sender.fetch(timeout=None)
    sender.update("forest", "goblin", 1)
    await sender.unsubscribe("forest")
    if comes_back:
        await sender.subscribe("forest")
    await asyncio.sleep(0.3)
    assert reader.updates() == [], "the event that introduces it was not taken"
    async with patience(10):
        await reader.fetch(timeout=None)
        [update] = await reader.next_updates()
    assert update.position == spawned.position


async def test_an_update_says_what_its_sender_had_seen_when_it_was_made_not_when_it_was_sent(network: Network) -> None:
    sender, reader = await network.connect("sender"), await network.connect("reader")
    await sender.subscribe("forest", "river")
    await reader.subscribe("forest")
    await until_heard(sender, reader)
    events = [("forest", "born"), ("river", "flood"), ("forest", "killed"), ("forest", "born")]
    await reader.publish_batch(events)
    await until(lambda: sender.statistics().inbox_events >= len(events))
    seen: dict[str, str] = {}
    position = ""
    for number in range(len(events)):
        [event] = await sender.fetch(1)
        assert isinstance(event, Event)
        position = event.position if event.region == "forest" else position
        if position:
            sender.update("forest", f"goblin{number}", number)
            seen[f"goblin{number}"] = position
    oldest = next(iter(seen))
    sender.update("forest", oldest, "newest")
    seen[oldest] = position
    found: dict[str, Update] = {}
    async with patience(10):
        while len(found) < len(seen):
            await reader.fetch()
            found |= {update.key: update for update in reader.updates() if update.key.startswith("goblin")}
            await asyncio.sleep(0.01)
    assert {key: update.position for key, update in found.items()} == seen
    assert found[oldest].payload == "newest"

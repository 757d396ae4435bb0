"""Presence: who arrives and leaves, in one order with the events, also if those who are there die or stand still."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

import gamecast
import gamecast.client.presence as presence_module
from adapters.embedded.network import EmbeddedNetwork
from adapters.redis import presence as redis_presence
from gamecast import Client, Event, Presence, State
from tests.integration.networks import Network
from tests.patience import patience

PRESENT_MS = 1_500
PLAYER = Path(__file__).parents[1] / "presence_player.py"
SECONDS = float(os.environ.get("GAMECAST_PRESENCE_S", "14"))
SEED = os.environ.get("GAMECAST_PRESENCE_SEED", "1")


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take connections for absent sooner than people need."""
    monkeypatch.setattr("adapters.presence.PRESENT_MS", PRESENT_MS)
    monkeypatch.setattr(redis_presence, "PRESENT_MS", PRESENT_MS)
    monkeypatch.setattr(presence_module, "PRESENT_MS", PRESENT_MS)
    monkeypatch.setattr(presence_module, "BEAT_S", PRESENT_MS / 4000)


async def until(client: Client, region: str, there: dict[str, Any]) -> list[Any]:
    """Take what comes until these are there, and return it."""
    taken: list[Any] = []
    async with patience(20):
        while client.present(region) != there:
            taken += await client.fetch(timeout=0.05)
    return taken


def told(items: list[Any]) -> list[tuple[str, bool]]:
    return [(item.name, item.is_here) for item in items if isinstance(item, Presence)]


async def test_all_see_arrivals_events_and_leaves_in_one_order(network: Network) -> None:
    ana, bo = await network.connect("ana"), await network.connect("bo")
    await ana.subscribe("forest", presence={"nick": "Ana"})
    await until(ana, "forest", {"ana": {"nick": "Ana"}})
    await ana.publish("forest", "before")
    await bo.subscribe("forest", presence={"nick": "Bo"})
    await bo.publish("forest", "here")
    both = {"ana": {"nick": "Ana"}, "bo": {"nick": "Bo"}}
    seen_by_ana = await until(ana, "forest", both)
    seen_by_bo = await until(bo, "forest", both)
    assert isinstance(seen_by_bo[0], State)
    assert seen_by_bo[0].values == {"forest": {}}, "who is present is no key of the game's"
    await bo.unsubscribe("forest")
    seen_by_ana += await until(ana, "forest", {"ana": {"nick": "Ana"}})
    kinds = [
        item.is_here if isinstance(item, Presence) else item.payload
        for item in seen_by_ana
        if not isinstance(item, State)
    ]
    assert [kind for kind in kinds if kind != "before"] == [True, "here", False]
    left = seen_by_ana[-1]
    assert (left.name, left.info, left.region, left.position) == ("bo", {"nick": "Bo"}, "forest", left.position)
    with pytest.raises(gamecast.UsageError):
        bo.present("forest")


async def test_who_only_watches_is_not_present_and_who_does_not_ask_is_not_told(network: Network) -> None:
    ana, watcher, other = [await network.connect(name) for name in ("ana", "watcher", "other")]
    await other.subscribe("forest")
    await ana.subscribe("forest", presence={})
    await watcher.subscribe("forest", presence="watch")
    await until(watcher, "forest", {"ana": {}})
    await ana.publish("forest", "event")
    async with patience(10):
        [event] = await other.fetch(timeout=None)
    assert isinstance(event, Event)
    assert event.payload == "event"
    await ana.close()
    await until(watcher, "forest", {})


async def test_the_roster_is_as_of_what_was_taken(network: Network) -> None:
    ana, watcher = await network.connect("ana"), await network.connect("watcher")
    await watcher.subscribe("forest", presence="watch")
    await until(watcher, "forest", {})
    await ana.subscribe("forest", presence={"at": 1})
    await ana.publish("forest", 1)
    await ana.unsubscribe("forest")
    rosters: list[dict[str, Any]] = []
    async with patience(20):
        while len(rosters) < 3:
            [item] = await watcher.fetch(1, timeout=None)
            rosters += [] if isinstance(item, State) else [watcher.present("forest")]
    assert rosters == [{"ana": {"at": 1}}, {"ana": {"at": 1}}, {}]


async def test_a_roster_is_folded_item_by_item_of_what_was_fetched_at_once(network: Network) -> None:
    ana, bo = await network.connect("ana"), await network.connect("bo")
    await bo.subscribe("forest", presence={"nick": "Bo"})
    await ana.subscribe("forest", presence={"nick": "Ana"})
    await bo.unsubscribe("forest")
    await bo.subscribe("forest", presence={"nick": "Bo the second"})
    taken: list[gamecast.Item] = []
    while len(taken) < 4:
        taken += await ana.fetch(timeout=10)
    assert ana.present("forest") == {"bo": {"nick": "Bo the second"}, "ana": {"nick": "Ana"}}
    state, *items = taken
    assert isinstance(state, State)
    rosters = [dict(state.present["forest"])]
    for item in items:
        assert isinstance(item, Presence)
        rosters.append({**rosters[-1]})
        item.fold(rosters[-1])
    bos, anas = {"bo": {"nick": "Bo"}}, {"ana": {"nick": "Ana"}}
    assert rosters == [bos, bos | anas, anas, anas | {"bo": {"nick": "Bo the second"}}]


async def test_a_newer_connection_of_the_name_is_one_that_arrives(network: Network) -> None:
    watcher = await network.connect("watcher")
    await watcher.subscribe("forest", presence="watch")
    old, new = await network.connect("ana"), await network.connect("ana")
    with pytest.raises(gamecast.Superseded):
        await old.subscribe("forest", presence={"of": "old"})
    await new.subscribe("forest", presence={"of": "new"})
    await until(watcher, "forest", {"ana": {"of": "new"}})


async def test_what_cannot_be_is_refused(network: Network) -> None:
    client = await network.connect("client")
    for wrong in ({"since": 0, "presence": {}}, {"presence": 7}, {"presence": "all"}):
        with pytest.raises(gamecast.UsageError):
            await client.subscribe("forest", **wrong)
    with pytest.raises(gamecast.InvalidName, match="begin with '@'"):
        await client.publish("forest", 1, key="@bo")
    await client.subscribe("forest")
    with pytest.raises(gamecast.UsageError):
        client.present("forest")


async def test_an_event_can_be_published_for_a_stay_only(network: Network) -> None:
    ana, watcher = await network.connect("ana"), await network.connect("watcher")
    await watcher.subscribe("forest", presence="watch")
    await ana.subscribe("forest", presence={})
    [arrived] = [item for item in await until(watcher, "forest", {"ana": {}}) if isinstance(item, Presence)]
    guard = {"@ana": arrived.position}
    await watcher.publish("forest", "a gift for ana", only_if=guard)
    await ana.unsubscribe("forest")
    with pytest.raises(gamecast.Conflict):
        await watcher.publish("forest", "too late", only_if=guard)


@pytest.mark.usefixtures("impatience")
async def test_who_is_not_heard_of_has_left_and_can_publish_nothing_more(network: Network) -> None:
    """It stands still: its heartbeats stop, and it goes on later."""
    watcher, ana = await network.connect("watcher"), await network.connect("ana")
    await watcher.subscribe("forest", presence="watch")
    await ana.subscribe("forest", presence={})
    await until(watcher, "forest", {"ana": {}})
    stand_still(ana)
    seen = await until(watcher, "forest", {})
    assert told(seen) == [("ana", False)]
    with pytest.raises(gamecast.Superseded):
        await ana.publish("forest", "after the leave")
    await ana.reconnect()
    await ana.subscribe("forest", presence={"again": True})
    await ana.publish("forest", "back")
    seen = await until(watcher, "forest", {"ana": {"again": True}})
    assert told(seen) == [("ana", True)]
    assert [item.payload for item in seen if isinstance(item, Event)] in ([], ["back"])


@pytest.mark.usefixtures("impatience")
async def test_who_stood_still_hears_that_its_session_has_expired(network: Network) -> None:
    ana, watcher = await network.connect("ana"), await network.connect("watcher")
    await watcher.subscribe("forest", presence="watch")
    await ana.subscribe("forest", presence={})
    await until(watcher, "forest", {"ana": {}})
    stand_still(ana)
    await until(watcher, "forest", {})
    assert ana._presences is not None
    ana._presences.watch()
    async with patience(10):
        with pytest.raises(gamecast.SessionExpired):
            await run_to_its_end(ana)


async def run_to_its_end(client: Client) -> None:
    async for _ in client:
        pass


@pytest.mark.parametrize("kind", ["redis-3", "shared-3"])
@pytest.mark.usefixtures("impatience")
async def test_players_that_are_killed_and_stopped_leave_once_and_for_all(kind: str) -> None:
    """All watchers have one order and one roster at each position; an event of a stay comes within that stay."""
    rng = random.Random(SEED)
    async with AsyncExitStack() as stack:
        network = await Network.start(kind, stack)
        watchers = [await network.connect(f"watcher-{number}") for number in range(3)]
        seen: list[list[Any]] = [[] for _ in watchers]
        for watcher in watchers:
            await watcher.subscribe("forest", "river", "hill", presence="watch")

        async def follow(place: int) -> None:
            async for item in watchers[place]:
                seen[place].append(item)

        following = [asyncio.create_task(follow(place)) for place in range(len(watchers))]
        players: dict[str, asyncio.subprocess.Process] = {}

        async def start(name: str) -> None:
            arguments = str(PLAYER), network.url, name, str(rng.random()), str(PRESENT_MS)
            players[name] = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdout=asyncio.subprocess.DEVNULL, cwd=PLAYER.parents[2]
            )

        end_at = time.monotonic() + SECONDS
        try:
            for number in range(4):
                await start(f"p{number}")
            while time.monotonic() < end_at:
                await asyncio.sleep(rng.uniform(0.2, 1.5))
                name = rng.choice(sorted(players))
                match rng.choice(["kill", "stop", "stop", "come back"]):
                    case "kill":
                        players[name].kill()
                        await players[name].wait()
                        if rng.random() < 0.5:
                            await asyncio.sleep(rng.uniform(0, 2 * PRESENT_MS / 1000))
                        await start(name)
                    case "stop":
                        os.kill(players[name].pid, signal.SIGSTOP)
                        await asyncio.sleep(rng.uniform(0.5, 2) * PRESENT_MS / 1000)
                        os.kill(players[name].pid, signal.SIGCONT)
                    case _:
                        await start_beside(name, start, players)
        finally:
            for process in players.values():
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        async with patience(40):
            while any(watcher.present(region) for watcher in watchers for region in ("forest", "river", "hill")):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    judge(seen)


async def start_beside(name: str, start: Any, players: dict[str, asyncio.subprocess.Process]) -> None:
    """Have a newer connection of a name come while the older one still runs."""
    older = players[name]
    await start(name)
    await asyncio.sleep(0.5)
    older.kill()
    await older.wait()


def judge(seen: list[list[Any]]) -> None:
    """Check what watchers saw: they had all regions, so each saw all of it."""
    orders = [
        [(item.region, item.position, getattr(item, "is_here", None)) for item in items if not isinstance(item, State)]
        for items in seen
    ]
    assert all(order == orders[0] for order in orders), "they saw different orders"
    there: dict[tuple[str, str], str] = {}
    stays, events, leaves = set[str](), 0, 0
    for item in seen[0]:
        if isinstance(item, State):
            continue
        assert not isinstance(item, gamecast.Gap), item
        if isinstance(item, Presence):
            where = item.region, item.name
            if item.is_here:
                assert item.info["stay"] not in stays, "it arrives once"
                stays.add(item.info["stay"])
                there[where] = item.info["stay"]
            else:
                assert there.pop(where) == item.info["stay"]
                leaves += 1
        else:
            assert there.get((item.region, item.sender)) == item.payload["stay"], "an event is within its stay"
            events += 1
    assert not there, "all have left"
    assert events > 200
    assert leaves > 5


async def test_servers_of_a_secured_network_are_present() -> None:
    network = EmbeddedNetwork("embedded://", ordering="acyclic", retention_events=1000, secure=True)
    await network.open()
    try:
        users = network.users
        async with (
            gamecast.connect(users["manager"].url(network.url), name="manager"),
            gamecast.connect(users["subscriber"].url(network.url), name="ana") as ana,
            gamecast.connect(users["gateway"].url(network.url), name="gate") as gate,
        ):
            await ana.subscribe("forest", presence={"nick": "Ana"})
            await gate.subscribe("forest", presence="watch")
            await until(gate, "forest", {"ana": {"nick": "Ana"}})
    finally:
        await network.close()


def stand_still(client: Client) -> None:
    """Have a connection neither be heard of nor look for others."""
    assert client._presences is not None
    assert client._presences._tasks
    for task in client._presences._tasks:
        task.cancel()
    client._presences._tasks = []


SOME_KINDS = pytest.mark.parametrize("kind", ["memory", "redis", "shared-3"])


@SOME_KINDS
async def test_leaving_twice_at_the_same_time_is_harmless(kind: str) -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start(kind, stack)
        ana = await network.connect("ana")
        await ana.subscribe("forest", "river", presence={})
        await asyncio.gather(ana.unsubscribe("forest"), ana.unsubscribe("forest"))
        await asyncio.gather(ana.unsubscribe("river"), ana.close(), return_exceptions=True)
        await ana.close()


async def test_an_arrival_that_waits_for_the_register_is_not_published_behind_its_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    be, leave = presence_module.Presences._be, presence_module.Presences._leave
    left = asyncio.Event()

    async def be_late(self: Any, *arguments: Any, **options: Any) -> bool:
        await left.wait()
        return await be(self, *arguments, **options)

    async def leave_slowly(self: Any, *arguments: Any) -> None:
        await leave(self, *arguments)
        left.set()
        await asyncio.sleep(0.1)

    monkeypatch.setattr(presence_module.Presences, "_be", be_late)
    monkeypatch.setattr(presence_module.Presences, "_leave", leave_slowly)
    async with AsyncExitStack() as stack, patience(20):
        network = await Network.start("memory", stack)
        watcher, ana = await network.connect("watcher"), await network.connect("ana")
        await watcher.subscribe("forest", presence="watch")
        arriving = asyncio.create_task(ana.subscribe("forest", presence={}))
        while ana._presences is None or not ana._presences._at:  # noqa: ASYNC110 - it is not told
            await asyncio.sleep(0)
        await asyncio.gather(ana.unsubscribe("forest"), arriving, return_exceptions=True)
        marker = await watcher.publish("forest", "it has left")
        taken: list[Any] = []
        while not any(getattr(item, "position", None) == marker.position for item in taken):
            taken += await watcher.fetch(timeout=0.05)
        assert watcher.present("forest") == {}
        assert told(taken) == []


@SOME_KINDS
async def test_who_unsubscribes_while_it_arrives_is_not_there(kind: str) -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start(kind, stack)
        watcher = await network.connect("watcher")
        await watcher.subscribe("forest", presence="watch")
        for number in range(12):
            ana = await network.connect(f"ana-{number}")
            arriving = asyncio.create_task(ana.subscribe("forest", presence={}))
            await asyncio.sleep(number * 0.002)
            await asyncio.gather(ana.unsubscribe("forest"), arriving, return_exceptions=True)
            if ana._session is not None and "forest" in ana._session.wanted:  # it was not subscribed yet
                await ana.unsubscribe("forest")
        marker = await watcher.publish("forest", "all have left")
        taken: list[Any] = []
        async with patience(20):
            while not any(getattr(item, "position", None) == marker.position for item in taken):
                taken += await watcher.fetch(timeout=0.05)
        assert watcher.present("forest") == {}


@SOME_KINDS
async def test_what_is_refused_leaves_nothing_behind(kind: str) -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start(kind, stack)
        ana, long = await network.connect("ana"), await network.connect("n" * 200)
        for info in ({"size": "y" * 5_000_000}, {"kind": object()}, {1: 2}):
            with pytest.raises((gamecast.PayloadTooLarge, gamecast.InvalidPayload)):
                await ana.subscribe("forest", presence=info)  # type: ignore[arg-type]
        await ana.subscribe("forest", presence={})
        with pytest.raises(gamecast.InvalidName):
            await long.subscribe("forest", presence={})
        await long.subscribe("forest")
        with pytest.raises(gamecast.UsageError, match="subscribed to already"):
            await long.subscribe("forest", presence="watch")
        with pytest.raises(gamecast.UsageError, match="not known"):
            long.present("forest")


@SOME_KINDS
@pytest.mark.usefixtures("impatience")
async def test_after_its_leave_none_publishes_whose_events_had_a_newer_incarnation_before(kind: str) -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start(kind, stack)
        watcher, ana = await network.connect("watcher"), await network.connect("ana")
        await watcher.subscribe("forest", presence="watch")
        await ana.publish("river", "before")
        assert ana._session is not None
        ana._session.renew(["river"], await ana._network.renew(ana._session.forgotten))
        await ana.subscribe("forest", presence={})
        await until(watcher, "forest", {"ana": {}})
        stand_still(ana)
        await until(watcher, "forest", {})
        with pytest.raises(gamecast.Superseded):
            await ana.publish("forest", "after the leave")


@SOME_KINDS
@pytest.mark.usefixtures("impatience")
async def test_after_its_leave_is_over_and_forgotten_none_renews_itself(kind: str) -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start(kind, stack)
        watcher, ana = await network.connect("watcher"), await network.connect("ana")
        await watcher.subscribe("forest", presence="watch")
        await ana.subscribe("forest", presence={})
        await until(watcher, "forest", {"ana": {}})
        stand_still(ana)
        await until(watcher, "forest", {})
        await asyncio.sleep(0.5)  # and it is out of the register
        assert ana._outgoing is not None
        with pytest.raises(gamecast.SessionExpired):
            await ana._outgoing._renewed()
        assert ana._presences is not None
        with pytest.raises(gamecast.SessionExpired):
            await ana._presences.arrive(["forest"], {})


@pytest.mark.usefixtures("impatience")
async def test_a_leave_comes_where_the_keys_of_a_region_were_lost() -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start("redis", stack)
        watcher, ana, bo = [await network.connect(name) for name in ("watcher", "ana", "bo")]
        await watcher.subscribe("forest", presence="watch")
        await ana.subscribe("forest", presence={})
        await bo.subscribe("forest", presence={})
        await until(watcher, "forest", {"ana": {}, "bo": {}})
        redis = Redis.from_url(network.url)
        try:
            keys = [key async for key in redis.scan_iter("*")]
            [keyed] = [key for key in keys if key.endswith(b"}:keyed")]
            await redis.delete(*(key for key in keys if key.endswith((b":heads:forest", b":values:forest"))))
            row = await redis.hget(keyed, "forest")
            epoch = (row.decode() if isinstance(row, bytes) else str(row)).split()[-1]
            await redis.hset(keyed, "forest", f"{epoch} {epoch}")
            stand_still(ana)
            await until(watcher, "forest", {"bo": {}})
            with pytest.raises(gamecast.Superseded):
                await ana.publish("forest", "after the leave")
            await bo.unsubscribe("forest")
            await until(watcher, "forest", {})
        finally:
            await redis.aclose()


@pytest.mark.usefixtures("impatience")
async def test_a_node_that_does_not_answer_holds_up_neither_leaves_nor_heartbeats_elsewhere() -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start("redis-3", stack)
        players = {f"r{number}": await network.connect(f"player-{number}") for number in range(6)}
        for region, player in players.items():
            await player.subscribe(region, presence={})
        plan = await players["r0"].plan()
        assert plan is not None
        at = {region: plan.paths[region][0] for region in players}
        away = next(region for region in players if plan.nodes[at[region]] != network.url)
        here = [region for region in players if at[region] != at[away]]
        far, near = await network.connect("far"), await network.connect("near")
        await far.subscribe(away, presence={})
        await near.subscribe(here[0], presence={})
        await until(players[here[0]], here[0], {players[here[0]].name: {}, "near": {}})
        server = Redis.from_url(plan.nodes[at[away]])
        process = (await server.info("server"))["process_id"]
        await server.aclose()
        stand_still(far)
        await asyncio.sleep(0.3)
        stand_still(near)
        os.kill(process, signal.SIGSTOP)
        try:
            async with asyncio.timeout(3 * PRESENT_MS / 1000):
                await until(players[here[0]], here[0], {players[here[0]].name: {}})
            await asyncio.sleep(6 * PRESENT_MS / 1000)
            for region in here:
                await players[region].fetch()
                assert players[region].name in players[region].present(region)
                await players[region].ping()
        finally:
            os.kill(process, signal.SIGCONT)


@pytest.mark.parametrize("kind", ["memory", "redis"])
@pytest.mark.usefixtures("impatience")
async def test_after_the_register_was_away_who_lives_has_not_left(kind: str) -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start(kind, stack)
        one, other = [(await network.connect(name))._network.presence() for name in ("one", "other")]
        for register in (one, other):
            assert await register.be({"forest": ""}, 2, is_known=False)
        assert await one.due() == []
        await asyncio.sleep(2 * PRESENT_MS / 1000)
        assert await one.due() == [], "it is the first that looks"
        assert await other.beat()
        async with patience(10):
            while not (found := await one.due()):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert [absent.name for absent in found] == ["one"]
        assert await one.due() == [], "somebody looks after it"
        assert not await one.beat()


async def test_where_the_network_begins_anew_that_is_said_and_not_that_one_has_left() -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start("redis", stack)
        players = [await network.connect(name) for name in ("ana", "bo", "cy", "dan")]
        for player in players:
            await player.subscribe("forest", presence={})
        redis = Redis.from_url(network.url)
        await redis.flushall()
        await redis.aclose()
        for player in players:
            async with patience(20):
                with pytest.raises(gamecast.NetworkRestarted):
                    await run_to_its_end(player)
            await player.reconnect()
            await player.subscribe("forest", presence={"again": True})
        await until(players[0], "forest", {player.name: {"again": True} for player in players})

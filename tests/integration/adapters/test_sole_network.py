"""A network of one node, whose plan lists no region: joins without a leader, and what makes it a network of several."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import redis

import gamecast
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from adapters.redis.control import SOLE_NODE
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.network import RedisNetwork
from adapters.redis.relays import RedisRelays
from adapters.redis.survey import survey
from gamecast import Client, Event
from sequencing.errors import Superseded
from sequencing.keyspace import NodeKeys
from sequencing.record import Request
from tests.events import next_event, take
from tests.patience import patience, until

ANOTHER = "a leader that does nothing"


@asynccontextmanager
async def control_of(url: str) -> AsyncIterator[LeaderControl]:
    control = LeaderControl(url)
    try:
        yield control
    finally:
        await control.close()


def inversions(orders: Sequence[Sequence[tuple[str, int, int]]]) -> int:
    """Return how often one of two subscribers has two neighbouring events of the other in the opposite order."""
    found = 0
    for one, other in itertools.combinations(orders, 2):
        place = {event: number for number, event in enumerate(other)}
        common = [place[event] for event in one if event in place]
        found += sum(before > after for before, after in itertools.pairwise(common))
    return found


async def test_joins_and_new_regions_take_no_leader(redis_server: EmbeddedServer) -> None:
    async with (
        gamecast.connect(redis_server.url, name="one") as one,
        gamecast.connect(redis_server.url, name="other") as other,
    ):
        await one.subscribe("a")
        with redis.Redis.from_url(redis_server.url) as client:
            client.set(ControlKeys.lease, ANOTHER)
            await one.subscribe("b", "c")
            await other.publish("new", 1)
            await other.subscribe("c", "new", since=0)
            await one.publish("c", 2)
            assert [event.payload for event in await take(other, 2)] == [1, 2]
            await one.unsubscribe("a", "b")
            await until(lambda: client.hkeys(ControlKeys.rows("one")) == [b"c"])
            client.delete(ControlKeys.lease)


async def test_names_that_come_and_go_leave_nothing_in_the_control_redis(redis_server: EmbeddedServer) -> None:
    async with gamecast.share(redis_server.url) as process:

        async def come_and_go(number: int) -> None:
            async with process.connect(name=f"guest {number}") as guest:
                await guest.subscribe("a", f"own {number % 7}")

        sizes: list[int] = []
        with redis.Redis.from_url(redis_server.url) as client:
            for round_ in range(4):
                await asyncio.gather(*(come_and_go(100 * round_ + number) for number in range(100)))
                sizes.append(sum(client.memory_usage(key) or 0 for key in client.scan_iter("gamecast:{control}:*")))
                assert not [*client.scan_iter(ControlKeys.rows("*"))]
        assert sizes[3] <= 1.05 * sizes[1], sizes


async def test_what_a_join_costs_does_not_grow_with_the_connections(redis_server: EmbeddedServer) -> None:
    def spent(client: redis.Redis) -> tuple[int, int, int]:
        info = client.info("stats")
        return info["total_net_input_bytes"], info["total_net_output_bytes"], info["total_commands_processed"]

    costs: list[list[float]] = []
    async with gamecast.share(redis_server.url) as process, AsyncExitStack() as stack:
        casts: list[Client] = []
        with redis.Redis.from_url(redis_server.url) as client:
            for connections in (10, 200):
                for number in range(len(casts), connections):
                    casts.append(await stack.enter_async_context(process.connect(name=f"s{number}")))
                    await casts[-1].subscribe(*(f"r{number} {region}" for region in range(10)))
                before = spent(client)
                for number in range(100):
                    await casts[number % 10].subscribe(f"{connections} {number}")
                costs.append([(now - then) / 100 for now, then in zip(spent(client), before, strict=True)])
    few, many = costs
    # Heartbeats of the process are in it; each names all of its connections.
    assert many[0] < 1.5 * few[0] + 100, costs
    assert many[1] < 1.3 * few[1] + 20, costs
    assert many[2] < 1.3 * few[2] + 4, costs


async def test_a_request_that_was_held_up_changes_nothing(redis_server: EmbeddedServer) -> None:
    network = RedisNetwork(redis_server.url, ordering="acyclic", retention_events=100)
    async with control_of(redis_server.url) as control:
        incarnation = await control.introduce("one")
        network.stand(LeaderControl(redis_server.url))
        async with patience(10):
            while await control.join([("one", Request(incarnation, 3, {"a": 3}, whole=True))]) != [True]:  # noqa: ASYNC110 - it begins by itself
                await asyncio.sleep(0.01)
        assert await control.join([("one", Request(incarnation, 2, {"a": 0, "b": 2}))]) == [True]
        assert (await control.interests())["one"].since.keys() == {"a"}
        assert await control.join([("one", Request(incarnation, 4, {"c": 4}, whole=True))]) == [True]
        assert (await control.interests())["one"].since.keys() == {"c"}
        many = {f"r{number}": 5 for number in range(9_000)}
        newer = await control.introduce("one")
        answers = await control.join(
            [("one", Request(newer, 5, many, whole=True)), ("one", Request(incarnation, 6, {"d": 6}))]
        )
        assert answers[0] is True
        assert isinstance(answers[1], Superseded)
        assert (await control.interests())["one"].since.keys() == many.keys()
        leaves = await control.join([("one", Request(newer, 6, dict.fromkeys(many, 0) | {"e": 6}))])
        assert leaves == [True]
        assert (await control.interests())["one"].since.keys() == {"e"}
    await network.close()


async def test_nodes_that_are_registered_under_traffic_change_no_order(three_redis_servers: EmbeddedServers) -> None:
    url, *others = three_redis_servers.urls
    relays = RedisRelays(url)
    relays.start()
    names = [f"s{number}" for number in range(4)]
    seen: dict[str, list[tuple[str, int, int]]] = {name: [] for name in names}
    sent: dict[str, list[int]] = {}
    stop = asyncio.Event()

    async def read(cast: Client) -> None:
        async for event in cast:
            assert isinstance(event, Event), event
            seen[cast.name].append((event.region, event.epoch, event.sequence))

    async def publish(cast: Client, late: Sequence[str]) -> None:
        for number in itertools.count():
            regions = ["a", "b", f"own {cast.name}", *(late if is_late else ())]
            region = regions[number % len(regions)]
            sent.setdefault(region, []).append((await cast.publish(region, number)).sequence)
            if stop.is_set():
                return

    is_late = False
    async with AsyncExitStack() as stack, patience(60):
        casts = [await stack.enter_async_context(gamecast.connect(url, name=name)) for name in names]
        for cast in casts:
            await cast.subscribe("a", "b", f"own {cast.name}")
        async with asyncio.TaskGroup() as group:
            reading = [group.create_task(read(cast)) for cast in casts]
            publishing = [group.create_task(publish(cast, ["c", f"late {cast.name}"])) for cast in casts]
            await asyncio.sleep(0.3)
            plan = await casts[0].plan()
            assert plan is not None
            assert plan.nodes.keys() == {SOLE_NODE}
            async with control_of(url) as control:
                for number, other in enumerate(others):
                    await control.register_node(f"n{number}", other)
            is_late = True
            for cast in casts:
                await cast.subscribe("c", "d")
            await asyncio.sleep(0.3)
            stop.set()
            await asyncio.gather(*publishing)
            await casts[0].publish("lonely", 1)
            for cast in casts:
                await cast.drain()
            await asyncio.gather(*reading)
        plan = await casts[0].plan()
        assert plan is not None
        assert plan.nodes.keys() == {SOLE_NODE, "n0", "n1"}
        assert plan.paths["lonely"][0] in {"n0", "n1"}
    await relays.stop()
    assert inversions(list(seen.values())) == 0
    for name in names:
        for region in ("a", "b", f"own {name}"):
            got = [sequence for where, _, sequence in seen[name] if where == region]
            assert len(got) == len(sent[region]), region


async def test_what_a_leader_began_that_ended_before_it_had_planned_the_next_one_ends(
    redis_server: EmbeddedServer,
) -> None:
    async with gamecast.connect(redis_server.url, name="one") as one, control_of(redis_server.url) as control:
        await one.subscribe("a")
        await one.publish("b", 0)
        with redis.Redis.from_url(redis_server.url) as client:
            client.set(ControlKeys.lease, ANOTHER)
            assert await control.look(ANOTHER, 60_000) is not None
            assert await control.begin_to_plan(ANOTHER) is not None
            asking = asyncio.create_task(one.subscribe("c"))
            publishing = asyncio.create_task(one.publish("new", 1))
            await asyncio.sleep(0.2)
            assert not asking.done()
            client.hdel(NodeKeys(SOLE_NODE).node, "any")
            client.delete(ControlKeys.lease)
            async with patience(20):
                await asking
                await publishing
        await one.publish("c", 2)
        assert (await next_event(one)).payload == 2
        assert [connection.wanted for connection in (await survey(redis_server.url)).connections] == [{"a", "c"}]
        plan = await one.plan()
        assert plan is not None
        assert plan.paths.keys() == {"a", "b", "c", "new"}


@pytest.mark.parametrize("shared", [False, True])
async def test_whoever_comes_under_a_name_supersedes_who_has_it_at_once(
    redis_server: EmbeddedServer, shared: bool
) -> None:
    async with gamecast.share(redis_server.url) as process, AsyncExitStack() as stack:
        connecting = process.connect(name="one") if shared else gamecast.connect(redis_server.url, name="one")
        old = await stack.enter_async_context(connecting)
        await old.subscribe("a")
        async with gamecast.connect(redis_server.url, name="one"):
            with pytest.raises(gamecast.Superseded):
                async with patience(1.5):  # a heartbeat comes every 3.3 s
                    await next_event(old)


async def test_a_survey_lists_what_plans_do_not(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="one") as one:
        await one.subscribe("a", "b")
        await one.publish("c", 1)
        state = await survey(redis_server.url, regions=True)
        assert state.plan is not None
        assert state.plan.paths == dict.fromkeys("abc", (SOLE_NODE,))
        assert {region.name: region.frames for region in state.regions} == {"a": 0, "b": 0, "c": 1}
        [connection] = state.connections
        assert connection.wanted == {"a", "b"}
        assert not connection.waiting

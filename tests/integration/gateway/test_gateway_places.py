"""Clients that drop and come back soon: their place in the network is kept, and they are sent what they missed."""

from __future__ import annotations

import asyncio
import gc
import random
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

import gamecast
from adapters.embedded.server import EmbeddedServer
from adapters.redis.survey import survey
from gamecast.client.regionhistory import Page
from gateway.eventtexts import Told
from gateway.messages import Publish
from gateway.parked import KeptPlaces, ParkedSession
from gateway.refusal import Code, Refusal
from gateway.retries import Retries
from gateway.settings import GatewayLimits
from sequencing.plan import Plan
from tests.integration.gateway.test_gateway_resuming import Wanderer
from tests.integration.gateway_clients import Running, Socket, running_gateway
from tests.patience import patience, scaled


async def until_kept(running: Running, number: int = 1) -> None:
    async with patience(10):
        while True:
            if kept(running) == number:
                return
            await asyncio.sleep(0.005)


def kept(running: Running) -> int:
    return round(metric(running, "gamecast_gateway_kept_sessions"))


def metric(running: Running, name: str) -> float:
    value = running.gateway.metrics.registry.get_sample_value(name)
    assert value is not None, f"there is no metric {name}"
    return value


def version(plan: Plan | None) -> tuple[int, int]:
    assert plan is not None
    return plan.epoch, plan.version


def resumed(running: Running) -> int:
    return round(metric(running, "gamecast_gateway_resumed_sessions_total"))


async def test_who_comes_back_soon_is_sent_exactly_what_it_missed_and_the_network_does_not_notice(
    redis_server: EmbeddedServer,
) -> None:
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_gateway(redis_server.url))
        server = await stack.enter_async_context(gamecast.connect(redis_server.url, name="server"))
        watcher = await stack.enter_async_context(Socket.open(running.url, name="watcher"))
        await watcher.subscribe("forest", "river")
        bot = await stack.enter_async_context(Socket.open(running.url, name="bot"))
        await bot.subscribe("forest", "river")
        for number in range(10):
            await server.publish(("forest", "river")[number % 2], number)
        had = list(await bot.take(10))
        before = version(await server.plan())
        # What is on its way when the socket breaks, and what comes while nobody is there.
        for number in range(10, 20):
            await server.publish(("forest", "river")[number % 2], number)
        await watcher.take(20)
        bot.drop()
        await until_kept(running)
        for number in range(20, 30):
            await server.publish(("forest", "river")[number % 2], number)
        back = await stack.enter_async_context(Socket.open(running.url, name="bot"))
        reply = await back.subscribe("forest", "river", since=bot.positions)
        assert reply["regions"] == bot.positions
        for number in range(30, 40):
            await server.publish(("forest", "river")[number % 2], number)
        expected = await watcher.take(40)
        assert had + await back.take(30) == expected
        assert resumed(running) == 1
        assert kept(running) == 0
        assert version(await server.plan()) == before
        assert await running.is_noted("session-resumed", name="~bot")


async def test_who_has_had_less_than_can_be_sent_again_is_replayed(redis_server: EmbeddedServer) -> None:
    async with (
        running_gateway(redis_server.url, resent_events_max=4) as running,
        gamecast.connect(redis_server.url, name="server") as server,
        Socket.open(running.url, name="bot") as bot,
    ):
        begin = (await bot.subscribe("forest"))["regions"]
        for number in range(10):
            await server.publish("forest", number)
        await bot.take(10)
        bot.drop()
        await until_kept(running)
        async with Socket.open(running.url, name="bot") as back:
            await back.subscribe("forest", since=begin)
            assert [event["payload"] for event in await back.take(10)] == list(range(10))
        assert resumed(running) == 0


async def test_who_comes_back_late_is_replayed_and_nothing_is_kept_for_it(redis_server: EmbeddedServer) -> None:
    async with (
        running_gateway(redis_server.url, keep_s=0.2) as running,
        gamecast.connect(redis_server.url, name="server") as server,
        Socket.open(running.url, name="bot") as bot,
    ):
        begin = (await bot.subscribe("forest"))["regions"]
        bot.drop()
        await until_kept(running)
        await until_kept(running, 0)
        await server.publish("forest", "while away")
        async with Socket.open(running.url, name="bot") as back:
            await back.subscribe("forest", since=begin)
            assert [event["payload"] for event in await back.take(1)] == ["while away"]
        assert resumed(running) == 0


async def test_who_was_at_another_gateway_meanwhile_is_not_taken_for_superseded(redis_server: EmbeddedServer) -> None:
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(running_gateway(redis_server.url))
        elsewhere = await stack.enter_async_context(running_gateway(redis_server.url))
        server = await stack.enter_async_context(gamecast.connect(redis_server.url, name="server"))
        positions: dict[str, str] | None = None
        for running in (here, elsewhere, here, elsewhere):
            bot = await stack.enter_async_context(Socket.open(running.url, name="bot"))
            positions = (await bot.subscribe("forest", since=positions))["regions"]
            bot.drop()
            await until_kept(running)
        bot = await stack.enter_async_context(Socket.open(here.url, name="bot"))
        await bot.subscribe("forest", since=positions)
        await server.publish("forest", "for all of them")
        assert [event["payload"] for event in await bot.take(1)] == ["for all of them"]
        assert resumed(here) == resumed(elsewhere) == 0


async def test_who_comes_back_before_its_drop_is_noticed_takes_the_place_over(redis_server: EmbeddedServer) -> None:
    async with (
        running_gateway(redis_server.url) as running,
        gamecast.connect(redis_server.url, name="server") as server,
        Socket.open(running.url, name="bot") as bot,
    ):
        await bot.subscribe("forest")
        await server.publish("forest", 1)
        await bot.take(1)
        async with Socket.open(running.url, name="bot") as back:
            await back.subscribe("forest", since=bot.positions)
            assert (await bot.closed())[0] == 4009
            await server.publish("forest", 2)
            assert [event["payload"] for event in await back.take(1)] == [2]
        assert resumed(running) == 1


async def test_what_was_published_and_not_answered_is_told_from_what_was_not(redis_server: EmbeddedServer) -> None:
    async with (
        running_gateway(redis_server.url) as running,
        Socket.open(running.url, name="watcher") as watcher,
        Socket.open(running.url, name="bot") as bot,
    ):
        await watcher.subscribe("forest")
        after = (await bot.subscribe("forest"))["regions"]["forest"]
        for number in range(20):
            await bot.say(type="publish", id=number, region="forest", payload=number)
        await watcher.take(20)
        bot.drop()  # its acks are on the way to it, or not yet said
        async with Socket.open(running.url, name="bot") as back:
            await back.subscribe("forest", since={"forest": after})
            acks = [
                await back.publish("forest", number, id=number, retry=True, after=after) for number in range(10, 30)
            ]
        assert [ack.get("repeated", False) for ack in acks] == [True] * 10 + [False] * 10
        assert [event["payload"] for event in await watcher.take(30)] == list(range(30))
        assert resumed(running) == 1


async def test_a_retry_that_is_refused_does_not_cost_the_place(redis_server: EmbeddedServer) -> None:
    async with running_gateway(redis_server.url) as running, Socket.open(running.url, name="bot") as bot:
        after = (await bot.subscribe("forest"))["regions"]["forest"]
        await bot.publish("forest", "new", id=1)
        assert (await bot.publish("forest", "old", id=2, retry=True, after=after))["code"] == "order"
        await bot.take(1)
        bot.drop()
        await until_kept(running)
        async with Socket.open(running.url, name="bot") as back:
            await back.subscribe("forest", since=bot.positions)
        assert resumed(running) == 1


async def test_a_place_is_given_up_for_who_says_goodbye_and_for_who_begins_anew(redis_server: EmbeddedServer) -> None:
    async with running_gateway(redis_server.url) as running, gamecast.connect(redis_server.url, name="s") as server:
        async with Socket.open(running.url, name="bot") as bot:
            await bot.subscribe("forest")
        await running.is_noted("session-closed", name="~bot")
        assert kept(running) == 0
        async with Socket.open(running.url, name="bot") as bot:
            await bot.subscribe("forest")
            bot.drop()
            await until_kept(running)
            async with Socket.open(running.url, name="bot") as anew:
                await anew.publish("forest", "before any subscription")
                await anew.subscribe("forest")
                await server.publish("forest", "after it")
                assert [event["payload"] for event in await anew.take(1)] == ["after it"]
        assert resumed(running) == 0
        assert kept(running) == 0


async def test_who_drops_again_before_it_said_anything_finds_its_place_still(redis_server: EmbeddedServer) -> None:
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_gateway(redis_server.url))
        bot = await stack.enter_async_context(Socket.open(running.url, name="bot"))
        positions = (await bot.subscribe("forest"))["regions"]
        bot.drop()
        await until_kept(running)
        silent = await stack.enter_async_context(Socket.open(running.url, name="bot"))
        assert kept(running) == 0
        silent.drop()
        await until_kept(running)
        back = await stack.enter_async_context(Socket.open(running.url, name="bot"))
        await back.subscribe("forest", since=positions)
        assert resumed(running) == 1


async def test_of_many_who_drop_at_any_moment_nothing_stays_but_their_places(redis_server: EmbeddedServer) -> None:
    async with running_gateway(redis_server.url) as running:

        async def wander(name: str, chance: random.Random) -> None:
            wanderer = Wanderer(name)
            for _ in range(20):
                gone = asyncio.Event()
                staying = asyncio.create_task(wanderer.stay(running.url, gone))
                await asyncio.sleep(scaled(chance.random() * 0.15))
                gone.set()
                await staying

        await asyncio.gather(*(wander(f"bot-{number}", random.Random(number)) for number in range(10)))
        await asyncio.sleep(0)
        async with patience(10):
            await running.gateway.everybody_left()
            await running.gateway.connections.finish()
        gc.collect()
        open_casts = [each for each in gc.get_objects() if type(each) is gamecast.Client and each._closing is None]
        assert len(open_casts) == kept(running) <= 10
        assert resumed(running) > 20


async def test_a_gateway_that_ends_keeps_nothing(redis_server: EmbeddedServer) -> None:
    async with AsyncExitStack() as stack:
        async with running_gateway(redis_server.url) as running:
            bot = await stack.enter_async_context(Socket.open(running.url, name="bot"))
            await bot.subscribe("forest")
            bot.drop()
            await until_kept(running)
            assert await connections(redis_server.url) == {"~bot"}
        assert await connections(redis_server.url) == set()


async def connections(url: str) -> set[str]:
    return {each.name for each in (await survey(url)).connections if each.alive}


async def test_those_kept_longest_go_first_and_each_subject_has_its_share() -> None:
    released = list[Any]()
    limits = GatewayLimits(kept_sessions_max=4, sessions_per_token_max=2)
    places = KeptPlaces(limits, released.append)
    connections: dict[str, Any] = {name: object() for name in ("a1", "a2", "b1", "a3", "b2", "c1", "d1")}
    kept = {name: ParkedSession(each, subject=name[0], resent_events_max=1) for name, each in connections.items()}
    for name, each in kept.items():
        places.put(name, each)
    assert released == [connections["a1"], connections["a2"], connections["b1"]]
    assert places.take("b2", "a") is None, "another's place was taken"
    assert places.take("b2", "b") is kept["b2"]
    assert places.take("b2", "b") is None
    places.clear()
    assert len(places) == 0
    assert released[3:] == [connections["a3"], connections["c1"], connections["d1"]]


async def test_who_takes_a_name_s_place_again_releases_what_was_kept_for_it() -> None:
    released = list[Any]()
    places = KeptPlaces(GatewayLimits(), released.append)
    connections: list[Any] = [object(), object()]
    for connection in connections:
        places.put("bot", ParkedSession(connection, subject="bot", resent_events_max=1))
    assert released == connections[:1]
    places.clear()


class Publishing:
    """Stands for a connection whose answers come when the test says so."""

    def __init__(self) -> None:
        self.receipts: list[asyncio.Future[Any]] = []

    def publish_async(self, region: str, payload: Any) -> asyncio.Future[Any]:
        self.receipts.append(asyncio.get_running_loop().create_future())
        return self.receipts[-1]


async def test_a_retry_waits_until_what_was_published_before_is_settled_and_has_come_back() -> None:
    connection: Any = Publishing()
    place = ParkedSession(connection, subject="bot", resent_events_max=1)
    place.sent.joined({"forest": (1, 0)})
    for number in range(3):
        place.publish("forest", number)
    waiting = asyncio.create_task(place.until_arrived("forest"))
    for number in (0, 2, 1):
        assert not await done_soon(waiting)
        connection.receipts[number].set_result(gamecast.Receipt("forest", 1, number + 1))
    for number in range(3):
        assert not await done_soon(waiting)
        place.tell(Told("forest", (1, number + 1), b""))
    assert await done_soon(waiting)
    assert not place.is_uncertain


@pytest.mark.parametrize("is_late", [False, True])
async def test_what_may_be_under_way_still_was_not_published_for_all_that_is_known(is_late: bool) -> None:
    class NetworkAccess:
        async def history(self, region: str, *, after: str, events_max: int) -> Page:
            return Page([], after, False, is_late=is_late)

    access, connection = cast(Any, NetworkAccess()), cast(Any, Publishing())
    retries, place = (
        Retries(access, "bot", page_events=10),
        ParkedSession(connection, subject="bot", resent_events_max=1),
    )
    asked = retries.position(Publish(1, "forest", 1, 1, True, "1-1"), b"1", place, follows=True)
    if not is_late:
        assert await asked is None
        return
    with pytest.raises(Refusal, match="not known yet") as raised:
        await asked
    assert (raised.value.code, raised.value.definite) == (Code.UNCERTAIN, False)


async def test_a_lost_answer_makes_a_place_uncertain_and_a_refusal_does_not() -> None:
    connection: Any = Publishing()
    place = ParkedSession(connection, subject="bot", resent_events_max=1)
    for error, is_uncertain in ((gamecast.Refused("no"), False), (gamecast.PublishUncertain("lost"), True)):
        place.publish("forest", 1)
        connection.receipts[-1].set_exception(error)
        await place.until_arrived("forest")
        assert place.is_uncertain == is_uncertain


async def done_soon(task: asyncio.Task[Any]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()

"""The gateway's sessions over real Redis: order, resumption, back-pressure."""

from __future__ import annotations

import asyncio
import gc
from weakref import ref

import aiohttp
import pytest

from adapters.embedded.server import EmbeddedServer
from tests.integration.gateway_clients import Socket, running_gateway
from tests.patience import patience


async def test_what_one_session_publishes_comes_to_the_others_in_order_with_acks(redis_server: EmbeddedServer) -> None:
    async with (
        running_gateway(redis_server.url) as running,
        Socket.open(running.url, name="bot-1") as one,
        Socket.open(running.url, name="bot-2") as other,
    ):
        await one.subscribe("forest", "river")
        await other.subscribe("forest", "river")
        for number in range(20):
            await one.say(type="publish", id=number, region=("forest", "river")[number % 2], payload=number)
        acks = [await one.reply(number) for number in range(20)]
        assert all(ack["type"] == "ack" and ack["position"] for ack in acks)
        events = await other.take(20)
        assert [event["payload"] for event in events if event["region"] == "forest"] == list(range(0, 20, 2))
        assert await one.take(20) == events
        assert {event["sender"] for event in events} == {"~bot-1"}
        assert {ack["position"] for ack in acks[::2]} == {e["position"] for e in events if e["region"] == "forest"}


async def test_the_gateway_tells_whether_it_is_alive_and_ready(redis_server: EmbeddedServer) -> None:
    async with running_gateway(redis_server.url) as running, aiohttp.ClientSession() as client:
        async with client.get(running.url + "/healthz") as response:
            assert (response.status, (await response.json())["status"]) == (200, "alive")
        async with client.get(running.url + "/readyz") as response:
            assert (response.status, (await response.json())["status"]) == (200, "ready")
        await asyncio.to_thread(redis_server.kill)
        async with client.get(running.url + "/readyz") as response:
            assert (response.status, (await response.json())["status"]) == (503, "unreachable")


def stalled(socket: Socket) -> asyncio.Transport:
    """Let a session take nothing from its socket any more; the transport's ``resume_reading`` ends that."""
    socket.transport.pause_reading()
    return socket.transport


FLOOD = 600
TEXT = "x" * 30_000


async def flood(talks: Socket, quick: Socket) -> None:
    """Publish more than sockets and buffers hold; somebody who keeps up gets it at once."""
    taking = asyncio.create_task(quick.take(FLOOD, 60))
    for number in range(FLOOD):
        assert (await talks.publish("flood", [number, TEXT], id=number))["type"] == "ack"
    await taking


def numbers(socket: Socket) -> list[int]:
    return [event["payload"][0] for event in socket.events if "payload" in event]


async def test_a_slow_session_that_is_waited_for_gets_everything_later_and_holds_nobody_up(
    redis_server: EmbeddedServer,
) -> None:
    async with (
        running_gateway(redis_server.url, inbox_events_max=50, outbox_events_max=20) as running,
        Socket.open(running.url, name="slow") as slow,
        Socket.open(running.url, name="quick") as quick,
        Socket.open(running.url, name="talks") as talks,
    ):
        for socket in (slow, quick):
            await socket.subscribe("flood")
        transport = stalled(slow)
        await flood(talks, quick)
        kept = max(each.inbox_events for each in running.gateway.connections.statistics())
        assert 0 < kept < 200, "more is kept for it than was said"
        transport.resume_reading()
        await slow.take(FLOOD)
        assert numbers(slow) == list(range(FLOOD))


async def test_a_slow_session_that_is_skipped_gets_a_gap_in_the_place_of_what_is_missing(
    redis_server: EmbeddedServer,
) -> None:
    async with (
        running_gateway(redis_server.url, when_behind="skip", inbox_events_max=50, outbox_events_max=20) as running,
        Socket.open(running.url, name="slow") as slow,
        Socket.open(running.url, name="quick") as quick,
        Socket.open(running.url, name="talks") as talks,
    ):
        for socket in (slow, quick):
            await socket.subscribe("flood")
        transport = stalled(slow)
        await flood(talks, quick)
        transport.resume_reading()
        await talks.publish("flood", ["last", ""], id=FLOOD)
        async with patience(20):
            while not slow.events or slow.events[-1].get("payload") != ["last", ""]:
                await slow.take(len(slow.events) + 1)
        got, places = numbers(slow)[:-1], [event["position"] for event in slow.events]
        assert got == sorted(set(got))
        assert len(got) < FLOOD
        gaps = [event for event in slow.events if "gap" in event]
        assert gaps
        assert all("too far behind" in event["gap"]["reason"] for event in gaps)
        assert places == sorted(places, key=lambda place: tuple(map(int, place.split("-"))))
        for before, gap, after in zip(slow.events, slow.events[1:], slow.events[2:], strict=False):
            if "gap" in gap and "payload" in before and "payload" in after:
                missing = int(gap["gap"]["last"].split("-")[1]) - int(gap["gap"]["first"].split("-")[1]) + 1
                assert after["payload"][0] in ("last", before["payload"][0] + missing + 1)


async def test_a_slow_session_is_closed_where_that_is_asked_for_and_resumes_without_a_loss(
    redis_server: EmbeddedServer,
) -> None:
    async with (
        running_gateway(
            redis_server.url, when_behind="disconnect", inbox_events_max=50, outbox_events_max=20
        ) as running,
        Socket.open(running.url, name="quick") as quick,
        Socket.open(running.url, name="talks") as talks,
    ):
        await quick.subscribe("flood")
        async with Socket.open(running.url, name="slow") as slow:
            await slow.subscribe("flood")
            transport = stalled(slow)
            await flood(talks, quick)
            transport.resume_reading()
            assert await slow.closed() == (4008, "events were read too slowly")
            seen = numbers(slow)
            assert seen == list(range(len(seen)))
            assert len(seen) < FLOOD
        async with Socket.open(running.url, name="slow") as again:
            await again.subscribe("flood", since=slow.positions)
            await again.take(FLOOD - len(seen))
            assert seen + numbers(again) == list(range(FLOOD))


async def test_a_newer_session_of_a_name_takes_it_over(redis_server: EmbeddedServer) -> None:
    async with running_gateway(redis_server.url) as running, Socket.open(running.url, name="bot") as old:
        await old.subscribe("forest")
        async with Socket.open(running.url, name="bot") as new:
            await new.subscribe("forest")
            assert (await old.closed()) == (4009, "another session took over this name")


async def test_leaving_a_region_ends_its_events_and_joining_it_again_brings_new_ones(
    redis_server: EmbeddedServer,
) -> None:
    async with running_gateway(redis_server.url) as running, Socket.open(running.url) as socket:
        await socket.subscribe("forest", "river")
        await socket.publish("forest", 1, id=1)
        await socket.take(1)
        await socket.say(type="unsubscribe", id="u", regions=["forest"])
        await socket.hear("unsubscribed")
        await socket.publish("forest", 2, id=2)
        await socket.publish("river", 3, id=3)
        assert [event["payload"] for event in await socket.take(2)] == [1, 3]
        await socket.subscribe("forest")
        await socket.publish("forest", 4, id=4)
        assert [event["payload"] for event in await socket.take(3)] == [1, 3, 4]


async def test_several_messages_come_as_one_array_and_history_before_what_is_live(
    redis_server: EmbeddedServer,
) -> None:
    async with running_gateway(redis_server.url) as running, Socket.open(running.url) as socket:
        publishes = [{"type": "publish", "id": n, "region": "forest", "payload": n} for n in range(5)]
        await socket.socket.send_json(publishes)
        for number in range(5):
            assert (await socket.reply(number))["type"] == "ack"
        assert (await socket.subscribe("forest", since=0))["regions"] == {"forest": "0-0"}
        assert [event["payload"] for event in await socket.take(5)] == list(range(5))
        await socket.say(type="subscribe", id="twice", regions=["forest"], since=0)
        assert "subscribed to already" in (await socket.hear("error"))["message"]


async def test_a_retry_after_something_new_in_its_region_is_refused(redis_server: EmbeddedServer) -> None:
    async with running_gateway(redis_server.url) as running, Socket.open(running.url) as socket:
        await socket.subscribe("forest")
        await socket.publish("forest", 1, id=1)
        error = await socket.publish("forest", 2, id=2, retry=True, after="0-0")
        assert (error["code"], error["definite"]) == ("order", False), "it was not looked for"


@pytest.mark.parametrize("how", ["says goodbye", "drops", "is refused"])
async def test_a_session_that_has_ended_is_freed_without_a_search_for_garbage(
    redis_server: EmbeddedServer, how: str
) -> None:
    freed = asyncio.Event()
    gc.collect()
    gc.disable()
    try:
        async with running_gateway(redis_server.url) as running:
            async with Socket.open(running.url) as socket:
                await socket.subscribe("forest")
                await socket.publish("forest", 1)
                watched = [ref(session, lambda _: freed.set()) for session in running.gateway.sessions]
                assert len(watched) == 1
                if how == "drops":
                    stalled(socket).abort()
                elif how == "is refused":
                    await socket.socket.send_str("{")
                    await socket.closed()
            await running.is_noted("session-closed")
            async with patience(10):
                await freed.wait()
    finally:
        gc.enable()

"""A connection whose transport is taken over from redis-py: replies in order, and its end is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import hiredis
import pytest
import redis
from redis import exceptions

import gamecast
from adapters.embedded.server import EmbeddedServer
from adapters.redis.connection import RedisConnection
from adapters.redis.listening import LONE_READS
from adapters.redis.places import connection_to
from adapters.redis.pushes import COME_BYTES_MAX, MESSAGES_MAX, Pushes
from adapters.redis.wire import Wire
from sequencing.errors import NetworkError, Unreachable, UnsupportedServer
from tests.patience import patience


@pytest.fixture
async def wire(redis_server: EmbeddedServer) -> AsyncIterator[Wire]:
    connection = connection_to(redis_server.url)
    await connection.connect()
    wire = Wire(connection)
    yield wire
    await connection.disconnect(nowait=True)


def packed(*commands: tuple[Any, ...]) -> list[bytes]:
    return [hiredis.pack_command(command) for command in commands]


async def test_replies_come_in_order_and_errors_are_among_them(wire: Wire) -> None:
    asked = [wire.ask(packed(("ECHO", f"{number}"), ("NONSENSE",), ("INCR", "n")), 3) for number in range(50)]
    for number, (echo, error, count) in enumerate(await asyncio.gather(*asked)):
        assert (echo, count) == (b"%d" % number, number + 1)
        assert isinstance(error, exceptions.ResponseError)
    large = b"x" * 5_000_000
    assert await wire.ask(packed(("SET", "k", large), ("GET", "k")), 2) == [b"OK", large]


async def test_a_connection_that_the_server_closes_is_noticed_without_a_request(
    redis_server: EmbeddedServer, wire: Wire
) -> None:
    [client] = await wire.ask(packed(("CLIENT", "ID")), 1)
    waiting = asyncio.create_task(wire.ask(packed(("BLPOP", "nothing", 0)), 1))
    await asyncio.sleep(0.05)
    with redis.Redis.from_url(redis_server.url) as other:
        other.client_kill_filter(_id=str(client))
    with pytest.raises(exceptions.ConnectionError):
        await waiting
    assert not wire.is_open
    with pytest.raises(exceptions.ConnectionError):
        await wire.ask(packed(("PING",)), 1)


async def test_what_is_closed_here_is_told_and_what_was_cancelled_is_not(wire: Wire) -> None:
    waiting = [asyncio.create_task(wire.ask(packed(("BLPOP", "nothing", 0)), 1)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    wire.close()
    with pytest.raises(exceptions.ConnectionError):
        await waiting[1]


@pytest.mark.parametrize("answer", [b"+OK\r\n+one more\r\n", b"?nonsense\r\n"])
async def test_what_is_no_answer_ends_the_connection(answer: bytes) -> None:
    serving: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        while await reader.read(1000):
            writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connection = RedisConnection(f"redis://127.0.0.1:{port}")
        with pytest.raises(Exception, match=r"Redis|answers"):
            await connection.call("PING")
        await connection.close()
        await asyncio.gather(*filter(None, serving), return_exceptions=True)


async def test_a_reader_that_takes_nothing_stops_the_flow_and_finds_all_of_it_then(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.redis.pushes.PAUSE_S", 60)
    pushes, channel = Pushes(redis_server.url), b"gamecast:{n}:egress:1:a"
    for _ in range(LONE_READS):
        pushes.note_read(1, waited=True)
    assert await pushes.listens([channel], None) is False
    said = b"x" * 1_000
    with redis.Redis.from_url(redis_server.url) as client:
        for _ in range(10 * MESSAGES_MAX):
            client.publish(channel, said)
    await asyncio.sleep(0.1)
    come = await pushes.next(1)
    assert come is not None
    assert MESSAGES_MAX < len(come) < MESSAGES_MAX + COME_BYTES_MAX // len(said)
    number = len(come)
    async with patience(20):
        while number < 10 * MESSAGES_MAX:
            number += len(await pushes.next(1) or ())
    await pushes.close()


async def test_listening_that_the_server_ends_begins_again(redis_server: EmbeddedServer) -> None:
    pushes, channel = Pushes(redis_server.url), b"gamecast:{n}:egress:1:a"
    for _ in range(LONE_READS):
        pushes.note_read(1, waited=True)
    await pushes.listens([channel], None)
    waiting = asyncio.create_task(pushes.next(10))
    await asyncio.sleep(0.05)
    with redis.Redis.from_url(redis_server.url) as client:
        client.client_kill_filter(_type="pubsub")
        assert await waiting is None
        assert not pushes.is_on
        for _ in range(LONE_READS):
            pushes.note_read(1, waited=True)
        assert await pushes.listens([channel], None) is False
        client.publish(channel, b"again")
        assert await pushes.next(1) == [(channel, b"again")]
    waiting = asyncio.create_task(pushes.next(10))
    await asyncio.sleep(0.05)
    pushes.interrupt()
    with pytest.raises(Unreachable):
        await waiting
    await pushes.close()


@pytest.mark.parametrize("way", ["join", "look"])
async def test_a_reader_that_is_behind_joins_at_once(redis_server: EmbeddedServer, way: str) -> None:
    pushes, channel, other = Pushes(redis_server.url), b"gamecast:{n}:egress:1:a", b"gamecast:{n}:egress:1:b"
    for _ in range(LONE_READS):
        pushes.note_read(1, waited=True)
    assert await pushes.listens([channel], None) is False
    with redis.Redis.from_url(redis_server.url) as client:
        for _ in range(3 * MESSAGES_MAX):
            client.publish(channel, b"x")
        await asyncio.sleep(0.1)
        async with patience(3):
            if way == "join":
                assert await pushes.listens([channel, other], [other]) is False
            else:
                pushes.has_asked = False
            come = await pushes.look()
        assert come is not None
        assert len(come) == 3 * MESSAGES_MAX
        client.publish(channel, b"last")
        assert await pushes.next(1) == [(channel, b"last")]
    await pushes.close()


async def test_a_server_of_http_is_refused_as_no_redis() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, patience(10):
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UnsupportedServer, match=rf"no Redis answers at redis://127.0.0.1:{port}: it answers HTTP"):
            await gamecast.connect(f"redis://127.0.0.1:{port}", name="a").open()


async def test_what_is_closed_for_good_is_not_opened_again(shared_redis: EmbeddedServer) -> None:
    connection = RedisConnection(shared_redis.url)
    await connection.call("PING")
    await connection.close()
    assert await connection.call("PING") == b"PONG"
    await connection.close(for_good=True)
    with pytest.raises(NetworkError, match="closed here"):
        await connection.call("PING")


@pytest.mark.parametrize("rounds", range(1, 7))
async def test_what_is_opened_while_it_is_closed_is_closed(shared_redis: EmbeddedServer, rounds: int) -> None:
    connection = RedisConnection(shared_redis.url)
    waiting = asyncio.create_task(connection.call("BLPOP", "nothing", 5))
    for _ in range(rounds):
        await asyncio.sleep(0)
    await connection.close()
    async with patience(2):
        with pytest.raises(NetworkError):
            await waiting
    await connection.close()

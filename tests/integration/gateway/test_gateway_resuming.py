"""The promises across drops: sessions that come back, at the same gateway, at another one, and after a kill -9."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest

import gamecast
from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer
from tests.integration.gateway_clients import Socket, running_gateway
from tests.patience import patience

REGIONS = ("forest", "river", "tower", "cave")


async def test_a_retry_that_is_refused_before_it_is_looked_for_is_not_definite(shared_redis: EmbeddedServer) -> None:
    """Its first time may have succeeded."""
    async with (
        running_gateway(shared_redis.url, burst_events=1, events_per_s=0.001) as running,
        Socket.open(running.url) as socket,
    ):
        position = (await socket.subscribe("retry refused"))["regions"]["retry refused"]
        number = 0
        while "code" not in (refused := await socket.publish("retry refused", number, id=number)):
            number += 1
        retried = await socket.publish("retry refused", number, id=number + 1, retry=True, after=position)
    assert [(each["code"], each["definite"]) for each in (refused, retried)] == [("rate", True), ("rate", False)]


class Wanderer:
    """A client that keeps what docs/gateway.md tells it to keep, and is dropped again and again."""

    def __init__(self, name: str, regions: tuple[str, ...] = REGIONS) -> None:
        self.name, self.regions = name, regions
        self.events: list[dict[str, Any]] = []
        self.positions: dict[str, str] = {}
        self.unanswered: dict[int, dict[str, Any]] = {}
        self.acks: dict[int, dict[str, Any]] = {}
        self.errors: list[dict[str, Any]] = []
        self.hears_acks = True
        self._number = 0
        self._raw: aiohttp.ClientWebSocketResponse | None = None
        self.joined = asyncio.Event()
        self.answered = asyncio.Event()
        self._came = asyncio.Event()

    async def take(self, count: int) -> list[dict[str, Any]]:
        """Wait until so many events have come, and return them."""
        async with patience(20):
            while len(self.events) < count:
                self._came.clear()
                await self._came.wait()
        return self.events

    async def publish(self, region: str, payload: Any) -> None:
        self._number += 1
        message = {"type": "publish", "id": self._number, "region": region, "payload": payload}
        self.unanswered[self._number] = message | {"after": self.positions[region]}
        if self._raw is not None and self.joined.is_set():
            with suppress(ConnectionError):
                await self._raw.send_str(json.dumps(message))

    async def _retry(self, raw: aiohttp.ClientWebSocketResponse) -> None:
        """Send again what has no answer, and what is published meanwhile after it."""
        sent = 0
        while left := sorted(number for number in self.unanswered if number > sent):
            for sent in left:
                await raw.send_str(json.dumps(self.unanswered[sent] | {"retry": True}))
        self._raw = raw

    async def stay(self, url: str, until: asyncio.Event) -> None:
        """Be connected to a gateway until something happens; then be gone without a word."""
        async with aiohttp.ClientSession() as client:
            raw = await self._reach(client, url)
            reading = asyncio.create_task(self._read(raw))
            gone = asyncio.create_task(until.wait())
            await asyncio.wait([reading, gone], return_when=asyncio.FIRST_COMPLETED)
            self._raw = None
            self.joined.clear()
            transport = raw.get_extra_info("socket")
            assert transport is not None or raw.closed
            if (connection := raw._response.connection) is not None and connection.transport is not None:
                connection.transport.abort()
            reading.cancel()
            gone.cancel()
            await asyncio.gather(reading, gone, return_exceptions=True)

    async def _reach(self, client: aiohttp.ClientSession, url: str) -> aiohttp.ClientWebSocketResponse:
        while True:
            try:
                return await client.ws_connect(url + "/v1/socket", timeout=aiohttp.ClientWSTimeout(ws_close=0.0))
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)

    async def _read(self, raw: aiohttp.ClientWebSocketResponse) -> None:
        await raw.send_str(json.dumps({"type": "hello", "name": self.name}))
        if (first := await raw.receive()).type is not aiohttp.WSMsgType.TEXT:
            return
        assert json.loads(first.data)["type"] == "welcome"
        since = {"since": self.positions} if self.positions else {}
        await raw.send_str(json.dumps({"type": "subscribe", "id": "s", "regions": list(self.regions), **since}))
        await self._retry(raw)
        if self.positions:
            self.joined.set()
        async for received in raw:
            said = json.loads(received.data)
            if said["type"] == "events":
                for event in said["events"]:
                    self.events.append(event)
                    self._came.set()
                    self.positions[event["region"]] = event["position"]
            elif said["type"] == "subscribed":
                for region, position in said["regions"].items():
                    self.positions.setdefault(region, position)
                self.joined.set()
            elif said["type"] == "acks" and self.hears_acks:
                for ack in said["acks"]:
                    self.unanswered.pop(ack["id"])
                    self.acks[ack["id"]] = ack
                self.answered.set()
            elif said["type"] == "error":
                self.errors.append(said)


@pytest.fixture
async def network_url() -> AsyncIterator[str]:
    """A network of three nodes."""
    async with gamecast.connect("embedded://?nodes=3", name="keeper") as keeper:
        yield keeper.url


@asynccontextmanager
async def publishing(url: str, seconds: float) -> AsyncIterator[asyncio.Task[int]]:
    """Have three game servers publish to all regions for some time; the task's value is how much."""

    async def publish(number: int) -> int:
        chance = random.Random(number)
        done = 0
        async with gamecast.connect(url, name=f"server-{number}") as cast:
            end = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < end:
                await cast.publish(chance.choice(REGIONS), [number, done])
                done += 1
                await asyncio.sleep(chance.random() * 0.004)
        return done

    async def all_of_them() -> int:
        return sum(await asyncio.gather(*map(publish, range(3))))

    task = asyncio.create_task(all_of_them())
    yield task
    await task


async def test_a_session_that_is_dropped_at_any_moment_goes_on_in_the_same_order_at_another_gateway(
    network_url: str,
) -> None:
    async with (
        running_gateway(network_url) as one,
        running_gateway(network_url) as other,
        Socket.open(one.url, name="steady") as steady,
        Socket.open(other.url, name="partial") as partial,
    ):
        await steady.subscribe(*REGIONS)
        await partial.subscribe("river", "cave")
        wanderer = Wanderer("wanderer")
        chance = random.Random(7)
        drops = 0
        drop = asyncio.Event()
        staying = asyncio.create_task(wanderer.stay(one.url, drop))
        await wanderer.joined.wait()
        async with publishing(network_url, 6.0) as published:
            while not published.done():
                await asyncio.sleep(chance.random() * 0.5)
                drop.set()
                await staying
                drops += 1
                drop = asyncio.Event()
                staying = asyncio.create_task(wanderer.stay(chance.choice((one, other)).url, drop))
        total = await published
        expected = await steady.take(total)
        await wanderer.take(total)
        drop.set()
        await staying
        assert drops > 8
        assert wanderer.events == expected
        both = [event for event in expected if event["region"] in ("river", "cave")]
        assert await partial.take(len(both)) == both


def started(url: str, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gamecast"]
    return subprocess.Popen([*command, "gateway", url, "--port", str(port)], stderr=subprocess.DEVNULL)


@pytest.fixture
def port() -> int:
    return free_port()


async def test_nothing_is_lost_or_published_twice_when_gateways_are_killed_and_started_again(
    network_url: str, port: int
) -> None:
    other_port = free_port()
    gateways = {each: started(network_url, each) for each in (port, other_port)}
    try:
        async with gamecast.connect(network_url, name="judge") as judge:
            await judge.subscribe(*REGIONS)
            wanderer = Wanderer("wanderer")
            chance = random.Random(11)
            at, drop = port, asyncio.Event()
            staying = asyncio.create_task(wanderer.stay(f"http://127.0.0.1:{at}", drop))
            async with patience(20):
                await wanderer.joined.wait()
            sent = 0
            for round_ in range(6):
                async with patience(20):
                    await wanderer.joined.wait()
                last = round_ == 5
                wanderer.hears_acks = not last
                for _ in range(60):
                    await wanderer.publish(chance.choice(REGIONS), sent)
                    sent += 1
                    if chance.random() < 0.2:
                        await asyncio.sleep(0.002)
                if last:
                    await wanderer.take(sent)
                gateways[at].kill()
                gateways[at].wait()
                await staying
                wanderer.hears_acks = True
                gateways[at] = started(network_url, at)
                if round_ % 2:
                    at = other_port if at == port else port
                staying = asyncio.create_task(wanderer.stay(f"http://127.0.0.1:{at}", drop))
            async with patience(30):
                while wanderer.unanswered:
                    wanderer.answered.clear()
                    await wanderer.answered.wait()
            await wanderer.take(sent)
            assert wanderer.errors == []
            drop.set()
            await staying
            seen: list[Any] = []
            async with patience(20):
                async for event in judge:
                    assert isinstance(event, gamecast.Event), event
                    seen.append((event.region, event.position, event.payload))
                    if len(seen) == sent:
                        break
            assert sorted(payload for _, _, payload in seen) == list(range(sent))
            assert [(e["region"], e["position"], e["payload"]) for e in wanderer.events] == seen
            for region in REGIONS:
                own = [payload for at_region, _, payload in seen if at_region == region]
                assert own == sorted(own), "a publisher's events of a region are out of its order"
            places = {payload: position for _, position, payload in seen}
            assert {number - 1: ack["position"] for number, ack in wanderer.acks.items()} == places
            assert any(ack.get("repeated") for ack in wanderer.acks.values()), "no retry found what was published"
    finally:
        for process in gateways.values():
            process.kill()
            process.wait()


async def test_an_event_stream_goes_on_after_its_last_event_id(redis_server: EmbeddedServer) -> None:
    async with running_gateway(redis_server.url) as running, aiohttp.ClientSession() as client:
        address = running.url + "/v1/events?region=forest&region=river"
        seen: list[Any] = []
        last_id = ""

        async def read(response: aiohttp.ClientResponse, until: int) -> None:
            nonlocal last_id
            async for line in response.content:
                if line.startswith(b"id: "):
                    last_id = line[4:].strip().decode()
                if line.startswith(b"data: ") and b'"events"' in line:
                    seen.extend(event["payload"] for event in json.loads(line[6:])["events"])
                if line == b"\n" and len(seen) >= until and last_id:
                    return

        async with client.get(address) as response:
            assert response.content_type == "text/event-stream"
            await read(response, 0)
            async with client.post(
                running.url + "/v1/events", json={"events": [{"region": "forest", "payload": n} for n in range(5)]}
            ) as posted:
                assert posted.status == 200, await posted.text()
            await read(response, 5)
        async with client.post(running.url + "/v1/regions/river/events", json={"payload": "missed"}) as posted:
            assert posted.status == 200
        async with client.get(address, headers={"Last-Event-ID": last_id}) as response:
            await read(response, 6)
        assert seen == [0, 1, 2, 3, 4, "missed"]


@pytest.mark.parametrize(("epochs", "sequence"), [(-1_000_000, 1), (40, 7), (0, 99_999)])
async def test_a_position_of_another_network_is_refused_at_every_door_and_nothing_stays_subscribed(
    redis_server: EmbeddedServer, epochs: int, sequence: int
) -> None:
    async with (
        running_gateway(redis_server.url) as running,
        Socket.open(running.url) as socket,
        aiohttp.ClientSession() as client,
    ):
        first = (await socket.publish("forest", 1))["position"]
        position = f"{int(first.partition('-')[0]) + epochs}-{sequence}"
        await socket.say(type="subscribe", id=5, regions=["forest"], since={"forest": position})
        refused = await socket.reply(5)
        assert refused["type"] == "error"
        assert f"has no position {position}" in refused["message"]
        await socket.publish("forest", 2)
        await socket.subscribe("forest", since=0)
        assert [event["payload"] for event in await socket.take(2)] == [1, 2]
        async with client.get(f"{running.url}/v1/regions/forest/events?after={position}") as response:
            assert response.status == 400
            assert f"has no position {position}" in await response.text()
        async with client.get(
            f"{running.url}/v1/events?region=forest", headers={"Last-Event-ID": f"forest={position}"}
        ) as response:
            async with patience(10):
                said = (await response.content.read()).decode()
            assert "event: error" in said
            assert f"has no position {position}" in said
            assert '"events"' not in said

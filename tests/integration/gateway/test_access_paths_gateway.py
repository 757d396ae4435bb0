"""The promises at the gateway: causal order for sessions that drop, and one order for event streams that drop."""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import aiohttp

import gamecast
from gamecast.testing import DeliverySequence, Published, judge
from tests.integration.gateway.test_gateway_resuming import REGIONS, Wanderer, publishing
from tests.integration.gateway_clients import Socket, running_gateway
from tests.patience import patience

RING = {"p": ("a", "b"), "q": ("b", "c"), "r": ("c", "a")}
"""Each answers in its second region what it hears in its first: an answer to an answer comes around to a third."""
CHAINS = 150
ANSWERS = 4
DROPS = 12


def stays_s(chance: random.Random, drops: int) -> float | None:
    """Return after how many seconds a client drops, or None: after `DROPS` it stays, so that slow machines end too."""
    return 0.05 + chance.random() * 0.25 if drops < DROPS else None


class Answerer(Wanderer):
    """A session that answers what comes in its first region, and begins chains of answers itself."""

    def __init__(self, name: str) -> None:
        super().__init__(name, RING[name])
        self._answered = 0

    async def _read(self, raw: aiohttp.ClientWebSocketResponse) -> None:
        """As `Wanderer`, but publish only when the regions are joined: causal order asks for that."""
        await raw.send_str(json.dumps({"type": "hello", "name": self.name}))
        since = {"since": self.positions} if self.positions else {}
        await raw.send_str(json.dumps({"type": "subscribe", "id": "s", "regions": list(self.regions), **since}))
        async for received in raw:
            said = json.loads(received.data)
            if said["type"] == "events":
                for event in said["events"]:
                    self.events.append(event)
                    self.positions[event["region"]] = event["position"]
                self._came.set()
            elif said["type"] == "subscribed":
                for region, position in said["regions"].items():
                    self.positions.setdefault(region, position)
                await self._retry(raw)
                self.joined.set()
            elif said["type"] == "acks":
                for ack in said["acks"]:
                    del self.unanswered[ack["id"]]
            elif said["type"] == "error":
                self.errors.append(said)

    async def answer(self) -> None:
        """Answer each event of the first region once, in order."""
        listened, answers = self.regions
        while True:
            while self._answered == len(self.events):
                self._came.clear()
                await self._came.wait()
            event = self.events[self._answered]
            self._answered += 1
            chain, depth = event["payload"]
            if event["region"] == listened and depth < ANSWERS:
                await self.publish(answers, [chain, depth + 1])

    async def begin(self) -> None:
        """Begin chains: each with two events, the second of which follows the first in another region."""
        chance = random.Random(self.name)
        listened, answers = self.regions
        for number in range(CHAINS):
            chain = f"{self.name}{number}"
            await self.publish(answers, [f"{chain}:first", ANSWERS])
            await self.publish(listened, [chain, 0])
            await asyncio.sleep(chance.random() * 0.03)

    def causes(self) -> set[tuple[str, str]]:
        """Return the pairs of its own chains' events of which the first precedes the second by its own doing."""
        return {(f"{self.name}{number}:first", f"{self.name}{number}") for number in range(CHAINS)}


async def test_causes_come_before_answers_around_a_ring_of_sessions_that_drop_and_go_on_at_other_gateways() -> None:
    async with AsyncExitStack() as stack:
        keeper = await stack.enter_async_context(
            gamecast.connect("embedded://?nodes=3", name="keeper", ordering="causal")
        )
        opening = [running_gateway(keeper.url, ordering="causal") for _ in range(2)]
        gateways = [(await stack.enter_async_context(each)).url for each in opening]
        sessions = [Answerer(name) for name in RING]
        ended = asyncio.Event()
        drops = dict.fromkeys(RING, 0)

        async def live(session: Answerer) -> None:
            chance = random.Random(session.name)
            while not ended.is_set():
                drop = asyncio.Event()
                staying = asyncio.create_task(session.stay(chance.choice(gateways), drop))
                async with patience(60):
                    await session.joined.wait()
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), stays_s(chance, drops[session.name]))
                drop.set()
                await staying
                drops[session.name] += 1

        streams = [Stream(f"stream-{name}", regions) for name, regions in RING.items()]
        everybody: list[Answerer | Stream] = [*sessions, *streams]
        living = [asyncio.create_task(live(session)) for session in sessions]
        living += [asyncio.create_task(stream.live(gateways, ended)) for stream in streams]
        async with patience(60):
            await asyncio.gather(*(each.joined.wait() for each in everybody))
        answering = [asyncio.create_task(session.answer()) for session in sessions]
        await asyncio.gather(*(session.begin() for session in sessions))
        expected = defaultdict[str, int](int)
        for session in sessions:
            order = list(RING)[list(RING).index(session.name) :] + list(RING)[: list(RING).index(session.name)]
            expected[session.regions[1]] += CHAINS
            for depth in range(ANSWERS + 1):
                expected[RING[order[depth % 3]][0]] += CHAINS
        for each in everybody:
            await each.take(sum(expected[region] for region in each.regions))
        ended.set()
        await asyncio.gather(*living)
        for task in answering:
            task.cancel()

        assert min(drops.values()) >= 3
        assert [session.errors for session in sessions] == [[], [], []]
        for each in everybody:
            count = sum(expected[region] for region in each.regions)
            assert len(each.events) == count, f"{each.name}: something came twice"
            assert causality_broken(each.events, sessions) == [], each.name
        verdict = judge([sequence(each.name, each.events) for each in everybody])
        assert verdict.fine, verdict.examples


def causality_broken(events: Sequence[dict[str, Any]], sessions: Iterable[Answerer]) -> list[Any]:
    """Return the pairs of effect and cause that came in the wrong order."""
    place = {(chain, depth): number for number, (chain, depth) in enumerate(e["payload"] for e in events)}
    pairs = [
        ((chain, depth), (chain, above)) for chain, depth in place for above in range(depth) if (chain, above) in place
    ]
    for each in sessions:
        for first, second in each.causes():
            pairs += [((second, depth), (first, ANSWERS)) for depth in range(ANSWERS + 1) if (second, depth) in place]
    return [(effect, cause) for effect, cause in pairs if cause in place and place[effect] < place[cause]]


def sequence(name: str, events: Sequence[dict[str, Any]]) -> DeliverySequence:
    return DeliverySequence(
        name,
        [f"{event['region']} {event['position']}" for event in events],
        [event["region"] for event in events],
        [event["sender"] for event in events],
    )


class Stream:
    """An event stream (SSE) of some regions, which drops and goes on after its last event id."""

    def __init__(self, name: str, regions: Sequence[str]) -> None:
        self.name, self.regions = name, regions
        self.events: list[dict[str, Any]] = []
        self.drops = 0
        self.joined = asyncio.Event()
        self._last_id = ""
        self._came = asyncio.Event()

    async def take(self, count: int) -> list[dict[str, Any]]:
        async with patience(60):
            while len(self.events) < count:
                self._came.clear()
                await self._came.wait()
        return self.events

    async def live(self, gateways: Sequence[str], ended: asyncio.Event) -> None:
        """Read at one gateway after the other, and drop after a while."""
        chance = random.Random(self.name)
        while not ended.is_set():
            reading = asyncio.create_task(self._read(chance.choice(gateways)))
            waiting = asyncio.create_task(ended.wait())
            wait_s = stays_s(chance, self.drops)
            await asyncio.wait([reading, waiting], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            async with patience(60):
                await self.joined.wait()
            waiting.cancel()
            reading.cancel()
            for outcome in await asyncio.gather(reading, return_exceptions=True):
                assert isinstance(outcome, asyncio.CancelledError), outcome
            self.drops += 1

    async def _read(self, gateway: str) -> None:
        query = "&".join(f"region={region}" for region in self.regions)
        headers = {"Last-Event-ID": self._last_id} if self._last_id else {}
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"{gateway}/v1/events?{query}", headers=headers) as response,
        ):
            data, last_id = list[dict[str, Any]](), ""
            async for line in response.content:
                assert not line.startswith(b"event: error"), await response.content.readline()
                if line.startswith(b"id: "):
                    last_id = line[4:].strip().decode()
                elif line.startswith(b"data: ") and b'"events"' in line:
                    data = json.loads(line[6:])["events"]
                elif line == b"\n":
                    # A browser takes both when the message is whole.
                    self._last_id = last_id or self._last_id
                    self.events += data
                    data, last_id = [], ""
                    self._came.set()
                    if self._last_id:
                        self.joined.set()


async def test_event_streams_that_drop_and_go_on_show_the_order_of_a_session_that_stays() -> None:
    wanted = {"all": REGIONS, "left": REGIONS[:3], "right": REGIONS[1:], "ends": (REGIONS[0], REGIONS[3])}
    async with AsyncExitStack() as stack:
        keeper = await stack.enter_async_context(gamecast.connect("embedded://?nodes=3", name="keeper"))
        gateways = [(await stack.enter_async_context(running_gateway(keeper.url))).url for _ in range(2)]
        steady = await stack.enter_async_context(Socket.open(gateways[0], name="steady"))
        await steady.subscribe(*REGIONS)
        ended = asyncio.Event()
        streams = [Stream(name, regions) for name, regions in wanted.items()]
        living = [asyncio.create_task(stream.live(gateways, ended)) for stream in streams]
        async with patience(60):
            await asyncio.gather(*(stream.joined.wait() for stream in streams))
        async with publishing(keeper.url, 4.0) as published:
            pass
        expected = await steady.take(await published)
        for stream in streams:
            await stream.take(sum(event["region"] in stream.regions for event in expected))
        ended.set()
        await asyncio.gather(*living)
        assert min(stream.drops for stream in streams) >= 4
        for stream in streams:
            assert stream.events == [event for event in expected if event["region"] in stream.regions], stream.name
        verdict = judge(
            [sequence("steady", expected), *(sequence(stream.name, stream.events) for stream in streams)],
            published=[Published(f"{event['region']} {event['position']}", event["region"]) for event in expected],
        )
        assert verdict.fine, verdict.examples


async def test_a_session_in_causal_order_may_publish_before_it_hears_that_it_has_subscribed() -> None:
    async with (
        gamecast.connect("embedded://?nodes=3", name="keeper", ordering="causal") as keeper,
        running_gateway(keeper.url, ordering="causal") as gateway,
        Socket.open(gateway.url, name="ann") as socket,
        patience(30),
    ):
        await socket.say(type="subscribe", id=1, regions=["forest", "river"])
        await socket.say(type="publish", id=2, region="forest", payload="first")
        await socket.say(type="publish", id=3, region="elsewhere", payload="not subscribed to")
        subscribed, first, refused = [await socket.reply(number) for number in (1, 2, 3)]
        assert (subscribed["type"], first["type"]) == ("subscribed", "ack")
        assert (refused["type"], refused["code"]) == ("error", "malformed")
        assert "'elsewhere' is not one of them" in refused["message"]

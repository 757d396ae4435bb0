"""State through a gateway: the keys of regions first, and then everything after them, over sockets and streams."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import orjson
import pytest

import gamecast
from adapters.embedded.server import EmbeddedServer
from gamecast import Event, State
from gamecast.client.incoming import Incoming
from gateway.eventtexts import EventTexts, Told
from gateway.messages import position_of
from gateway.sent import SentEvents
from gateway.states import encoded
from gateway.tokens import KeyFile
from tests.integration.gateway.test_gateway_javascript import CLIENT, node
from tests.integration.gateway_clients import Running, Socket, minted, running_gateway
from tests.patience import patience

Values = dict[str, tuple[Any, str]]
"""Key → payload and position."""


async def begun(socket: Socket, *regions: str) -> dict[str, Any]:
    """Subscribe with state; by the answer, all of the state has come."""
    answer = await socket.subscribe(*regions, state=True)
    return {item["region"]: item for item in joined(socket.events) if "state" in item} | {
        "positions": answer["regions"]
    }


def joined(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put states together that came in several items."""
    out, parts = list[dict[str, Any]](), dict[str, dict[str, Any]]()
    for item in items:
        if "part" not in item:
            out.append(item)
            continue
        region = item["region"]
        if not item["part"]:
            parts[region] = {}
        assert (item["position"] is None) == item["more"]
        parts[region] |= item["state"]
        if not item["more"]:
            out.append({"region": region, "position": item["position"], "state": parts.pop(region)})
    return out


def values_of(item: dict[str, Any]) -> Values:
    return {key: (value["payload"], value["position"]) for key, value in item["state"].items()}


def fold(events: Iterable[dict[str, Any]], region: str, upto: str, values: Values | None = None) -> Values:
    """Return the last value of each key of a region, up to a position."""
    values = dict(values or {})
    for event in events:
        if event["region"] != region or "key" not in event or position_of(event["position"]) > position_of(upto):
            continue
        if event["payload"] is None:
            values.pop(event["key"], None)
        else:
            values[event["key"]] = event["payload"], event["position"]
    return values


async def test_a_session_begins_with_the_keys_as_they_are(running: Running) -> None:
    async with Socket.open(running.url, name="ana") as ana, Socket.open(running.url, name="bo") as bo:
        first = await ana.publish("forest", {"open": True}, id=1, key="door-4")
        await ana.publish("forest", "soon gone", id=2, key="door-5")
        await ana.publish("forest", None, id=3, key="door-5")
        await ana.say(type="publish", id=4, region="river", base64="AQI=", key="boat")
        boat = await ana.reply(4)
        last = await ana.publish("forest", "no key", id=5)
        tapped = list[Any]()
        running.gateway.taps.append(tapped.extend)
        states = await begun(bo, "forest", "river", "hill")
        assert states["forest"].keys() == {"region", "position", "state"}
        door = states["forest"]["state"].pop("door-4")
        assert not states["forest"]["state"]
        assert door.keys() == {"position", "sender", "sent_at_ms", "payload"}
        assert (door["payload"], door["position"], door["sender"]) == ({"open": True}, first["position"], "~ana")
        assert position_of(states["forest"]["position"]) >= position_of(last["position"])
        value = states["river"]["state"]["boat"]
        assert (value["base64"], value["position"], "payload" in value) == ("AQI=", boat["position"], False)
        assert states["hill"]["state"] == {}
        assert {region: states[region]["position"] for region in ("forest", "river", "hill")} == states["positions"]
        await ana.publish("forest", {"open": False}, id=6, key="door-4", only_if=door["position"])
        assert [event["payload"] for event in (await bo.take(4))[3:]] == [{"open": False}]
        assert [event.payload for event in tapped] == [{"open": False}]


async def test_late_joiners_under_traffic_have_what_a_watcher_has(running: Running) -> None:
    random, regions, writing = Random(5), ("forest", "river", "hill"), True
    async with AsyncExitStack() as stack:

        async def opened(name: str) -> Socket:
            return await stack.enter_async_context(Socket.open(running.url, name=name))

        watcher, writers = await opened("watcher"), [await opened(f"w{number}") for number in range(2)]
        await watcher.subscribe(*regions)

        async def write(socket: Socket) -> int:
            number = 0
            while writing:
                number += 1
                payload = None if random.random() < 0.2 else number
                key = random.choice(("a", "b", "c", "d"))
                await socket.publish(random.choice(regions), payload, id=number, key=key)
            return number

        writes = [asyncio.create_task(write(writer)) for writer in writers]
        joiners = list[tuple[Socket, Sequence[str]]]()
        for number in range(6):
            await asyncio.sleep(0.05)
            joiner = await opened(f"j{number}")
            if number % 2:
                await joiner.subscribe("hill")
            asked = regions[:2] if number % 2 else tuple(random.sample(regions, random.randint(1, 3)))
            await joiner.subscribe(*asked, state=True)
            joiners.append((joiner, asked))
        writing = False
        published = sum(await asyncio.gather(*writes))
        for number, region in enumerate(regions):
            await writers[0].publish(region, "end", id=10_000 + number)
        everything = await watcher.take(published + 3)
        place = {(event["region"], event["position"]): index for index, event in enumerate(everything)}
        for joiner, wanted in joiners:
            while len([event for event in joiner.events if event.get("payload") == "end"]) < len(
                {*wanted} | ({"hill"} if "hill" in joiner.positions else set())
            ):
                await joiner.take(len(joiner.events) + 1)
            check_joiner(joiner.events, wanted, everything)
            places = [place[event["region"], event["position"]] for event in joiner.events if "state" not in event]
            assert places == sorted(places), "in the order of the watcher"


def check_joiner(got: list[dict[str, Any]], wanted: Sequence[str], everything: list[dict[str, Any]]) -> None:
    assert not any("gap" in event for event in got)
    for region in wanted:
        [state, *after] = [item for item in got if item["region"] == region]
        at, end = state["position"], everything[-1]["position"]
        assert values_of(state) == fold(everything, region, at)
        expected = [
            event["position"]
            for event in everything
            if event["region"] == region and position_of(event["position"]) > position_of(at)
        ]
        assert [event["position"] for event in after] == expected
        last = max(after[-1]["position"], end, key=position_of)
        assert fold(after, region, last, values_of(state)) == fold(everything, region, last)


@pytest.mark.parametrize(
    "wrong",
    [{"state": True, "since": 0}, {"state": True, "since": {"forest": "1-1"}}, {"state": 1}, {"state": "true"}],
)
async def test_what_cannot_be_asked_for_is_refused(shared_redis: EmbeddedServer, wrong: dict[str, Any]) -> None:
    async with running_gateway(shared_redis.url) as running, Socket.open(running.url, name="ana") as socket:
        await socket.say(type="subscribe", id=1, regions=["forest"], **wrong)
        error = await socket.reply(1)
        assert (error["code"], error["definite"]) == ("malformed", True)


async def test_of_a_region_that_is_followed_no_state_comes_until_it_is_left(running: Running) -> None:
    async with Socket.open(running.url, name="ana") as socket:
        await socket.subscribe("forest")
        await socket.publish("forest", 1, id=1, key="a")
        await socket.say(type="subscribe", id=2, regions=["forest", "river"], state=True)
        error = await socket.reply(2)
        assert error["code"] == "malformed"
        assert "unsubscribe first" in error["message"]
        await socket.publish("forest", "still here", id=3)
        assert [event["payload"] for event in await socket.take(2)] == [1, "still here"]
        await socket.say(type="unsubscribe", id=4, regions=["forest"])
        await socket.reply(4)
        await socket.publish("forest", 2, id=5, key="a")
        states = await begun(socket, "forest", "river")
        assert values_of(states["forest"])["a"][0] == 2
        await socket.say(type="unsubscribe", id=6, regions=["forest"])
        await socket.reply(6)
        states = await begun(socket, "forest")
        assert values_of(states["forest"])["a"][0] == 2


async def test_a_token_reads_no_state_beyond_its_regions(redis_server: EmbeddedServer, keys_file: Path) -> None:
    reader = minted(keys_file, "reader", read=["public"], write=["**"])
    async with (
        running_gateway(redis_server.url, keys=KeyFile(keys_file)) as running,
        Socket.open(running.url, token=reader) as socket,
        aiohttp.ClientSession(running.url, headers={"Authorization": f"Bearer {reader}"}) as client,
    ):
        await socket.publish(["secret", "public"], 1, id=1, key="a")
        await socket.say(type="subscribe", id=2, regions=["public", "secret"], state=True)
        assert (await socket.reply(2))["code"] == "forbidden"
        async with client.get("/v1/events", params={"region": "secret", "state": "true"}) as response:
            assert response.status == 403
        states = await begun(socket, "public")
        assert values_of(states["public"])["a"][0] == 1
        assert "secret" not in json.dumps(socket.events)


async def test_a_large_state_comes_in_messages_within_the_limit_and_whole(redis_server: EmbeddedServer) -> None:
    async with (
        running_gateway(redis_server.url, message_bytes_max=20_000, outbox_events_max=4) as running,
        gamecast.connect(redis_server.url, name="maker") as maker,
        Socket.open(running.url, name="late", message_bytes_max=5_000) as late,
        Socket.open(running.url, name="other") as other,
    ):
        large = {f"k{number}": "x" * (number * 40) for number in range(150)}
        await asyncio.gather(*(maker.publish_async("forest", text, key=key) for key, text in large.items()))
        await maker.publish("river", 1, key="a")
        sizes = list[int]()
        note = late._note

        def measured(said: dict[str, Any]) -> None:
            items = [item for item in said.get("events", []) if len(item.get("state", "")) != 1]
            sizes.append(len(orjson.dumps(said)) if items else 0)
            note(said)

        late._note = measured  # type: ignore[method-assign]
        states = await begun(late, "forest", "river")
        assert {key: payload for key, (payload, _) in values_of(states["forest"]).items()} == large
        assert max(sizes) <= 5_000
        assert sum(size > 0 for size in sizes) > 20
        parts = [item for item in late.events if item["region"] == "forest"]
        assert [item["part"] for item in parts] == [*range(len(parts))]
        assert [key for key, _ in groupby(late.events, lambda item: item["region"])] in (
            ["forest", "river"],
            ["river", "forest"],
        )
        assert [item["position"] is None for item in parts] == [True] * (len(parts) - 1) + [False]
        await begun(other, "forest")
        assert 150 // 2 > len(other.events) > 10


async def test_a_client_that_reads_slowly_has_all_of_a_large_state(redis_server: EmbeddedServer) -> None:
    text = "x" * 60_000
    async with (
        running_gateway(redis_server.url, when_behind="skip", inbox_events_max=20, send_timeout_s=60) as running,
        gamecast.connect(redis_server.url, name="maker") as maker,
        Socket.open(running.url, name="slow") as slow,
    ):
        for number in range(250):
            await maker.publish("forest", [number, text], key=f"k{number}")
        await slow.say(type="subscribe", id=1, regions=["forest"], state=True)
        await asyncio.sleep(1)
        for number in range(500):
            await maker.publish("forest", number, key=f"k{number % 250}")
        await maker.publish("forest", "end")
        await slow.reply(1)
        [state] = joined(item for item in slow.events if "state" in item)
        assert len(state["state"]) == 250
        assert {value["payload"][0] for value in state["state"].values()} == {*range(250)}
        async with patience(30):
            while not any("last" in event.get("gap", ()) or event.get("payload") == "end" for event in slow.events):
                await slow.take(len(slow.events) + 1)
        assert [position_of(item["position"]) for item in slow.events if item["position"]] == sorted(
            position_of(item["position"]) for item in slow.events if item["position"]
        )


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_who_has_the_state_resumes_behind_it(redis_server: EmbeddedServer, elsewhere: bool) -> None:
    async with (
        running_gateway(redis_server.url) as running,
        running_gateway(redis_server.url) as other,
        Socket.open(other.url, name="maker") as maker,
    ):
        await maker.publish("forest", 0, id=1, key="a")
        async with Socket.open(running.url, name="walker") as walker:
            await walker.subscribe("river")
            await maker.publish("river", "before", id=2)
            await walker.take(1)
            await begun(walker, "forest")
            positions = dict(walker.positions)
            for number in range(4):
                await maker.publish("forest", number, id=number, key="a")
            await walker.take(6)
            walker.drop()
        await running.is_noted("session-closed", name="~walker")
        await maker.publish("river", "missed", id=3)
        async with Socket.open(other.url if elsewhere else running.url, name="walker") as back:
            await back.subscribe("forest", "river", since=positions)
            assert [event["payload"] for event in await back.take(5)] == [0, 1, 2, 3, "missed"]
            await maker.publish("forest", "end", id=4)
            assert (await back.take(6))[5]["payload"] == "end"
        resumed = [line for line in running.audit if line["what"] == "session-resumed"]
        assert [line["missed"] for line in resumed] == ([] if elsewhere else [4])


async def test_who_has_no_state_yet_asks_again_and_has_the_newest(running: Running) -> None:
    async with Socket.open(running.url, name="maker") as maker:
        await maker.publish("forest", 0, id=1, key="a")
        async with Socket.open(running.url, name="walker") as walker:
            await walker.subscribe("river")
            await maker.publish("river", 1, id=2)
            river = {"river": (await walker.take(1))[0]["position"]}
            await walker.say(type="subscribe", id=1, regions=["forest"], state=True)
            await running.is_noted("subscribed", name="~walker", regions=["forest"])
            walker.drop()  # what was sent is taken to be lost
        await running.is_noted("session-closed", name="~walker")
        await maker.publish("river", 2, id=3)
        await maker.publish("forest", 1, id=4, key="a")
        async with Socket.open(running.url, name="walker") as back:
            await back.subscribe("river", since=river)
            states = await begun(back, "forest")
            assert values_of(states["forest"])["a"][0] == 1
            await maker.publish("forest", "end", id=5)
            async with patience(10):
                while back.events[-1].get("payload") != "end":
                    await back.take(len(back.events) + 1)
            assert [event["payload"] for event in back.events if "state" not in event] == [2, "end"]


async def test_keys_of_a_node_that_does_not_answer_can_be_asked_for_again(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_gateway(redis_server.url) as running, Socket.open(running.url, name="ana") as ana:
        await ana.subscribe("river")
        await ana.publish("forest", 1, id=1, key="a")

        async def no_state(self: Incoming, *_: Any) -> None:
            raise TimeoutError

        monkeypatch.setattr(Incoming, "_ask_for_state", no_state)
        await ana.say(type="subscribe", id=2, regions=["forest"], state=True)
        error = await ana.reply(2)
        assert (error["code"], error["retriable"]) == ("unreachable", True)
        monkeypatch.undo()
        await ana.publish("forest", "not followed", id=3)
        states = await begun(ana, "forest")
        assert values_of(states["forest"])["a"][0] == 1
        await ana.publish("river", "end", id=4)
        assert [event["payload"] for event in (await ana.take(2)) if "state" not in event] == ["end"]


async def test_what_was_sent_of_a_state_that_failed_is_begun_again(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {f"k{number}": str(number) + "x" * 50_000 for number in range(400)}
    ask = Incoming._ask_for_state

    async def ask_and_fail(self: Incoming, wanted: AbstractSet[str]) -> None:
        await ask(self, wanted)
        await asyncio.sleep(1)
        raise TimeoutError

    async with (
        running_gateway(redis_server.url, send_timeout_s=60) as running,
        gamecast.connect(redis_server.url, name="maker") as maker,
        Socket.open(running.url, name="ana") as ana,
    ):
        await asyncio.gather(*(maker.publish_async("forest", text, key=key) for key, text in large.items()))
        monkeypatch.setattr(Incoming, "_ask_for_state", ask_and_fail)
        await ana.say(type="subscribe", id=2, regions=["forest"], state=True)
        await asyncio.sleep(2)  # more comes than what fits into the buffers of a socket that is not read
        assert (await ana.reply(2))["code"] == "unreachable"
        monkeypatch.undo()
        assert ana.events
        assert ana.events[-1]["more"]
        for key in [*large][::2]:
            await maker.publish("forest", None, key=key)
        states = await begun(ana, "forest")
        left = {key: text for key, text in large.items() if key in [*large][1::2]}
        assert {key: payload for key, (payload, _) in values_of(states["forest"]).items()} == left


async def test_who_drops_in_the_middle_of_a_state_leaves_nothing_behind(redis_server: EmbeddedServer) -> None:
    async with (
        running_gateway(redis_server.url, send_timeout_s=60) as running,
        gamecast.connect(redis_server.url, name="maker") as maker,
    ):
        texts = ((f"k{number}", "x" * 50_000) for number in range(400))
        await asyncio.gather(*(maker.publish_async("forest", text, key=key) for key, text in texts))
        async with Socket.open(running.url, name="ana") as ana:
            await ana.say(type="subscribe", id=2, regions=["forest"], state=True)
            await ana.take(1)
            ana.drop()
        await running.is_noted("session-closed", name="~ana")
        assert len(running.gateway._kept) == 0
        async with Socket.open(running.url, name="ana") as back:
            states = await begun(back, "forest")
            assert len(states["forest"]["state"]) == 400


async def test_on_several_nodes_each_region_has_its_state_before_its_events() -> None:
    regions = [f"cell {number}" for number in range(8)]
    async with (
        gamecast.connect("embedded://?nodes=3", name="keeper") as keeper,
        running_gateway(keeper.url) as running,
        Socket.open(running.url, name="ana") as ana,
        Socket.open(running.url, name="bo") as bo,
    ):
        await keeper.subscribe(*regions[:4])
        for region in regions:
            await ana.publish(region, 0, key="a")
        writing = True

        async def write() -> None:
            turn = 0
            while writing:
                turn += 1
                for region in regions:
                    await ana.publish(region, turn, key="a")

        publishing = asyncio.create_task(write())
        states = await begun(bo, *regions)
        writing = False
        await publishing
        first = {region: next(item for item in bo.events if item["region"] == region) for region in regions}
        assert all("state" in item for item in first.values())
        assert {region: states[region]["position"] for region in regions} == states["positions"]
        for region in regions:
            await ana.publish(region, "end", id=1)
        async with patience(20):
            while sum(item.get("payload") == "end" for item in bo.events) < len(regions):
                await bo.take(len(bo.events) + 1)
        for region in regions:
            turns = [values_of(states[region])["a"][0]]
            turns += [item["payload"] for item in bo.events if item["region"] == region and "state" not in item]
            assert turns == [*range(turns[0], turns[0] + len(turns) - 1), "end"]


async def read_stream(response: aiohttp.ClientResponse, count: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return so many items of a stream, and for each message with items its id, empty if it has none."""
    items, ids, last = list[dict[str, Any]](), list[str](), ""
    async with patience(20):
        while len(items) < count:
            name, _, text = (await response.content.readline()).decode().strip().partition(": ")
            if name == "id":
                last = text
            elif name == "data":
                if found := json.loads(text).get("events"):
                    items += found
                    ids.append(last)
                last = ""
    return items, ids


async def test_a_stream_begins_with_the_state_and_resumes_without_it(redis_server: EmbeddedServer) -> None:
    query = [("region", "forest"), ("region", "river"), ("state", "true")]
    async with (
        running_gateway(redis_server.url, message_bytes_max=2_000) as running,
        aiohttp.ClientSession(running.url) as client,
        Socket.open(running.url, name="maker") as maker,
    ):
        for number in range(20):
            await maker.publish("forest", str(number) * 100, id=number, key=f"k{number}")
        async with client.get("/v1/events", params=query) as response:
            items, ids = list[dict[str, Any]](), list[str]()
            while len([item for item in joined(items) if "state" in item]) < 2:
                more, more_ids = await read_stream(response, 1)
                items, ids = items + more, ids + more_ids
            assert len(items) > 2
            assert not any(ids[:-1]), "no id before all of the state"
            await maker.publish("river", "after", id=100)
            [after], [last] = await read_stream(response, 1)
            assert after["payload"] == "after"
        states = {item["region"]: item for item in joined(items)}
        assert values_of(states["forest"])["k7"][0] == "7" * 100
        assert dict(parse_qsl(last)) == {"forest": states["forest"]["position"], "river": after["position"]}
        await maker.publish("forest", "missed", id=101)
        async with client.get("/v1/events", params=query, headers={"Last-Event-ID": last}) as response:
            items, _ = await read_stream(response, 1)
            assert [item.get("payload") for item in items] == ["missed"]
        for wrong in ("yes", ""):
            async with client.get("/v1/events", params={"region": "forest", "state": wrong}) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (400, "malformed")


def test_what_json_cannot_carry_is_a_gap_in_its_place_and_lost_keys_are_told() -> None:
    odd, fine = (Event("forest", "s", payload, 1, 5, 0, 0, True, "k") for payload in (2**70, 1))
    state = State({"forest": {"odd": odd, "__proto__": fine}}, {"forest": "1-9"}, frozenset({"forest"}))
    [told] = encoded([state], EventTexts().encode, 1_000)
    item = json.loads(told.text)
    assert (item["position"], item["incomplete"], told.begins, told.position) == ("1-9", True, True, (1, 9))
    assert "cannot be encoded" in item["state"]["odd"]["gap"]["reason"]
    assert item["state"]["__proto__"]["payload"] == 1


@pytest.mark.parametrize("bytes_max", [1, 200, 300, 517, 10_000])
def test_parts_fit_into_messages_and_make_the_whole(bytes_max: int) -> None:
    values = {f"k{number}": Event("f", "s", "x" * number, 1, number, 0, 0, True, "k") for number in range(1, 60)}
    told = [
        *encoded(
            [State({"f": values, "g": {}}, {"f": "1-70", "g": "2-0"}, frozenset())], EventTexts().encode, bytes_max
        )
    ]
    items = [json.loads(each.text) for each in told]
    whole, empty = joined(items)
    assert (empty["region"], empty["state"]) == ("g", {})
    assert {key: len(value["payload"]) for key, value in whole["state"].items()} == {
        f"k{number}": number for number in range(1, 60)
    }
    for each, item in zip(told, items, strict=True):
        assert len(item["state"]) <= 1 or len(each.text) + len('{"type":"events","events":[]}') <= bytes_max
        assert each.begins == (each.position is not None) == (not item.get("more"))


def test_who_has_a_state_has_all_before_it() -> None:
    sent = SentEvents(10)
    sent.joined({"cave": (1, 0)})
    before, after = Told("cave", (1, 1), b"a"), Told("cave", (1, 2), b"b")
    sent.add(before)
    sent.add(Told("forest", (3, 7), b"state", begins=True))
    sent.joined({"forest": (3, 7)})
    sent.add(after)
    assert sent.after({"cave": (1, 0)}) is None
    assert sent.after({"cave": (1, 1)}) is None
    assert sent.after({"cave": (1, 0), "forest": (3, 7)}) is None
    assert sent.after({"cave": (1, 1), "forest": (3, 7)}) == [after]
    assert sent.after({"cave": (1, 2), "forest": (3, 7)}) == []


SCRIPT = """
import { connect } from "%(client)s";
const game = connect("%(url)s", { name: "bo", messageBytesMax: 1000 });
const heard = [];
game.on("state", ({ region }) => heard.push(region));
const wrong = [];
await game.subscribe("forest", { state: true, since: 0 }).catch((error) => wrong.push(error.code));
const positions = await game.subscribe(["forest", "river"], { state: true });
const turn = game[Symbol.asyncIterator]();
const take = async () => (await turn.next()).value;
const states = [await take(), await take()];
const places = game.positions;
await game.subscribe("forest", { state: true }).catch((error) => wrong.push(error.code));
console.log("ready");
const events = [];
while (events.at(-1)?.payload !== "end") events.push(await take());
console.log(JSON.stringify({
  states, heard, wrong, events: events.map((event) => event.payload ?? event), same: [positions, places],
  bytes: states.find(({ region }) => region === "river").state.boat.payload instanceof Uint8Array,
}));
game.close();
"""


async def test_the_javascript_client_begins_with_the_state_and_resumes(running: Running, tmp_path: Path) -> None:
    script = tmp_path / "run.mjs"
    url = running.url.replace("http", "ws")
    script.write_text(SCRIPT % {"client": (CLIENT / "gamecast.js").as_uri(), "url": url})
    async with patience(40), Socket.open(running.url, name="maker") as maker:
        for number in range(30):
            await maker.publish("forest", "x" * number * 10, id=number, key=f"k{number}")
        await maker.publish("forest", 1, id=30, key="__proto__")
        await maker.publish("forest", None, id=31, key="k0")
        await maker.say(type="publish", id=32, region="river", base64="AQI=", key="boat")
        await maker.reply(32)
        process = await asyncio.create_subprocess_exec(*node(), str(script), stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        for session in list(running.gateway.sessions):
            if session.name == "~bo":
                session.leave(1001, "go on in a new session")
        await running.is_noted("session-closed", name="~bo")
        await maker.publish("forest", "missed", id=40)
        await maker.publish("river", "end", id=41)
        found = json.loads((await process.communicate())[0])
    states = {item["region"]: item for item in found["states"]}
    assert states["forest"].keys() == {"region", "position", "state"}
    assert states["forest"]["state"].keys() == {f"k{number}" for number in range(1, 30)} | {"__proto__"}
    assert found["bytes"]
    assert sorted(found["heard"]) == ["forest", "river"]
    assert found["wrong"] == ["malformed", "malformed"]
    assert found["events"] == ["missed", "end"]
    assert found["same"][0] == found["same"][1] == {region: item["position"] for region, item in states.items()}


BROKEN = """
import { connect } from "%s";
const asked = [];
class Gateway {
  static count = 0;
  readyState = 1;
  constructor() { this.number = Gateway.count++; setTimeout(() => this.onopen()); }
  say(message) { this.onmessage({ data: JSON.stringify(message) }); }
  send(text) {
    const { type, id, ...more } = JSON.parse(text);
    if (type === "hello") return this.say({ type: "welcome", name: "~bo", heartbeat_ms: 20000, limits: {} });
    asked.push([id === "resume" ? id : "join", more]);
    const part = (region, key, fields) => {
      const state = { [key]: { payload: key } };
      this.say({ type: "events", events: [{ region, state, ...fields }] });
    };
    if (this.number === 0) {
      part("forest", "a", { position: "1-5" });
      part("river", "old", { position: null, part: 0, more: true });
      return this.onclose({ code: 1006, reason: "" });
    }
    if (id !== "resume") part("river", "new", { position: "1-7" });
    this.say({ type: "subscribed", id, regions: id === "resume" ? { forest: "1-5" } : { river: "1-7" } });
  }
  close() {}
}
const game = connect("ws://nowhere", { WebSocket: Gateway });
const seen = [];
game.on("state", (item) => seen.push([item.region, Object.keys(item.state)]));
await game.subscribe(["forest", "river"], { state: true });
console.log(JSON.stringify([asked, seen, game.positions]));
game.close();
"""


async def test_the_javascript_client_asks_again_for_the_state_that_it_has_not_had(tmp_path: Path) -> None:
    script = tmp_path / "run.mjs"
    script.write_text(BROKEN % (CLIENT / "gamecast.js").as_uri())
    process = await asyncio.create_subprocess_exec(*node(), str(script), stdout=subprocess.PIPE)
    async with patience(30):
        asked, seen, positions = json.loads((await process.communicate())[0])
    assert asked == [
        ["join", {"regions": ["forest", "river"], "state": True}],
        ["resume", {"regions": ["forest"], "since": {"forest": "1-5"}}],
        ["join", {"regions": ["river"], "state": True}],
    ]
    assert seen == [["forest", ["a"]], ["river", ["new"]]]
    assert positions == {"forest": "1-5", "river": "1-7"}

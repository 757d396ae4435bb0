"""Events of several regions through a gateway: over its socket, over HTTP, and with the JavaScript client."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import pytest

import gamecast
from adapters.embedded.server import EmbeddedServer
from gamecast import Event, JointEvent
from gateway.eventtexts import EventTexts, visible
from gateway.tokens import KeyFile
from sequencing.plan import Ordering
from tests.integration.gateway.test_gateway_hooks import Backend, hooked
from tests.integration.gateway.test_gateway_javascript import CLIENT, node
from tests.integration.gateway_clients import Running, Socket, minted, running_gateway
from tests.patience import patience


def had(events: list[dict[str, Any]]) -> list[Any]:
    assert not any("gap" in event for event in events), events
    return [event["payload"] for event in events]


BOTH = ("forest", "river")
PARTS = (("a", 5), ("b", 7))
AT = PARTS, PARTS
"""Where an event is: in the regions that its reader has, and in all."""


async def test_a_socket_publishes_to_several_regions_and_sees_each_event_once(running: Running) -> None:
    async with (
        Socket.open(running.url, name="both") as both,
        Socket.open(running.url, name="one") as one,
        Socket.open(running.url, name="none") as none,
    ):
        await both.subscribe(*BOTH)
        await one.subscribe("river", "hill")
        before = await none.publish("river", "before", id=1)
        assert before.keys() == {"type", "id", "region", "position"}
        ack = await none.publish(BOTH, {"type": "arrow"}, id=2)
        assert ack == {
            "type": "ack",
            "id": 2,
            "region": "forest",
            "position": ack["positions"]["forest"],
            "positions": ack["positions"],
        }
        assert list(ack["positions"]) == [*BOTH]
        single = await none.publish(["hill"], "after", id=3)
        assert single["positions"] == {"hill": single["position"]}
        plain, arrow = await both.take(2)
        assert plain.keys() == {"region", "position", "sender", "sent_at_ms", "payload"}
        assert sorted(arrow["regions"]) == [*BOTH]
        assert arrow["positions"] == ack["positions"]
        assert arrow["position"] == ack["positions"][arrow["region"]]
        _, seen, after = await one.take(3)
        assert (seen["payload"], seen["region"], seen["regions"]) == ({"type": "arrow"}, "river", ["river"])
        assert seen["positions"] == {"river": ack["positions"]["river"]}
        assert (after["payload"], "regions" in after) == ("after", False)
        await both.say(type="unsubscribe", id="leave", regions=["forest"])
        await both.hear("unsubscribed")
        await none.publish(BOTH, "late", id=4)
        late = (await both.take(3))[2]
        assert (late["payload"], late["region"], list(late["positions"])) == ("late", "river", ["river"])


async def test_conditions_name_the_region_of_each_key(running: Running) -> None:
    async with Socket.open(running.url, name="ana") as socket:
        sword = await socket.publish("forest", "ana", id=1, key="sword")
        shield = await socket.publish("river", "bo", id=2, key="shield")
        agreed = {"forest": {"sword": sword["position"]}, "river": {"shield": shield["position"]}}
        assert "positions" in await socket.publish(BOTH, "trade", id=3, key="trade", only_if=agreed)
        taken = await socket.publish("river", "cy", id=4, key="shield")
        refused = await socket.publish(BOTH, "late", id=5, only_if=agreed)
        told = {name: refused[name] for name in ("code", "region", "key", "position", "definite")}
        at = taken["position"]
        assert told == {
            "code": "key-conflict",
            "region": "river",
            "key": "shield",
            "position": at,
            "definite": True,
        }
        refused = await socket.publish(BOTH, "again", id=6, key="trade", only_if=None)
        assert (refused["code"], refused["region"]) == ("key-conflict", "forest")
        assert "positions" in await socket.publish(BOTH, "new", id=7, key="new", only_if=None)
        one = await socket.publish(["hill"], 1, id=8, key="k", only_if={"hill": {"k": None}})
        assert "position" in await socket.publish(["hill"], 2, id=9, key="k", only_if=one["position"])


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"regions": []}, "malformed"),
        ({"regions": "forest"}, "malformed"),
        ({"regions": None}, "malformed"),
        ({"regions": {"forest": 1}}, "malformed"),
        ({"regions": ["forest", "forest"]}, "malformed"),
        ({"regions": [f"r{number}" for number in range(65)]}, "malformed"),
        ({"regions": [f"r{number}" for number in range(1000)]}, "malformed"),
        ({"regions": ["forest"], "region": "river"}, "malformed"),
        ({"regions": ["forest", 7]}, "invalid-region"),
        ({"regions": ["forest", "a*"]}, "invalid-region"),
        ({"regions": ["forest", ""]}, "invalid-region"),
        ({"regions": ["forest", "river"], "key": "a", "only_if": "1-1"}, "malformed"),
        ({"regions": ["forest", "river"], "only_if": None}, "malformed"),
        ({"regions": ["forest", "river"], "only_if": {}}, "malformed"),
        ({"regions": ["forest", "river"], "only_if": {"forest": {}}}, "malformed"),
        ({"regions": ["forest", "river"], "only_if": {"forest": None}}, "malformed"),
        ({"regions": ["forest", "river"], "only_if": {"hill": {"a": None}}}, "malformed"),
        ({"regions": ["forest", "river"], "only_if": {"forest": {"a": 1}}}, "malformed"),
        ({"regions": ["forest", "river"], "only_if": {"forest": {"": None}}}, "invalid-key"),
        ({"regions": ["forest"], "only_if": {"forest": {f"k{number}": None for number in range(65)}}}, "malformed"),
        ({"region": "forest", "only_if": {"forest": {"a": None}}}, "malformed"),
    ],
)
async def test_what_is_no_list_of_regions_is_refused(
    shared_redis: EmbeddedServer, wrong: dict[str, Any], code: str
) -> None:
    async with running_gateway(shared_redis.url) as running, Socket.open(running.url, name="ana") as socket:
        await socket.say(type="publish", id=1, payload=1, **wrong)
        error = await socket.reply(1)
        assert (error["code"], error["definite"]) == (code, True)
        events = {"events": [{"payload": 1, **wrong}]}
        async with (
            aiohttp.ClientSession(running.url) as client,
            client.post("/v1/events", json=events) as response,
        ):
            assert (response.status, (await response.json())["error"]["code"]) == (400, code)


async def test_a_session_of_few_regions_may_publish_to_more(shared_redis: EmbeddedServer) -> None:
    async with (
        running_gateway(shared_redis.url, regions_per_session_max=2) as running,
        Socket.open(running.url, name="ana") as socket,
    ):
        several = [f"few regions {number}" for number in range(64)]
        assert list((await socket.publish(several, 1, id=1))["positions"]) == several


async def test_tokens_see_and_write_what_they_may_and_no_more(redis_server: EmbeddedServer, keys_file: Path) -> None:
    secret, public = "arena/secret", "arena/public"
    master = minted(keys_file, "master", read=["**"], write=["**"])
    reader = minted(keys_file, "reader", read=[public], write=["**"])
    writer = minted(keys_file, "writer", read=["**"], write=[public])
    async with (
        running_gateway(redis_server.url, keys=KeyFile(keys_file)) as running,
        Socket.open(running.url, token=master) as all_seeing,
        Socket.open(running.url, token=reader) as partial,
        Socket.open(running.url, token=writer) as forbidden,
    ):
        await all_seeing.subscribe(secret, public)
        await partial.subscribe(public)
        for several in ((secret, public), (public, secret)):
            error = await forbidden.publish(several, "no", id=1)
            assert (error["code"], error["definite"]) == ("forbidden", True)
            async with (
                aiohttp.ClientSession(running.url, headers={"Authorization": f"Bearer {writer}"}) as client,
                client.post("/v1/events", json={"events": [{"regions": several, "payload": "no"}]}) as response,
            ):
                assert response.status == 403
        ack = await all_seeing.publish((secret, public), "yes", id=2)
        [event] = await all_seeing.take(1)
        assert event["positions"] == ack["positions"]

        # A session is in the region of a retry for a moment, also in one that its token may not read.
        async def publish() -> None:
            for number in range(40):
                await all_seeing.publish((secret, public), number, id=100 + number)

        publishing = asyncio.create_task(publish())
        for number in range(5):
            retry = {"retry": True, "after": ack["positions"][secret]}
            answer = await partial.publish((secret, public), "retried", id=number, **retry)
            assert answer["type"] == "ack" or answer["code"] == "order"
        await publishing
        await all_seeing.publish(public, "end", id=3)
        async with patience(20):
            while not partial.events or partial.events[-1]["payload"] != "end":
                await partial.take(len(partial.events) + 1)
        assert secret not in json.dumps(partial.events)
        assert [event for event in had(partial.events) if isinstance(event, int)] == [*range(40)]
        assert all(event["regions"] == [public] for event in partial.events[:-1])
        refused = [line for line in running.audit if line["what"] == "refused" and line["code"] == "forbidden"]
        assert len(refused) >= 2


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_who_resumes_has_nothing_twice(redis_server: EmbeddedServer, elsewhere: bool) -> None:
    async with (
        running_gateway(redis_server.url) as running,
        running_gateway(redis_server.url) as other,
        Socket.open(other.url, name="maker") as maker,
    ):
        async with Socket.open(running.url, name="walker") as walker:
            await walker.subscribe(*BOTH)
            begins = dict(walker.positions)
            for number in range(6):
                await maker.publish(BOTH if number % 2 else "river", number, id=number)
            events = list(await walker.take(6))
            walker.drop()
        await running.is_noted("session-closed", name="~walker")
        positions = dict(begins)
        for event in events[:4]:  # two were on their way
            positions |= event.get("positions", {event["region"]: event["position"]})
        for number in range(6, 9):
            await maker.publish(BOTH, number, id=number)
        async with Socket.open(other.url if elsewhere else running.url, name="walker") as back:
            await back.subscribe(*BOTH, since=positions)
            await maker.publish(BOTH, "end", id=99)
            assert had(await back.take(6)) == [4, 5, 6, 7, 8, "end"]
            await maker.publish("river", "after", id=100)
            assert had(await back.take(7))[6:] == ["after"]
        resumed = [line for line in running.audit if line["what"] == "session-resumed"]
        assert len(resumed) == (not elsewhere)


async def test_who_left_a_region_resumes_with_the_rest(running: Running) -> None:
    async with Socket.open(running.url, name="maker") as maker:
        async with Socket.open(running.url, name="walker") as walker:
            await walker.subscribe(*BOTH)
            await maker.publish(BOTH, 1, id=1)
            await walker.take(1)
            await walker.say(type="unsubscribe", id=1, regions=["forest"])
            await walker.hear("unsubscribed")
            await maker.publish(BOTH, 2, id=2)
            await walker.take(2)
            walker.drop()
        await running.is_noted("session-closed", name="~walker")
        await maker.publish(BOTH, 3, id=3)
        async with Socket.open(running.url, name="walker") as back:
            await back.subscribe("river", since={"river": walker.positions["river"]})
            [event] = await back.take(1)
            assert (event["payload"], event["regions"]) == (3, ["river"])
        assert [line["missed"] for line in running.audit if line["what"] == "session-resumed"] == [0]


async def test_a_retry_finds_what_it_published(running: Running) -> None:
    async with Socket.open(running.url, name="watcher") as watcher:
        await watcher.subscribe(*BOTH)
        async with Socket.open(running.url, name="walker") as socket:
            begins = (await socket.subscribe(*BOTH))["regions"]
            first = await socket.publish(BOTH, {"n": 1}, id=1, key="sword", only_if=None)
            socket.drop()
        async with Socket.open(running.url, name="walker") as back:
            await back.subscribe(*BOTH, since=begins)
            about = {"key": "sword", "only_if": None, "retry": True, "after": begins["forest"]}
            again = await back.publish(BOTH, {"n": 1}, id=1, **about)
            assert (again["type"], again["repeated"], again["position"]) == ("ack", True, first["position"])
            assert again["positions"] == {"forest": first["position"]}
            new = await back.publish(BOTH, {"n": 2}, id=2, retry=True, after=begins["forest"])
            assert (new["type"], "repeated" in new, list(new["positions"])) == ("ack", False, [*BOTH])
            assert had(await back.take(2)) == [{"n": 1}, {"n": 2}]
        assert had(await watcher.take(2)) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("both_were", [True, False])
async def test_a_retry_does_not_take_an_event_of_several_regions_for_one_of_its_region(
    running: Running, both_were: bool
) -> None:
    async with Socket.open(running.url, name="walker") as socket:
        begins = (await socket.subscribe(*BOTH))["regions"]
        first = await socket.publish(BOTH, "jump", id=1)
        if both_were:
            await socket.publish("river", "jump", id=2)
        socket.drop()
    async with Socket.open(running.url, name="walker") as back:
        await back.subscribe(*BOTH, since=begins)
        again = await back.publish(BOTH, "jump", id=1, retry=True, after=begins["forest"])
        assert (again["repeated"], again["position"]) == (True, first["position"])
        other = await back.publish("river", "jump", id=2, retry=True, after=begins["river"])
        assert other.get("repeated", False) == both_were
        await back.publish("river", "end", id=3)
        events = await back.take(3)
        assert had(events) == ["jump", "jump", "end"]
        assert other["position"] == events[1]["position"]


async def test_what_comes_before_a_region_is_left_is_not_lost_to_another_one(redis_server: EmbeddedServer) -> None:
    text = "x" * 60_000
    async with (
        running_gateway(redis_server.url, outbox_events_max=4, send_timeout_s=60) as running,
        Socket.open(running.url, name="walker") as walker,
        gamecast.connect(redis_server.url, name="maker") as maker,
    ):
        begin = await maker.publish(BOTH, "begin")
        for number in range(300):  # more than what fits into the buffers of a socket that is not read
            await maker.publish(BOTH if number % 2 else "forest", [number, text])
        since = {"forest": begin.positions["forest"]}
        await walker.say(type="subscribe", id=1, regions=["forest"], since=since)
        await asyncio.sleep(1)
        await walker.say(type="unsubscribe", id=2, regions=["forest"])
        await asyncio.sleep(0.5)
        await walker.hear("unsubscribed", 30)
        early = [number for number, _ in had(walker.events)]
        walker.events.clear()
        await walker.subscribe("river", since=begin.positions["river"])
        await maker.publish("river", "end")
        async with patience(30):
            while not walker.events or walker.events[-1]["payload"] != "end":
                await walker.take(len(walker.events) + 1)
        late = [number for number, _ in had(walker.events[:-1])]
        assert early == [*range(len(early))]
        assert [number for number in early if number % 2] + late == [*range(1, 300, 2)]
        assert early
        assert late


async def test_http_publishes_to_several_regions_and_each_has_it_in_its_history(running: Running) -> None:
    async with aiohttp.ClientSession(running.url) as client:
        events = [
            {"regions": [*BOTH], "payload": 1, "key": "door", "only_if": None},
            {"region": "hill", "payload": 2},
            {"regions": [*BOTH], "base64": "AQI="},
        ]
        headers = {"Idempotency-Key": "once"}
        async with client.post("/v1/events", json={"events": events}, headers=headers) as response:
            assert response.status == 200
            answer = await response.json()
            first, plain, last = answer["results"]
        async with client.post("/v1/events", json={"events": events}, headers=headers) as response:
            assert await response.json() == answer
        assert (first["region"], list(first["positions"])) == ("forest", [*BOTH])
        assert first["position"] == first["positions"]["forest"]
        assert plain.keys() == {"region", "position"}
        for region in BOTH:
            path = f"/v1/regions/{region}/events"
            async with client.get(path) as response:
                page = (await response.json())["events"]
            assert [(event["region"], event["position"]) for event in page] == [
                (region, first["positions"][region]),
                (region, last["positions"][region]),
            ]
            assert page[0].keys() == {"region", "position", "sender", "sent_at_ms", "payload", "key"}
            async with client.post(path, json={"payload": 1, "regions": [*BOTH]}) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (400, "malformed")
        conflict = {"regions": [*BOTH], "payload": 3, "only_if": {"river": {"door": None}}}
        async with client.post("/v1/events", json={"events": [conflict]}) as response:
            [result] = (await response.json())["results"]
            assert (response.status, result["region"], result["status"]) == (207, "forest", 409)
            assert (result["error"]["code"], result["error"]["region"]) == ("key-conflict", "river")
            assert result["error"]["position"] == first["positions"]["river"]


async def streamed(response: aiohttp.ClientResponse, count: int) -> tuple[list[dict[str, Any]], str]:
    """Return so many events of a stream, and its last id."""
    events, last = list[dict[str, Any]](), ""
    async with patience(20):
        while len(events) < count:
            name, _, text = (await response.content.readline()).decode().strip().partition(": ")
            if name == "id":
                last = text
            elif name == "data":
                events += json.loads(text).get("events", [])
    return events, last


async def test_a_stream_has_each_event_once_also_after_it_resumes(running: Running) -> None:
    query = [("region", region) for region in BOTH]
    async with aiohttp.ClientSession(running.url) as client, Socket.open(running.url, name="maker") as maker:
        async with client.get("/v1/events", params=query) as response:
            assert await response.content.readline() == b"event: subscribed\n"
            acks = [await maker.publish(BOTH, number, id=number) for number in range(2)]
            events, last = await streamed(response, 2)
        assert had(events) == [0, 1]
        assert [event["positions"] for event in events] == [ack["positions"] for ack in acks]
        assert dict(parse_qsl(last)) == acks[-1]["positions"]
        await maker.publish(BOTH, 2, id=2)
        async with client.get("/v1/events", params=query, headers={"Last-Event-ID": last}) as response:
            await maker.publish("forest", 3, id=3)
            events, last = await streamed(response, 2)
        assert had(events) == [2, 3]


async def test_the_backend_hears_of_all_regions(shared_redis: EmbeddedServer) -> None:
    backend = Backend()
    backend.answers["publish"] = lambda question: {"allow": True, "payload": sorted(question["regions"])}
    about = {"key": "k", "only_if": {"hooked a": {"k": None}, "hooked b": {"k": None, "l": None}}}
    regions = ["hooked b", "hooked a"]
    async with backend.listening(), hooked(shared_redis.url, backend, "publish") as running:
        async with Socket.open(running.url, name="ana") as socket:
            await socket.subscribe(*regions)
            ack = await socket.publish(regions, "mine", id=1, **about)
            [event] = await socket.take(1)
            assert (event["payload"], event["positions"]) == (sorted(regions), ack["positions"])
        async with (
            aiohttp.ClientSession(running.url) as client,
            client.post("/v1/events", json={"events": [{"regions": regions, "payload": "mine"}]}) as response,
        ):
            assert response.status == 200
    by_socket, by_http = backend.of("publish")
    assert (by_socket["region"], by_socket["regions"], by_socket["only_if"]) == (regions[0], regions, about["only_if"])
    assert (by_http["region"], by_http["regions"]) == (regions[0], regions)


@pytest.mark.parametrize("ordering", ["acyclic", "overlap"])
async def test_on_several_nodes_it_waits_for_a_plan_or_is_refused_where_only_overlaps_are_ordered(
    ordering: Ordering,
) -> None:
    several = [f"cell {number}" for number in range(8)]
    async with (
        gamecast.connect("embedded://?nodes=3", name="keeper", ordering=ordering) as keeper,
        running_gateway(keeper.url, ordering=ordering) as running,
        Socket.open(running.url, name="ana") as socket,
        aiohttp.ClientSession(running.url) as client,
    ):
        await socket.subscribe(*several)
        for each in several:
            await socket.publish(each, "here", id=1)
        answer = await socket.publish(several, "everywhere", id=2)
        async with client.post("/v1/events", json={"events": [{"regions": several, "payload": "http"}]}) as response:
            [result] = (await response.json())["results"]
        if ordering == "overlap":
            assert (answer["code"], answer["definite"], answer["retriable"]) == ("not-together", True, False)
            assert "publish to each" in answer["message"].lower()
            assert (result["error"]["code"], result["status"]) == ("not-together", 409)
        await socket.publish(several[0], "end", id=3)
        joint = ["everywhere", "http"] if ordering != "overlap" else []
        assert had(await socket.take(9 + len(joint))) == ["here"] * 8 + joint + ["end"]


def test_what_json_cannot_carry_is_a_gap_in_all_of_its_regions() -> None:
    told = EventTexts().encode(JointEvent("a", "s", 2**70, 1, 5, 0, 0, False, None, *AT))
    gap = json.loads(told.text)
    assert "cannot be encoded" in gap["gap"]["reason"]
    assert (gap["position"], gap["positions"]) == ("1-5", {"a": "1-5", "b": "1-7"})
    assert told.positions == {"a": (1, 5), "b": (1, 7)}


def test_sessions_share_a_text_if_they_see_the_same() -> None:
    first = list[Any]()
    texts = EventTexts(first.append)
    whole = JointEvent("a", "s", 1, 1, 5, 0, 0, False, None, *AT)
    part = visible(whole, {"a"})
    told = [texts.encode(event) for event in (whole, part, Event("a", "s", 1, 1, 5, 0, 0))]
    assert [json.loads(each.text).get("regions") for each in told] == [["a", "b"], ["a"], None]
    assert [each.positions for each in told] == [{"a": (1, 5), "b": (1, 7)}, {"a": (1, 5)}, {"a": (1, 5)}]
    assert texts.encode(whole) is told[0]
    assert texts.encode(visible(whole, {"a", "c"})) is told[1]
    assert visible(whole, {"c"}) is None
    assert texts.encode(visible(whole, {"b"})).region == "b"
    assert first == [whole, visible(whole, {"b"})]  # once of each region by which it came


SCRIPT = """
import { connect } from "%(client)s";
const game = connect("%(url)s", { name: "bo" });
await game.subscribe(["forest", "river"]);
const sword = await game.publish("forest", "bo's", { key: "sword" });
const both = await game.publish(["forest", "river"], "both", { onlyIf: { forest: { sword: sword.position } } });
let lost;
try {
  await game.publish(["river", "forest"], 2, { onlyIf: { forest: { sword: null } } });
} catch (error) { lost = error; }
const events = [];
const turn = game[Symbol.asyncIterator]();
const take = async () => { const { value } = await turn.next(); events.push(value); return value; };
await take();
const arrow = await take();
const moved = game.positions;
console.log("ready");
while ((await take()).payload !== "end");
console.log(JSON.stringify({
  receipt: both.positions, seen: arrow.positions, regions: arrow.regions.sort(), moved,
  lost: [lost.code, lost.region, lost.key], events: events.map((event) => event.payload),
}));
await game.unsubscribe("forest");
await game.publish(new Set(["forest", "river"]), "late");
const late = await take();
const positions = [late, game].map((each) => Object.keys(each.positions));
console.log(JSON.stringify([late.payload, late.region, late.regions, ...positions]));
game.close();
"""


async def test_the_javascript_client_publishes_and_resumes(running: Running, tmp_path: Path) -> None:
    script = tmp_path / "run.mjs"
    url = running.url.replace("http", "ws")
    script.write_text(SCRIPT % {"client": (CLIENT / "gamecast.js").as_uri(), "url": url})
    process = await asyncio.create_subprocess_exec(*node(), str(script), stdout=subprocess.PIPE)
    assert process.stdout is not None
    async with patience(30), Socket.open(running.url, name="maker") as maker:
        assert await process.stdout.readline() == b"ready\n"
        for session in list(running.gateway.sessions):
            if session.name == "~bo":
                session.leave(1001, "go on in a new session")
        await running.is_noted("session-closed", name="~bo")
        await maker.publish(BOTH, "missed", id=1)
        await maker.publish(BOTH, "end", id=2)
        found, late = [json.loads(line) for line in (await process.communicate())[0].splitlines()]
    assert found["events"] == ["bo's", "both", "missed", "end"]
    assert found["lost"] == ["key-conflict", "forest", "sword"]
    assert found["regions"] == [*BOTH]
    assert found["receipt"] == found["seen"] == found["moved"]
    assert late == ["late", "river", ["river"], ["river"], ["river"]]


LEAVING = """
import { connect } from "%s";
class Gateway {
  readyState = 1;
  constructor() { Gateway.one = this; setTimeout(() => this.onopen()); }
  say(message) { this.onmessage({ data: JSON.stringify(message) }); }
  send(text) {
    const { type, id } = JSON.parse(text);
    if (type === "hello") this.say({ type: "welcome", name: "~bo", heartbeat_ms: 20000, limits: {} });
    if (type === "subscribe") this.say({ type: "subscribed", id, regions: { forest: "1-0", river: "1-0" } });
  }
  close() {}
}
const game = connect("ws://nowhere", { WebSocket: Gateway });
await game.subscribe(["forest", "river"]);
game.unsubscribe("forest").catch(() => {});
const positions = { forest: "1-3", river: "1-2" };
const event = { region: "forest", position: "1-3", payload: "late", regions: ["forest", "river"], positions };
Gateway.one.say({ type: "events", events: [event] });
const { value } = await game[Symbol.asyncIterator]().next();
console.log(JSON.stringify([value, game.positions]));
game.close();
"""


async def test_the_javascript_client_gets_nothing_of_a_region_that_it_leaves(tmp_path: Path) -> None:
    script = tmp_path / "run.mjs"
    script.write_text(LEAVING % (CLIENT / "gamecast.js").as_uri())
    process = await asyncio.create_subprocess_exec(*node(), str(script), stdout=subprocess.PIPE)
    async with patience(30):
        event, positions = json.loads((await process.communicate())[0])
    assert (event["region"], event["position"], event["regions"]) == ("river", "1-2", ["river"])
    assert event["positions"] == positions == {"river": "1-2"}

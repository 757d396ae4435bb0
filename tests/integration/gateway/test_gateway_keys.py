"""Keys and conditions through a gateway: over its socket, over HTTP, and with the JavaScript client."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapters.embedded.server import EmbeddedServer
from tests.integration.gateway.test_gateway_javascript import CLIENT, node
from tests.integration.gateway_clients import Socket, running_gateway
from tests.patience import patience


async def test_a_socket_publishes_on_conditions_and_sees_keys(shared_redis: EmbeddedServer) -> None:
    async with running_gateway(shared_redis.url) as running, Socket.open(running.url, name="ana") as socket:
        await socket.subscribe("keys over sockets")
        region = "keys over sockets"
        first = await socket.publish(region, "mine", id=1, key="sword", only_if=None)
        assert first["type"] == "ack" or first["region"] == region
        refused = await socket.publish(region, "late", id=2, key="sword", only_if=None)
        told = {name: refused[name] for name in ("code", "key", "position", "definite", "retriable")}
        at = first["position"]
        assert told == {"code": "key-conflict", "key": "sword", "position": at, "definite": True, "retriable": False}
        guarded = {"sword": at, "shield": None}
        assert "position" in await socket.publish(region, "hit", id=3, only_if=guarded)
        assert (await socket.publish(region, "hit", id=4, only_if={"sword": None}))["code"] == "key-conflict"
        assert "position" in await socket.publish(region, None, id=5, key="sword", only_if=at)
        events = await socket.take(3)
        assert [(event["payload"], event.get("key")) for event in events] == [
            ("mine", "sword"),
            ("hit", None),
            (None, "sword"),
        ]
        assert "key" not in events[1]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"key": ""}, "invalid-key"),
        ({"key": 7}, "invalid-key"),
        ({"key": "a", "only_if": 7}, "malformed"),
        ({"key": "a", "only_if": "7"}, "malformed"),
        ({"only_if": None}, "malformed"),
        ({"only_if": {}}, "malformed"),
        ({"only_if": {"a": 1}}, "malformed"),
        ({"only_if": {"": None}}, "invalid-key"),
        ({"only_if": {f"k{number}": None for number in range(65)}}, "malformed"),
    ],
)
async def test_what_is_no_key_or_condition_is_refused(
    shared_redis: EmbeddedServer, wrong: dict[str, Any], code: str
) -> None:
    async with running_gateway(shared_redis.url) as running, Socket.open(running.url, name="ana") as socket:
        assert (await socket.publish("odd keys", 1, id=1, **wrong))["code"] == code
        async with (
            aiohttp.ClientSession(running.url) as client,
            client.post("/v1/regions/odd%20keys/events", json={"payload": 1, **wrong}) as response,
        ):
            assert (response.status, (await response.json())["error"]["code"]) == (400, code)


async def test_http_publishes_on_conditions_and_its_history_has_keys(shared_redis: EmbeddedServer) -> None:
    async with running_gateway(shared_redis.url) as running, aiohttp.ClientSession(running.url) as client:
        path = "/v1/regions/keys-over-http/events"
        async with client.post(path, json={"payload": 1, "key": "door", "only_if": None}) as response:
            first = (await response.json())["position"]
        async with client.post(path, json={"payload": 2, "key": "door", "only_if": None}) as response:
            error = (await response.json())["error"]
            assert (response.status, error["code"], error["position"]) == (409, "key-conflict", first)
        several = [{"region": "keys-over-http", "payload": 3, "only_if": {"door": each}} for each in (first, None)]
        async with client.post("/v1/events", json={"events": several}) as response:
            [done, refused] = (await response.json())["results"]
            assert response.status == 207
            assert "position" in done
            assert refused["error"]["code"] == "key-conflict"
        async with client.get(path, params={"after": "0-0"}) as response:
            events = (await response.json())["events"]
        assert [(event["payload"], event.get("key")) for event in events] == [(1, "door"), (3, None)]


SCRIPT = """
import { connect } from "%(client)s";
const game = connect("%(url)s", { name: "bo" });
await game.subscribe("js keys");
const mine = await game.publish("js keys", { by: "bo" }, { key: "chest", onlyIf: null });
let lost;
try { await game.publish("js keys", 2, { key: "chest", onlyIf: null }); } catch (error) { lost = error; }
await game.publish("js keys", 3, { onlyIf: { chest: mine.position } });
const events = [];
for await (const event of game) { events.push([event.key ?? null, event.payload]); if (events.length === 2) break; }
console.log(JSON.stringify([lost.code, lost.key, lost.position === mine.position, lost.definite, events]));
"""


async def test_the_javascript_client_publishes_on_conditions(shared_redis: EmbeddedServer, tmp_path: Path) -> None:
    async with running_gateway(shared_redis.url) as running:
        script = tmp_path / "run.mjs"
        url = running.url.replace("http", "ws")
        script.write_text(SCRIPT % {"client": (CLIENT / "gamecast.js").as_uri(), "url": url})
        process = await asyncio.create_subprocess_exec(*node(), str(script), stdout=subprocess.PIPE)
        async with patience(30):
            out, _ = await process.communicate()
    assert json.loads(out) == ["key-conflict", "chest", True, True, [["chest", {"by": "bo"}], [None, 3]]]


async def test_a_retry_is_told_of_its_own_success_and_not_that_it_lost_against_itself(
    shared_redis: EmbeddedServer,
) -> None:
    async with running_gateway(shared_redis.url) as running:
        async with Socket.open(running.url, name="walker") as socket:
            await socket.subscribe("retried keys")
            first = await socket.publish("retried keys", {"n": 1}, id=1, key="sword", only_if=None)
            socket.drop()
        async with Socket.open(running.url, name="walker") as back:
            await back.subscribe("retried keys", since={"retried keys": "0-0"})
            about = {"key": "sword", "only_if": None, "retry": True, "after": "0-0"}
            again = await back.publish("retried keys", {"n": 1}, id=1, **about)
            assert (again["type"], again.get("repeated"), again["position"]) == ("ack", True, first["position"])
            other = await back.publish("retried keys", {"n": 2}, id=2, **about)
            assert (other["code"], other["position"]) == ("key-conflict", first["position"])


async def test_of_two_events_that_differ_in_their_keys_a_retry_finds_its_own(shared_redis: EmbeddedServer) -> None:
    region = "keys that differ"
    async with running_gateway(shared_redis.url) as running, Socket.open(running.url, name="bo") as bo:
        await bo.publish(region, "bo's", id=1, key="sword", only_if=None)
        async with Socket.open(running.url, name="ana") as ana:
            await ana.subscribe(region)
            refused = await ana.publish(region, "ana's", id=1, key="sword", only_if=None)
            assert refused["code"] == "key-conflict"
            accepted = await ana.publish(region, "ana's", id=2, key="shield", only_if=None)
            ana.drop()
        async with Socket.open(running.url, name="ana") as back:
            await back.subscribe(region, since={region: "0-0"})
            about = {"only_if": None, "retry": True, "after": "0-0"}
            again = await back.publish(region, "ana's", id=1, key="sword", **about)
            assert again["code"] == "key-conflict"
            again = await back.publish(region, "ana's", id=2, key="shield", **about)
            assert (again["type"], again["position"]) == ("ack", accepted["position"])

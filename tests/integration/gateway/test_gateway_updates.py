"""Updates over the gateway: the newest of each key, in one message a batch, after the events that precede them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import gamecast
from adapters.embedded.server import EmbeddedServer
from gamecast import Update
from tests.integration.gateway.test_gateway_javascript import CLIENT, node, printed
from tests.integration.gateway_clients import Socket, running_gateway
from tests.patience import patience


async def until_heard(sender: Socket, reader: Socket) -> None:
    """Return when updates come through."""
    async with patience(20):
        while not any(update["key"] == "hello" for update in reader.updates):
            await sender.say(type="updates", updates=[{"region": "forest", "key": "hello", "payload": 0}])
            await reader.say(type="ping", id="ping")
            await reader.reply("ping")
    await asyncio.sleep(0.1)
    reader.updates.clear()


async def moved(reader: Socket, count: int) -> list[dict[str, Any]]:
    """Wait until so many updates have come, and return them."""
    async with patience(10):
        while len(reader.updates) < count:
            await reader._read()
    return reader.updates


async def test_the_newest_of_each_key_comes_after_the_event_that_introduces_it(redis_server: EmbeddedServer) -> None:
    async with (
        running_gateway(redis_server.url) as running,
        Socket.open(running.url, name="ana", updates=True) as ana,
        Socket.open(running.url, name="bob", updates=True) as bob,
        Socket.open(running.url, name="eve") as eve,
    ):
        for socket in (ana, bob, eve):
            await socket.subscribe("forest")
        await until_heard(ana, bob)
        await ana.say(type="publish", region="forest", payload="spawn", key="goblin", id=1)
        for x in range(5):
            moves = [{"region": "forest", "key": key, "payload": x} for key in ("goblin", "orc")]
            await ana.say(type="updates", updates=[*moves, {"region": "forest", "key": "raw", "base64": "3q2+7w=="}])
        found: dict[str, Any] = {}
        async with patience(10):
            while not {"goblin", "orc", "raw"} <= found.keys() or found["goblin"]["payload"] != 4:
                found |= {update["key"]: update for update in await moved(bob, 1)}
                bob.updates.clear()
        assert bob.events[0]["payload"] == "spawn", "it came before"
        assert (found["orc"]["payload"], found["raw"]["base64"]) == (4, "3q2+7w==")
        assert {update["sender"] for update in found.values()} == {"~ana"}
        await ana.say(type="ping", id="last")
        await ana.reply("last")
        assert (ana.updates, eve.updates) == ([], []), "not one's own, and only if asked for"


async def test_players_and_servers_see_each_others_updates(redis_server: EmbeddedServer) -> None:
    async with (
        running_gateway(redis_server.url) as running,
        gamecast.connect(redis_server.url, name="server") as server,
        Socket.open(running.url, name="ana", updates=True) as ana,
    ):
        await server.subscribe("forest")
        await ana.subscribe("forest")
        server.updates()
        born = await server.publish("forest", "born")
        await ana.take(1)
        killed = await server.publish("forest", "killed")
        await ana.take(2)
        seen: list[Update] = []
        async with patience(20):
            while not seen:
                move = {"region": "forest", "key": "goblin", "payload": 1, "position": born.position}
                await ana.say(type="updates", updates=[move])
                await server.fetch(timeout=0.02)
                seen = server.updates()
        assert seen[-1].position == born.position, "as the player says, who had not seen that it was killed"
        assert seen[-1].sequence < killed.sequence
        async with patience(20):
            while not ana.updates:
                server.update("forest", "door", {"open": 0.5})
                await ana.say(type="ping", id=1)
                await ana.reply(1)
        assert (ana.updates[0]["sender"], ana.updates[0]["payload"]) == ("server", {"open": 0.5})


async def test_unfit_updates_are_refused(redis_server: EmbeddedServer) -> None:
    async with (
        running_gateway(redis_server.url, payload_bytes_max=100, updates_per_s=0.001, burst_updates=1) as running,
        Socket.open(running.url, name="ana", updates=True) as ana,
    ):
        for updates, code in (
            ([], "malformed"),
            ("forest", "malformed"),
            ([{"region": "forest", "payload": 1}], "malformed"),
            ([{"region": "forest", "key": "k"}], "invalid-payload"),
            ([{"region": "forest", "key": "", "payload": 1}], "invalid-key"),
            ([{"region": "*", "key": "k", "payload": 1}], "invalid-region"),
            ([{"region": "forest", "key": "k", "payload": "x" * 200}], "too-large"),
            ([{"region": "forest", "key": "k", "payload": 1, "position": "x"}], "malformed"),
            ([{"region": "forest", "key": "k", "payload": 1}] * 2_000, "rate"),
        ):
            await ana.say(type="updates", id=7, updates=updates)
            error = await ana.reply(7)
            assert (error["type"], error["code"]) == ("error", code), (updates[:1], error)


async def test_a_dropped_client_that_resumes_gets_updates_again(redis_server: EmbeddedServer) -> None:
    async with running_gateway(redis_server.url) as running, Socket.open(running.url, name="ana") as ana:
        async with Socket.open(running.url, name="bob", updates=True) as bob:
            await bob.subscribe("forest")
            await until_heard(ana, bob)
            positions = bob.positions
            bob.drop()
        for x in range(100):
            await ana.say(type="updates", updates=[{"region": "forest", "key": "k", "payload": x}])
        async with Socket.open(running.url, name="bob", updates=True) as bob:
            await bob.subscribe("forest", since=positions)
            await until_heard(ana, bob)


SCENARIO = """
import { connect } from "%(client)s";
const url = process.argv.at(-1);
const [ana, bob] = ["ana", "bob"].map((name) => connect(url, { name }));
await Promise.all([ana, bob].map((game) => game.subscribe("forest")));
const forest = bob.subscription(["forest"]);
const seen = [];
forest.on("event", ({ key }) => seen.push(["event", key]));
forest.on("update", ({ key, payload, sender }) => seen.push(["update", key, payload, sender]));
await forest.subscribe();
ana.on("update", () => console.log("one's own came back"));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
while (!seen.length) {
  ana.update("forest", "hello", 0);
  await pause(20);
}
ana.publish("forest", "spawn", { key: "goblin" });
for (let x = 0; x < 100; x++) ana.update("forest", "goblin", { x });
for (let n = 0; n < 300; n++) ana.update("forest", `many-${n}`, "x".repeat(500));
ana.update("forest", "raw", new Uint8Array([1, 2]));
while (!seen.some(([, key]) => key === "raw")) await pause(20);
const refused = [];
for (const [key, payload] of [["big", "x".repeat(100_000)], ["deep", "\\ud800"], ["none", () => 1]]) {
  try {
    ana.update("forest", key, payload);
  } catch ({ code }) {
    refused.push(code);
  }
}
const after = seen.slice(seen.findIndex(([, key]) => key === "goblin"));
console.log(JSON.stringify({
  first: after[0], last: after.filter(([kind, key]) => kind === "update" && key === "goblin").at(-1),
  raw: [...after.find(([, key]) => key === "raw")[2]], many: new Set(seen.map(([, key]) => key)).size > 300, refused,
}));
ana.close();
bob.close();
"""


async def test_the_javascript_client_sends_the_newest_and_hears_it_after_the_event(
    redis_server: EmbeddedServer, tmp_path: Path
) -> None:
    file = tmp_path / "updates.mjs"
    file.write_text(SCENARIO % {"client": (CLIENT / "gamecast.js").as_uri()})
    async with running_gateway(redis_server.url) as running:
        found = await printed(*node(), file, running.url, seconds=60)
    assert found == {
        "first": ["event", "goblin"],
        "last": ["update", "goblin", {"x": 99}, "~ana"],
        "raw": [1, 2],
        "many": True,
        "refused": ["too-large", "invalid-payload", "invalid-payload"],
    }

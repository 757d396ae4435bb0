"""Presence over the gateway: players arrive and leave in one order with the events."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson

import gamecast
from adapters.embedded.server import EmbeddedServer
from gateway.dashboard.routes import dashboard
from gateway.tokens import KeyFile, Keys, mint, new_key
from tests.integration.gateway.test_gateway_javascript import CLIENT, node, printed
from tests.integration.gateway_clients import Socket, running_gateway
from tests.patience import patience, scaled


def said(socket: Socket) -> list[Any]:
    """Return what came: who arrived or left, and payloads."""
    found: list[Any] = []
    for item in socket.events:
        if "presence" in item:
            found.append((item["presence"]["name"], item["presence"]["here"]))
        elif "state" in item:
            found.append({"present": sorted(item["present"])})
        else:
            found.append(item["payload"])
    return found


async def until(socket: Socket, wanted: list[Any]) -> None:
    async with patience(20):
        while said(socket)[-len(wanted) :] != wanted:
            await socket._read()


async def test_players_see_who_comes_and_goes_in_order_with_the_events(redis_server: EmbeddedServer) -> None:
    async with (
        running_gateway(redis_server.url, keep_s=0.2, extensions=(dashboard(redis_server.url),)) as running,
        gamecast.connect(redis_server.url, name="server") as server,
        Socket.open(running.url, name="ana") as ana,
    ):
        await server.subscribe("hall", presence="watch")
        await ana.subscribe("hall", state=True, presence={"hall": {"nick": "Ana"}})
        async with Socket.open(running.url, name="bob") as bob:
            await bob.subscribe("hall", state=True, presence={"hall": {"nick": "Bob"}})
            await bob.publish("hall", "hello")
            await until(bob, ["hello"])
            assert said(bob) == [{"present": ["~ana"]}, ("~bob", True), "hello"]
            async with Socket.open(running.url, name="eve") as eve:
                await eve.subscribe("hall", state=True, presence={"hall": "watch"})
                assert said(eve)[0] == {"present": ["~ana", "~bob"]}
            await bob.say(type="unsubscribe", id=9, regions=["hall"])
            await bob.reply(9)
        await until(ana, [("~bob", False)])
        assert said(ana) == [{"present": []}, ("~ana", True), ("~bob", True), "hello", ("~bob", False)]
        assert ana.events[-1]["presence"]["info"] == {"nick": "Bob"}
        async with patience(10):
            while server.present("hall") != {"~ana": {"nick": "Ana"}}:
                await server.fetch(timeout=0.05)


async def test_a_player_that_drops_stays_until_its_place_is_given_up(redis_server: EmbeddedServer) -> None:
    async with (
        running_gateway(redis_server.url, keep_s=1.0) as running,
        Socket.open(running.url, name="ana") as ana,
    ):
        await ana.subscribe("hall", state=True, presence={"hall": "watch"})
        async with Socket.open(running.url, name="bob") as bob:
            await bob.subscribe("hall", state=True, presence={"hall": {}})
            positions = bob.positions
            bob.drop()
        async with Socket.open(running.url, name="bob") as bob:
            await bob.subscribe("hall", since=positions, presence={"hall": {}})
            await bob.publish("hall", "back")
            await until(ana, ["back"])
            assert said(ana)[1:] == [("~bob", True), "back"], "no one saw it go"
            bob.drop()
        await until(ana, [("~bob", False)])


async def test_a_player_whose_token_expires_stays_if_it_comes_back_with_a_new_one(
    redis_server: EmbeddedServer, tmp_path: Path
) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(orjson.dumps({"keys": [new_key("EdDSA", "k1")]}))

    def minted(subject: str, seconds: float) -> str:
        signer = Keys.read(file).signer()
        return mint(signer, subject=subject, read=["**"], write=["**"], lifetime_s=seconds)

    async with (
        running_gateway(redis_server.url, keys=KeyFile(file), keep_s=1.0, token_leeway_s=0) as running,
        Socket.open(running.url, token=minted("ana", 600)) as ana,
    ):
        await ana.subscribe("hall", state=True, presence={"hall": "watch"})
        async with Socket.open(running.url, token=minted("bob", scaled(4)), name="bob") as bob:
            await bob.subscribe("hall", state=True, presence={"hall": {}})
            positions = bob.positions
            assert (await bob.closed())[0] == 4010
        async with Socket.open(running.url, token=minted("bob", 600), name="bob") as bob:
            await bob.subscribe("hall", since=positions, presence={"hall": {}})
            await bob.publish("hall", "back")
            await until(ana, ["back"])
            assert said(ana)[1:] == [("~bob", True), "back"], "no one saw it go"


async def test_who_resumes_at_another_gateway_hears_what_it_missed(redis_server: EmbeddedServer) -> None:
    async with (
        running_gateway(redis_server.url, keep_s=0.2) as one,
        running_gateway(redis_server.url, keep_s=0.2) as other,
        Socket.open(one.url, name="ana") as ana,
    ):
        async with Socket.open(one.url, name="bob") as bob:
            await bob.subscribe("hall", state=True, presence={"hall": "watch"})
            await ana.subscribe("hall", state=True, presence={"hall": {"n": 1}})
            await until(bob, [("~ana", True)])
            positions = bob.positions
            bob.drop()
        await ana.say(type="unsubscribe", id=1, regions=["hall"])
        await ana.reply(1)
        await asyncio.sleep(0.5)
        async with Socket.open(other.url, name="bob") as bob:
            await bob.subscribe("hall", since=positions, presence={"hall": "watch"})
            await until(bob, [("~ana", False)])
            await ana.subscribe("hall", state=True, presence={"hall": {"n": 2}})
            await until(bob, [("~ana", False), ("~ana", True)])


async def test_unfit_presence_is_refused(redis_server: EmbeddedServer) -> None:
    async with running_gateway(redis_server.url) as running, Socket.open(running.url, name="ana") as ana:
        for presence, more, code in (
            (7, {"state": True}, "malformed"),
            ({"hall": 7}, {"state": True}, "malformed"),
            ({"hall": "all"}, {"state": True}, "malformed"),
            ({"other": {}}, {"state": True}, "malformed"),
            ({"hall": {}}, {}, "malformed"),
            ({"hall": {"text": "x" * 5_000}}, {"state": True}, "too-large"),
        ):
            await ana.say(type="subscribe", id=7, regions=["hall"], presence=presence, **more)
            error = await ana.reply(7)
            assert (error["type"], error["code"]) == ("error", code), (presence, error)
        for number, key in enumerate(("@bob", "owner:troll"), start=8):  # who is here, and whose an entity is
            for payload in (1, None):
                await ana.say(type="publish", id=number, region="hall", payload=payload, key=key)
                assert (await ana.reply(number))["code"] == "invalid-key"


SCENARIO = """
import { connect } from "%(client)s";
const url = process.argv.at(-1);
const [ana, bob] = ["ana", "bob"].map((name) => connect(url, { name }));
const seen = [];
const hall = ana.subscription("hall", { presence: { nick: "Ana" } });
hall.on("presence", ({ presence: { name, here } }) => seen.push([name, here, Object.keys(ana.present("hall"))]));
hall.on("event", ({ payload }) => seen.push(payload));
await hall.subscribe();
await bob.subscribe("hall", { presence: { nick: "Bob" } });
await bob.publish("hall", "hello");
const refused = await bob.subscribe("other", { presence: {}, since: 0 }).catch(({ code }) => code);
await bob.unsubscribe("hall");
await bob.subscribe("hall", { presence: "watch" });
const pause = () => new Promise((resolve) => setTimeout(resolve, 20));
while (seen.length < 4) await pause();
console.log(JSON.stringify({ seen, refused, present: bob.present("hall"), left: bob.present("other") }));
ana.close();
bob.close();
"""


async def test_the_javascript_client_has_the_roster(redis_server: EmbeddedServer, tmp_path: Path) -> None:
    file = tmp_path / "presence.mjs"
    file.write_text(SCENARIO % {"client": (CLIENT / "gamecast.js").as_uri()})
    async with running_gateway(redis_server.url) as running:
        found = await printed(*node(), file, running.url, seconds=60)
    assert found == {
        "seen": [["~ana", True, ["~ana"]], ["~bob", True, ["~ana", "~bob"]], "hello", ["~bob", False, ["~ana"]]],
        "refused": "malformed",
        "present": {"~ana": {"nick": "Ana"}},
        "left": {},
    }

"""The JavaScript client where two things meet: refusals, leaving and joining at once, iterations, odd values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapters.embedded.server import EmbeddedServer
from gateway.tokens import KeyFile, Keys, mint, new_key
from tests.integration.gateway.test_javascript_client import run
from tests.integration.gateway_clients import running_gateway

CASES: dict[str, tuple[str, Any]] = {
    "a region that a resume is refused for is left with an error, and the others resume in one message": (
        """
        Server.answer.subscribe = (server, message) => {
          if (Server.all.length > 1 && message.regions.includes("guild")) {
            return setTimeout(() => server.refuse(message, "forbidden", { region: "guild" }));
          }
          const regions = Object.fromEntries(message.regions.map((region) => [region, "1-0"]));
          server.say({ type: "subscribed", id: message.id, regions });
        };
        const game = open(), guild = game.subscription("guild"), errors = [], statuses = [];
        game.on("error", ({ code, region }) => errors.push([code, region]));
        game.on("gap", () => errors.push("gap"));
        await Promise.all([game.subscribe(["forest", "river"]), guild.subscribe()]);
        const ended = (async () => { for await (const item of guild); })().catch(({ code }) => code);
        Server.last.events(event(1));
        Server.last.close(1006);
        await until(() => Server.all.length === 3 && game.status === "open");
        const { regions, since } = Server.last.said[1];
        Object.assign(out, { errors, ended: await ended, regions, since, status: game.status });
        """,
        {
            "errors": [["forbidden", "guild"]],
            "ended": "forbidden",
            "regions": ["forest", "river"],
            "since": {"forest": "1-1", "river": "1-0"},
            "status": "open",
        },
    ),
    "a client whose positions are of no use any more reports gaps, and follows its regions from now on": (
        """
        Server.answer.subscribe = (server, message) => {
          if (message.id === "resume" && Server.all.length === 2) {
            return setTimeout(() => server.refuse(message, "malformed"));
          }
          const regions = Object.fromEntries(message.regions.map((region) => [region, "2-7"]));
          if (message.state) server.events({ region: "doors", position: "2-7", state: {} });
          server.say({ type: "subscribed", id: message.id, regions });
        };
        const game = open(), heard = [];
        for (const kind of ["event", "gap", "state"]) {
          game.on(kind, ({ region, position, gap }) => heard.push([kind, region, position, gap?.first]));
        }
        await game.subscribe("forest");
        await game.subscribe("doors", { state: true });
        Server.last.close(1013, "the network lost its data");
        await until(() => game.status === "waiting");
        await until(() => game.status === "open" && heard.length === 4);
        Server.last.events({ ...event(8), position: "2-8" });
        Object.assign(out, { heard, status: game.status, positions: game.positions, errors: out.complaints });
        """,
        {
            "heard": [
                ["state", "doors", "2-7", None],
                ["gap", "forest", None, "2-8"],
                ["gap", "doors", None, "2-8"],
                ["state", "doors", "2-7", None],
                ["event", "forest", "2-8", None],
            ],
            "status": "open",
            "positions": {"forest": "2-8", "doors": "2-7"},
        },
    ),
    "a region that cannot begin again for now is asked for again, and one that cannot at all is left": (
        """
        let asked = 0;
        Server.answer.subscribe = (server, message) => setTimeout(() => {
          if (message.id === "resume") return server.refuse(message, "denied");
          if (Server.all.length === 2 && message.regions[0] === "river") return server.refuse(message, "denied");
          if (Server.all.length === 2 && asked++ === 0) {
            return server.refuse(message, "rate", { retriable: true, retry_after_ms: 20 });
          }
          server.say({ type: "subscribed", id: message.id, regions: { [message.regions[0]]: "1-0" } });
        });
        const game = open(), errors = [];
        game.on("error", ({ code, region }) => errors.push([code, region]));
        await Promise.all([game.subscribe("forest"), game.subscribe("river")]);
        Server.last.close(1006);
        await until(() => asked === 2 && game.positions.forest);
        Object.assign(out, { errors, positions: game.positions, status: game.status });
        """,
        {"errors": [["denied", "river"]], "positions": {"forest": "1-0"}, "status": "open"},
    ),
    "what comes of a region between its unsubscribe and the answer is not of the next subscribe": (
        """
        Server.answer.unsubscribe = () => {};
        const game = open(), forest = game.subscription("forest"), heard = [];
        for (const kind of ["event", "state"]) forest.on(kind, ({ position }) => heard.push([kind, position]));
        await forest.subscribe();
        Server.answer.subscribe = () => {};
        const left = forest.unsubscribe(), joined = forest.subscribe({ state: true });
        Server.last.events(event(1));
        Server.last.say({ type: "unsubscribed", id: Server.last.said.at(-2).id, regions: ["forest"] });
        Server.last.close(1006);
        Server.answer.subscribe = (server, { id, state }) => {
          if (state) server.events({ region: "forest", position: "1-2", state: {} });
          server.say({ type: "subscribed", id, regions: { forest: "1-2" } });
        };
        await left;
        await joined;
        out.heard = heard;
        """,
        {"heard": [["state", "1-2"]]},
    ),
    "an unsubscribe takes back the joins of the region that wait": (
        """
        const game = open(), forest = game.subscription("forest");
        const first = forest.subscribe();
        await forest.unsubscribe();
        await Promise.all([first, forest.subscribe({ state: true })]);
        out.said = Server.last.said.slice(1).map(({ type, state }) => [type, state]);
        """,
        {"said": [["subscribe", True]]},
    ),
    "an unsubscribe is done when the connection is lost": (
        """
        Server.answer.unsubscribe = (server) => { server.close(1006); Server.answer.hello = () => {}; };
        const game = open();
        await game.subscribe("forest");
        out.left = await Promise.race([outcome(game.unsubscribe("forest")), pause(1000)]);
        """,
        {"left": ["resolved", None]},
    ),
    "a subscription of which one call fails and another succeeds is subscribed": (
        """
        let count = 0;
        Server.answer.subscribe = (server, message) => {
          if (count++ === 0) return server.refuse(message, "rate", { retriable: true });
          server.say({ type: "subscribed", id: message.id, regions: { forest: "1-0" } });
        };
        const game = open(), forest = game.subscription("forest"), heard = [];
        forest.on("event", ({ payload }) => heard.push(payload));
        const both = [outcome(forest.subscribe()), outcome(forest.subscribe())];
        out.outcomes = (await Promise.all(both)).map(([how]) => how);
        Server.last.events(event(1));
        out.heard = heard;
        """,
        {"outcomes": ["rate", "resolved"], "heard": [1]},
    ),
    "an iteration that was left keeps nothing: not for a later one, nor beside handlers": (
        """
        const game = open({ queueMax: 10 }), forest = game.subscription("forest"), heard = [];
        await forest.subscribe();
        setTimeout(() => Server.last.events(event(1), event(2)));
        for await (const item of forest) break;
        await forest.subscribe();
        setTimeout(() => Server.last.events(event(3)));
        for await (const { payload } of forest) { out.second = payload; break; }
        await forest.subscribe();
        forest.on("event", ({ payload }) => heard.push(payload));
        for (let number = 4; number < 30; number++) Server.last.events(event(number));
        Object.assign(out, { heard: heard.length, status: game.status });
        """,
        {"second": 3, "heard": 26, "status": "open"},
    ),
    "an iterator that was left is done, also one that waited for the subscribe": (
        """
        const game = open(), forest = game.subscription("forest");
        const items = forest[Symbol.asyncIterator](), waiting = items.next();
        await items.return();
        out.done = [(await waiting).done, (await items.next()).done];
        """,
        {"done": [True, True]},
    ),
    "regions may have the names of an object's members": (
        """
        const game = open(), names = ["constructor", "toString", "__proto__"];
        const joined = Promise.all(names.map((region) => game.subscribe(region)));
        out.joined = (await Promise.race([joined, pause(500).then(() => [])])).map((each) => Object.values(each));
        """,
        {"joined": [["1-0"], ["1-0"], ["1-0"]]},
    ),
    "what the gateway would close for, or cannot be written, is refused, and harms nothing": (
        """
        const game = open();
        await game.subscribe("river");
        out.codes = (await Promise.all([
          outcome(game.subscribe("half\\ud83d")), outcome(game.unsubscribe("half\\ud83d")),
          outcome(game.history("\\ud83d")),
        ])).map(([code]) => code);
        out.bigint = (await game.subscribe("forest", { since: 5n }).catch((error) => error)) instanceof TypeError;
        Server.last.close(1006);
        await until(() => Server.all.length === 2 && game.status === "open");
        Object.assign(out, { said: Server.last.said.slice(1).map(({ regions }) => regions) });
        """,
        {"codes": ["invalid-region"] * 3, "bigint": True, "said": [["river"]]},
    ),
    "a token function that never answers is asked again, and a late token is not used": (
        """
        let calls = 0;
        const token = () => new Promise((resolve) => { if (++calls > 1) resolve("good"); });
        const game = open({ token, tokenTimeoutMs: 30 }), errors = [];
        game.on("error", ({ code, message }) => errors.push([code, message]));
        await Promise.race([game.subscribe("forest"), pause(2000)]);
        Object.assign(out, { calls, errors, token: Server.last?.said[0].token });
        """,
        {
            "calls": 2,
            "errors": [["token", "no token: the token function did not answer for 0.03 s"]],
            "token": "good",
        },
    ),
    "a page of history fails with an error of the client, also for its token": (
        """
        const asked = [() => { throw new Error("none"); }, () => new Promise(() => {})];
        const pages = asked.map((token) => open({ token, tokenTimeoutMs: 30 }).history("forest"));
        globalThis.fetch = async () => ({ json: async () => null });
        pages.push(open().history("forest"));
        const outcomes = pages.map((page) => Promise.race([outcome(page), pause(500)]));
        out.codes = (await Promise.all(outcomes)).map(([code]) => code);
        delete out.complaints;
        """,
        {"codes": ["token", "token", "unreachable"]},
    ),
    "numbers beyond those of timers do not make it hurry": (
        """
        const outcomes = [];
        for (const retry_after_ms of [1e11, "soon"]) {
          Server.all.length = 0;
          Server.answer.subscribe = undefined;
          const game = open({ connectTimeoutMs: 1e12 });
          await game.subscribe("forest");
          const refusal = { retriable: true, retry_after_ms };
          Server.answer.subscribe = (server, message) => server.refuse(message, "rate", refusal);
          Server.last.close(1006);
          await pause(800);
          outcomes.push(Server.all.length < 8);
          game.close();
        }
        Server.answer.hello = () => {};
        const late = outcome(open({ connectTimeoutMs: 1e12 }).subscribe("forest"));
        out.late = await Promise.race([late, pause(100)]) ?? "waits";
        out.patient = outcomes;
        """,
        {"late": "waits", "patient": [True, True]},
    ),
    "a retry that is refused is uncertain: the first time may have succeeded": (
        """
        const errors = [];
        for (const more of [{ retriable: true }, { key: "door" }]) {
          Server.answer.publish = (server, message) => {
            message.retry ? server.refuse(message, "refused", more) : server.close(1006);
          };
          const game = open();
          await game.subscribe("forest");
          errors.push(await game.publish("forest", 1).catch(({ code, definite }) => [code, definite]));
          game.close();
        }
        out.errors = errors;
        """,
        {"errors": [["uncertain", False], ["refused", True]]},
    ),
    "a region that the backend gave, and that the program left, does not come back with the next connection": (
        """
        Server.welcome = { subscribe: ["lobby", "news"] };
        const game = open();
        await until(() => Object.keys(game.positions).length === 2);
        await game.unsubscribe("lobby");
        Server.last.close(1006);
        await until(() => Server.all.length === 2 && game.status === "open");
        out.regions = Server.last.said.slice(1).map(({ regions }) => regions);
        """,
        {"regions": [["news"]]},
    ),
    "an event without a position, or with those of other regions, does not spoil the resume": (
        """
        const game = open();
        await game.subscribe("forest");
        Server.last.events(event(1, { regions: ["forest"], positions: { forest: "1-1", cave: "1-1" } }));
        out.positions = game.positions;
        Server.last.events(event(2, { position: undefined }));
        await until(() => Server.all.length === 2 && game.status === "open");
        out.since = Server.last.said[1].since;
        """,
        {
            "positions": {"forest": "1-1"},
            "since": {"forest": "1-1"},
            "complaints": [
                "gamecast: GamecastError: the server sent what is no message of the protocol: undefined is no position"
            ],
        },
    ),
    "a server that says much, and no welcome, is given up": (
        """
        Server.welcome = { type: "pong" };
        const now = Date.now, game = open();
        await until(() => Server.all.length === 1 && Server.last.said.length === 1);
        for (let second = 1; second < 12; second++) {
          Date.now = () => now() + 1000 * second;
          Server.last.say({ type: "pong" });
          await pause(120);
        }
        await pause(1500);
        out.again = Server.all.length > 1;
        """,
        {"again": True},
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_where_two_things_meet(case: str, tmp_path: Path) -> None:
    script, expected = CASES[case]
    assert await run(script, tmp_path) == expected


async def test_a_token_that_permits_less_than_the_last_costs_its_region_and_no_other(
    shared_redis: EmbeddedServer, tmp_path: Path
) -> None:
    keys_file = tmp_path / "keys.json"
    keys_file.write_bytes(orjson.dumps({"keys": [new_key("EdDSA", "k1")]}))
    signer = Keys.read(keys_file).signer()
    tokens = [
        mint(signer, subject="alice", read=read, write=["js less/*"]) for read in (["js less/*"], ["js less/forest"])
    ]
    head = """
    import { connect } from "%s";
    const out = {}, sockets = [];
    class Socket extends WebSocket { constructor(...about) { super(...about); sockets.push(this); } }
    """
    script = """
    const game = connect(URL, { WebSocket: Socket, token: () => TOKENS[Math.min(sockets.length, 1)] });
    const errors = [], heard = [];
    game.on("error", ({ code, region }) => errors.push([code, region]));
    game.on("event", ({ payload }) => heard.push(payload));
    await game.subscribe(["js less/forest", "js less/guild"]);
    await game.publish("js less/forest", 1);
    sockets[0].close(3000);
    while (errors.length === 0 || game.status !== "open") await new Promise((done) => setTimeout(done, 5));
    await game.publish("js less/forest", 2);
    while (heard.length < 2) await new Promise((done) => setTimeout(done, 5));
    Object.assign(out, { errors, heard, regions: Object.keys(game.positions) });
    """
    async with running_gateway(shared_redis.url, keys=KeyFile(keys_file)) as running:
        filled = script.replace("URL", json.dumps(running.url)).replace("TOKENS", json.dumps(tokens))
        found = await run(filled, tmp_path, head)
    assert found == {"errors": [["forbidden", "js less/guild"]], "heard": [1, 2], "regions": ["js less/forest"]}

"""What the JavaScript client does with a server that follows a script, and with a gateway at its limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapters.embedded.server import EmbeddedServer
from gateway.application import CLIENT
from gateway.tokens import KeyFile, Keys, mint, new_key
from tests.integration.gateway.test_gateway_javascript import node, printed
from tests.integration.gateway_clients import Socket, running_gateway

SERVER = """
import { connect } from "%s";
const out = {};
const until = async (isSo) => { while (!isSo()) await new Promise((done) => setTimeout(done, 5)); };
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const outcome = (promise) => promise.then((value) => ["resolved", value], (error) => [error.code, error.message]);
const event = (number, more) => ({ region: "forest", position: `1-${number}`, sender: "bo", payload: number, ...more });
class Server {
  static all = [];
  static welcome = {};
  static answer = {};
  static get last() { return Server.all.at(-1); }
  readyState = 0;
  said = [];
  constructor() {
    Server.all.push(this);
    setTimeout(() => { this.readyState = 1; this.onopen(); });
  }
  say(message) { this.onmessage({ data: typeof message === "string" ? message : JSON.stringify(message) }); }
  events(...events) { this.say({ type: "events", events }); }
  send(text) {
    const message = JSON.parse(text);
    this.said.push(message);
    const { type, id, regions } = message;
    if (type === "hello" && !Server.answer.hello) {
      this.say({ type: "welcome", name: "~bo", heartbeat_ms: 20000, limits: {}, ...Server.welcome });
    } else if (Server.answer[type]) {
      Server.answer[type](this, message);
    } else if (type === "subscribe") {
      this.say({ type: "subscribed", id, regions: Object.fromEntries(regions.map((region) => [region, "1-0"])) });
    } else if (type === "unsubscribe") {
      this.say({ type: "unsubscribed", id, regions });
    } else if (type === "publish") {
      this.say({ type: "acks", acks: [{ id, region: message.region, position: "1-1" }] });
    }
  }
  refuse({ id }, code, more) { this.say({ type: "error", id, code, message: code, definite: true, ...more }); }
  close(code = 1005, reason = "") {
    if (this.readyState === 3) return;
    this.readyState = 3;
    setTimeout(() => this.onclose({ code, reason }));
  }
}
const open = (options) => connect("ws://nowhere", { WebSocket: Server, ...options });
console.error = (...words) => (out.complaints ??= []).push(words.join(" "));
"""

CASES: dict[str, tuple[str, Any]] = {
    "a client whose own lost connection takes its name goes on, and ends if another one does": (
        """
        const game = open();
        await game.subscribe("forest");
        Server.last.close(1006);
        await until(() => Server.all.length === 2 && game.status === "open");
        Server.last.close(4009, "another session took over this name");
        await until(() => Server.all.length === 3 && game.status === "open");
        out.before = game.status;
        Server.last.close(4009, "another session took over this name");
        await until(() => game.status === "closed");
        out.after = [game.status, Server.all.length];
        """,
        {
            "before": "open",
            "after": ["closed", 3],
            "complaints": ["gamecast: GamecastError: another session took over this name"],
        },
    ),
    "a server that closes after each welcome is tried less and less often, also by a client without regions": (
        """
        for (const regions of [[], ["forest"]]) {
          Server.all.length = 0;
          const game = open({ connectTimeoutMs: Infinity });
          if (regions.length) outcome(game.subscribe(regions));
          const ending = setInterval(() => { if (game.status === "open") Server.last.close(1013); }, 5);
          await pause(1500);
          clearInterval(ending);
          game.close();
          (out.few ??= []).push(Server.all.length > 2 && Server.all.length < 10);
        }
        """,
        {"few": [True, True]},
    ),
    "a handler that throws loses nothing of its batch": (
        """
        const game = open(), heard = [], errors = [];
        game.on("event", ({ payload }) => { if (payload === 1) throw new Error("mine"); });
        game.on("event", async ({ payload }) => { if (payload === 2) throw new Error("later"); });
        game.on("event", ({ payload }) => heard.push(payload));
        game.on("error", (error) => { errors.push(error.message); throw new Error("again"); });
        await game.subscribe("forest");
        try { Server.last.events(event(1), event(2), event(3)); } catch {}
        await pause(1);
        Object.assign(out, { heard, errors, at: game.positions.forest });
        """,
        {"heard": [1, 2, 3], "errors": ["mine", "later"], "at": "1-3", "complaints": ["gamecast: Error: again"] * 2},
    ),
    "a refused join of more regions leaves those that are joined, and those that another call joins": (
        """
        Server.answer.subscribe = (server, message) => {
          setTimeout(() => {
            if (message.regions.includes("secret")) return server.refuse(message, "forbidden");
            const regions = Object.fromEntries(message.regions.map((region) => [region, "1-0"]));
            server.say({ type: "subscribed", id: message.id, regions });
          });
        };
        const game = open(), heard = [];
        game.on("event", ({ payload }) => heard.push(payload));
        await game.subscribe("river");
        const refused = outcome(game.subscribe(["forest", "river", "secret"]));
        const joined = outcome(game.subscribe("forest"));
        out.outcomes = [(await refused)[0], await joined];
        Server.last.events(event(1), event(2, { region: "river" }));
        Server.last.close(1001);
        await until(() => Server.all.length === 2 && game.status === "open");
        const { regions, since } = Server.last.said.find(({ type }) => type === "subscribe");
        Object.assign(out, { heard, regions: regions.sort(), since });
        """,
        {
            "outcomes": ["forbidden", ["resolved", {"forest": "1-0"}]],
            "heard": [1, 2],
            "regions": ["forest", "river"],
            "since": {"river": "1-2", "forest": "1-1"},
        },
    ),
    "a join with since, from before the connection is open, waits for its own answer": (
        """
        const asked = [];
        Server.answer.subscribe = (server, message) => asked.push([server, message]);
        const game = open();
        let isDone = false;
        const joined = outcome(game.subscribe("forest", { since: "1-7" })).finally(() => { isDone = true; });
        const refused = outcome(game.subscribe("secret", { since: { secret: "1-8" } }));
        await until(() => asked.length === 2);
        out.isDone = isDone;
        for (const [server, message] of asked) {
          if (message.regions.includes("secret")) server.refuse(message, "forbidden");
          else server.say({ type: "subscribed", id: message.id, regions: { forest: "1-9" } });
        }
        out.outcomes = [await joined, (await refused)[0]];
        out.since = asked.map(([, { since }]) => since);
        out.positions = game.positions;
        """,
        {
            "isDone": False,
            "outcomes": [["resolved", {"forest": "1-9"}], "forbidden"],
            "since": ["1-7", {"secret": "1-8"}],
            "positions": {"forest": "1-9"},
        },
    ),
    "a join that the connection interrupts during its replay is answered when that is resumed": (
        """
        const asked = [];
        Server.answer.subscribe = (server, message) => asked.push([server, message]);
        const game = open();
        let isDone = false;
        const joined = game.subscribe("forest", { since: 0 }).finally(() => { isDone = true; });
        await until(() => asked.length === 1);
        Server.last.events(event(4));
        Server.last.close(1001);
        await until(() => asked.length === 2);
        await pause(5);
        out.isDone = isDone;
        const [server, { id, since }] = asked[1];
        server.say({ type: "subscribed", id, regions: { forest: "1-4" } });
        Object.assign(out, { since, joined: await joined });
        """,
        {"isDone": False, "since": {"forest": "1-4"}, "joined": {"forest": "1-4"}},
    ),
    "a publish that the gateway could not take is refused before it is sent": (
        """
        Server.welcome.limits = { message_bytes: 300, payload_bytes: 100 };
        const game = open();
        const early = outcome(game.publish("forest", "x".repeat(400)));
        await game.subscribe("forest");
        const cycle = {}; cycle.self = cycle;
        let deep = 1; for (let depth = 0; depth < 2000; depth++) deep = [deep];
        const payloads = ["ü".repeat(50), new Uint8Array(101), cycle, deep, "\\ud800", 7n, () => 1];
        const outcomes = [await early];
        for (const payload of payloads) outcomes.push(await outcome(game.publish("forest", payload)));
        outcomes.push(await outcome(game.publish("f".repeat(300), 1)));
        const fine = ["ü".repeat(49), new Uint8Array(100), "\\\\ud800", "😀", undefined, Array(49).fill(1)];
        for (const payload of fine) await game.publish("forest", payload);
        out.codes = outcomes.map(([code]) => code);
        out.message = outcomes[0][1];
        out.sent = Server.last.said.filter(({ type }) => type === "publish").length;
        out.status = game.status;
        """,
        {
            "codes": ["too-large", "too-large", "too-large", *["invalid-payload"] * 5, "too-large"],
            "message": "a payload of 402 bytes is over the gateway's limit of 100: publish less at once",
            "sent": 6,
            "status": "open",
        },
    ),
    "99,000 queued events are taken in a moment": (
        """
        const game = open();
        await game.subscribe("forest");
        const events = Array.from({ length: 99_000 }, (_, at) => event(at + 1));
        const turn = game[Symbol.asyncIterator]();
        Server.last.events(...events.slice(0, 50_000));
        Server.last.events(...events.slice(50_000));
        const begun = performance.now();
        let isOrdered = true;
        for (let at = 1; at <= 99_000; at++) isOrdered &&= (await turn.next()).value.payload === at;
        Object.assign(out, { isOrdered, isQuick: performance.now() - begun < 3000 });
        """,
        {"isOrdered": True, "isQuick": True},
    ),
    "events from before the first handler are given to it, in order": (
        """
        const game = open(), heard = [];
        await game.subscribe("forest");
        Server.last.events(event(1), { region: "forest", position: "1-2", gap: { reason: "r" } }, event(3));
        game.on("event", ({ payload }) => heard.push(payload));
        game.on("gap", ({ position }) => heard.push(position));
        Server.last.events(event(4));
        await pause(1);
        Server.last.events(event(5));
        out.heard = heard;
        """,
        {"heard": [1, "1-2", 3, 4, 5]},
    ),
    "of several calls of next, each gets an event": (
        """
        const game = open(), turn = game[Symbol.asyncIterator]();
        await game.subscribe("forest");
        const taken = Promise.all([turn.next(), turn.next(), turn.next()]);
        Server.last.events(event(1), event(2));
        game.close();
        out.taken = await Promise.race([taken, pause(200)]);
        """,
        {
            "taken": [
                *(
                    {"done": False, "value": {"region": "forest", "position": f"1-{n}", "sender": "bo", "payload": n}}
                    for n in (1, 2)
                ),
                {"done": True},
            ]
        },
    ),
    "a retriable refusal of the resuming join is tried again, after the time that it names": (
        """
        const game = open(), at = [];
        await game.subscribe("forest");
        Server.answer.subscribe = (server, message) => {
          at.push(performance.now());
          if (at.length === 1) return server.refuse(message, "rate", { retriable: true, retry_after_ms: 300 });
          server.say({ type: "subscribed", id: message.id, regions: { forest: "1-0" } });
        };
        const turn = game[Symbol.asyncIterator]().next();
        Server.last.close(1001);
        await until(() => at.length === 2 || game.status === "closed");
        Server.last.events(event(1));
        Object.assign(out, { waited: at[1] - at[0] >= 290, payload: (await turn).value.payload });
        """,
        {"waited": True, "payload": 1},
    ),
    "what is no message of the protocol is an error, and the client resumes": (
        """
        const game = open(), errors = [];
        game.on?.("error", (error) => errors.push(error.code));
        await game.subscribe("forest");
        for (const text of ["<html>", "null", '{"type": "events", "events": 3}']) {
          const number = Server.all.length;
          try { Server.last.say(text); } catch {}
          await until(() => Server.all.length > number && game.status === "open");
        }
        Object.assign(out, { errors, since: Server.last.said[1].since });
        """,
        {"errors": ["protocol"] * 3, "since": {"forest": "1-0"}},
    ),
    "a token function that fails is reported each time, and may say that it is of no use": (
        """
        const errors = [], statuses = [];
        let asked = 0;
        const game = open({ token: () => {
          asked += 1;
          if (asked < 3) throw new Error("no session");
          throw Object.assign(new Error("banned"), { retriable: false });
        } });
        game.on("error", ({ code, message }) => errors.push([code, message]));
        game.on("status", (status, error) => statuses.push([status, error?.code]));
        const joined = await outcome(game.subscribe("forest"));
        await pause(5);
        Object.assign(out, { errors, statuses, joined, asked });
        """,
        {
            "errors": [["token", "no token: no session"]] * 2 + [["token", "no token: banned"]],
            "statuses": [["waiting", "unreachable"]] * 2 + [["closed", "token"]],
            "joined": ["token", "no token: banned"],
            "asked": 3,
        },
    ),
    "a token that is refused is reported once, until another one is accepted": (
        """
        const errors = [];
        let isGood = false;
        Server.answer.hello = (server) => {
          if (isGood) server.say({ type: "welcome", name: "~bo", heartbeat_ms: 20000, limits: {} });
          else server.close(4001, "the token's signature is wrong");
        };
        const game = open({ token: () => "bad" });
        game.on("error", ({ code, message }) => errors.push([code, message]));
        await until(() => Server.all.length > 3);
        out.once = errors.length;
        isGood = true;
        await until(() => game.status === "open");
        isGood = false;
        const before = Server.all.length;
        Server.last.close(4001, "the token's signature is wrong");
        await until(() => Server.all.length > before + 2);
        out.errors = errors;
        """,
        {"once": 1, "errors": [["unauthorized", "the token's signature is wrong"]] * 2},
    ),
    "without a handler an error is written to the console": (
        """
        const game = open({ token: () => { throw new Error("no session"); } });
        await until(() => out.complaints?.length);
        """,
        {"complaints": ["gamecast: GamecastError: no token: no session"]},
    ),
    "a subscription has handlers of its own, which see the first event of a replay": (
        """
        Server.answer.subscribe = (server, { id, regions }) => {
          if (regions[0] === "forest") server.events(event(1), event(2));
          server.say({ type: "subscribed", id, regions: Object.fromEntries(regions.map((region) => [region, "1-2"])) });
        };
        const game = open(), heard = { forest: [], river: [], all: [] };
        const forest = game.subscription("forest", { since: 0 }), river = game.subscription("river");
        forest.on("event", ({ payload }) => heard.forest.push(payload));
        river.on("event", ({ payload }) => heard.river.push(payload));
        game.on("event", ({ payload }) => heard.all.push(payload));
        await Promise.all([forest.subscribe(), river.subscribe()]);
        Server.last.events(event(3, { region: "river" }), event(4, {
          regions: ["forest", "river"], positions: { forest: "1-4", river: "1-4" },
        }));
        await forest.unsubscribe();
        Server.last.events(event(5), event(6, { region: "river" }));
        await forest.publish("last");
        const { type, since, regions } = Server.last.said[1];
        Object.assign(out, { heard, said: { type, since, regions }, last: Server.last.said.at(-1).region });
        """,
        {
            "heard": {"forest": [1, 2, 4], "river": [3, 4, 6], "all": [1, 2, 3, 4, 6]},
            "said": {"type": "subscribe", "since": 0, "regions": ["forest"]},
            "last": "forest",
        },
    ),
    "subscriptions can be iterated, share regions, and end alone when they are refused": (
        """
        Server.answer.subscribe = (server, message) => {
          if (message.regions.includes("secret")) return server.refuse(message, "forbidden");
          const regions = Object.fromEntries(message.regions.map((region) => [region, "1-0"]));
          server.say({ type: "subscribed", id: message.id, regions });
        };
        const game = open();
        const one = game.subscription("forest"), both = game.subscription(["forest", "river"]);
        const secret = game.subscription("secret");
        const ended = outcome(secret[Symbol.asyncIterator]().next());
        out.refused = [(await outcome(secret.subscribe()))[0], (await ended)[0]];
        await one.subscribe();
        await both.subscribe();
        Server.last.events(event(1), event(2, { region: "river" }));
        out.one = [];
        for await (const { payload } of one) { out.one.push(payload); break; }
        out.both = [];
        for await (const { payload } of both) if (out.both.push(payload) === 2) break;
        out.left = Server.last.said.filter(({ type }) => type === "unsubscribe").map(({ regions }) => regions);
        """,
        {"refused": ["forbidden"] * 2, "one": [1], "both": [1, 2], "left": [["forest", "river"]]},
    ),
    "when the network is back it connects at once": (
        """
        let online;
        globalThis.addEventListener = (kind, handler) => { if (kind === "online") online = handler; };
        globalThis.removeEventListener = (kind, handler) => { out.isRemoved = handler === online; };
        const game = open();
        await game.subscribe("forest");
        Math.random = () => 1e6;
        Server.last.close(1006);
        await until(() => game.status === "waiting");
        online();
        await until(() => game.status === "open");
        online();
        await until(() => Server.last.said.some(({ type }) => type === "ping"));
        Math.random = () => 0;
        await until(() => Server.all.length === 3);
        game.close();
        """,
        {"isRemoved": True},
    ),
    "after sleep it sees whether the server is still there": (
        """
        const game = open(), now = Date.now;
        await game.subscribe("forest");
        Date.now = () => now() + 60_000;
        await until(() => Server.last.said.some(({ type }) => type === "ping"));
        Server.last.say({ type: "pong" });
        Date.now = () => now() + 65_000;
        await pause(1500);
        Object.assign(out, { connections: Server.all.length, status: game.status });
        """,
        {"connections": 1, "status": "open"},
    ),
    "an event that is published and then changed is sent as it was": (
        """
        const game = open(), payload = { x: 1 };
        const published = game.publish("forest", payload);
        payload.x = 2;
        await published;
        out.sent = Server.last.said[1].payload;
        """,
        {"sent": {"x": 1}},
    ),
    "a name of an event that does not exist is refused": (
        """
        try { open().on("message", () => {}); } catch (error) { out.message = error.message; }
        """,
        {"message": 'there is no event "message": use one of event, gap, state, presence, update, status, error'},
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_with_a_server_that_follows_a_script(case: str, tmp_path: Path) -> None:
    script, expected = CASES[case]
    assert await run(script, tmp_path) == expected


async def run(script: str, directory: Path, head: str = SERVER) -> Any:
    """Run a script with the client, and return what it put into ``out``."""
    file = directory / "run.mjs"
    ending = "\nconsole.log(JSON.stringify(out));\nprocess.exit(0);\n"
    file.write_text(head % (CLIENT / "gamecast.js").as_uri() + script + ending)
    return await printed(*node(), file, seconds=20)


GATEWAY = """
import {{ connect }} from "%s";
const out = {{}};
const game = connect({url}, {{ token: {token} }});
"""


async def test_a_gateway_refuses_nothing_for_good_because_of_one_large_publish(
    shared_redis: EmbeddedServer, tmp_path: Path
) -> None:
    script = """
    await game.subscribe("js large");
    out.code = await game.publish("js large", "x".repeat(300_000)).catch(({ code }) => code);
    await game.publish("js large", new Uint8Array([1, 2]));
    await game.publish("js large", "fits", { key: "door" });
    const first = await game.history("js large", { limit: 1 });
    const second = await game.history("js large", { after: first.next });
    out.pages = [first, second].map(({ events }) => events.map(({ payload }) => [...payload].join("")));
    out.more = [first.more, second.more];
    out.refused = await game.history("a/../b").catch(({ code }) => code);
    """
    async with running_gateway(shared_redis.url) as running:
        found = await run(script, tmp_path, GATEWAY.format(url=json.dumps(running.url), token="null"))
    assert found == {
        "code": "too-large",
        "pages": [["12"], ["fits"]],
        "more": [True, False],
        "refused": "invalid-region",
    }


async def test_what_a_token_does_not_permit_leaves_the_rest_alone_and_is_refused_before_the_connection_is_open(
    shared_redis: EmbeddedServer, tmp_path: Path
) -> None:
    keys_file = tmp_path / "keys.json"
    keys_file.write_bytes(orjson.dumps({"keys": [new_key("EdDSA", "k1")]}))
    token = mint(Keys.read(keys_file).signer(), subject="alice", read=["open/*"], write=["open/*"])
    script = """
    const outcome = (promise) => promise.then(() => "joined", ({ code }) => code);
    const early = [
      game.subscribe("secret/1", { since: 0 }), game.subscribe("open/1", { since: 0 }), game.subscribe("secret/2"),
    ];
    out.early = await Promise.all(early.map(outcome));
    const heard = [];
    game.on("event", ({ payload }) => heard.push(payload));
    out.late = await Promise.all([
      game.subscribe(["open/1", "open/2", "secret/1"]),
      game.subscribe("open/2"),
      game.subscribe(["open/3", "secret/1"]),
    ].map(outcome));
    await game.publish("open/1", 1);
    await game.publish("open/2", 2);
    while (heard.length < 2) await new Promise((done) => setTimeout(done, 5));
    Object.assign(out, { heard, regions: Object.keys(game.positions).sort(), status: game.status });
    """
    async with running_gateway(shared_redis.url, keys=KeyFile(keys_file)) as running:
        head = GATEWAY.format(url=json.dumps(running.url), token=json.dumps(token))
        found = await run(script, tmp_path, head)
    assert found == {
        "early": ["forbidden", "joined", "forbidden"],
        "late": ["forbidden", "joined", "forbidden"],
        "heard": [1, 2],
        "regions": ["open/1", "open/2"],
        "status": "open",
    }


async def test_an_engine_whose_numbers_are_floats_is_understood(shared_redis: EmbeddedServer) -> None:
    async with (
        running_gateway(shared_redis.url) as running,
        Socket.open(running.url, batch_ms=0.0, message_bytes_max=60000.0) as socket,
    ):
        assert socket.welcome["message_bytes_max"] == 60000
        await socket.say(type="subscribe", id=1.0, regions=["float"], since=0.0)
        assert (await socket.reply(1))["type"] == "subscribed"

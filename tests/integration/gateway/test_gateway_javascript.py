"""The JavaScript client against the real gateway, under Node and in a browser."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import gamecast
from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer
from gateway.gateway import Gateway
from gateway.messages import SUBPROTOCOL
from tests.integration.gateway_clients import Running, Socket, listening, running_gateway
from tests.patience import patience

CLIENT = Path(__file__).parents[3] / "gateway" / "client"
CHROMIUM = Path("/usr/bin/chromium")
HAS_CHROMIUM = CHROMIUM.exists()

SCENARIO = """
export async function scenario({ connect, comparePositions }, url) {
  const game = connect(url, { name: "js" });
  await game.subscribe(["forest", "river"]);
  const seen = [];
  const receipts = [];
  for (let number = 0; number < 30; number++) {
    receipts.push(game.publish(number % 2 ? "river" : "forest", { number, text: "grüße ✓" }));
  }
  receipts.push(game.publish("forest", new Uint8Array([0, 127, 255])));
  const positions = (await Promise.all(receipts)).map((receipt) => receipt.position);
  for await (const event of game) {
    seen.push([event.region, event.sender, event.payload instanceof Uint8Array ? [...event.payload] : event.payload]);
    if (seen.length === 31) break;
  }
  let refusal = null;
  const other = connect(url, { name: "js-2" });
  await other.publish("a/../b", 1).catch((error) => { refusal = [error.code, error.definite]; });
  const even = positions.filter((_, at) => at % 2 === 0);
  const grows = even.every((position, at) => !at || comparePositions(even[at - 1], position) < 0);
  other.close();
  return { seen, refusal, grows, resumable: Object.keys(game.positions).sort() };
}
"""

RESUMING = """
import { connect } from "%(client)s";
const game = connect(%(urls)s, { name: "js" });
await game.subscribe(["forest", "river"]);
const receipts = [];
let published = 0;
let isLast = false;
const publish = () => receipts.push(game.publish(published %% 2 ? "river" : "forest", published++));
game.on("status", (status) => { if (status === "waiting") console.log(JSON.stringify({ dropped: true })); });
const publishing = setInterval(publish, 4);
process.stdin.on("end", () => {  // the last gateway runs
  clearInterval(publishing);
  isLast = true;
  publish();
});
process.stdin.resume();
let acks = [];
const seen = [];
console.log(JSON.stringify({ ready: true }));
for await (const event of game) {
  if ("gap" in event) console.log(JSON.stringify({ gap: event }));
  seen.push([event.region, event.position, event.payload]);
  if (isLast && seen.length === published) {
    acks = await Promise.all(receipts);  // leaving the loop closes the client
    break;
  }
}
console.log(JSON.stringify({ seen, published, acked: acks.length }));
"""


@lru_cache(maxsize=1)
def node() -> tuple[str, ...]:
    """What runs a script that uses WebSockets, which Node has since version 22, and with an option in 20."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("Node is not installed")
    for options in ((), ("--experimental-websocket",)):
        asked = [found, *options, "-e", "process.exit(typeof WebSocket === 'function' ? 0 : 1)"]
        if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
            return found, *options
    pytest.skip("this version of Node has no WebSocket")


async def printed(*command: str | Path, seconds: float, cwd: Path | None = None) -> Any:
    """Run a program that prints JSON and ends, and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with patience(seconds):
            out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()
    return json.loads(out)


async def test_under_node_events_come_in_order_and_refusals_are_errors(
    shared_redis: EmbeddedServer, tmp_path: Path
) -> None:
    async with running_gateway(shared_redis.url) as running:
        script = tmp_path / "run.mjs"
        script.write_text(
            f"import * as client from {json.dumps((CLIENT / 'gamecast.js').as_uri())};\n"
            + SCENARIO
            + f"console.log(JSON.stringify(await scenario(client, {json.dumps(running.url)})));\n"
        )
        process = await asyncio.create_subprocess_exec(*node(), str(script), stdout=asyncio.subprocess.PIPE)
        async with patience(30):
            out, _ = await process.communicate()
        assert process.returncode == 0
        check(json.loads(out))


async def test_in_a_browser_it_does_the_same(shared_redis: EmbeddedServer) -> None:
    playwright = pytest.importorskip("playwright.async_api")
    if not HAS_CHROMIUM:
        pytest.skip("Chromium is not installed")

    def page_route(application: web.Application, gateway: Gateway) -> None:
        async def page(request: web.Request) -> web.Response:
            return web.Response(text="<!doctype html><title>test</title>", content_type="text/html")

        async def script(request: web.Request) -> web.Response:
            return web.Response(text=SCENARIO, content_type="text/javascript")

        application.router.add_get("/page", page)
        application.router.add_get("/scenario.js", script)

    async with (
        running_gateway(shared_redis.url, extensions=(page_route,)) as running,
        playwright.async_playwright() as it,
    ):
        browser = await it.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        try:
            page = await browser.new_page()
            await page.goto(running.url + "/page")
            found = await page.evaluate(
                """async () => {
                    const client = await import("/client/gamecast.js");
                    const { scenario } = await import("/scenario.js");
                    return await scenario(client, location.origin);
                }"""
            )
        finally:
            await browser.close()
        check(found)


def check(found: dict[str, Any]) -> None:
    """Check what the scenario found."""
    numbers = {
        region: [p["number"] for r, _, p in found["seen"] if r == region and isinstance(p, dict)]
        for region in ("forest", "river")
    }
    assert numbers == {"forest": list(range(0, 30, 2)), "river": list(range(1, 30, 2))}
    assert {sender for _, sender, _ in found["seen"]} == {"~js"}
    assert found["seen"][0][2]["text"] == "grüße ✓"
    assert ["forest", "~js", [0, 127, 255]] in found["seen"]
    assert found["refusal"] == ["invalid-region", True]
    assert found["grows"]
    assert found["resumable"] == ["forest", "river"]


async def lines_of(process: asyncio.subprocess.Process) -> AsyncIterator[dict[str, Any]]:
    assert process.stdout is not None
    async for line in process.stdout:
        yield json.loads(line)


@asynccontextmanager
async def running_gateway_once_free(url: str, port: int) -> AsyncIterator[Running]:
    """Run a gateway at a port that another test's client may have for a moment."""
    async with AsyncExitStack() as stack:
        running: Running | None = None
        while running is None:
            try:
                running = await stack.enter_async_context(running_gateway(url, port=port))
            except gamecast.UsageError:
                await asyncio.sleep(0.2)
        yield running


async def test_it_goes_on_by_itself_when_gateways_end_and_others_take_over(
    shared_redis: EmbeddedServer, tmp_path: Path
) -> None:
    ports = [free_port(), free_port()]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    script = tmp_path / "resume.mjs"
    script.write_text(RESUMING % {"client": (CLIENT / "gamecast.js").as_uri(), "urls": json.dumps(urls)})
    async with gamecast.connect(shared_redis.url, name="judge") as judge:
        await judge.subscribe("forest", "river")
        playing: tuple[asyncio.subprocess.Process, AsyncIterator[dict[str, Any]]] | None = None
        drops = 0
        result: dict[str, Any] = {}
        async with patience(60):
            for turn in range(4):
                async with running_gateway_once_free(shared_redis.url, ports[turn % 2]) as running:
                    if playing is None:
                        process = await asyncio.create_subprocess_exec(
                            *node(),
                            str(script),
                            stdin=asyncio.subprocess.PIPE,
                            stdout=asyncio.subprocess.PIPE,
                            limit=1 << 24,
                        )
                        lines = lines_of(process)
                        assert (await anext(lines)) == {"ready": True}
                        playing = process, lines
                    await running.is_noted("session-opened")
                    await asyncio.sleep(0.2)  # some of it is to be under way
                    if turn < 3:
                        continue
                    process, lines = playing
                    assert process.stdin is not None
                    process.stdin.close()
                    async for line in lines:
                        assert "gap" not in line
                        drops += "dropped" in line
                        result = line
                    assert process.returncode is not None or await process.wait() == 0
        assert drops >= 3
        count = result["published"]
        assert count > 100
        assert result["acked"] == count
        seen: list[Any] = []
        async with patience(10):
            async for event in judge:
                assert isinstance(event, gamecast.Event)
                seen.append([event.region, event.position, event.payload])
                if len(seen) == count:
                    break
        assert result["seen"] == seen
        assert sorted(payload for _, _, payload in seen) == list(range(count))


async def test_types_are_served_beside_it(shared_redis: EmbeddedServer) -> None:
    import aiohttp

    async with running_gateway(shared_redis.url) as running, aiohttp.ClientSession() as client:
        for name in ("gamecast.js", "gamecast.d.ts", "messages.d.ts"):
            async with client.get(f"{running.url}/client/{name}") as response:
                assert await response.read() == (CLIENT / name).read_bytes()
        async with Socket.open(running.url) as socket:
            assert socket.welcome["protocol"] == 1


AGAIN = """
import { connect } from "%(client)s";
const game = connect("%(url)s", { name: "js" });
await game.subscribe(["forest"]);
await game.publish("forest", "step");
const second = await game.publish("forest", "step");
console.log(JSON.stringify(second));
game.close();
"""


async def test_it_retries_behind_what_was_answered_so_that_two_equal_events_are_not_taken_for_one(
    tmp_path: Path,
) -> None:
    """A server by hand: it answers the first of two equal events, and breaks when the second comes."""
    published, retries = list[dict[str, Any]](), list[dict[str, Any]]()

    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=(SUBPROTOCOL,))
        await socket.prepare(request)
        answers: dict[str, dict[str, Any]] = {
            "hello": {"type": "welcome", "name": "js", "heartbeat_ms": 20_000, "limits": {"messages_per_array": 9}},
            "subscribe": {"type": "subscribed", "regions": {"forest": "1-5"}},
        }
        async for message in socket:
            said = json.loads(message.data)
            for each in said if isinstance(said, list) else [said]:
                if each["type"] != "publish":
                    await socket.send_json(answers[each["type"]] | {"id": each.get("id")})
                elif each.get("retry"):
                    retries.append(each)
                    await socket.send_json(_acks(each["id"], "1-10"))
                elif not published:
                    published.append(each)
                    await socket.send_json(_acks(each["id"], "1-9"))
                else:
                    await socket.close(code=1001)
        return socket

    application = web.Application()
    application.router.add_get("/v1/socket", serve)
    async with listening(application) as url:
        script = tmp_path / "again.mjs"
        script.write_text(AGAIN % {"client": (CLIENT / "gamecast.js").as_uri(), "url": url})
        process = await asyncio.create_subprocess_exec(*node(), str(script), stdout=asyncio.subprocess.PIPE)
        async with patience(30):
            out, _ = await process.communicate()
    assert json.loads(out)["position"] == "1-10"
    assert [retry["after"] for retry in retries] == ["1-9"]


def _acks(number: int, position: str) -> dict[str, Any]:
    return {"type": "acks", "acks": [{"id": number, "region": "forest", "position": position}]}


DEAD = """
import { connect } from "%(client)s";
const said = (error) => [error.code, error.definite, error.retriable, error.message];
const game = connect("%(url)s", { name: "js", connectTimeoutMs: 300 });
const first = await Promise.allSettled([game.subscribe("forest"), game.publish("forest", 1)]);
console.log(JSON.stringify({ refused: first.map(({ reason }) => said(reason)), last: said(game.lastError) }));
for (let done = false; !done;) {
  const joined = game.subscribe("river").then(() => true);
  done = await joined.catch(({ code }) => { if (code !== "unreachable") throw new Error(code); });
}
console.log(JSON.stringify({ region: (await game.publish("river", 2)).region, joined: Object.keys(game.positions) }));
game.close();
const patient = connect("%(dead)s", { connectTimeoutMs: Infinity });
const ended = patient.subscribe("forest").then(() => "joined", ({ code }) => code);
const waits = await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 600, "waits"))]);
patient.close();
console.log(JSON.stringify({ waits }));
"""


async def test_calls_at_a_dead_address_are_refused_with_a_reason_and_the_client_keeps_trying(
    shared_redis: EmbeddedServer, tmp_path: Path
) -> None:
    port, dead = free_port(), free_port()
    script = tmp_path / "dead.mjs"
    urls = {"url": f"ws://127.0.0.1:{port}", "dead": f"ws://127.0.0.1:{dead}"}
    script.write_text(DEAD % {"client": (CLIENT / "gamecast.js").as_uri(), **urls})
    process = await asyncio.create_subprocess_exec(*node(), str(script), stdout=asyncio.subprocess.PIPE)
    lines = lines_of(process)
    async with patience(30):
        said = await anext(lines)
        for code, definite, retriable, message in (*said["refused"], said["last"]):
            assert (code, definite, retriable) == ("unreachable", True, True)
            assert f"no gateway answers at ws://127.0.0.1:{port}" in message
        assert all(" for 0.3 s" in message for *_, message in said["refused"])
        async with running_gateway(shared_redis.url, port=port):
            assert await anext(lines) == {"region": "river", "joined": ["river"]}
        assert await anext(lines) == {"waits": "waits"}
        assert await process.wait() == 0


UNKNOWN = """
import { connect } from "%s";
const said = [];
const attempt = (call) => {
  try { call(); said.push("taken"); } catch (error) { said.push([error.name, error.message]); }
};
const game = connect("ws://127.0.0.1:9");
attempt(() => connect("ws://127.0.0.1:9", { tokn: "x" }));
attempt(() => game.publish("forest", 1, { only_if: { sword: null } }));
attempt(() => game.subscribe("forest", { states: true }));
game.close();
console.log(JSON.stringify(said));
"""


async def test_an_option_that_is_misspelt_is_refused_and_not_left_out(tmp_path: Path) -> None:
    script = tmp_path / "unknown.mjs"
    script.write_text(UNKNOWN % (CLIENT / "gamecast.js").as_uri(), encoding="utf-8")
    assert await printed(*node(), script, seconds=20) == [
        ["TypeError", "connect() has no option tokn"],
        ["TypeError", "publish() has no option only_if"],
        ["TypeError", "subscribe() has no option states"],
    ]

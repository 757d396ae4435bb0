"""Throw nonsense at a gateway: `python tests/integration/gateway_fuzz.py 100000` from the root of the clone.

Half of the inputs go over one WebSocket after the other, half over HTTP. The gateway may refuse, and close; it may not
answer 500, log an exception, stop to serve, or keep sessions, tasks or connections that are gone.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import string
import sys
import time
from collections import Counter
from typing import Any
from urllib.parse import quote

import aiohttp

from adapters.embedded.server import EmbeddedServer
from tests.integration.gateway_clients import Running, running_gateway
from tests.patience import patience

WORDS: tuple[Any, ...] = (
    *("hello", "subscribe", "unsubscribe", "publish", "ping", "forest", "river", "a/../b", "*", "..", "", "\x00"),
    *("3-120", "0-0", "9" * 400 + "-1", "1-" + "9" * 15, "ａ", "\u202e", "x" * 300, "AQ==", "!", "gateway"),
    *(0, 1, -1, 2**53, 2**64, -(2**63), 1e308, -0.0, True, False, None, [], {}, [[]], {"": {}}),
)
KEYS = (
    "type",
    "id",
    "region",
    "regions",
    "payload",
    "base64",
    "since",
    "after",
    "retry",
    "token",
    "name",
    "protocol",
    "batch_ms",
    "events",
    "limit",
    "",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH")
PATHS = ("/v1/events", "/v1/regions/{}/events", "/v1/socket", "/healthz", "/v1/openapi.json", "/client/{}", "/{}")
HEADERS = ("Authorization", "Idempotency-Key", "Last-Event-ID", "Origin", "Content-Type", "Upgrade", "X-Forwarded-For")


def thing(chance: random.Random, depth: int = 0) -> Any:
    """Return anything that JSON can carry, and often something that means something."""
    roll = chance.random()
    if roll < 0.6 or depth > 3:
        return chance.choice(WORDS)
    if roll < 0.75:
        return "".join(chance.choices(string.printable + "éß東\u200b", k=chance.randrange(12)))
    if roll < 0.85:
        return [thing(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(KEYS): thing(chance, depth + 1) for _ in range(chance.randrange(5))}


def message(chance: random.Random) -> str | bytes:
    """Return one WebSocket message."""
    roll = chance.random()
    if roll < 0.001:
        return chance.randbytes(chance.randrange(64))
    if roll < 0.004:
        return "".join(chance.choices('{}[]",:0é\\utrue', k=chance.randrange(40)))
    kind = chance.choice(("hello", "subscribe", "unsubscribe", "publish", "publish", "ping"))
    told: dict[str, Any] = {"type": kind, "id": chance.choice((1, "x", None))}
    if kind == "publish":
        told |= {"region": chance.choice(("forest", "river")), "payload": thing(chance)}
    if kind.endswith("subscribe"):
        told |= {"regions": chance.choices(("forest", "river", "cave"), k=chance.randrange(1, 3))}
    for _ in range(chance.randrange(3)):
        told[chance.choice(KEYS)] = thing(chance)
    text = json.dumps([told, thing(chance)] if roll < 0.1 else told)
    if roll > 0.995:
        place = chance.randrange(len(text))
        text = text[:place] + chance.choice(string.printable) + text[place + 1 :]
    return text


async def over_socket(
    running: Running, client: aiohttp.ClientSession, chance: random.Random, inputs: int
) -> Counter[str]:
    """Send messages until the gateway closes, and then again; return what it said, counted."""
    said: Counter[str] = Counter()
    left = inputs
    while left > 0:
        async with client.ws_connect(running.url + "/v1/socket", timeout=aiohttp.ClientWSTimeout(ws_close=2.0)) as raw:
            if chance.random() < 0.95:
                await raw.send_str('{"type":"hello"}')
                await raw.send_str('{"type":"subscribe","regions":["forest"]}')
                await raw.send_str('{"type":"publish","region":"forest","payload":1}')
                wanted = {"subscribed", "acks"}
                async with patience(20):  # whatever went before, a session is served
                    while wanted:
                        kind = json.loads(await raw.receive_str())["type"]
                        wanted.discard(kind)
                        said[kind] += 1
            hearing = asyncio.create_task(_hear(raw, said))
            for number in range(chance.randrange(1, 400)):
                if left <= 0 or hearing.done():
                    break
                text = message(chance)
                left -= 1
                try:
                    await (raw.send_str(text) if isinstance(text, str) else raw.send_bytes(text))
                except ConnectionError:
                    break
                if number % 16 == 15:  # what is sent after the gateway has closed is no input
                    await asyncio.wait({hearing}, timeout=0.01)
            await asyncio.wait({hearing}, timeout=0.2)
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)
            said[f"closed {raw.close_code}"] += 1
    return said


async def _hear(raw: aiohttp.ClientWebSocketResponse, said: Counter[str]) -> None:
    async for answer in raw:
        told = json.loads(answer.data)
        said[str(told.get("code", told["type"]))] += 1


async def over_http(
    running: Running, client: aiohttp.ClientSession, chance: random.Random, inputs: int
) -> Counter[str]:
    """Send requests; return the statuses, counted."""
    statuses: Counter[str] = Counter()
    for _ in range(inputs):
        method = chance.choice(METHODS)
        path = chance.choice(PATHS).format(quote(str(thing(chance)), safe=chance.choice(("", "/"))))
        query = "&".join(f"{chance.choice(KEYS)}={quote(str(thing(chance)))}" for _ in range(chance.randrange(3)))
        headers = {
            name: str(thing(chance)).encode("ascii", "ignore").decode().translate(dict.fromkeys((0, 10, 13)))[:300]
            for name in chance.sample(HEADERS, chance.randrange(3))
        }
        body = json.dumps(thing(chance)).encode() if chance.random() < 0.9 else chance.randbytes(chance.randrange(99))
        try:
            async with (
                patience(5),
                client.request(method, f"{running.url}{path}?{query}", headers=headers, data=body) as answer,
            ):
                statuses[str(answer.status)] += 1
                if answer.content_type != "text/event-stream":
                    await answer.read()
        except (aiohttp.ClientError, ValueError) as error:
            statuses[type(error).__name__] += 1
    return statuses


class Complaints(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()} {record.exc_text or record.exc_info or ''}")


async def fuzz(url: str, inputs: int, seed: int) -> dict[str, Any]:
    """Fuzz a gateway over a network; return what it said and what was left of it."""
    chance, complaints = random.Random(seed), Complaints()
    logging.getLogger().addHandler(complaints)
    try:
        limits: dict[str, Any] = {"burst_requests": 10**9, "requests_per_s": 1e9, "request_timeout_s": 5.0}
        async with running_gateway(url, **limits) as running:
            async with aiohttp.ClientSession() as client:
                sockets = await over_socket(running, client, chance, inputs // 2)
                requests = await over_http(running, client, chance, inputs - inputs // 2)
                async with client.get(running.url + "/readyz") as answer:
                    still_serves = answer.status == 200
            async with patience(10):
                await running.gateway.everybody_left()
                await running.gateway.connections.finish()
            gc.collect()
            return {
                "sockets": dict(sockets),
                "requests": dict(requests),
                "still_serves": still_serves,
                "complaints": complaints.lines,
                "tasks": len(asyncio.all_tasks()),
            }
    finally:
        logging.getLogger().removeHandler(complaints)


def main() -> None:
    inputs, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    begun = time.monotonic()
    with EmbeddedServer() as server:
        found = asyncio.run(fuzz(server.url, inputs, seed))
    print(json.dumps(found | {"inputs": inputs, "seconds": round(time.monotonic() - begun, 1)}, indent=1))
    broken = "500" in found["requests"] or "internal" in found["sockets"] or found["complaints"]
    sys.exit(1 if broken or not found["still_serves"] else 0)


if __name__ == "__main__":
    main()

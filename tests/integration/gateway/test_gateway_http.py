"""HTTP: publishing once for each key, history page by page, and answers that are as the description says."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

import gamecast
from adapters.embedded.server import EmbeddedServer
from gateway.descriptions import asyncapi, openapi
from gateway.gateway import Gateway
from gateway.publishing import PENDING_S
from tests.integration.gateway_clients import running_gateway

OPENAPI: dict[str, Any] = json.loads(orjson.dumps(openapi()))


def complaint(value: Any, schema: dict[str, Any], where: str = "$") -> str | None:
    """Return why a value is not as a schema says, None if it is; knows what the description uses."""
    if "$ref" in schema:
        found: Any = OPENAPI
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return complaint(value, found, where)
    kinds: dict[str, type | tuple[type, ...]] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if "type" in schema:
        wanted = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(isinstance(value, kinds[kind]) for kind in wanted):
            return f"{where} is no {wanted}: {value!r}"
    if "oneOf" in schema and sum(complaint(value, each, where) is None for each in schema["oneOf"]) != 1:
        return f"{where} is not one of its kinds: {value!r}"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        return f"{where} does not match: {value!r}"
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                return f"{where} lacks {name}"
        for name, inner in schema.get("properties", {}).items():
            if name in value and (said := complaint(value[name], inner, f"{where}.{name}")):
                return said
    if isinstance(value, list):
        for index, each in enumerate(value):
            if said := complaint(each, schema.get("items", {}), f"{where}[{index}]"):
                return said
    return None


def described(path: str, method: str, status: int) -> dict[str, Any]:
    """Return the schema of an answer; fails when there is none."""
    response = OPENAPI["paths"][path][method]["responses"][str(status)]
    if "$ref" in response:
        response = OPENAPI["components"]["responses"]["Refused"]
    schema: dict[str, Any] = response["content"]["application/json"]["schema"]
    return schema


async def test_the_description_names_every_route_and_resolves_all_its_references(shared_redis: EmbeddedServer) -> None:
    async with running_gateway(shared_redis.url) as running, aiohttp.ClientSession() as client:
        async with client.get(running.url + "/v1/openapi.json") as response:
            assert await response.json() == OPENAPI
        async with client.get(running.url + "/v1/asyncapi.json") as response:
            assert await response.json() == asyncapi()
        routes = {
            (route.resource.canonical, route.method.lower())
            for route in running.application.router.routes()
            if isinstance(route, web.ResourceRoute) and route.resource is not None and route.method != "HEAD"
        }
    methods = {"get", "post"}
    told = {(path, method) for path, item in OPENAPI["paths"].items() for method in item.keys() & methods}
    assert told == routes
    for reference in re.findall(r'"\$ref": ?"#/([^"]+)"', json.dumps(OPENAPI)):
        found: Any = OPENAPI
        for part in reference.split("/"):
            found = found[part]
    operations = [
        op["operationId"] for item in OPENAPI["paths"].values() for name, op in item.items() if name in methods
    ]
    assert len(set(operations)) == len(operations)


async def test_answers_are_as_the_description_says(shared_redis: EmbeddedServer) -> None:
    one, many = "/v1/regions/{region}/events", "/v1/events"
    calls: list[tuple[str, str, str, Any, int]] = [
        ("/healthz", "get", "/healthz", None, 200),
        ("/readyz", "get", "/readyz", None, 200),
        (one, "post", "/v1/regions/described/events", {"payload": {"a": [1, None]}}, 200),
        (one, "post", "/v1/regions/described/events", {"base64": base64.b64encode(b"\x00\xff").decode()}, 200),
        (one, "post", "/v1/regions/described/events", {}, 400),
        (one, "post", "/v1/regions/a*/events", {"payload": 1}, 400),
        (one, "get", "/v1/regions/described/events", None, 200),
        (one, "get", "/v1/regions/described/events?after=x", None, 400),
        (one, "get", "/v1/regions/described/events?after=9999999999999-99", None, 400),
        (one, "get", "/v1/regions/described/events?after=1-99", None, 400),
        (one, "get", "/v1/regions/nowhere/events?after=1-1", None, 400),
        (one, "get", "/v1/regions/described/events?limit=0", None, 400),
        (many, "post", "/v1/events", {"events": [{"region": "described", "payload": 1}]}, 200),
        (many, "post", "/v1/events", {"events": [{"regions": ["described", "also"], "payload": 1}]}, 200),
        (many, "post", "/v1/events", {"events": []}, 400),
        (many, "get", "/v1/events", None, 400),
        ("/v1/socket", "get", "/v1/socket", None, 426),
    ]
    async with running_gateway(shared_redis.url) as running, aiohttp.ClientSession() as client:
        for path, method, address, body, status in calls:
            more = {} if body is None else {"json": body}
            async with client.request(method, running.url + address, **more) as response:
                assert response.status == status, (address, await response.text())
                assert complaint(await response.json(), described(path, method, status)) is None
        async with client.get(running.url + "/nothing") as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "not-found"
        async with client.delete(running.url + "/v1/events") as response:
            assert response.status == 405


async def test_history_comes_page_by_page_in_order(redis_server: EmbeddedServer) -> None:
    async with running_gateway(redis_server.url) as running, aiohttp.ClientSession() as client:
        async with gamecast.connect(redis_server.url, name="server") as cast:
            receipts = [await cast.publish("forest", b"\x01" if n == 3 else n) for n in range(10)]
        found, after, pages = [], "0-0", 0
        while True:
            query = {"after": after, "limit": "3"}
            async with client.get(running.url + "/v1/regions/forest/events", params=query) as response:
                page = await response.json()
            pages += 1
            assert len(page["events"]) <= 3
            found += page["events"]
            after = page["next"]
            if not page["more"]:
                break
        assert [event["position"] for event in found] == [f"{r.epoch}-{r.sequence}" for r in receipts]
        assert [event.get("payload", event.get("base64")) for event in found] == [0, 1, 2, "AQ==", *range(4, 10)]
        assert pages >= 4
        async with client.get(running.url + "/v1/regions/nothing/events") as response:
            page = await response.json()
            assert page.pop("next").endswith("-0")
            assert page == {"region": "nothing", "events": [], "more": False}


async def test_a_key_publishes_once_at_whichever_gateway(redis_server: EmbeddedServer) -> None:
    url = redis_server.url
    async with (
        running_gateway(url) as one,
        running_gateway(url) as other,
        aiohttp.ClientSession() as client,
        gamecast.connect(url, name="judge") as judge,
    ):
        await judge.subscribe("forest")

        async def post(gateway: Any, key: str, payload: Any) -> tuple[int, Any, str | None]:
            headers = {"Idempotency-Key": key}
            address = gateway.url + "/v1/regions/forest/events"
            async with client.post(address, headers=headers, json={"payload": payload}) as response:
                return response.status, await response.json(), response.headers.get("Idempotent-Replayed")

        first = await post(one, "k1", 1)
        assert (first[0], first[2]) == (200, None)
        assert await post(one, "k1", 1) == (200, first[1], "true")
        assert await post(other, "k1", 1) == (200, first[1], "true")
        status, answer, _ = await post(other, "k1", 2)
        assert (status, answer["error"]["code"]) == (422, "conflict")
        at_once = await asyncio.gather(*(post(gateway, "k2", 2) for gateway in (one, other) * 3))
        assert {status for status, _, _ in at_once} <= {200, 409}
        assert len({answer["position"] for status, answer, _ in at_once if status == 200}) == 1
        status, answer, _ = await post(one, "k3", "x" * 100_000)
        assert (status, answer["error"]["code"]) == (413, "too-large")
        assert (await post(one, "k3", "fits"))[0] == 200
        seen = [await anext(judge) for _ in range(3)]
        assert [event.payload for event in seen if isinstance(event, gamecast.Event)] == [1, 2, "fits"]


async def test_an_idempotency_key_may_be_any_bytes_that_a_header_takes(redis_server: EmbeddedServer) -> None:
    body = b'{"payload": 1}'
    async with running_gateway(redis_server.url) as running:
        place = running.url.removeprefix("http://")
        said: list[bytes] = []
        for key in (b"\xff\xfe", b"\xff\xfe", "clé".encode(), b"\xed\xa0\x80"):
            reader, writer = await asyncio.open_connection(*place.split(":"))
            head = f"POST /v1/regions/forest/events HTTP/1.1\r\nHost: {place}\r\nContent-Length: {len(body)}\r\n"
            writer.write(head.encode() + b"Connection: close\r\nIdempotency-Key: " + key + b"\r\n\r\n" + body)
            said.append(await reader.read())
            writer.close()
        assert [answer.split(b" ", 2)[1] for answer in said] == [b"200"] * 4
        assert [b"Idempotent-Replayed" in answer for answer in said] == [False, True, False, False]


async def test_a_key_whose_gateway_is_gone_before_it_answered_is_uncertain(redis_server: EmbeddedServer) -> None:
    async with running_gateway(redis_server.url) as running, aiohttp.ClientSession() as client:
        address, headers = running.url + "/v1/regions/forest/events", {"Idempotency-Key": "k"}
        async with client.post(address, headers=headers, json={"payload": 1}) as response:
            assert response.status == 200
        replay_cache = running.gateway.replay_cache
        [name] = [key async for key in _names(redis_server.url)]
        known = orjson.loads(await replay_cache.claim(name, b"", 1) or b"")
        for age_s, status, code in ((0.0, 409, "conflict"), (PENDING_S + 1, 504, "uncertain")):
            import time

            claim = {"digest": known["digest"], "at_s": time.time() - age_s}
            await replay_cache.put(name, orjson.dumps(claim), 60)
            async with client.post(address, headers=headers, json={"payload": 1}) as response:
                error = (await response.json())["error"]
                assert (response.status, error["code"], error["definite"]) == (status, code, False)


async def _names(url: str) -> Any:
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(url)
    async for key in client.scan_iter("gamecast:{gateway}:*"):
        yield key.decode().removeprefix("gamecast:{gateway}:")
    await client.aclose()


async def test_a_position_where_there_is_no_plan_yet_is_refused(redis_server: EmbeddedServer) -> None:
    async with running_gateway(redis_server.url) as running, aiohttp.ClientSession() as client:
        for after, status in (("0-0", 200), ("0-7", 400), ("3-7", 400)):
            async with client.get(f"{running.url}/v1/regions/forest/events?after={after}") as response:
                assert response.status == status, (after, await response.text())


async def test_a_client_that_is_gone_when_its_answer_begins_leaves_no_traceback(
    shared_redis: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def too_late(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        response = web.StreamResponse()
        await response.prepare(request)
        return response

    def extend(application: web.Application, gateway: Gateway) -> None:
        application.router.add_get("/too-late", too_late)

    async with running_gateway(shared_redis.url, extensions=(extend,)) as running:
        async with aiohttp.ClientSession(running.url) as client:
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await client.get("/too-late")
        assert "Traceback" not in caplog.text

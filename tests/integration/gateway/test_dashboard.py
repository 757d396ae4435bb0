"""The dashboard's data: a live network over real Redis, one look for all viewers, and only for who may watch."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import gamecast
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from adapters.redis.networkstate import NetworkState
from adapters.redis.survey import survey
from gateway.dashboard.routes import add_dashboard, dashboard
from gateway.gateway import Gateway
from gateway.revocations import LOOK_S
from gateway.tokens import KeyFile, mint, new_key
from sequencing.errors import Unreachable
from tests.integration.gateway_clients import Socket, running_gateway
from tests.patience import patience

SOON_S = 0.2


@asynccontextmanager
async def live(client: Any, url: str, **headers: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Watch; yields the states as they come."""

    async def states(response: Any) -> AsyncIterator[dict[str, Any]]:
        async for line in response.content:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    async with client.get(url + "/dashboard/data/live", headers=headers) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        yield states(response)


async def until(states: AsyncIterator[dict[str, Any]], is_so: Any) -> dict[str, Any]:
    async with patience(20):
        async for state in states:
            if state["network"] is not None and is_so(state):
                return state
    raise AssertionError("the stream has ended")


async def get(client: Any, url: str, **query: Any) -> Any:
    async with client.get(url, params=query) as response:
        assert response.status == 200, await response.text()
        return await response.json()


def signing(directory: Path) -> tuple[KeyFile, Callable[..., str]]:
    """Return keys, and what mints tokens with them."""
    file = directory / "keys.json"
    file.write_text(json.dumps({"keys": [new_key("HS256")]}), encoding="utf-8")
    keys = KeyFile(file)
    return keys, lambda **claims: mint(keys.keys().signer(), subject="ana", **claims)


async def test_a_live_network_is_shown_with_its_rates_latencies_and_holds(
    three_redis_servers: EmbeddedServers,
) -> None:
    url = three_redis_servers.urls[0]
    async with (
        gamecast.connect(url, name="s1") as cast,
        running_gateway(url, extensions=(dashboard(url, interval_s=SOON_S),)) as running,
        aiohttp.ClientSession() as client,
        Socket.open(running.url, name="bot") as socket,
    ):
        await cast.subscribe("forest", "river")
        await socket.subscribe("forest", "river")

        async def publish() -> None:
            while True:
                await asyncio.gather(*(cast.publish(region, {"n": 1}) for region in ("forest", "river") * 5))

        publishing = asyncio.create_task(publish())
        async with live(client, running.url) as states:
            shown = await until(
                states,
                lambda state: (
                    (state["network"]["totals"]["events_per_s"] or 0) > 10
                    and sum(state["durations"]["latency"]["counts"]) > 100
                    and sum(state["durations"]["hold"]["counts"]) > 20
                    and len(state["history"]["at_ms"]) > 1
                ),
            )
        network = shown["network"]
        assert network["totals"] | {"events_per_s": 0, "behind": 0} == {
            "events_per_s": 0, "behind": 0, "regions": 2, "busy_regions": 2, "atoms": 0, "nodes": 1,
            "nodes_answering": 1, "nodes_silent": [], "silent_since_ms": None,
            "stuck_regions": 0, "held_regions": 0, "held_subscribers": 0, "held_unknown": 0,
                "rates_unknown": 0, "behind_unknown": 0, "links": 0, "subscribers": 2,
            "subscribers_alive": 2, "path_nodes": 1.0,
        }  # fmt: skip
        assert {alert["level"] for alert in network["alerts"]} == {"warning"}
        assert any("appendonly no" in alert["seen"] for alert in network["alerts"])
        listed = await get(client, running.url + "/dashboard/data/regions", order="name", search="for")
        assert [(row["name"], row["subscribers"]) for row in listed["rows"]] == [("forest", 2)]
        region = await get(client, running.url + "/dashboard/data/region", name="forest")
        assert region["atoms_list"] == []
        assert {each["name"] for each in region["subscribers_list"]} == {"~bot", "s1"}
        subscriber = await get(client, running.url + "/dashboard/data/subscriber", name="~bot")
        assert [each["name"] for each in subscriber["regions_list"]] == ["forest", "river"]
        publishing.cancel()


async def test_what_happens_is_told_as_it_happens(redis_server: EmbeddedServer) -> None:
    url = redis_server.url
    async with (
        running_gateway(url, extensions=(dashboard(url, interval_s=SOON_S),)) as running,
        aiohttp.ClientSession() as client,
        live(client, running.url) as states,
    ):
        await until(states, lambda state: state["network"]["plan"] is None)
        async with gamecast.connect(url, name="s1") as cast:
            await cast.subscribe("forest")
            shown = await until(states, lambda state: any(note["kind"] == "subscriber" for note in state["notes"]))
            assert "1 subscriber joined: s1" in [note["text"] for note in shown["notes"]]
            assert any(re.match(r"plan \d{13}\.", note["text"]) for note in shown["notes"])
            await cast.subscribe("river")
            await cast.publish("forest", 1)
            await cast.publish("river", 1)
            async with gamecast.connect(url, name="s2") as other:
                await other.subscribe("forest", "river")
                shown = await until(states, lambda state: state["network"]["totals"]["subscribers"] == 2)
        shown = await until(
            states, lambda state: [note for note in state["notes"] if "left" in note["text"] and "s1" in note["text"]]
        )
        await asyncio.to_thread(redis_server.kill)
        shown = await until(states, lambda state: state["trouble"])
        assert "cannot survey" in shown["notes"][0]["text"]
        assert shown["network"]["totals"]["regions"] == 2  # what was known last, and when that was
        await asyncio.to_thread(redis_server.restart)
        await until(states, lambda state: state["trouble"] is None)


async def test_a_gap_that_a_session_is_handed_is_told(redis_server: EmbeddedServer) -> None:
    url = redis_server.url
    async with (
        gamecast.connect(url, name="s1", retention_events=10) as cast,
        running_gateway(url, extensions=(dashboard(url, interval_s=SOON_S),)) as running,
        aiohttp.ClientSession() as client,
        Socket.open(running.url, name="bot") as socket,
        live(client, running.url) as states,
    ):
        await cast.subscribe("forest")
        await asyncio.gather(*(cast.publish("forest", number) for number in range(3_000)))
        await socket.subscribe("forest", since=0)
        shown = await until(states, lambda state: any(note["kind"] == "gap" for note in state["notes"]))
        [note] = [note for note in shown["notes"] if note["kind"] == "gap"]
        assert note["text"].startswith("forest, ")
        assert note["bad"]


async def test_the_network_is_looked_at_once_for_all_viewers_and_rarely_for_none(redis_server: EmbeddedServer) -> None:
    looks = 0

    async def look() -> NetworkState:
        nonlocal looks
        looks += 1
        return await survey(redis_server.url, regions=True)

    def extend(application: Any, gateway: Gateway) -> None:
        add_dashboard(application, gateway, look, interval_s=SOON_S)

    async with running_gateway(redis_server.url, extensions=(extend,)) as running, aiohttp.ClientSession() as client:
        await asyncio.sleep(5 * SOON_S)
        assert looks == 1
        async with live(client, running.url) as one, live(client, running.url) as two, live(client, running.url) as x:
            before = looks
            seen = [await until(states, lambda _: looks >= before + 5) for states in (one, two, x)]
        assert looks <= before + 7
        assert len({state["network"]["at_ms"] for state in seen}) <= 2


async def test_a_network_that_cannot_be_looked_at_from_the_beginning_says_so(redis_server: EmbeddedServer) -> None:
    async def look() -> NetworkState:
        raise Unreachable("nothing answers at redis://gone")

    def extend(application: Any, gateway: Gateway) -> None:
        add_dashboard(application, gateway, look, interval_s=SOON_S)

    async with (
        running_gateway(redis_server.url, extensions=(extend,)) as running,
        aiohttp.ClientSession() as client,
        live(client, running.url) as states,
    ):
        async for state in states:
            assert (state["network"], state["trouble"]) == (None, "nothing answers at redis://gone")
            break
        assert (await get(client, running.url + "/dashboard/data/regions"))["rows"] == []


async def test_the_page_is_a_fixed_set_of_files_that_loads_nothing_from_elsewhere(redis_server: EmbeddedServer) -> None:
    url = redis_server.url
    async with (
        running_gateway(url, extensions=(dashboard(url),)) as running,
        aiohttp.ClientSession() as client,
    ):
        async with client.get(running.url + "/dashboard") as response:
            assert str(response.url) == running.url + "/dashboard/"
            page = await response.text()
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            tag = response.headers["ETag"]
        assert "://" not in page
        assert "<script>" not in page
        assert "style=" not in page
        async with client.get(running.url + "/dashboard/", headers={"If-None-Match": tag}) as response:
            assert response.status == 304
        for name in ("script/main.js", "style/ground.css", "vendor/uplot.js", "icon.svg"):
            async with client.get(f"{running.url}/dashboard/{name}") as response:
                assert (response.status, response.headers["X-Content-Type-Options"]) == (200, "nosniff")
        for name in ("vendor/README.md", "../routes.py", "%2e%2e/routes.py", "script/%2e%2e/%2e%2e/routes.py", "x.js"):
            async with client.get(f"{running.url}/dashboard/{name}") as response:
                assert response.status == 404


async def test_only_who_may_watch_sees_the_data(redis_server: EmbeddedServer, tmp_path: Path) -> None:
    url, keys, token = redis_server.url, *signing(tmp_path)
    async with (
        running_gateway(url, keys=keys, extensions=(dashboard(url, interval_s=SOON_S),)) as running,
        aiohttp.ClientSession() as client,
    ):
        places = (
            "state",
            "live",
            "regions",
            "region?name=x",
            "subscribers",
            "subscriber?name=x",
            "lagging",
            "map",
            "delays",
        )
        for headers, status in (
            ({}, 401),  # from this machine, too
            ({"Authorization": "Bearer rubbish"}, 401),
            ({"Authorization": f"Bearer {token(watch=False)}"}, 403),
            ({"Host": "evil.example"}, 401),  # a page whose name points at this machine
        ):
            for place in places:
                async with client.get(f"{running.url}/dashboard/data/{place}", headers=headers) as response:
                    assert response.status == status, (place, headers)
        async with live(client, running.url, Authorization=f"Bearer {token(watch=True)}") as states:
            await until(states, lambda _: True)


async def test_at_the_address_for_operators_nobody_needs_a_token(redis_server: EmbeddedServer, tmp_path: Path) -> None:
    url, keys, _ = redis_server.url, *signing(tmp_path)
    async with (
        running_gateway(
            url, keys=keys, admin=("127.0.0.1", 0), extensions=(dashboard(url, interval_s=SOON_S),)
        ) as running,
        aiohttp.ClientSession() as client,
    ):
        [port] = running.gateway.guard.admin_ports
        async with live(client, f"http://127.0.0.1:{port}") as states:
            await until(states, lambda _: True)
            await asyncio.sleep(2 * LOOK_S)  # no look at tokens ends it
            await until(states, lambda _: True)
        async with client.get(f"{running.url}/dashboard/data/state") as response:
            assert response.status == 404


async def test_who_watches_is_let_go_when_the_token_expires(redis_server: EmbeddedServer, tmp_path: Path) -> None:
    url, keys, token = redis_server.url, *signing(tmp_path)
    async with (
        running_gateway(url, keys=keys, extensions=(dashboard(url, interval_s=SOON_S),)) as running,
        aiohttp.ClientSession() as client,
    ):
        headers = {"Authorization": f"Bearer {token(watch=True, lifetime_s=2)}"}
        async with live(client, running.url, **headers) as states:
            await until(states, lambda _: True)
            async with patience(9):  # with the leeway that clocks are given
                with pytest.raises((aiohttp.ClientError, AssertionError)):
                    await until(states, lambda _: False)


async def test_a_viewer_whose_token_has_just_expired_is_told_so_and_not_let_in_again_for_a_moment(
    redis_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Without the leeway for clocks that differ."""
    url, keys, token = redis_server.url, *signing(tmp_path)
    extensions = (dashboard(url, interval_s=SOON_S),)
    async with (
        running_gateway(url, keys=keys, extensions=extensions, token_leeway_s=0) as running,
        aiohttp.ClientSession() as client,
    ):
        headers = {"Authorization": f"Bearer {token(watch=True, lifetime_s=1)}"}
        await asyncio.sleep(1.1)
        async with client.get(running.url + "/dashboard/data/live", headers=headers) as response:
            assert response.status == 401
            assert (await response.json())["error"]["code"] == "expired"


async def test_queries_that_make_no_sense_are_refused_in_words(redis_server: EmbeddedServer) -> None:
    url = redis_server.url
    async with (
        running_gateway(url, extensions=(dashboard(url, interval_s=SOON_S),)) as running,
        aiohttp.ClientSession() as client,
    ):
        for place, status, said in (
            ("lagging?order=path", 400, "order must be one of name"),
            ("regions?order=path", 400, "order must be one of name"),
            ("regions?offset=-1", 400, "whole numbers"),
            ("regions?limit=1e9", 400, "whole numbers"),
            ("regions?limit=9999999999", 400, "whole numbers"),
            ("region", 400, "?name="),
            ("region?name=nowhere", 404, "no region of this name"),
            ("subscriber?name=nobody", 404, "no subscriber of this name"),
        ):
            async with client.get(f"{running.url}/dashboard/data/{place}") as response:
                assert response.status == status
                assert said in (await response.json())["error"]["message"]


def test_what_the_dashboard_brings_along_has_its_licences_and_versions() -> None:
    vendor = Path(dashboard.__code__.co_filename).parent / "page" / "vendor"
    listed = (vendor / "README.md").read_text(encoding="utf-8")
    for file in vendor.glob("*.js"):
        assert f"`{file.name}`" in listed
        assert "MIT" in listed
        assert "Permission is hereby granted" in (vendor / f"{file.stem}.LICENSE.txt").read_text(encoding="utf-8")

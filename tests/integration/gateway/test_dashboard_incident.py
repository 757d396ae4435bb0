"""The dashboard while a node hangs, a reader does not read, and the gateway itself is frozen."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import pytest

import gamecast
from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer
from adapters.redis.networkstate import NodeState
from adapters.redis.survey import survey
from gateway.dashboard.routes import dashboard
from gateway.networkmetrics import network_metrics
from tests.integration.accessibility import judge
from tests.integration.browser import browser
from tests.integration.gateway.test_dashboard import get, live, until
from tests.integration.gateway.test_dashboard_page import SCHEMES, picture, shown, world
from tests.integration.gateway_clients import Socket, running_gateway
from tests.patience import patience, scaled

PHONE_WIDTH = 390
RING = {f"server-{number}": tuple(f"cell:{(2 * number + part) % 12}" for part in range(4)) for number in range(6)}
"""Regions at the control Redis's node, at another one, and with a path from one to the other."""


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Let a process hang, and go on in the end."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def node_that_may_hang(url: str) -> NodeState:
    """Return a node of a path, in a server of its own."""
    state = await survey(url, regions=True)
    used = {name for region in state.regions for name in region.path}
    for node in state.nodes:
        if node.name in used and node.server is not None and node.server.run != state.control.run:
            return node
    raise AssertionError("all paths are at the control Redis's server")


def row_of(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    [row] = [row for row in rows if row["name"] == name]
    return row


@asynccontextmanager
async def watched(url: str) -> AsyncIterator[tuple[Any, AsyncIterator[dict[str, Any]], str]]:
    async with shown(url) as running, aiohttp.ClientSession() as client, live(client, running.url) as states:
        yield client, states, running.url


async def test_a_hung_node_is_unknown_within_seconds_and_the_rates_of_others_stay_what_they_are() -> None:
    async with world(RING, nodes=3, events_per_s=75) as url, watched(url) as (client, states, at):
        hung = await node_that_may_hang(url)
        assert hung.server is not None
        await until(states, lambda state: (state["network"]["totals"]["events_per_s"] or 0) > 30)
        with stopped(hung.server.pid):
            began_s = time.monotonic()
            state = await until(states, lambda state: state["network"]["totals"]["nodes_silent"] == [hung.name])
            assert time.monotonic() - began_s < scaled(10)
            first = state["network"]["nodes"][0]
            assert (first["name"], first["condition"]) == (hung.name, "stuck")
            assert (first["events_per_s"], first["waiting_frames"]) == (None, None)
            assert first["since_ms"] <= state["network"]["at_ms"]
            for link in state["network"]["links"]:
                assert (hung.name in (link["from"], link["to"])) <= (link["condition"] == "stuck")
                assert (link["from"] != hung.name) or link["events_per_s"] is None
            listed = await get(client, at + "/dashboard/data/regions", order="events_per_s", descending=1)
            conditions = [row["condition"] for row in listed["rows"]]
            assert conditions == sorted(conditions, key=lambda each: each != "stuck")
            for row in listed["rows"]:
                assert (hung.name in row["path"]) <= (hung.name in row["stuck_at"])
            looks = [await until(states, lambda _: True) for _ in range(5)]
            curves = await get(client, at + "/dashboard/data/delays")
            assert (curves["answers"]["names"][0], curves["answers"]["ms"][0][-1]) == (hung.name, None)
            waits = dict(zip(curves["waits"]["names"], curves["waits"]["ms"], strict=True))
            for link in looks[-1]["network"]["links"]:
                if link["to"] == hung.name and link["waiting_frames"]:
                    assert waits[f"{link['from']} → {link['to']}"][-1] >= 1_000
            apart_ms = [looks[place + 1]["network"]["at_ms"] - looks[place]["network"]["at_ms"] for place in range(4)]
            assert max(apart_ms) < scaled(4) * 1000
            most = max(look["network"]["totals"]["events_per_s"] or 0 for look in looks)
            assert most < 150, "the rate is measured at each server, so a look that waits makes no peak"
        await until(states, lambda state: not state["network"]["totals"]["nodes_silent"])


async def held_pair(url: str, hung: str) -> tuple[str, str, tuple[str, ...]]:
    """Return a region that does not pass a node, one that ends there and shares an atom with it elsewhere, and all that
    a server has of which these are two."""
    plan = (await survey(url, regions=True)).plan
    assert plan is not None
    for atom in plan.atoms:
        free = [region for region in atom.regions if hung not in plan.paths[region]]
        late = [region for region in atom.regions if plan.paths[region][-1] == hung != plan.paths[region][0]]
        if atom.node != hung and free and late:
            return free[0], late[0], next(all_of for all_of in RING.values() if {*atom.regions} <= {*all_of})
    raise AssertionError("no region is ordered with one that goes on to the node")


async def test_who_is_held_by_a_stuck_region_is_said_with_the_reason() -> None:
    async with world(RING, nodes=3, events_per_s=75) as url, watched(url) as (client, states, at):
        hung = await node_that_may_hang(url)
        assert hung.server is not None
        free, late, all_of = await held_pair(url, hung.name)
        delivered: list[str] = []
        async with (
            gamecast.connect(url, name="probe") as probe,
            gamecast.connect(url, name="other", publish_timeout_s=scaled(60)) as other,
        ):
            await probe.subscribe(*all_of)

            async def read() -> None:
                async for item in probe:
                    if isinstance(item, gamecast.Event):
                        delivered.append(item.region)  # noqa: PERF401 - it is looked at meanwhile

            async def row(name: str) -> dict[str, Any]:
                listed = await get(client, at + "/dashboard/data/subscribers", search=name)
                return row_of(listed["rows"], name)

            reading = asyncio.create_task(read())
            before = await until(states, lambda state: {free, late} <= {*delivered})
            assert before["network"]["totals"]["held_subscribers"] == 0
            assert (await row("probe"))["condition"] is None
            with stopped(hung.server.pid):
                # Numbers of the stuck region are on their way from now on.
                publishing = asyncio.create_task(other.publish(late, "late"))
                began_s = time.monotonic()
                state = await until(states, lambda state: state["network"]["totals"]["held_subscribers"])
                assert time.monotonic() - began_s < scaled(12)
                while (probed := await row("probe"))["condition"] != "held":
                    assert time.monotonic() - began_s < scaled(12)
                    await asyncio.sleep(0.2)
                assert late in probed["held_by"]
                assert probed["stuck_at"] == [hung.name]
                assert probed["held_regions"] >= 1
                before_them = delivered.count(free)
                for number in range(10):
                    await other.publish(free, number)
                assert delivered.count(free) == before_them, "it is held, as the page says"
                regions = await get(client, at + "/dashboard/data/regions", search=free)
                held = row_of(regions["rows"], free)
                assert held["condition"] == "held"
                assert late in held["held_by"]
                assert held["held_for"] >= 1
                assert state["network"]["totals"]["held_regions"] >= 1
                # Its heartbeat says how much it holds.
                while not ((await row("probe"))["held"] or 0):
                    assert time.monotonic() - began_s < scaled(30)
                    await asyncio.sleep(0.2)
                lagging = await get(client, at + "/dashboard/data/lagging")
                behind = row_of(lagging["rows"], "probe")
                assert (behind["where"], behind["held_regions"]) == ("game server", probed["held_regions"])
            await publishing
            await until(states, lambda state: not state["network"]["totals"]["held_subscribers"])
            async with patience(30):
                while delivered.count(free) < before_them + 10:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            reading.cancel()


async def test_the_page_marks_what_is_stuck_and_says_what_is_unknown(axe: str | None) -> None:
    async with world(RING, nodes=3, events_per_s=75) as url, shown(url) as running:
        hung = await node_that_may_hang(url)
        assert hung.server is not None
        free = next(each.name for each in (await survey(url, regions=True)).regions if hung.name not in each.path)
        for scheme, width in zip(SCHEMES, (1400, PHONE_WIDTH), strict=True):
            async with browser(scheme=scheme, width=width) as window:
                page = window.page
                await page.goto(running.url + "/dashboard/")
                await page.locator("#regions tr.row").first.wait_for()
                await page.locator("#rate canvas").wait_for()
                await page.get_by_label("Search regions").fill(free)
                await page.get_by_role("button", name=free, exact=True).click()
                await page.locator("#latency canvas").wait_for()
                await page.get_by_label("Search regions").fill("")
                await page.locator("#map-field").scroll_into_view_if_needed()
                await page.locator("#map-note", has_text="12 regions").wait_for()
                with stopped(hung.server.pid):
                    await page.locator("#map-note", has_text="8 stuck").wait_for(timeout=scaled(10) * 1000)
                    await page.locator("#map-field").focus()
                    await page.keyboard.press("s")
                    await page.locator("#map-tip", has_text=f"stuck at {hung.name}").wait_for()
                    await page.locator("#graph .node.down", has_text="since ").wait_for()
                    total = page.locator("#totals > div", has_text="events on the way")
                    await total.get_by_text("1 node unknown since ").wait_for()
                    assert (await total.locator("dd").inner_text()).startswith(("≥ ", "–"))
                    await total.get_by_text(re.compile(r"events on the way, (growing|steady)")).wait_for()
                    await page.locator("#regions tr.row.stuck").first.wait_for()
                    # Whose deliveries wait although their own path is well.
                    await page.locator("#map-note", has_text=" held").wait_for(timeout=scaled(20) * 1000)
                    await page.locator("#totals > div", has_text="subscribers").get_by_text(" held").wait_for()
                    await page.locator("#subscribers tr.row.held").first.wait_for()
                    assert "ordered with" in await page.locator("#subscribers tr.row.held").first.inner_text()
                    first = page.locator("#regions tr.row").first
                    assert f"stuck at {hung.name}" in await first.inner_text()
                    await page.get_by_text("Nodes and links as tables").click()
                    cells = page.locator("#network-tables table").first.locator("tbody tr").first.locator("td")
                    await cells.first.wait_for()
                    texts = await cells.all_inner_texts()
                    assert texts[0] == hung.name
                    assert texts[2] == "–"
                    assert "no since " in texts[-1]
                    note = await page.locator("#latency-note").inner_text()
                    assert "without what is stuck in 8 regions" in note
                    assert "1 node unknown" in await page.locator("#rate-note").inner_text()
                    assert await judge(page, axe) == []
                    await page.get_by_text("Nodes and links as tables").click()
                    await picture(page, f"dashboard-incident-{scheme}-{width}")
                await page.wait_for_function("() => !document.querySelector('#graph .node.down')")
                await page.locator("#regions tr.row.stuck").first.wait_for(state="detached")
                assert window.complaints == []
    if axe is None:
        pytest.skip("all but accessibility was tested: npm, which fetches axe-core, is not there or not online")


async def test_a_control_redis_that_hangs_makes_the_page_say_stale_within_10_s(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="s1") as client, shown(redis_server.url) as running:
        await client.subscribe("forest")
        async with browser() as window:
            page = window.page
            await page.goto(running.url + "/dashboard/")
            await page.get_by_text("Live", exact=True).wait_for()
            with stopped(redis_server.pid):
                await page.get_by_text("Stale since ").first.wait_for(timeout=scaled(10) * 1000)
            await page.get_by_text("Live", exact=True).wait_for()
            await page.locator("#banner").wait_for(state="hidden")


async def test_a_frozen_gateway_makes_the_page_say_stale_within_10_s(
    redis_server: EmbeddedServer, axe: str | None
) -> None:
    async with gamecast.connect(redis_server.url, name="s1") as client:
        await client.subscribe("forest")
        async with gateway_process(redis_server.url) as (at, pid), browser() as window:
            page = window.page
            await page.goto(at + "/dashboard/")
            await page.get_by_text("Live", exact=True).wait_for()
            await page.locator("#regions tr.row").first.wait_for()
            with stopped(pid):
                await page.get_by_text("Stale since ").first.wait_for(timeout=scaled(10) * 1000)
                assert "the gateway has sent no new figures" in await page.locator("#banner").inner_text()
                assert await judge(page, axe) == []
                await picture(page, "dashboard-frozen")
            await page.get_by_text("Live", exact=True).wait_for()


@asynccontextmanager
async def gateway_process(url: str) -> AsyncIterator[tuple[str, int]]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gamecast", "gateway", url, "--port", str(port), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        async with patience(30), aiohttp.ClientSession() as client:
            while True:
                try:
                    async with client.get(f"http://127.0.0.1:{port}/dashboard/"):
                        break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        await process.wait()


async def test_a_reader_that_does_not_read_is_named_with_its_lag(redis_server: EmbeddedServer) -> None:
    """Its socket takes no more, so that events stay in the gateway."""
    url = redis_server.url
    extensions = (dashboard(url, interval_s=0.5), network_metrics(url))
    async with (
        gamecast.connect(url, name="s1") as publisher,
        running_gateway(url, extensions=extensions, outbox_events_max=100) as running,
        aiohttp.ClientSession() as client,
        Socket.open(running.url, name="slow") as slow,
        live(client, running.url) as states,
    ):
        await slow.subscribe("forest")
        slow.transport.pause_reading()
        payload = {"x": "y" * 4_000}
        for _ in range(20):
            await asyncio.gather(*(publisher.publish("forest", payload) for _ in range(200)))
        found: dict[str, Any] = {"rows": []}
        async with patience(20):
            while not found["rows"] or found["rows"][0]["behind"] < 1_000:
                await until(states, lambda _: True)
                found = await get(client, running.url + "/dashboard/data/lagging", order="behind", descending=1)
        assert found["rows"][0]["name"] == "~slow"
        assert found["rows"][0]["regions"] == 1
        async with browser() as window:
            await window.page.goto(running.url + "/dashboard/")
            row = window.page.locator("#lagging tr.row", has_text="~slow")
            await row.wait_for()
            await picture(window.page, "dashboard-reader-behind")
        async with client.get(running.url + "/metrics") as response:
            text = await response.text()
        assert 'gamecast_gateway_lag_events{reader="~slow"}' in text
        assert "gamecast_gateway_readers_behind 1.0" in text


TWELVE = {f"server-{number}": tuple(f"cell:{(2 * number + part) % 24}" for part in range(5)) for number in range(12)}


async def test_twelve_nodes_stand_in_natural_order_and_in_view_and_a_phone_has_the_alerts_first() -> None:
    async with world(TWELVE, nodes=12, events_per_s=30) as url, shown(url) as running:
        async with browser(scheme="light", width=1280) as window:
            page = window.page
            await page.goto(running.url + "/dashboard/")
            await page.locator("#graph .node").nth(11).wait_for()
            names = await page.locator("#graph .node text.name").all_text_contents()
            assert names == [f"n{number}" for number in range(1, 13)]
            view, *boxes = await page.evaluate(
                """() => ["#graph", "#graph .node rect.body"].flatMap((each) => [...document.querySelectorAll(each)])
                .map((part) => part.getBoundingClientRect()).map(({ left, right, top, bottom }) =>
                ({ left, right, top, bottom }))"""
            )
            for box in boxes:
                assert view["left"] <= box["left"] < box["right"] <= view["right"]
                assert view["top"] <= box["top"] < box["bottom"] <= view["bottom"]
                assert box["right"] - box["left"] > 130, "as large as it was drawn, so that its text can be read"
            places = [(round(box["top"]), round(box["left"])) for box in boxes]
            assert places == sorted(places), "row by row"
            assert await page.locator("#graph path.flow").count() > 0
            crossing = await page.evaluate(
                """() => [...document.querySelectorAll("#graph path.flow")].filter((path) => {
                    const at = path.getScreenCTM(), boxes = [...document.querySelectorAll("#graph .node rect.body")]
                        .map((box) => box.getBoundingClientRect());
                    return Array.from({ length: 50 }, (_, step) =>
                        path.getPointAtLength((path.getTotalLength() * step) / 49).matrixTransform(at))
                        .some(({ x, y }) => boxes.some((box) =>
                            box.left + 9 < x && x < box.right - 9 && box.top + 9 < y && y < box.bottom - 9));
                }).length"""
            )
            assert crossing == 0, "no link passes behind a node that it does not lead to"
            more = await page.locator("#graph .node text.soft").first.text_content()
            assert more is not None
            assert "full" in more or "MB" in more, "how full it is"
        async with browser(scheme="dark", width=PHONE_WIDTH) as window:
            page = window.page
            await page.goto(running.url + "/dashboard/")
            await page.locator("#graph .node").first.wait_for()
            alerts = await page.locator("#alerts-title").bounding_box()
            regions = await page.locator("#map-title").bounding_box()
            assert alerts is not None
            assert regions is not None
            assert alerts["y"] < regions["y"]
            warning = page.locator("#alerts details.alert", has_text="appendonly no")
            await warning.wait_for()
            assert not await warning.get_by_text("Do:").is_visible()
            await warning.locator("summary").click()
            await warning.get_by_text("Do:").wait_for()


async def test_a_network_that_is_only_for_a_trial_has_no_alert_that_it_keeps_nothing() -> None:
    async with (
        world({"server-1": ("forest",)}, nodes=1, events_per_s=10) as url,
        running_gateway(url, extensions=(dashboard(url, interval_s=0.5, is_trial=True),)) as running,
        aiohttp.ClientSession() as client,
        live(client, running.url) as states,
    ):
        state = await until(states, lambda state: state["network"]["checks_fine"] > 0)
        assert [alert["seen"] for alert in state["network"]["alerts"]] == []

"""The dashboard in a browser, over live networks of 3 and of 3,000 regions.

Where npm can fetch axe-core, it judges what people with screen readers and keyboards get. GAMECAST_SCREENSHOTS names a
directory that keeps what all looked like.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any, Literal

import pytest

import gamecast
from adapters.embedded.network import EmbeddedNetwork
from adapters.embedded.server import EmbeddedServers
from adapters.redis.survey import survey
from gamecast.client.configuration import Limits
from gateway.dashboard.routes import dashboard
from gateway.tokens import KeyFile
from tests.integration.accessibility import judge
from tests.integration.browser import Browser, browser
from tests.integration.gateway.test_dashboard import signing
from tests.integration.gateway_clients import Running, running_gateway
from tests.patience import scaled

PAGE = Path(__file__).parents[3] / "gateway" / "dashboard" / "page"
SCREENSHOTS = os.environ.get("GAMECAST_SCREENSHOTS")
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

SMALL = {
    "server-eu": ("forest", "river"),
    "server-us": ("forest", "river", "castle"),
    "server-asia": ("river", "castle"),
}
CROWDED = 5
"""Of each server's regions, about so many have most of the events."""
SIDE = 55
"""Cells a side of the large world: 3,025 regions."""


def large_world() -> dict[str, tuple[str, ...]]:
    """Return a grid of cells whose servers each have a stripe, and the edge of the next one."""
    servers = 11
    stripe = SIDE // servers
    return {
        f"server-{number:02}": tuple(
            f"cell:{row}:{column}"
            for row in range(number * stripe, min(SIDE, (number + 1) * stripe + 1))
            for column in range(SIDE)
        )
        for number in range(servers)
    }


@asynccontextmanager
async def world(servers: Mapping[str, tuple[str, ...]], *, nodes: int, events_per_s: float) -> AsyncIterator[str]:
    """A network with game servers that publish; yields its URL."""
    network = EmbeddedNetwork(
        f"embedded://?nodes={nodes}", ordering="acyclic", retention_events=Limits().retention_events
    )
    async with AsyncExitStack() as stack:
        await network.open()
        stack.push_async_callback(network.close)
        casts = {
            name: await stack.enter_async_context(gamecast.connect(network.url, name=name, subscribe_timeout_s=90))
            for name in servers
        }
        await asyncio.gather(*(casts[name].subscribe(*regions) for name, regions in servers.items()))
        playing = [
            asyncio.create_task(_play(casts[name], regions, events_per_s / len(servers)))
            for name, regions in servers.items()
        ]
        playing += [asyncio.create_task(_drink(cast)) for cast in casts.values()]
        try:
            yield network.url
        finally:
            for task in playing:
                task.cancel()
            await asyncio.gather(*playing, return_exceptions=True)


async def _play(cast: gamecast.Client, regions: tuple[str, ...], events_per_s: float) -> None:
    whims = random.Random(cast.name)
    while True:
        region = regions[int(whims.expovariate(1 / CROWDED)) % len(regions)]
        deed = {"type": whims.choice(("moved", "spell", "loot")), "by": f"player-{whims.randrange(40)}"}
        cast.publish_async(region, deed | {"x": whims.randrange(400), "z": whims.randrange(400)})
        await asyncio.sleep(whims.expovariate(events_per_s))


async def _drink(cast: gamecast.Client) -> None:
    async for _ in cast.batches():
        pass


@asynccontextmanager
async def shown(url: str, keys: KeyFile | None = None, port: int = 0) -> AsyncIterator[Running]:
    async with running_gateway(url, keys=keys, port=port, extensions=(dashboard(url, interval_s=1.0),)) as running:
        yield running


async def opened(window: Browser, running: Running) -> Any:
    await window.page.goto(running.url + "/dashboard/")
    await window.page.locator("#regions tr.row").first.wait_for()
    return window.page


async def picture(page: Any, name: str, *, whole: bool = True) -> None:
    if SCREENSHOTS:
        await page.evaluate("scrollTo(0, 0)")
        await page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=whole)


async def chosen_region(page: Any, name: str) -> None:
    await page.get_by_label("Search regions").fill(name)
    await page.get_by_role("button", name=name, exact=True).click()


async def test_a_small_network_is_shown_live_and_by_keyboard(axe: str | None) -> None:
    async with world(SMALL, nodes=3, events_per_s=75) as url, shown(url) as running:
        for scheme in SCHEMES:
            async with browser(scheme=scheme) as window:
                page = await opened(window, running)
                assert await page.locator("#regions tr.row").count() == 3
                # By keyboard alone: from the search to a region, and into it.
                await page.get_by_label("Search regions").focus()
                await page.keyboard.type("for")
                await page.get_by_text("1 of 3 match").wait_for()
                while await page.evaluate("document.activeElement.textContent") != "forest":
                    await page.keyboard.press("Tab")
                await page.keyboard.press("Enter")
                await page.locator("#region .feed li code").nth(20).wait_for()
                way = await page.locator("#region .way li:not(.arrow)").all_inner_texts()
                assert await page.locator("#graph .node.onpath .name").all_text_contents() == way
                assert "ends at the same node" in await page.locator("#region").inner_text()
                await page.get_by_label("Search regions").fill("")
                for name in ("latency", "hold", "rate"):
                    await page.locator(f"#{name} canvas").wait_for()
                    assert await page.locator(f"#{name}-note").inner_text() != ""
                await page.get_by_text("Nodes and links as tables").click()
                await page.locator("#network-tables tbody tr").nth(2).wait_for()
                ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (sum(map(int, ground[4:-1].split(","))) > 400) == (scheme == "light")
                assert await judge(page, axe) == []
                await page.get_by_text("Nodes and links as tables").click()
                await picture(page, f"dashboard-3-{scheme}")
                assert window.complaints == []
    if axe is None:
        pytest.skip("all but accessibility was tested: npm, which fetches axe-core, is not there or not online")


@pytest.mark.timeout(240)
async def test_a_network_of_3_000_regions_is_searched_scrolled_and_read() -> None:
    async with (
        world(large_world(), nodes=5, events_per_s=60) as url,
        shown(url) as running,
        browser(scheme="dark") as window,
    ):
        page = await opened(window, running)
        await page.locator("#regions-note", has_text="3,025 regions").wait_for()
        rows = page.locator("#regions tr.row")
        assert await rows.count() < 80  # of 3,025: only what can be seen
        assert await page.locator("#regions table").get_attribute("aria-rowcount") == "3026"
        await page.get_by_role("button", name="region", exact=True).click()
        await page.locator("#regions tr.row[aria-rowindex='2'][data-name='cell:0:0']").wait_for()
        await page.evaluate("document.querySelector('#regions .scroll').scrollTop = 1e9")
        await page.locator("#regions tr.row[aria-rowindex='3026']").wait_for()
        assert await rows.last.get_attribute("data-name") == "cell:54:54"
        assert await rows.count() < 80
        await chosen_region(page, "cell:5:7")
        await page.get_by_text("of 3,025 match").wait_for()
        await page.locator("#region .way li").first.wait_for()
        await page.get_by_label("Search regions").fill("no such cell")
        await page.get_by_text("No region has “no such cell” in its name.").wait_for()
        await page.get_by_label("Search regions").fill("")
        await page.get_by_role("button", name="events/s", exact=True).first.click()
        busy = page.locator("#regions tr.row", has=page.locator("td:nth-child(4):not(:text-is('0'))"))
        await busy.first.get_by_role("button").click()
        await page.locator("#region .feed li code").nth(3).wait_for()
        await page.locator("#latency canvas").wait_for()
        await picture(page, "dashboard-3000")
        assert window.complaints == []


async def test_a_node_that_dies_is_shown_red_with_what_to_do_and_that_it_came_back() -> None:
    with servers(2) as redis:
        network = await _registered(redis)
        async with network, shown(redis.urls[0]) as running, browser() as window:
            page = await opened(window, running)
            await asyncio.to_thread(redis.servers[1].kill)
            await page.get_by_text("no answer").wait_for()
            alert = page.locator(".alert.problem", has_text="n2")
            await alert.wait_for()
            assert "Do: Start the server" in await alert.inner_text()
            await page.locator("#notes li.bad", has_text="n2 does not answer").wait_for()
            assert "1 down" in await page.locator("#totals .bad").first.inner_text()
            boxes = await page.locator("#alerts .alert").count()
            total = page.locator("#totals > div", has_text="alerts").locator("dd")
            assert await total.inner_text() == str(boxes), "it counts the boxes that it shows"
            await asyncio.to_thread(redis.servers[1].restart)
            await page.locator("#notes li", has_text="n2 answers again").wait_for()
            await page.get_by_text("no answer").wait_for(state="detached")


async def test_a_click_counts_also_when_the_list_is_drawn_again_before_the_button_is_let_go() -> None:
    with servers(1) as redis:
        network = await _registered(redis)
        async with network, shown(redis.urls[0]) as running, browser() as window:
            page = await opened(window, running)
            button = page.get_by_role("button", name="forest", exact=True)
            await button.hover()
            await page.mouse.down()
            drawn = asyncio.Event()
            page.on("response", lambda response: drawn.set() if "data/regions" in response.url else None)
            await network.subscribe("river")
            await asyncio.wait_for(drawn.wait(), scaled(20))
            await asyncio.sleep(0.3)  # the page draws what has come, unless it waits for the hand
            await page.mouse.up()
            await page.locator("#region .title", has_text="forest").wait_for()
            await page.get_by_role("button", name="river", exact=True).wait_for()


async def test_a_gateway_that_is_gone_is_said_to_be_and_found_again() -> None:
    with servers(1) as redis:
        network = await _registered(redis)
        async with network, browser() as window:
            async with shown(redis.urls[0]) as running:
                port = int(running.url.rpartition(":")[2])
                page = await opened(window, running)
                await page.get_by_text("Live", exact=True).wait_for()
                await chosen_region(page, "forest")
                await page.get_by_text("live, newest first").wait_for()
            await page.get_by_text("Disconnected: ").wait_for()
            assert await page.locator("#regions tr.row").count() == 1  # the last state stays, dimmed
            assert "stale" in (await page.locator("#main").get_attribute("class") or "")
            async with shown(redis.urls[0], port=port):
                await page.get_by_text("Live", exact=True).wait_for()
                await page.get_by_text("live, newest first").wait_for()


async def test_events_of_a_region_that_cannot_be_joined_now_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with servers(1) as redis:
        network = await _registered(redis)
        monkeypatch.setattr(Limits, "__init__", partialmethod(Limits.__init__, subscribe_timeout_s=1.0))
        async with network, shown(redis.urls[0]) as running, browser() as window:
            page = await opened(window, running)
            os.kill(redis.servers[0].pid, signal.SIGSTOP)
            await chosen_region(page, "forest")
            await page.get_by_text("does not answer now; trying again …").wait_for()
            os.kill(redis.servers[0].pid, signal.SIGCONT)
            await page.get_by_text("live, newest first").wait_for()


async def test_who_comes_from_afar_is_asked_for_a_token_and_shown_why_it_is_refused(tmp_path: Path) -> None:
    keys, token = signing(tmp_path)
    with servers(1) as redis:
        network = await _registered(redis)
        async with (
            network,
            shown(redis.urls[0], keys) as running,
            browser(extra_http_headers={"X-Forwarded-For": "192.0.2.7"}) as window,
        ):
            page = window.page
            await page.goto(running.url + "/dashboard/")
            await page.get_by_text("This gateway asks for a token").wait_for()
            await page.get_by_label("Token").fill(token(watch=False))
            await page.get_by_role("button", name="Show the network").click()
            await page.get_by_text("this token does not let you watch").wait_for()
            await page.get_by_label("Token").fill(token(watch=True, read=["river"]))
            await page.get_by_role("button", name="Show the network").click()
            await chosen_region(page, "forest")
            await page.get_by_text("this token does not let you read 'forest'").wait_for()
            assert "token" not in page.url
            assert await page.evaluate("localStorage.length") == 0


async def test_names_and_payloads_from_strangers_stay_texts() -> None:
    evil = "<img src=x onerror=alert(1)>"
    with servers(1) as redis:
        async with (
            gamecast.connect(redis.urls[0], name="<b>s1</b>") as cast,
            shown(redis.urls[0]) as running,
            browser() as window,
        ):
            await cast.subscribe(evil, "forest")
            page = await opened(window, running)
            await page.get_by_role("button", name=evil, exact=True).click()
            await page.locator("#region .title").wait_for()
            await chosen_region(page, "forest")
            await page.get_by_text("live, newest first").wait_for()
            await cast.publish("forest", {"say": evil})
            await page.locator("#region .feed code", has_text="onerror").wait_for()
            await page.get_by_text("<b>s1</b>").first.wait_for()
            assert await page.locator("main img, #subscribers b, #region b").count() == 0


@contextmanager
def servers(number: int) -> Iterator[EmbeddedServers]:
    with EmbeddedServers(number) as started:
        yield started


async def _registered(redis: EmbeddedServers) -> gamecast.Client:
    """Register nodes n1 and on, and publish once, so that there is a region; returns a connection that is not open."""
    from adapters.redis.leadercontrol import LeaderControl

    control = LeaderControl(redis.urls[0])
    for number, url in enumerate(redis.urls, start=1):
        await control.register_node(f"n{number}", "" if number == 1 else url, may_lose=number > 1)
    await control.close()
    async with gamecast.connect(redis.urls[0], name="first") as cast:
        await cast.publish("forest", {})
    assert (await survey(redis.urls[0])).plan is not None
    return gamecast.connect(redis.urls[0], name="s1")


COUNTING = """
import { boxesOf } from "%(story)s";
const of = (subject, seen) => ({ level: "warning", subject, seen, advice: null });
const same = ["n1", "n2", "n3"].map((node) => of(node, "it may lose events"));
const found = [...same, of("n4", "it is slow")];
const counts = [boxesOf({ alerts: found, alerts_total: 4 }), boxesOf({ alerts: found, alerts_total: 60 })];
console.log(JSON.stringify(counts.map(({ boxes, total }) => [boxes.map(({ subject }) => subject), total])));
"""


def test_alerts_that_share_a_box_are_counted_once(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    script = tmp_path / "counting.mjs"
    script.write_text(COUNTING % {"story": (PAGE / "script" / "story.js").as_uri()})
    done = subprocess.run([node, script], capture_output=True, text=True, check=False, timeout=scaled(30))
    assert json.loads(done.stdout) == [[["n1, n2, n3", "n4"], 2], [["n1, n2, n3", "n4"], 58]], done.stderr

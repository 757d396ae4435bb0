"""The dashboard's map and its curves of nodes and links in a browser, over made-up networks of up to 10,000 regions.

A network of that size takes minutes to start; the map sees surveys alone, so these are made up here.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from adapters.embedded.server import EmbeddedServer
from adapters.gateway.dashboard.routes import add_dashboard
from adapters.gateway.gateway import Gateway
from adapters.redis.networkstate import LinkState, NetworkState, NodeState, RegionState
from sequencing.plan import Plan
from tests.integration.accessibility import judge
from tests.integration.browser import browser
from tests.integration.gateway.test_dashboard_page import SCHEMES, picture
from tests.integration.gateway_clients import Running, running_gateway
from tests.patience import scaled
from tests.servers_seen import SERVER

INTERVAL_S = 0.5
PHONE_WIDTH = 390
NODES = ("n1", "n2", "n3", "n4")
PATHS = (("n1",), ("n2",), ("n2", "n3"), ("n3", "n4"), ("n2", "n3", "n4"), ("n4",))


def grid(name: str, columns: int, rows: int) -> tuple[str, ...]:
    """Return the regions of a grid whose middle is at 0:0."""
    return tuple(f"{name}:{c - columns // 2}:{r - rows // 2}" for r in range(rows) for c in range(columns))


@dataclass(slots=True)
class MadeUp:
    """A network whose regions have rates that do not change. ``silent``: nodes that do not answer."""

    names: tuple[str, ...]
    silent: set[str] = field(default_factory=set)
    behind: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)
    paths: Mapping[str, tuple[str, ...]] = field(init=False)
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.paths = {name: PATHS[number * 7 // 3 % len(PATHS)] for number, name in enumerate(self.names)}
        self.began_s = time.monotonic() - 100

    async def look(self) -> NetworkState:
        """Return the network now."""
        now_s = time.monotonic()
        after_s = now_s - self.began_s
        plan = Plan(1, 1, "acyclic", {name: f"redis://{name}" for name in NODES}, self.paths, ())
        nodes = tuple(self._node(name, place, now_s, after_s) for place, name in enumerate(NODES))
        regions = tuple(self._region(number, name, now_s, after_s) for number, name in enumerate(self.names))
        return NetworkState("redis://made-up", SERVER, plan, None, "s1", 3000, nodes, (), frozenset(), regions)

    def _node(self, name: str, place: int, now_s: float, after_s: float) -> NodeState:
        node = NodeState(name, f"redis://{name}", f"redis://{name}", True, True, False, trouble="it hangs")
        if name in self.silent:
            return node
        sent, frames = round(after_s * 50), 30 if self.silent else 0
        links = tuple(
            LinkState(path[at + 1], frames, "1-0" if frames else "", sent)
            for path in PATHS
            for at in range(len(path) - 1)
            if path[at] == name
        )
        server = replace(SERVER, run=f"run of {name}", round_trip_ms=0.4 + place + after_s % 7 / 10)
        answered = {"server": server, "installed": (1, 1), "accepted": sent, "links": links[:1], "read_at_s": now_s}
        return replace(node, trouble=None, **answered)  # type: ignore[arg-type]

    def _region(self, number: int, name: str, now_s: float, after_s: float) -> RegionState:
        path = self.paths[name]
        rate = (number * 7919 % 101) ** 3 / 5_000 if number % 3 else 0.0
        drawn = round(after_s * rate) + 500
        last = drawn - 350 + round(after_s * 10) % 100 if name in self.behind else drawn - number % 3
        known = path[0] not in self.silent and name not in self.unread
        return RegionState(
            name, path, 1, 10, 1,
            None if path[-1] in self.silent else last, drawn if known else None, 100, now_s if known else None,
        )  # fmt: skip


@asynccontextmanager
async def shown(redis: EmbeddedServer, look: Callable[[], Any]) -> AsyncIterator[Running]:
    def extend(application: Any, gateway: Gateway) -> None:
        add_dashboard(application, gateway, look, interval_s=INTERVAL_S)

    async with running_gateway(redis.url, extensions=(extend,)) as running:
        yield running


async def opened(page: Any, running: Running) -> None:
    await page.goto(running.url + "/dashboard/")
    await page.locator("#map-scale li").first.wait_for()


WORLDS: dict[str, tuple[str, ...]] = {
    "small": ("forest", "river", "castle"),
    "grid": grid("cell", 8, 6),
    "mixed": (*grid("overworld", 24, 16), *grid("dungeon", 9, 9), *(f"shard/{n}" for n in range(40)), "lobby", "chat"),
    "large": grid("cell", 100, 100),
}


@pytest.mark.parametrize("name", WORLDS)
async def test_the_map_shows_what_is_stuck_and_opens_regions_by_keyboard(
    redis_server: EmbeddedServer, axe: str | None, name: str
) -> None:
    world = MadeUp(WORLDS[name], behind=set(WORLDS[name][5:9]), unread=set(WORLDS[name][20:22]))
    async with shown(redis_server, world.look) as running:
        for scheme, width in (*((scheme, 1400) for scheme in SCHEMES), (SCHEMES[1], PHONE_WIDTH)):
            world.silent = set()
            async with browser(scheme=scheme, width=width, device_scale_factor=2 if width < 400 else 1) as window:
                page = window.page
                await opened(page, running)
                await page.locator("#map-note", has_text=f"{len(world.names):,} regions").wait_for()
                await page.locator("#delays").scroll_into_view_if_needed()
                await page.locator("#delays tbody tr").nth(3).wait_for()
                await picture(page, f"map-{name}-{scheme}-{width}")
                await page.locator("#map-field").scroll_into_view_if_needed()
                world.silent = {"n3"}
                await page.locator("#map-note", has_text=" stuck").wait_for(timeout=scaled(10) * 1000)
                await page.locator("#map-field").focus()
                await page.keyboard.press("Home")
                await page.keyboard.press("s")
                assert "stuck at n3" in await page.locator("#map-said").inner_text()
                await page.locator("#map-tip", has_text="stuck at n3").wait_for()
                await page.locator("#delays").scroll_into_view_if_needed()
                await page.locator("#delays tr", has_text="n3").get_by_text("unknown").first.wait_for()
                assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
                assert await judge(page, axe) == []
                await picture(page, f"map-{name}-stuck-{scheme}-{width}")
                await page.keyboard.press("ArrowRight")
                said = await page.locator("#map-said").inner_text()
                await page.keyboard.press("Enter")
                await page.locator("#region .title", has_text=said.partition(",")[0]).wait_for()
                assert window.complaints == []
    if axe is None:
        pytest.skip("all but accessibility was tested: npm, which fetches axe-core, is not there or not online")

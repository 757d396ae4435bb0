"""The arena in a browser: real nodes, real distances, both games side by side."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the arena's page is served by aiohttp (the gateway extra)")

import aiohttp

from examples.arena.world import SAFE
from tests.integration.accessibility import fetch_axe, judge
from tests.integration.browser import Browser, browser
from tests.patience import patience, scaled

ROOT = Path(__file__).parents[3]
COMPARED_MIN = 1_500
DIVERGED_MIN = 20


@pytest.fixture
def arena() -> Iterator[subprocess.Popen[str]]:
    """The command as it is documented, running."""
    child = subprocess.Popen(
        [sys.executable, "examples/arena", "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            child.wait(30)
        assert child.stdout is not None
        child.stdout.close()


async def opened(arena: subprocess.Popen[str]) -> str:
    """Return the URL of the page, once it is served."""
    assert arena.stdout is not None
    line = await asyncio.to_thread(arena.stdout.readline)
    return line.split("is open: ")[1].split()[0]


async def test_worlds_stay_the_same_with_gamecast_and_diverge_with_plain_pub_sub(arena: subprocess.Popen[str]) -> None:
    url = await opened(arena)
    async with browser() as window:
        page = window.page
        await page.goto(url)
        await page.wait_for_function(
            """([compared, diverged]) => {
              const whole = (text) => parseInt((text ?? "0").replaceAll(",", ""), 10);
              const seen = document.querySelector("#gamecast .figures").textContent.match(/([\\d,]+) states compared/);
              return seen && whole(seen[1]) >= compared
                && whole(document.querySelector("[data-testid=plain-divergence]").textContent) >= diverged;
            }""",
            arg=[COMPARED_MIN, DIVERGED_MIN],
            timeout=scaled(90) * 1000,
        )
        assert await page.get_by_test_id("gamecast-divergence").inner_text() == "0"
        assert "All worlds are the same" in await page.locator("#gamecast .verdict").inner_text()
        assert int((await page.get_by_test_id("plain-divergence").inner_text()).replace(",", "")) >= DIVERGED_MIN
        assert "drifted apart" in await page.locator("#plain .verdict").inner_text()
        assert await page.evaluate(UNLIKE) is None
        events = await page.evaluate(EVENTS)
        assert events[0] == events[1]
        assert events[2] == events[3]
        assert await page.evaluate(COUNTERS_IN_VIEW)
        assert await page.locator("canvas").count() == 9
        drawn = await page.evaluate(
            """() => [...document.querySelectorAll("canvas")].map((canvas) => new Set(
              canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data).size)"""
        )
        assert min(drawn) > 10
        await page.get_by_text("The richest bots").click()
        await page.locator("#loot-gamecast tr.off, #loot-gamecast tbody tr").first.wait_for()
        assert await page.locator("#loot-gamecast tr.off").count() == 0
        assert window.complaints == []
        arena.send_signal(signal.SIGINT)
        await page.get_by_text("The arena has closed").wait_for()
    assert await asyncio.to_thread(arena.wait, 30) == 0
    assert arena.stdout is not None
    ours, plain = arena.stdout.read().splitlines()
    assert ours.startswith("gamecast: 0 of ")
    assert ours.endswith("disagree about 0 of 40 things")
    assert not plain.startswith("plain: 0 of ")


async def test_two_visitors_play_while_nodes_links_and_gateways_fail(
    arena: subprocess.Popen[str], tmp_path: Path
) -> None:
    url = await opened(arena)
    axe = await asyncio.to_thread(fetch_axe, tmp_path)
    phone = {"width": 390, "height": 844, "has_touch": True, "is_mobile": True}
    sockets: list[str] = []
    async with browser() as ann, browser(scheme="dark", **phone) as ben:
        for window, name in ((ann, "Ann"), (ben, "Ben")):
            window.page.on("websocket", lambda socket: sockets.append(socket.url))
            await window.page.goto(url)
            await enter(window, name)
        for window in (ann, ben):
            await window.page.locator('#arena[data-figures~="Ann"][data-figures~="Ben"]').wait_for()
            await window.page.locator("#here").get_by_text("Ann").wait_for()
            await window.page.locator("#here").get_by_text("Ben").wait_for()
            assert await judge(window.page, axe) == []
            assert await window.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert await window.page.evaluate(COUNTERS_IN_VIEW)

        await ann.page.keyboard.down("ArrowLeft")
        await until_moved(ann, "(x) => x <= 42")
        await ann.page.keyboard.up("ArrowLeft")
        await ann.page.keyboard.press("Space")
        box = await ben.page.locator("#arena").bounding_box()
        await ben.page.touchscreen.tap(box["x"] + 0.9 * box["width"], box["y"] + 0.2 * box["height"])
        await until_moved(ben, "(x) => x >= 75")

        for kind, what in (("node", "node n2 was killed"), ("link", "was cut"), ("node", "node n1 was killed")):
            await broken(ann, kind, what)
            await repaired(ann, kind)
            await walk(ann)
        await ann.page.locator("#ogre").get_by_text("moved by").wait_for()
        row = await broken(ann, "keeper", "was stopped")
        stopped = re.findall(r"keeper-\w+", await row.inner_text())[0]
        [other] = {"keeper-dublin", "keeper-madrid"} - {stopped}
        for window in (ann, ben):
            await window.page.locator("#ogre").get_by_text(f"moved by {other}").wait_for()
        await repaired(ann, "keeper")
        await ann.page.locator("#ogre").get_by_text(f"moved by {stopped}").wait_for()  # handed over at a border
        before = set(sockets)
        await broken(ann, "gateway", "gateway-1 was stopped")
        for window in (ann, ben):
            await window.page.locator("#status").get_by_text("Connected, again after 1 interruption").wait_for()
            await walk(window)
        assert set(sockets) - before, "no page tried the other gateway"
        await repaired(ann, "gateway")
        for window in (ann, ben):
            await window.page.locator('#arena[data-figures~="Ann"][data-figures~="Ben"]').wait_for()
            assert await window.page.get_by_test_id("gamecast-divergence").inner_text() == "0"
            assert int((await window.page.get_by_test_id("plain-divergence").inner_text()).replace(",", "")) > 0
            assert await judge(window.page, axe) == []
            assert [text for text in window.complaints if "WebSocket" not in text] == []  # of the gateway that was down
    arena.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(arena.wait, 30) == 0


async def test_who_enters_is_safe_and_bots_leave_alone_who_stands_still(arena: subprocess.Popen[str]) -> None:
    url = await opened(arena)
    async with aiohttp.ClientSession() as client, client.get(f"{url}/state") as response:
        sides = (await response.json())["sides"]  # open means that all servers play already
    assert all(server["event"] + server["later"] > 0 for side in sides for server in side["servers"])
    async with browser() as window:
        page = window.page
        await page.goto(url)
        await enter(window, "Ann")
        await page.locator("#safe").get_by_text("You cannot be hit for some seconds").wait_for()
        begin = await page.evaluate(HEARD)
        await page.locator("#safe").get_by_text("Bots leave you alone while you stand still").wait_for()
        assert await page.evaluate(HEARD) - begin >= SAFE
        await page.wait_for_function(f"async (after) => await ({HEARD})() >= after", arg=begin + 4 * SAFE)
        assert await page.locator("#mine").inner_text() == "0 · health 4 · felled 0 times"
        assert await page.get_by_test_id("gamecast-divergence").inner_text() == "0"


@pytest.mark.alone
async def test_players_come_and_go_move_and_take_the_hoard(arena: subprocess.Popen[str]) -> None:
    url = await opened(arena)
    async with browser() as ann, browser(scheme="dark") as ben:
        for window, name in ((ann, "Ann"), (ben, "Ben")):
            await window.page.goto(url)
            await enter(window, name)
        for window in (ann, ben):
            await players(window, "Ann", "Ben")
            await window.page.locator('#arena[data-figures~="Ann"][data-figures~="Ben"]').wait_for()

        # Movement: the other page draws more places than the events had, and none of a figure it did not know.
        await ben.page.evaluate(WATCH_ANN)
        for key, there in cycle((("ArrowLeft", "(x) => x <= 45"), ("ArrowRight", "(x) => x >= 75"))):
            await ann.page.keyboard.down(key)
            await drawn(ben, "Ann", there)
            await ann.page.keyboard.up(key)
            await until_moved(ann, there)  # an event says where it stands
            if await ben.page.evaluate("window.seen.size") >= DRAWN_MIN:
                break  # a busy machine draws fewer
        assert "heard, 0 before their figure" in await ben.page.locator("#updates").inner_text()

        # Conditions: of two who take the hoard at once, one has it, and the other page names the winner.
        await ann.page.get_by_role("button", name="Open the door").click()
        for window in (ann, ben):
            await window.page.get_by_text("The door is open, the hoard is full").wait_for()
        wins = 0
        while await conflicts(ann) + await conflicts(ben) == 0:
            wins += 1
            assert wins <= ROUNDS
            for window in (ann, ben):
                await window.page.get_by_text("the hoard is full").wait_for()
            at = await soon(ann)
            await asyncio.gather(*(window.page.evaluate(TAKE, at) for window in (ann, ben)))
            for window in (ann, ben):
                await window.page.locator("#hoard-now").get_by_text("was first, and has the hoard").wait_for()
            read = [await window.page.locator("#hoard-now").inner_text() for window in (ann, ben)]
            assert read[0] == read[1]
        assert await conflicts(ann) + await conflicts(ben) == 1
        async with patience(20):  # the page shows them with its next look
            while await scored(ann) != wins:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        scores = await ann.page.locator("#scores").inner_text()

        # Shots: one event of both regions, which each page gets once; all servers agree on whom it hit.
        await ann.page.evaluate("document.activeElement.blur()")
        for number in (1, 2, 3):
            await ann.page.keyboard.press("f")
            for window in (ann, ben):
                await window.page.locator(f"#shot[data-heard='{number}'][data-joint=true]").wait_for()
        try:
            await ann.page.wait_for_function(SHOTS_AGREE, arg=3)
        except Exception as error:
            raise AssertionError(await ann.page.evaluate(SHOTS)) from error
        assert "Ann hit" in await ben.page.locator("#shot").inner_text()

        # State: a page that comes late has the door, the hoard and the scores with its first message, and the players.
        await ann.page.get_by_text("had it last").wait_for()
        async with browser() as cleo:
            await cleo.page.goto(url)
            await enter(cleo, "Cleo")
            await cleo.page.get_by_text("The door is open").wait_for()
            assert await cleo.page.locator("#scores").inner_text() == scores
            hoards = [await window.page.locator("#hoard-now").inner_text() for window in (ann, ben, cleo)]
            assert hoards == [hoards[0]] * 3
            for window in (ann, ben, cleo):
                await players(window, "Ann", "Ben", "Cleo")
            await cleo.page.close()
            for window in (ann, ben):
                await players(window, "Ann", "Ben")
                await window.page.locator('#arena:not([data-figures~="Cleo"])').wait_for()

        # A browser that is killed closes nothing: the gateway says that its player has left.
        session = await ben.page.context.browser.new_browser_cdp_session()
        processes = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
        [pid] = [process["id"] for process in processes if process["type"] == "browser"]
        os.kill(pid, signal.SIGKILL)
        await players(ann, "Ann")
        await ann.page.locator('#arena[data-figures="Ann"]').wait_for()
        assert await ann.page.get_by_test_id("gamecast-divergence").inner_text() == "0"
        assert ann.complaints == []
    arena.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(arena.wait, 30) == 0


DRAWN_MIN = 8
ROUNDS = 5
"""Both pages take the hoard in the same millisecond; still, one may have heard of the other's event before."""
TAKE = """(at) => void setTimeout(() => document.querySelector("[data-hoard=take]").click(), at - Date.now())"""
EVENTS = """() => [...document.querySelectorAll("#gamecast figcaption")].map(
  (each) => each.textContent.match(/event [\\d,]+/)[0])"""
UNLIKE = """async () => {
  for (let look = 0; look < 20; look++) {
    const [{ servers }] = (await (await fetch("state")).json()).sides;
    for (const [one, other] of [servers.slice(0, 2), servers.slice(2)]) {
      if (one.event !== other.event || JSON.stringify(one.things) !== JSON.stringify(other.things)) return [one, other];
    }
  }
  return null;
}"""
COUNTERS_IN_VIEW = """() => {
  const seen = [0, 0.5, 1].map((part) => {
    scrollTo(0, part * document.documentElement.scrollHeight);
    return [...document.querySelectorAll("#proof .counter")].every((counter) => {
      const { left, top, width, height } = counter.getBoundingClientRect();
      return top >= 0 && document.elementFromPoint(left + width / 2, top + height / 2) === counter;
    });
  });
  scrollTo(0, 0);
  return seen.every(Boolean);
}"""
TOLD = """() => [...document.querySelectorAll("#here, #status, #hoard-now, #heard, #updates")]
  .map((each) => `${each.id}: ${each.textContent}`)
  .concat(`figures: ${document.getElementById("arena").dataset.figures}`).join("; ")"""
HEARD = "async () => (await (await fetch('state')).json()).sides[0].servers[0].event"
SHOTS = "async () => JSON.stringify((await (await fetch('state')).json()).sides[0].servers)"
SHOTS_AGREE = """async (count) => {
  const [ours] = (await (await fetch("state")).json()).sides;
  const shots = ours.servers.map(({ shots }) => shots.copse).filter(Boolean);
  return shots.length === 2 && shots.every(({ number }) => number === count) && shots[0].hit === shots[1].hit;
}"""
WATCH_ANN = """() => {
  window.seen = new Set();
  const look = () => {
    window.seen.add(JSON.stringify(JSON.parse(document.getElementById("arena").dataset.drawn).Ann));
    requestAnimationFrame(look);
  };
  look();
}"""


async def players(window: Browser, *names: str) -> None:
    """Wait until these are the players of the arena, and no others."""
    try:
        await window.page.wait_for_function(
            """(names) => [...document.querySelectorAll("#here span")].map((each) => each.textContent).sort().join()
              === names.join()""",
            arg=sorted(names),
        )
    except Exception as error:
        raise AssertionError(await window.page.evaluate(TOLD)) from error


async def drawn(window: Browser, name: str, condition: str) -> None:
    """Wait until the page draws a figure where ``condition`` of its x says."""
    await window.page.wait_for_function(
        f"(name) => ({condition})(JSON.parse(document.getElementById('arena').dataset.drawn)[name][0])", arg=name
    )


async def soon(window: Browser) -> int:
    """Return a time that all pages reach a little later, as JavaScript counts it."""
    now_ms: int = await window.page.evaluate("Date.now()")
    return now_ms + 300


async def scored(window: Browser) -> int:
    """Return how much loot all figures have together, as a page says."""
    return sum(int(count) for count in re.findall(r"\d+", await window.page.locator("#scores").inner_text()))


async def conflicts(window: Browser) -> int:
    return int(await window.page.locator("[data-hoard=take]").get_attribute("data-conflicts") or 0)


async def enter(window: Browser, name: str) -> None:
    await window.page.get_by_label("Name").fill(name)
    await window.page.get_by_role("button", name="Enter").click()
    try:
        await window.page.locator(f'#arena[data-figures~="{name}"]').wait_for()
    except Exception as error:
        raise AssertionError(f"{name} has not entered: {await window.page.evaluate(TOLD)}") from error


async def broken(window: Browser, kind: str, what: str) -> Any:
    """Press a button; return its row, once it says what is happening."""
    row = window.page.locator("#break li").filter(has=window.page.locator(f"[data-kind={kind}]"))
    await row.get_by_role("button").click()
    await row.get_by_text(what).wait_for()
    return row


async def repaired(window: Browser, kind: str) -> None:
    """Wait until what was broken is back, with all events."""
    await window.page.locator(f"#break li.back:has([data-kind={kind}])").get_by_text("; 0 events lost").wait_for()


async def walk(window: Browser) -> None:
    """Hold D or A, towards the arena's middle, until the own figure has walked: further than hits push it."""
    await window.page.locator('#arena:not([data-at=""])').wait_for()  # at another gateway, it enters again
    x = int((await window.page.locator("#arena").get_attribute("data-at")).partition(",")[0])
    key = "d" if x < 60 else "a"
    walking = asyncio.create_task(until_moved(window, f"(x) => x >= {x + 4}" if key == "d" else f"(x) => x <= {x - 4}"))
    while not walking.done():
        await window.page.keyboard.down(key)  # a key that is held repeats
        await asyncio.wait({walking}, timeout=1)
    await walking
    await window.page.keyboard.up(key)


async def until_moved(window: Browser, condition: str) -> None:
    """Wait until the visitor's own figure is where ``condition`` of its x says, in a game server's world."""
    await window.page.wait_for_function(
        f"() => ({condition})(parseInt(document.getElementById('arena').dataset.at || '60', 10))"
    )


async def test_only_the_page_itself_on_this_machine_breaks_things(arena: subprocess.Popen[str]) -> None:
    url = await opened(arena)
    host = url.removeprefix("http://")
    async with aiohttp.ClientSession() as client:

        async def press(kind: str, **headers: str) -> int:
            async with client.post(f"{url}/faults/{kind}", headers=headers) as response:
                status: int = response.status
                return status

        assert await press("link") == 403
        assert await press("link", Origin="http://elsewhere.example") == 403
        assert await press("link", Origin="http://elsewhere.example", Host="elsewhere.example") == 403
        assert await press("link", Origin=f"https://{host}") == 403
        assert await press("everything", Origin=url) == 404
        assert await press("link", Origin=url) == 200
        assert await press("link", Origin=url) == 409
        async with client.get(f"{url}/faults/link") as response:
            assert response.status == 405

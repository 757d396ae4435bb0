"""The arena in a browser: real nodes, real distances, both games side by side."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the arena's page is served by aiohttp (the gateway extra)")

from tests.integration.browser import browser
from tests.patience import scaled

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


async def test_worlds_stay_the_same_with_gamecast_and_diverge_with_plain_pub_sub(arena: subprocess.Popen[str]) -> None:
    assert arena.stdout is not None
    line = await asyncio.to_thread(arena.stdout.readline)
    url = line.split("http://")[1].split()[0]
    async with browser() as window:
        page = window.page
        await page.goto(f"http://{url}/")
        await page.wait_for_function(
            """([compared, diverged]) => {
              const whole = (text) => parseInt((text ?? "0").replaceAll(",", ""), 10);
              const seen = document.querySelector("#gamecast .figures").textContent.match(/([\\d,]+) states compared/);
              return seen && whole(seen[1]) >= compared
                && whole(document.querySelector("#plain .counter").textContent) >= diverged;
            }""",
            arg=[COMPARED_MIN, DIVERGED_MIN],
            timeout=scaled(90) * 1000,
        )
        assert await page.get_by_test_id("gamecast-divergence").inner_text() == "0"
        assert "All worlds are the same" in await page.locator("#gamecast .verdict").inner_text()
        assert int((await page.get_by_test_id("plain-divergence").inner_text()).replace(",", "")) >= DIVERGED_MIN
        assert "drifted apart" in await page.locator("#plain .verdict").inner_text()
        assert await page.locator("canvas").count() == 8
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
    ours, plain = arena.stdout.read().splitlines()
    assert ours.startswith("gamecast: 0 of ")
    assert ours.endswith("disagree about 0 of 40 things")
    assert not plain.startswith("plain: 0 of ")

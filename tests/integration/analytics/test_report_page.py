"""The report in a browser: for eyes, keyboards and screen readers, on screens and paper, with names that mean harm.

GAMECAST_SCREENSHOTS names a directory that keeps what it looked like.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from analytics.jobs.analysis import Analysis
from analytics.jobs.turns import Turn
from analytics.report.charts import legible, shortened
from analytics.report.report import render
from tests.analysed_session import STRANGE_NAMES, analysed
from tests.integration.accessibility import judge
from tests.integration.browser import browser

SCREENSHOTS = os.environ.get("GAMECAST_SCREENSHOTS")
PARTS = ("For producers", "For engineers")
TURNS = (
    Turn("2026-11-26T13:55", "server", (STRANGE_NAMES[0],), 30, 12.0, 48.0, "2026-11-26T14:05", ("gaps rose",)),
    Turn("2026-11-26T14:05", "link", ("n1 → n2",), 3, 10.0, 30.0, "", ()),
)


def turned(found: Analysis) -> Analysis:
    return replace(found, turns=TURNS)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report with every chart in it, and with names that mean harm."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    found = turned(analysed(30, names=STRANGE_NAMES, broken=True, minutes=90))
    file.write_text(render(found), encoding="utf-8")
    return file.as_uri()


async def chosen(page: Any, part: str) -> None:
    await page.get_by_text(part, exact=True).first.click()
    await page.get_by_role("heading", name=part, exact=True).wait_for(state="attached")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
async def test_everybody_can_read_it(
    report: str, scheme: Literal["light", "dark"], width: int, axe: str | None
) -> None:
    async with browser(scheme=scheme, width=width) as window:
        await window.page.goto(report)
        ground = await window.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) > 400) == (scheme == "light")
        for part in PARTS:
            await chosen(window.page, part)
            assert await judge(window.page, axe) == []
            assert await window.page.evaluate("document.documentElement.scrollWidth") == width
            if SCREENSHOTS:
                name = f"report-{part.split()[-1]}-{width}-{scheme}.png"
                await window.page.screenshot(path=Path(SCREENSHOTS) / name, full_page=True)
        assert window.complaints == []
    if axe is None:
        pytest.skip("all but accessibility was tested: npm, which fetches axe-core, is not there or not online")


async def test_names_from_strangers_run_nothing_and_are_legible(report: str) -> None:
    async with browser() as window:
        page = window.page
        await page.goto(report)
        bars = await page.locator("section.producer svg.bars").first.locator("text.name").all_text_contents()
        assert {shortened(name) for name in STRANGE_NAMES} <= set(bars)
        await chosen(page, "For engineers")
        table = page.locator("table", has_text="Regions, busiest first")
        named = await table.locator("tbody th").all_text_contents()
        assert {legible(name) for name in STRANGE_NAMES} <= set(named)
        assert await page.evaluate("window.ran") is None
        assert await page.locator("img, section script").count() == 0
        assert window.complaints == []


async def test_the_parts_are_chosen_by_keyboard_or_address_and_tables_scroll(report: str) -> None:
    async with browser(width=360) as window:
        page = window.page
        await page.goto(report)
        await page.keyboard.press("Tab")
        await page.keyboard.press("ArrowRight")
        assert await page.locator("section:visible").get_attribute("class") == "engineer"
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.className") == "scroll"
        await page.keyboard.press("Shift+Tab")
        await page.keyboard.press("ArrowLeft")
        assert await page.locator("section:visible").get_attribute("class") == "producer"
        await page.goto("about:blank")
        await page.goto(f"{report}#engineer")
        assert await page.locator("section:visible").get_attribute("class") == "engineer"


async def test_paper_shows_both_parts_in_light_colours(report: str) -> None:
    async with browser(scheme="dark", width=720) as window:
        await window.page.goto(report)
        await window.page.emulate_media(media="print", color_scheme="dark")
        assert await window.page.locator("section:visible").count() == 2
        assert await window.page.locator("h2:visible").all_text_contents() == list(PARTS)
        assert await window.page.evaluate("document.documentElement.scrollWidth") == 720
        ink = await window.page.evaluate("getComputedStyle(document.body).color")
        assert sum(map(int, ink[4:-1].split(","))) < 200


async def test_charts_say_what_they_show(report: str) -> None:
    async with browser() as window:
        page = window.page
        await page.goto(report)
        said = [await each.get_attribute("aria-label") for each in await page.locator("section svg[role=img]").all()]
        assert len(said) == len(set(said)) == 7
        assert any("p99 is highest at" in each and "2 gaps, 2 turns" in each for each in said)
        assert [await each.text_content() for each in await page.locator("header .turns li").all()] == [
            turn.describe() for turn in TURNS
        ]
        assert await page.locator("line.turn").count() == len(TURNS)
        # Gridlines and what is drawn on them use one scale.
        plot = page.locator("section.producer svg.plot")
        line, grid = plot.locator("path.line.p50"), plot.locator("line.grid").first
        widths = [await each.evaluate("each => each.getBoundingClientRect().width") for each in (line, grid)]
        assert abs(widths[0] - widths[1]) < 4

"""The report of a real, short load test in a browser. GAMECAST_SCREENSHOTS names a directory that keeps its looks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest

from gamecast import blocking
from tests.integration.accessibility import judge
from tests.integration.browser import browser
from tests.integration.loadtest.test_loadtest import judgement_in, load, seconds

SCREENSHOTS = os.environ.get("GAMECAST_SCREENSHOTS")
BYTES_MAX = 200_000


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that kept every guarantee."""
    directory = tmp_path_factory.mktemp("loadtest")
    with blocking.connect("embedded://?nodes=2") as client:
        ran = load(
            directory, "--network", client.url, "--seconds", seconds(6), "--servers", "5", "--regions", "4",
            "--processes", "2",
        )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "report.html" in ran.stdout
    return directory


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_everybody_can_read_it(out: Path, scheme: Literal["light", "dark"], width: int, axe: str | None) -> None:
    async with browser(scheme=scheme, width=width) as window:
        page = window.page
        await page.goto((out / "report.html").as_uri())
        assert await page.locator("h1").text_content() == "Kept"
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) > 400) == (scheme == "light")
        assert await judge(page, axe) == []
        assert await page.evaluate("document.documentElement.scrollWidth") == width
        cut = "each => each.scrollWidth > each.clientWidth"
        assert not [
            await each.evaluate(cut) for each in await page.locator(".scroll").all() if await each.evaluate(cut)
        ]
        assert window.complaints == []
        if SCREENSHOTS:
            await page.screenshot(path=Path(SCREENSHOTS) / f"loadtest-{width}-{scheme}.png", full_page=True)
    if axe is None:
        pytest.skip("all but accessibility was tested: npm, which fetches axe-core, is not there or not online")


async def test_it_has_the_figures_of_the_judgement_the_command_and_locust_s_page_beside_it(out: Path) -> None:
    judgement = judgement_in(out)
    assert (out / "report.html").stat().st_size < BYTES_MAX
    async with browser() as window:
        page = window.page
        await page.goto((out / "report.html").as_uri())
        names, values = [await page.locator(f".cards {each}").all_text_contents() for each in ("dt", "dd")]
        shown = dict(zip(names, values, strict=True))
        assert shown["Events published"] == f"{judgement['published']:,}"
        assert shown["Delivered"] == f"{judgement['deliveries']:,}"
        assert shown["Lost"] == shown["Repeated"] == shown["Inversions"] == "0"
        assert shown["Delay p99"].startswith("≤ ")
        said = [await each.get_attribute("aria-label") for each in await page.locator("svg[role=img]").all()]
        assert [each.split(" over time")[0] for each in said] == ["Line chart of delays", "Line chart of throughput"]
        assert "--processes 2" in await page.locator("pre").text_content()
        await page.get_by_role("link", name="Locust’s own report").click()
        await page.wait_for_url("**/locust.html")

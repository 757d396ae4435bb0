"""The system's Chromium, for the tests that look at a page: without it they are skipped."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from tests.patience import scaled

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass(frozen=True, slots=True)
class Browser:
    """One window. ``complaints``: what the page wrote to the console as errors, and what it did not catch."""

    page: Any
    complaints: list[str] = field(default_factory=list)


@asynccontextmanager
async def browser(
    *, scheme: Literal["light", "dark"] = "light", width: int = 1400, height: int = 1000, **options: Any
) -> AsyncIterator[Browser]:
    """Open a window; ``options``: as Playwright's ``new_context`` takes them."""
    playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed (the dev extra)")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on PATH: apt-get install chromium")
    async with playwright.async_playwright() as driver:
        chromium = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            context = await chromium.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, **options
            )
            opened = Browser(await context.new_page())
            opened.page.on(
                "console",
                lambda message: opened.complaints.append(message.text) if message.type == "error" else None,
            )
            opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
            opened.page.set_default_timeout(scaled(20) * 1000)
            yield opened
        finally:
            await chromium.close()

"""Plays the arena in a headless browser and writes docs/arena.gif: ``python -m examples.arena.picture``.

Needs the extras ``dev`` and ``plots``, and Chromium.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sys
from asyncio.subprocess import PIPE
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.async_api import Page, async_playwright

Colour = tuple[int, int, int]

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "arena.gif"
PICTURE_BYTES_MAX = 400_000

WIDTH, HEIGHT = 960, 600
FRAMES, FRAME_MS = 20, 500
SHOWN = (
    "body { --edge: 6px; padding-block: 0 } #proof { margin-top: 0 } main { margin-block: 12px 6px }"
    " header, #play, #break li:last-child, footer { display: none !important }"
)
PRESSED = {1: "node", 6: "link", 11: "gateway"}
"""Frame → what is broken then."""
INKS = ["ink", "soft", "good", "bad", "copse", "gate", "ford", "dike", "chest", "figure-0"]
GROUNDS = ["card", "page", "ground", "watched"]
BLENDED = (("ink", "card"), ("soft", "card"), ("good", "card"), ("bad", "card"), ("bad", "ground"), ("soft", "ground"))
"""Where one meets the other, letters need a colour between them."""
KEYS = ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp")


async def main() -> None:
    """Run the arena, play, and write the picture."""
    arena = await asyncio.create_subprocess_exec(sys.executable, "examples/arena", "--port", "0", cwd=ROOT, stdout=PIPE)
    try:
        assert arena.stdout is not None
        line = (await arena.stdout.readline()).decode()
        frames, colours = await film(line.split("is open: ")[1].split()[0])
    finally:
        arena.send_signal(signal.SIGINT)
        await arena.wait()
    size = write(frames, colours, PICTURE)
    print(f"{PICTURE.relative_to(ROOT)}: {size:,} bytes")
    if size > PICTURE_BYTES_MAX:
        sys.exit(f"that is more than {PICTURE_BYTES_MAX:,}: take fewer frames")


async def film(url: str) -> tuple[list[Image.Image], list[Colour]]:
    """Return what a page shows while a visitor plays and breaks one thing of each kind, and the colours in it."""
    async with async_playwright() as driver:
        executable = shutil.which("chromium") or shutil.which("google-chrome")
        browser = await driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        await page.goto(url)
        await page.get_by_label("Name").fill("Ann")
        await page.get_by_role("radio", name="colour 1").check()
        await page.get_by_role("button", name="Enter").click()
        await page.locator('#arena[data-figures="Ann"]').wait_for()
        frames = [await step(page, number) for number in range(FRAMES)]
        named = {name: await colour(page, name) for name in (*INKS, *GROUNDS)}
        await browser.close()
    ground, watched = named["ground"], named["watched"]
    shades = [blend(ground, watched, 0.6), blend(ground, watched, 0.84)]  # regions, and where two of them overlap
    return frames, [*named.values(), *shades, *(blend(named[one], named[other], 0.5) for one, other in BLENDED)]


async def colour(page: Page, name: str) -> Colour:
    """Return a colour of the page's style."""
    text = await page.evaluate(
        "(name) => { const probe = document.body.appendChild(document.createElement('i'));"
        " probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; }",
        name,
    )
    red, green, blue = (int(number) for number in re.findall(r"\d+", text)[:3])
    return red, green, blue


def blend(one: Colour, other: Colour, part: float) -> Colour:
    """Return ``one`` with so much of ``other`` over it."""
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(one, other, strict=True))
    return red, green, blue


async def step(page: Page, number: int) -> Image.Image:
    """Play for one frame, and return it."""
    if number == 0:
        # By a script and not by a style element, which the page's policy forbids.
        await page.evaluate(
            "(rules) => { const sheet = new CSSStyleSheet(); sheet.replaceSync(rules);"
            " document.adoptedStyleSheets = [sheet]; }",
            SHOWN,
        )
    if kind := PRESSED.get(number):
        await page.locator(f"[data-kind={kind}]").click()
    key = KEYS[number // 3 % len(KEYS)]
    await page.evaluate("document.activeElement.blur()")
    await page.keyboard.down(key)
    await asyncio.sleep(FRAME_MS / 1000)
    await page.keyboard.up(key)
    await page.keyboard.press("Space")
    shot = await page.locator("body").screenshot()
    return Image.open(BytesIO(shot)).convert("RGB")


def write(frames: list[Image.Image], colours: list[Colour], file: Path) -> int:
    """Write an animation; returns its bytes. All frames have one palette, so that what stays the same costs nothing."""
    height = max(frame.height for frame in frames)
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for each in colours for part in each])
    even = []
    for frame in frames:
        canvas = Image.new("RGB", (frame.width, height), frame.getpixel((0, 0)))
        canvas.paste(frame)
        even.append(canvas.quantize(palette=palette, dither=Image.Dither.NONE))
    even[0].save(file, save_all=True, append_images=even[1:], duration=FRAME_MS, loop=0, optimize=True)
    return file.stat().st_size


if __name__ == "__main__":
    asyncio.run(main())

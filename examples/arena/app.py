"""The command and the page: both games, side by side, in a browser."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from .match import CITIES, ONE_WAY_MS, Side, play
from .world import ARENAS, RADIUS, REGIONS, SIZE

PAGE = Path(__file__).parent / "page"
FRAMES_A_SECOND = 10
HEADERS = {"Content-Security-Policy": "default-src 'self'", "X-Content-Type-Options": "nosniff"}

DIVERGED = 1


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python examples/arena",
        description="Bots fight over loot in overlapping regions, over gamecast and over plain Redis Pub/Sub on the "
        "same servers; a page shows both, and where game servers disagree. Exit status: 0, or 1 if game servers with "
        "gamecast disagreed.",
    )
    parser.add_argument("--port", type=int, default=8765, help="of the page, on this machine (0: any free one)")
    parser.add_argument("--seconds", type=float, help="end after so long, instead of at Ctrl-C")
    options = parser.parse_args()
    sys.exit(asyncio.run(run(options.port, options.seconds)))


async def run(port: int, seconds: float | None) -> int:
    """Play, serve the page, and return the exit status."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    print("starting four Redis servers, and four game servers twice …", file=sys.stderr)
    async with play() as sides:
        runner = web.AppRunner(application(sides, stop), access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", port)
            await site.start()
            at = runner.addresses[0]
            print(f"the arena is open: http://{at[0]}:{at[1]} (Ctrl-C ends it)", flush=True)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), seconds)
        finally:
            stop.set()
            await runner.cleanup()
    for side in sides:
        print(verdict(side))
    return DIVERGED if sides[0].board.differing else 0


def verdict(side: Side) -> str:
    """Return what became of a game, in words."""
    board = side.board
    how = f"{board.differing:,} of {board.compared:,} states differed"
    return f"{side.kind}: {how}; at the end the worlds disagree about {len(board.apart)} of {board.things} things"


def application(sides: Sequence[Side], stop: asyncio.Event) -> web.Application:
    """Return what serves the page, and how both games stand, ten times a second."""

    async def index(request: web.Request) -> web.FileResponse:
        return web.FileResponse(PAGE / "index.html", headers=HEADERS)

    async def terrain(request: web.Request) -> web.Response:
        return _json(
            {
                "size": SIZE,
                "radius": RADIUS,
                "regions": REGIONS,
                "arenas": ARENAS,
                "cities": CITIES,
                "one_way_ms": ONE_WAY_MS,
            }
        )

    async def state(request: web.Request) -> web.Response:
        return _json([side.document() for side in sides])

    async def live(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        with suppress(ConnectionError):
            while not stop.is_set():
                document = orjson.dumps([side.document() for side in sides])
                await response.write(b"data: %b\n\n" % document)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 1 / FRAMES_A_SECOND)
        return response

    app = web.Application()
    app.router.add_get("/", index)
    app.router.add_get("/terrain", terrain)
    app.router.add_get("/state", state)
    app.router.add_get("/live", live)
    app.router.add_static("/page", PAGE)
    return app


def _json(document: Any) -> web.Response:
    return web.Response(body=orjson.dumps(document), content_type="application/json", headers=HEADERS)

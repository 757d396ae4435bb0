"""The page's server: how both games stand, tokens for visitors, and the buttons that break things."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from aiohttp import web

from gateway.application import CLIENT

from .match import CITIES, ONE_WAY_MS, Match
from .visitors import COLOURS, TITLE_LENGTH_MAX
from .world import ARENAS, BOWS, FIGURE_ROOM, RADIUS, REACH, REGIONS, SIZE

PAGE = Path(__file__).parent / "page"
FRAMES_A_SECOND = 10


def application(match: Match, names: Collection[str], stop: asyncio.Event) -> web.Application:
    """Return what serves the page; ``names``: HOST:PORT, as browsers may call it."""
    headers = {"Content-Security-Policy": _policy(match), "X-Content-Type-Options": "nosniff"}

    def json(document: Any) -> web.Response:
        return web.Response(body=orjson.dumps(document), content_type="application/json", headers=headers)

    async def index(request: web.Request) -> web.FileResponse:
        return web.FileResponse(PAGE / "index.html", headers=headers)

    async def client(request: web.Request) -> web.FileResponse:
        return web.FileResponse(CLIENT / "gamecast.js", headers=headers)

    async def terrain(request: web.Request) -> web.Response:
        return json(
            {
                "size": SIZE,
                "radius": RADIUS,
                "reach": REACH,
                "room": FIGURE_ROOM,
                "regions": REGIONS,
                "arenas": ARENAS,
                "bows": BOWS,
                "cities": CITIES,
                "one_way_ms": ONE_WAY_MS,
                "gateways": [gateway.url for gateway in match.gateways],
                "colours": COLOURS,
                "title_length_max": TITLE_LENGTH_MAX,
                "breakable": match.faults.kinds if is_here(request) else (),
            }
        )

    async def token(request: web.Request) -> web.Response:
        visitor = f"visitor-{secrets.token_hex(4)}"
        return json({"visitor": visitor, "token": match.door.token(visitor)})

    async def fault(request: web.Request) -> web.Response:
        if not (is_here(request) and is_own_page(request, names)):
            raise web.HTTPForbidden(text="only the arena's own page, on this machine, may break things")
        kind = request.match_info["kind"]
        if kind not in match.faults.kinds:
            raise web.HTTPNotFound(text=f"nothing of the kind {kind[:20]!r} can be broken")
        if not match.faults.begin(kind):
            raise web.HTTPConflict(text="one of these is broken already: wait until it is back")
        return json(match.faults.document())

    async def state(request: web.Request) -> web.Response:
        return json(match.document())

    async def live(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        with suppress(ConnectionError):
            while not stop.is_set():
                await response.write(b"data: %b\n\n" % orjson.dumps(match.document()))
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 1 / FRAMES_A_SECOND)
        return response

    app = web.Application()
    app.router.add_get("/", index)
    app.router.add_get("/client/gamecast.js", client)
    app.router.add_get("/terrain", terrain)
    app.router.add_post("/token", token)
    app.router.add_post("/faults/{kind}", fault)
    app.router.add_get("/state", state)
    app.router.add_get("/live", live)
    app.router.add_static("/page", PAGE)
    return app


def is_here(request: web.Request) -> bool:
    """Return whether a request comes from this machine, over loopback."""
    return request.remote is not None and ipaddress.ip_address(request.remote).is_loopback


def is_own_page(request: web.Request, names: Collection[str]) -> bool:
    """Return whether the arena's own page makes a request, under a name that it has.

    Another page would have another origin, and a name that somebody else points at this machine is none of ours.
    """
    origin = urlsplit(request.headers.get("Origin", ""))
    return request.host in names and (origin.scheme, origin.netloc) == ("http", request.host)


def _policy(match: Match) -> str:
    gateways = " ".join(gateway.url.replace("http", "ws", 1) for gateway in match.gateways)
    return f"default-src 'self'; connect-src 'self' {gateways}"

"""The dashboard's routes: the files of its page, and the data behind them, for clients that may watch."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from adapters.redis.networkstate import NetworkState
from adapters.redis.survey import survey
from adapters.wording import counted
from gateway.dashboard.durations import Durations
from gateway.dashboard.notes import Kind, Note
from gateway.dashboard.poller import INTERVAL_S, Look, Poller
from gateway.dashboard.regionmap import RegionMap
from gateway.dashboard.snapshot import (
    LAGGING_ORDERS,
    REGION_ORDERS,
    ROWS_MAX,
    SUBSCRIBER_ORDERS,
    Row,
    page,
)
from gateway.gateway import Extension, Gateway
from gateway.grants import Grant
from gateway.lag import lags
from gateway.refusal import Code, Refusal

PAGE = Path(__file__).with_name("page")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SECURITY = {
    # No foreign and no inline content. No frames, so that other pages cannot redirect clicks.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
}
SEARCH_LETTERS_MAX = 200
GAPS_NOTED = 5
"""How many gaps of one turn are noted: a session that fell behind may have one in each of its regions."""

NODE_ANSWER_S_MAX = 1.0
"""A node that does not answer for this long is shown as unknown: the figures of the others must not wait for it."""

WRITE_S_MAX = 10.0
"""A viewer that accepts no data for this long is disconnected."""


def dashboard(url: str, *, interval_s: float = INTERVAL_S, is_trial: bool = False) -> Extension:
    """Return an extension that adds the dashboard of a control Redis's network to a gateway, at ``/dashboard/``.

    ``is_trial``: the network is not meant to outlive its servers, so that they keep nothing is no news.
    """

    async def look() -> NetworkState:
        return await survey(url, regions=True, node_answer_s_max=NODE_ANSWER_S_MAX)

    def extend(application: web.Application, gateway: Gateway) -> None:
        add_dashboard(application, gateway, look, interval_s=interval_s, is_trial=is_trial)

    return extend


def add_dashboard(
    application: web.Application, gateway: Gateway, look: Look, *, interval_s: float, is_trial: bool = False
) -> None:
    """Add the routes, and one poller for all viewers."""
    shown = _Dashboard(gateway, look, interval_s, is_trial=is_trial)
    application.cleanup_ctx.append(shown.polling)
    router = application.router
    router.add_get("/dashboard", shown.entrance)
    for name, file in _files().items():
        router.add_get(f"/dashboard/{name}", shown.serve(file))
    router.add_get("/dashboard/data/state", shown.state)
    router.add_get("/dashboard/data/live", shown.live)
    router.add_get("/dashboard/data/map", shown.map)
    router.add_get("/dashboard/data/delays", shown.delays)
    router.add_get("/dashboard/data/regions", shown.regions)
    router.add_get("/dashboard/data/region", shown.region)
    router.add_get("/dashboard/data/subscribers", shown.subscribers)
    router.add_get("/dashboard/data/subscriber", shown.subscriber)
    router.add_get("/dashboard/data/lagging", shown.lagging)


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    content_type: str
    tag: str


def _files() -> dict[str, _File]:
    """Read the page's files once: the set is fixed, and no request names a file."""
    files = {}
    for file in sorted(PAGE.rglob("*")):
        if file.suffix in TYPES:
            body = file.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            files[file.relative_to(PAGE).as_posix()] = _File(body, TYPES[file.suffix], tag)
    files[""] = files.pop("index.html")
    return files


class _Dashboard:
    def __init__(self, gateway: Gateway, look: Look, interval_s: float, *, is_trial: bool) -> None:
        self._gateway = gateway
        self._poller = Poller(look, on_look=self._looked, interval_s=interval_s, is_trial=is_trial)
        self._durations = Durations(self._note_gap)
        self._map = RegionMap()
        self._gaps = 0
        gateway.taps.append(self._durations.tap)

    async def polling(self, application: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(self._poller.run(), name="gamecast dashboard")
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def entrance(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "/dashboard/"})

    def serve(self, file: _File) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            headers = SECURITY | {"ETag": file.tag, "Cache-Control": "no-cache"}
            if request.headers.get("If-None-Match") == file.tag:
                return web.Response(status=304, headers=headers)
            return web.Response(body=file.body, headers=headers | {"Content-Type": file.content_type})

        return answer

    async def state(self, request: web.Request) -> web.Response:
        await self._admit(request)
        return _json(self._poller.text(self._more))

    async def live(self, request: web.Request) -> web.StreamResponse:
        """Send the state after each survey, as server-sent events; skip a survey that the viewer is too slow for."""
        grant = await self._admit(request)
        viewer = _Viewer(grant)
        self._gateway.enter(viewer, grant)
        try:
            async with asyncio.timeout(self._gateway.seconds_left(grant)):
                return await self._send(request, viewer)
        except TimeoutError as error:
            raise ConnectionResetError("the viewer's token has expired") from error
        finally:
            self._gateway.leave(viewer)

    async def _send(self, request: web.Request, viewer: _Viewer) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        leaving = asyncio.create_task(viewer.leaving.wait())
        turn = self._poller.turn
        try:
            while not leaving.done():
                if turn:
                    async with asyncio.timeout(WRITE_S_MAX):
                        await response.write(b"data: %b\n\n" % self._poller.text(self._more))
                self._poller.watched()
                coming = asyncio.create_task(self._poller.next_turn(turn))
                await asyncio.wait((coming, leaving), return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    coming.cancel()
                else:
                    turn = coming.result()
        except (TimeoutError, ConnectionError):
            pass  # the viewer has disconnected, or its connection is useless
        finally:
            leaving.cancel()
        return response

    async def map(self, request: web.Request) -> web.Response:
        """Return all regions as columns; without names and paths if ``layout`` is their version."""
        await self._admit(request)
        snapshot = self._poller.snapshot
        if snapshot is None:
            return _json(b"null")
        return _zipped(request, await self._map.zipped(snapshot, request.query.get("layout", "")))

    async def delays(self, request: web.Request) -> web.Response:
        await self._admit(request)
        return _zipped(request, self._poller.delays.zipped())

    async def regions(self, request: web.Request) -> web.Response:
        await self._admit(request)
        snapshot = self._poller.snapshot
        rows = list(snapshot.regions.values()) if snapshot is not None else []
        return _page(request, rows, REGION_ORDERS)

    async def subscribers(self, request: web.Request) -> web.Response:
        await self._admit(request)
        snapshot = self._poller.snapshot
        return _page(request, snapshot.subscribers if snapshot is not None else [], SUBSCRIBER_ORDERS)

    async def region(self, request: web.Request) -> web.Response:
        await self._admit(request)
        snapshot, name = self._poller.snapshot, _name(request)
        row = snapshot.region(name) if snapshot is not None else None
        return _found(row | {"hour": self._poller.hours.of(name)} if row is not None else None, "region")

    async def subscriber(self, request: web.Request) -> web.Response:
        await self._admit(request)
        snapshot, name = self._poller.snapshot, _name(request)
        return _found(snapshot.subscriber(name) if snapshot is not None else None, "subscriber")

    async def lagging(self, request: web.Request) -> web.Response:
        await self._admit(request)
        snapshot = self._poller.snapshot
        rows = snapshot.lagging(lags(self._gateway, snapshot.now.regions)) if snapshot is not None else []
        return _page(request, rows, LAGGING_ORDERS)

    async def _admit(self, request: web.Request) -> Grant:
        grant = await self._gateway.guard.require_watcher(request)
        self._gateway.subject(grant).require_request()
        self._poller.watched()
        return grant

    def _more(self) -> dict[str, Any]:
        return {
            "gateway": {"id": self._gateway.id, "sessions": len(self._gateway.sessions)},
            "durations": self._durations.document(),
        }

    def _looked(self) -> None:
        if (more := self._gaps - GAPS_NOTED) > 0:
            self._note("gap", f"and {counted(more, 'more gap')} since the last survey")
        self._gaps = 0
        self._durations.turn(self._gateway.connections.hold_counts())

    def _note_gap(self, gap: Any) -> None:
        self._gaps += 1
        if self._gaps <= GAPS_NOTED:
            where = f"{gap.epoch}-{gap.first_sequence} to {gap.epoch}-{gap.last_sequence or '?'}"
            self._note("gap", f"{gap.region}, {where}: {gap.reason}")

    def _note(self, kind: Kind, text: str) -> None:
        """Add bad news to the notes of the page, with the time: called for gaps."""
        self._poller.note(Note(time.time_ns() // 1_000_000, kind, text, bad=True))


class _Viewer:
    """One viewer of the live data."""

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.leaving = asyncio.Event()

    def leave(self, close_code: int, reason: str) -> None:
        """End the stream; the page reconnects by itself."""
        self.leaving.set()


def _page(request: web.Request, rows: Sequence[Row], orders: Sequence[str]) -> web.Response:
    query = request.query
    order = query.get("order", "name")
    if order not in orders:
        raise Refusal(Code.MALFORMED, f"order must be one of {', '.join(orders)}")
    offset, limit = _whole(query.get("offset", "0")), _whole(query.get("limit", "100"))
    search = query.get("search", "")[:SEARCH_LETTERS_MAX]
    part = page(rows, search=search, order=order, descending=query.get("descending") == "1", offset=offset, limit=limit)
    return _json(orjson.dumps(part | {"total": len(rows)}))


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise Refusal(Code.MALFORMED, f"offset and limit must be whole numbers, and limit at most {ROWS_MAX}")
    return int(text)


def _name(request: web.Request) -> str:
    name = request.query.get("name")
    if name is None:
        raise Refusal(Code.MALFORMED, "say ?name=")
    return name


def _found(row: Row | None, what: str) -> web.Response:
    if row is None:
        raise Refusal(Code.NOT_FOUND, f"there is no {what} of this name now", status=404)
    return _json(orjson.dumps(row))


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json", headers={"Cache-Control": "no-store"})


def _zipped(request: web.Request, body: bytes) -> web.Response:
    """Answer with gzipped JSON, unpacked for a client that does not accept gzip."""
    if "gzip" not in request.headers.get("Accept-Encoding", ""):
        return _json(gzip.decompress(body))
    response = _json(body)
    response.headers["Content-Encoding"] = "gzip"
    return response

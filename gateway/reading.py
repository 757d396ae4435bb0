"""Reading over HTTP: a region's history by position, and server-sent events."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson
from aiohttp import web

from gamecast.client.client import Client
from gateway.answers import answer
from gateway.eventmessages import position_text
from gateway.eventtexts import Told, parted
from gateway.gateway import GATEWAY, Gateway
from gateway.grants import Grant
from gateway.historybudget import HistoryBudget
from gateway.messages import read_position, read_region
from gateway.refusal import Code, Refusal
from gateway.states import encoded, keys_in
from sequencing.errors import GamecastError, InvalidInput, Superseded, TooSlow

LIMIT_EVENTS = 100
ID_LETTERS_MAX = 8_000
FIRST_PART_EVENTS = 64
"""How many events of a page the first read takes; later reads take as many as fit, judging by the size of the first."""


async def history(request: web.Request) -> web.Response:
    """``GET /v1/regions/{region}/events``."""
    gateway = request.app[GATEWAY]
    grant = await gateway.guard.require_grant(request)
    subject = gateway.subject(grant)
    subject.require_request()
    region = read_region(request.match_info["region"])
    grant.require_read(region)
    subject.require_history()
    await gateway.hooks.subscribe(grant, (region,), transport="history", peer=request.remote)
    after = read_position(request.query.get("after", "0-0"))
    given, most = request.query.get("limit", str(LIMIT_EVENTS)), gateway.settings.limits.history_events_max
    if not (given.isascii() and given.isdecimal() and len(given) < 10 and 0 < int(given) <= most):
        raise Refusal(Code.MALFORMED, f"limit must be a number from 1 to {most}")
    try:
        told, end, more = await _page(gateway, grant, region, after=after, events_max=int(given))
    except InvalidInput as error:
        raise Refusal(Code.MALFORMED, str(error)) from error
    events = [orjson.Fragment(item.text) for item in told]
    return answer({"region": region, "events": events, "next": end, "more": more})


async def _page(
    gateway: Gateway, grant: Grant, region: str, *, after: str, events_max: int
) -> tuple[list[Told], str, bool]:
    """Return the events after a position, the position to continue from, and whether there are more now.

    The result has at most ``events_max`` events and `message_bytes_max`; a larger event comes alone. History is read in
    parts, so that memory never holds much more than the limit.
    """
    told: list[Told] = []
    bytes_max, told_bytes, end = gateway.settings.limits.message_bytes_max, 0, after
    while True:
        mean_bytes = told_bytes / len(told) if told else bytes_max / FIRST_PART_EVENTS
        part_max = max(1, min(events_max - len(told), int((bytes_max - told_bytes) / mean_bytes)))
        page = await gateway.access.history(region, after=end, events_max=part_max)
        gateway.subject(grant).read_history(len(page.items))
        for item in page.items:
            text = gateway.texts.encode(item)
            if told and told_bytes + len(text.text) > bytes_max and text.position is not None:
                return told, end, True
            told.append(text)
            told_bytes += len(text.text) + 1
            if text.position is not None:
                end = position_text(text.position)
        end = page.next
        if not (page.more and page.items) or len(told) >= events_max or told_bytes >= bytes_max:
            return told, end, page.more


async def stream(request: web.Request) -> web.StreamResponse:
    """Serve ``GET /v1/events``: server-sent events, for clients that cannot use a WebSocket."""
    gateway = request.app[GATEWAY]
    grant = await gateway.guard.require_grant(request, in_query=True)
    gateway.subject(grant).require_request()
    regions, since = _regions_and_since(request, gateway.settings.limits.stream_regions_max)
    state = since is None and _wants_state(request)
    for region in regions:
        grant.require_read(region)
    if since is not None or state:
        gateway.subject(grant).require_history()
    reader = _StreamReader(gateway, grant, regions, since, state=state)
    gateway.enter(reader, grant)
    try:
        asker = reader.asker | {"peer": request.remote}
        await gateway.hooks.connect(grant, **asker)
        await gateway.hooks.subscribe(grant, regions, **asker)
        await gateway.admit_regions(grant, regions)
        return await reader.run(request)
    finally:
        gateway.leave(reader)


class _StreamReader:
    """One event stream.

    Its ids are the positions of all its regions, so it resumes after a disconnect as a session does.
    """

    def __init__(
        self,
        gateway: Gateway,
        grant: Grant,
        regions: tuple[str, ...],
        since: dict[str, str] | None,
        *,
        state: bool = False,
    ) -> None:
        """``state``: begin with the state of the regions."""
        self._gateway, self._limits, self.grant = gateway, gateway.settings.limits, grant
        self._regions, self._since, self._state = regions, since, state
        self._positions = dict(since or {})
        self._past = HistoryBudget()
        if since is not None:
            self._past.asked_for()
        self._id, self._name = gateway.new_id("e"), gateway.session_name(grant, None)
        self._leaving = asyncio.Event()

    @property
    def asker(self) -> dict[str, Any]:
        """What the game's backend receives about the stream, besides its token."""
        return {"transport": "stream", "session": self._id, "name": self._name}

    def leave(self, close_code: int, reason: str) -> None:
        """End the stream; the client reconnects by itself."""
        self._leaving.set()

    async def run(self, request: web.Request) -> web.StreamResponse:
        """Stream until the client disconnects, the token expires or the gateway shuts down."""
        gateway, name = self._gateway, self._name
        connection = await gateway.connect(name)
        ids = {"session": self._id, "subject": self.grant.subject, "token_id": self.grant.token_id, "name": name}
        try:
            joining = asyncio.create_task(self._joined(connection))
            try:
                response = _response(request, gateway)
                await response.prepare(request)
                gateway.audit.note("stream-opened", **ids, peer=request.remote, regions=list(self._regions))
                await self._go_on(response, connection, joining)
            finally:
                joining.cancel()
                with suppress(asyncio.CancelledError, GamecastError):
                    await joining
        finally:
            gateway.connections.close_soon(connection)
            gateway.audit.note("stream-closed", **ids)
        return response

    async def _joined(self, connection: Client) -> dict[str, str]:
        if self._state:
            return await connection.subscribe(*self._regions, state=True)
        return await connection.subscribe(*self._regions, since=self._since)

    async def _go_on(
        self, response: web.StreamResponse, connection: Client, joining: asyncio.Task[dict[str, str]]
    ) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                lock = asyncio.Lock()
                working = [
                    group.create_task(work)
                    for work in (
                        self._deliver(response, connection, lock),
                        self._beat(response, lock),
                        self._begin(response, joining, lock),
                    )
                ]
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._gateway.seconds_left(self.grant)):
                        await self._leaving.wait()
                for task in working:
                    task.cancel()
        except* (GamecastError, Refusal, TimeoutError) as errors:
            error = errors.exceptions[0]
            refusal = error if isinstance(error, Refusal) else Refusal(Code.TOO_SLOW, "events were read too slowly")
            if isinstance(error, GamecastError) and not isinstance(error, TooSlow):
                refusal = Refusal.of(error) if not isinstance(error, Superseded) else refusal
            self._gateway.refused(refusal.code, refusal.message, session=self._id)
            with suppress(ConnectionError, TimeoutError):
                await self._send(response, "error", refusal.document())
        except* ConnectionError:
            pass

    async def _begin(
        self, response: web.StreamResponse, joining: asyncio.Task[dict[str, str]], lock: asyncio.Lock
    ) -> None:
        begins = await asyncio.shield(joining)
        async with lock:
            if not self._state:  # otherwise a region has a position as soon as its state was sent
                for region, position in begins.items():
                    self._positions.setdefault(region, position)
            await self._send(response, "subscribed", {"regions": begins})

    async def _deliver(self, response: web.StreamResponse, connection: Client, lock: asyncio.Lock) -> None:
        encode = self._gateway.texts.encode
        async for batch in connection.batches():
            self._gateway.delivered(batch)
            if past := self._past.events_in(batch) + keys_in(batch):
                self._gateway.subject(self.grant).read_history(past)
            bytes_max = self._limits.message_bytes_max
            async with lock:
                for part in parted(encoded(batch, encode, bytes_max), bytes_max):
                    for told in part:
                        self._positions |= {region: position_text(at) for region, at in told.positions.items()}
                    await self._send(response, None, {"events": [orjson.Fragment(item.text) for item in part]})
            self._gateway.metrics.sent(len(batch))

    async def _beat(self, response: web.StreamResponse, lock: asyncio.Lock) -> None:
        while True:
            await asyncio.sleep(self._limits.heartbeat_s)
            async with lock:
                await self._write(response, b": here\n\n")

    async def _send(self, response: web.StreamResponse, kind: str | None, document: Any) -> None:
        lines = [b"event: " + kind.encode()] if kind else []
        if self._positions.keys() == set(self._regions):
            lines.append(b"id: " + urlencode(self._positions).encode())
        lines.append(b"data: " + orjson.dumps(document))
        await self._write(response, b"\n".join(lines) + b"\n\n")

    async def _write(self, response: web.StreamResponse, text: bytes) -> None:
        async with asyncio.timeout(self._limits.send_timeout_s):
            await response.write(text)


def _response(request: web.Request, gateway: Gateway) -> web.StreamResponse:
    headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return web.StreamResponse(headers=headers | gateway.guard.origin_headers(gateway.guard.check_origin(request)))


def _wants_state(request: web.Request) -> bool:
    given = request.query.get("state", "false")
    if given not in ("true", "false", "1", "0"):
        raise Refusal(Code.MALFORMED, "state must be true or false")
    return given in ("true", "1")


def _regions_and_since(request: web.Request, regions_max: int) -> tuple[tuple[str, ...], dict[str, str] | None]:
    given = request.headers.get("Last-Event-ID") or request.query.get("after")
    named = request.query.getall("region", [])
    if not named:
        raise Refusal(Code.MALFORMED, "no region is given: add ?region=forest&region=river")
    if len(named) > regions_max:
        raise Refusal(Code.LIMIT, f"an event stream may have at most {regions_max} regions", status=429)
    regions = tuple(dict.fromkeys(map(read_region, named)))
    if given is None:
        return regions, None
    positions = dict(parse_qsl(given[:ID_LETTERS_MAX]))
    if positions.keys() != set(regions):
        raise Refusal(Code.MALFORMED, "the last event id does not belong to a stream of these regions")
    return regions, {region: read_position(position) for region, position in positions.items()}

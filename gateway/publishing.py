"""Publishing over HTTP: one event or several, and at most once for each idempotency key."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from aiohttp import web

from gamecast.client.client import Client
from gateway.answers import answer, read_object
from gateway.ended import ENDS_CONNECTION
from gateway.gateway import GATEWAY, Gateway
from gateway.grants import ANYBODY, SEPARATOR, Grant
from gateway.hooks import CALLS_AT_ONCE
from gateway.messages import copies_in, read_publication, read_region
from gateway.refusal import Code, Refusal
from sequencing.errors import GamecastError
from sequencing.names import GUEST

KEY_LETTERS_MAX = 255
PENDING_S = 30.0
"""The time limit for the answer to a publish."""


async def publish_one(request: web.Request) -> web.Response:
    """``POST /v1/regions/{region}/events``."""
    gateway = request.app[GATEWAY]
    grant = await gateway.guard.require_grant(request)
    gateway.subject(grant).require_events(1)
    region = read_region(request.match_info["region"])
    document, body = await read_object(request, gateway.settings.limits)
    gateway.subject(grant).require_bytes(len(body))
    events = [_event(gateway, grant, {**document, "region": region})]

    async def publish() -> tuple[int, dict[str, Any]]:
        [result] = await _publish(request, grant, events)
        return (result.pop("status"), result) if "error" in result else (200, result)

    return await _once(request, grant, region.encode() + b"\n" + body, publish, events=1)


async def publish_batch(request: web.Request) -> web.Response:
    """``POST /v1/events``."""
    gateway = request.app[GATEWAY]
    limits = gateway.settings.limits
    grant = await gateway.guard.require_grant(request)
    document, body = await read_object(request, limits)
    listed = document.get("events")
    if not isinstance(listed, list) or not 0 < len(listed) <= limits.messages_per_array_max:
        raise Refusal(Code.MALFORMED, f"events must be a list of 1 to {limits.messages_per_array_max} events")
    # Before the work, so that refused events count as well; each region of an event keeps a copy.
    copies = sum(map(copies_in, listed))
    gateway.subject(grant).require_events(copies)
    gateway.subject(grant).require_bytes(len(body) // len(listed) * copies)
    events = [_event(gateway, grant, each) for each in listed]

    async def publish() -> tuple[int, dict[str, Any]]:
        results = await _publish(request, grant, events)
        status = 207 if any("error" in result for result in results) else 200
        return status, {"results": results}

    return await _once(request, grant, body, publish, events=len(events))


class _Event(NamedTuple):
    """An event to publish; see `Publish`. A denied event has its `Refusal` in place of the payload."""

    region: str
    payload: Any
    about: Mapping[str, Any]
    regions: tuple[str, ...]


def _event(gateway: Gateway, grant: Grant, document: Any) -> _Event:
    event = read_publication(document)
    for each in event.regions or (event.region,):
        grant.require_write(each)
    limits = gateway.settings.limits
    most = min(grant.payload_bytes_max or limits.payload_bytes_max, limits.payload_bytes_max)
    if event.payload_bytes > most:
        raise Refusal(
            Code.TOO_LARGE, f"the payload has {event.payload_bytes} bytes, and the limit is {most}", status=413
        )
    gateway.metrics.published(event.region, event.payload_bytes)
    return _Event(event.region, event.payload, event.about, event.regions)


async def _publish(request: web.Request, grant: Grant, events: Sequence[_Event]) -> list[dict[str, Any]]:
    await request.app[GATEWAY].admit_regions(
        grant, (region for event in events for region in event.regions or (event.region,))
    )
    publishers, tracing = request.app[PUBLISHERS], request.app[GATEWAY].tracing
    asked = await _asked(request, grant, events, publishers.name_of(grant))
    begun_ns = time.time_ns()
    async with publishers.connection(grant) as connection:
        results = await asyncio.gather(*(_receipt(publishers, connection, event, grant) for event in asked))
    for result in results:
        if tracing is not None and "position" in result:
            tracing.published(result["region"], result["position"], "http", begun_ns, request.headers)
    return results


async def _asked(request: web.Request, grant: Grant, events: Sequence[_Event], name: str) -> Sequence[_Event]:
    """Return the events as the game's backend allows them."""
    hooks = request.app[GATEWAY].hooks
    if not hooks.asks("publish"):
        return events
    turns = asyncio.Semaphore(CALLS_AT_ONCE)
    asker: dict[str, Any] = {"transport": "http", "name": name, "peer": request.remote}

    async def ask(event: _Event) -> _Event:
        async with turns:
            try:
                region, payload, about, regions = event
                payload = await hooks.publish(grant, region, payload, about=about, regions=regions, **asker)
                return event._replace(payload=payload)
            except Refusal as refusal:
                request.app[GATEWAY].refused(refusal.code, refusal.message, subject=grant.subject, peer=request.remote)
                return event._replace(payload=refusal)

    return await asyncio.gather(*map(ask, events))


async def _receipt(publishers: Publishers, connection: Client, event: _Event, grant: Grant) -> dict[str, Any]:
    region, payload, about, regions = event
    if isinstance(payload, Refusal):
        return {"region": region, "error": payload.document(), "status": payload.status}
    try:
        receipt = await connection.publish_async(regions or region, payload, **about)
    except GamecastError as error:
        if isinstance(error, ENDS_CONNECTION):
            publishers.give_up(connection)
        refusal = Refusal.of(error, grant.read)
        return {"region": region, "error": refusal.document(), "status": refusal.status}
    where = {"positions": receipt.positions} if regions else {}
    return {"region": region, "position": f"{receipt.epoch}-{receipt.sequence}", **where}


async def _once(request: web.Request, grant: Grant, body: bytes, publish: Any, *, events: int) -> web.Response:
    """Answer a request; a repeated request with the same idempotency key gets the first answer."""
    gateway = request.app[GATEWAY]
    key = request.headers.get("Idempotency-Key")
    if key is None:
        status, document = await publish()
        return answer(document, status=status)
    if not 0 < len(key) <= KEY_LETTERS_MAX:
        raise Refusal(Code.MALFORMED, f"an idempotency key must have 1 to {KEY_LETTERS_MAX} letters")
    gateway.subject(grant).require_remembered(events)
    keep_s = gateway.settings.limits.idempotency_s
    name = "idempotency:" + hashlib.sha256(f"{grant.subject}\n{key}".encode(errors="surrogateescape")).hexdigest()
    digest = hashlib.sha256(body).hexdigest()
    claim = orjson.dumps({"digest": digest, "at_s": time.time()})
    if (earlier := await gateway.replay_cache.claim(name, claim, keep_s)) is not None:
        return _answered_before(earlier, digest)

    async def publish_and_note() -> web.Response:
        try:
            status, document = await publish()
        except (Refusal, GamecastError) as error:
            if error.definite:
                await gateway.replay_cache.drop(name)
            raise
        if "error" in document and document["error"]["definite"]:
            await gateway.replay_cache.drop(name)
        else:
            done = {"digest": digest, "status": status, "document": document}
            await gateway.replay_cache.put(name, orjson.dumps(done), keep_s)
        return answer(document, status=status)

    # A disconnected client asks again, and must get the outcome.
    return await request.app[PUBLISHERS].see_through(publish_and_note())


def _answered_before(earlier: bytes, digest: str) -> web.Response:
    before: dict[str, Any] = orjson.loads(earlier) if earlier else {"digest": digest, "at_s": time.time()}
    if before["digest"] != digest:
        raise Refusal(Code.CONFLICT, "this idempotency key was used with another request: use a new key", status=422)
    if "document" in before:
        return answer(before["document"], status=before["status"], headers={"Idempotent-Replayed": "true"})
    if time.time() - before["at_s"] < PENDING_S:
        raise Refusal(
            Code.CONFLICT,
            "the first request with this idempotency key is still in progress",
            status=409,
            retriable=True,
            definite=False,
            retry_after_s=1,
        )
    raise Refusal(
        Code.UNCERTAIN,
        "the gateway of the first request with this key has died: the events may or may not have been published",
        status=504,
        definite=False,
    )


@dataclass(slots=True, eq=False)
class _Publisher:
    connection: Client
    opening: asyncio.Task[None]
    users: int = 0
    idle_since_s: float = field(default_factory=time.monotonic)


class Publishers:
    """Connections for publishing over HTTP, one for each subject, kept open for a while."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._publishers: dict[str, _Publisher] = {}
        self._under_way: set[asyncio.Task[web.Response]] = set()

    @asynccontextmanager
    async def connection(self, grant: Grant) -> AsyncIterator[Client]:
        """Lend the open connection of a subject; raises `Refusal` if there are too many, and the errors of opening."""
        publisher = self._publisher(grant)
        publisher.users += 1
        try:
            await asyncio.shield(publisher.opening)
            yield publisher.connection
        except BaseException:
            if publisher.opening.done() and publisher.opening.exception():
                self._forget(publisher)
            raise
        finally:
            publisher.users -= 1
            publisher.idle_since_s = time.monotonic()

    async def see_through(self, work: Coroutine[Any, Any, web.Response]) -> web.Response:
        """Run work to its end, even if its caller is cancelled."""
        task = asyncio.create_task(work, name="gamecast gateway publish")
        self._under_way.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    def _finished(self, task: asyncio.Task[web.Response]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # the caller, if it still waits, gets the error from the task

    async def close(self) -> None:
        """Close all."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=self._gateway.settings.limits.drain_s)
        for publisher in list(self._publishers.values()):
            self._forget(publisher)

    def give_up(self, connection: Client) -> None:
        """Close a connection that can publish no more; the next request of its subject opens another one."""
        publisher = self._publishers.get(connection.name)
        if publisher is not None and publisher.connection is connection:
            self._forget(publisher)

    def tidy(self) -> None:
        """Close the connections that were not used for a while."""
        idle_s = self._gateway.settings.limits.publisher_idle_s
        for publisher in list(self._publishers.values()):
            if not publisher.users and time.monotonic() - publisher.idle_since_s > idle_s:
                self._forget(publisher)

    def name_of(self, grant: Grant) -> str:
        """Return the name under which a subject publishes over HTTP."""
        name = "web" if grant.subject == ANYBODY else grant.subject
        return f"{GUEST}{name}{SEPARATOR}http-{self._gateway.id}"

    def _publisher(self, grant: Grant) -> _Publisher:
        name = self.name_of(grant)
        publisher = self._publishers.get(name)
        if publisher is None:
            limits = self._gateway.settings.limits
            if len(self._publishers) >= limits.publishers_max:
                self._make_room()
            connection = self._gateway.access.connection(name, when_behind="disconnect", **limits.connection)
            opening = asyncio.create_task(self._gateway.connections.open(connection), name="gamecast gateway publisher")
            publisher = self._publishers[name] = _Publisher(connection, opening)
        return publisher

    def _make_room(self) -> None:
        idle = [publisher for publisher in self._publishers.values() if not publisher.users]
        if not idle:
            raise Refusal(
                Code.LIMIT,
                "too many clients publish over HTTP at once: try again later",
                status=503,
                retriable=True,
                retry_after_s=1,
            )
        self._forget(min(idle, key=lambda publisher: publisher.idle_since_s))

    def _forget(self, publisher: _Publisher) -> None:
        if self._publishers.get(publisher.connection.name) is publisher:
            del self._publishers[publisher.connection.name]
            if publisher.opening.done() and not publisher.opening.exception():
                self._gateway.connections.close_soon(publisher.connection)


PUBLISHERS: web.AppKey[Publishers] = web.AppKey("publishers", Publishers)
"""Set while the application runs."""

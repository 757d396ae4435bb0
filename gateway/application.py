"""The aiohttp application: its routes, and the checks that every request passes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

import orjson
from aiohttp import web

from gateway.access import ClientAccess
from gateway.answers import answer, denial
from gateway.audit import AuditLog
from gateway.descriptions import asyncapi, openapi
from gateway.gateway import GATEWAY, Extension, Gateway
from gateway.guard import Guard
from gateway.listening import Counted
from gateway.messages import SUBPROTOCOL
from gateway.publishing import PUBLISHERS, Publishers, publish_batch, publish_one
from gateway.reading import history, stream
from gateway.refusal import Code, Refusal
from gateway.replaycache import ReplayCache
from gateway.revocations import LOOK_S
from gateway.session import Session
from gateway.settings import GatewayLimits, GatewaySettings
from sequencing.errors import GamecastError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CLIENT = Path(__file__).with_name("client")
CLIENT_FILES = {
    "gamecast.js": "text/javascript; charset=utf-8",
    "gamecast.d.ts": "text/plain; charset=utf-8",
    "messages.d.ts": "text/plain; charset=utf-8",
}
TIDY_S = 5.0
TOO_MANY_OF_ONE = "this address has too many requests in progress: close some, or try again later"


def make_application(
    access: ClientAccess,
    settings: GatewaySettings,
    *,
    guard: Guard,
    replay_cache: ReplayCache,
    audit: AuditLog | None = None,
    extensions: Iterable[Extension] = (),
) -> web.Application:
    """Return the application of one gateway. ``extensions`` add their own routes; see `Extension`."""
    gateway = Gateway(access, settings, guard=guard, replay_cache=replay_cache, audit=audit)
    application = web.Application(middlewares=[_guarded], client_max_size=settings.limits.message_bytes_max)
    application[GATEWAY] = gateway
    application.on_shutdown.append(_drain)
    application.cleanup_ctx.append(_life)
    application.router.add_get("/healthz", _health)
    application.router.add_get("/readyz", _ready)
    application.router.add_get("/metrics", _metrics)
    application.router.add_get("/v1/socket", _socket, allow_head=False)
    application.router.add_get("/v1/events", stream, allow_head=False)
    application.router.add_post("/v1/events", publish_batch)
    application.router.add_get("/v1/regions/{region}/events", history)
    application.router.add_post("/v1/regions/{region}/events", publish_one)
    for name, describe in (("openapi", openapi), ("asyncapi", asyncapi)):
        application.router.add_get(f"/v1/{name}.json", _file(orjson.dumps(describe()), "application/json"))
    for name, kind in CLIENT_FILES.items():
        application.router.add_get(f"/client/{name}", _file((CLIENT / name).read_bytes(), kind))
    for extend in extensions:
        extend(application, gateway)
    return application


def _file(body: bytes, kind: str) -> Handler:
    async def serve(request: web.Request) -> web.Response:
        headers = {"Content-Type": kind, "Cache-Control": "no-cache", "Access-Control-Allow-Origin": "*"}
        return web.Response(body=body, headers=headers)

    return serve


async def _health(request: web.Request) -> web.Response:
    return answer({"gateway": request.app[GATEWAY].id, "status": "alive"})


async def _ready(request: web.Request) -> web.Response:
    gateway = request.app[GATEWAY]
    if gateway.is_leaving:
        return answer({"gateway": gateway.id, "status": "leaving"}, status=503)
    is_ready = await gateway.access.is_ready()
    state = {"gateway": gateway.id, "status": "ready" if is_ready else "unreachable"}
    if not gateway.guard.has_keys:
        state |= {"status": "unreachable", "keys": "the key provider has not answered yet, so no token can be checked"}
        is_ready = False
    elif gateway.guard.keys_error is not None:
        state["keys"] = "they cannot be read: the previous keys stay valid"
    return answer(state, status=200 if is_ready else 503)


async def _metrics(request: web.Request) -> web.Response:
    gateway = request.app[GATEWAY]
    await gateway.guard.require_watcher(request)
    for prepare in gateway.before_metrics:
        await prepare()
    return web.Response(
        body=gateway.metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    )


async def _socket(request: web.Request) -> web.StreamResponse:
    gateway = request.app[GATEWAY]
    limits = gateway.settings.limits
    socket = web.WebSocketResponse(
        autoping=False,  # so that pings count against the rate limit
        heartbeat=limits.heartbeat_s,
        max_msg_size=limits.message_bytes_max,
        compress=False,  # a compression window would need more memory than the rest of a session
        protocols=(SUBPROTOCOL,),
    )
    if not socket.can_prepare(request).ok:
        raise Refusal(Code.MALFORMED, "this path is a WebSocket: send an upgrade request", status=426)
    grant = await gateway.guard.request_grant(request)
    session = Session(gateway, socket, peer=request.remote or "", grant=grant)
    _count_frames(request, session, limits)
    await socket.prepare(request)
    await session.run()
    return socket


def _count_frames(request: web.Request, session: Session, limits: GatewayLimits) -> None:
    """Count a WebSocket's frames from now on; raises `Refusal` for a client that has sent some already."""
    if getattr(request.protocol, "_message_tail", b""):
        raise Refusal(Code.MALFORMED, "send nothing before the answer to an upgrade request", status=400)
    transport = request.transport
    counted = transport.get_protocol() if isinstance(transport, asyncio.Transport) else None
    if isinstance(counted, Counted):
        counted.frames = session.count_frames(limits)


@web.middleware
async def _guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Check the origin, convert errors to responses, and count the request."""
    gateway = request.app[GATEWAY]
    if (remote := gateway.guard.remote(request)) is None or remote == request.remote:
        return await _answered(request, handler)
    request = request.clone(remote=remote)
    if gateway.guard.is_proxy(remote):
        return await _answered(request, handler)
    if not gateway.addresses.enter(remote):
        gateway.refused(Code.LIMIT, TOO_MANY_OF_ONE, peer=remote, path=request.path)
        refused = denial(Refusal(Code.LIMIT, TOO_MANY_OF_ONE, status=429, retriable=True, retry_after_s=1))
        _add_headers(refused, {})
        return refused
    try:
        return await _answered(request, handler)
    finally:
        gateway.addresses.leave(remote)


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    gateway = request.app[GATEWAY]
    begun = time.perf_counter()
    origin: str | None = None
    response: web.StreamResponse
    try:
        gateway.guard.check_address(request)
        origin = gateway.guard.check_origin(request)
        if request.method == "OPTIONS" and origin is not None:
            response = web.Response(status=204)
        else:
            response = await handler(request)
    except Refusal as refusal:
        gateway.refused(refusal.code, refusal.message, peer=request.remote, path=request.path)
        response = denial(refusal)
    except GamecastError as error:
        gateway.log("request-failed", path=request.path, error=error)
        response = denial(Refusal.of(error))
    except web.HTTPException as error:
        code = {404: Code.NOT_FOUND, 413: Code.TOO_LARGE}.get(error.status, Code.MALFORMED)
        response = denial(Refusal(code, error.reason, status=error.status))
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer, and the log the traceback
        incident = gateway.incident("request-broke", error, path=request.path)
        response = denial(
            Refusal(Code.INTERNAL, f"internal error, logged by the gateway as incident {incident}", status=500)
        )
    _add_headers(response, gateway.guard.origin_headers(origin))
    resource = request.match_info.route.resource
    route = resource.canonical if resource is not None else "(none)"
    gateway.metrics.requested(route, response.status, time.perf_counter() - begun)
    return response


def _add_headers(response: web.StreamResponse, headers: dict[str, str]) -> None:
    if not response.prepared:
        for name, value in {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", **headers}.items():
            response.headers.setdefault(name, value)


async def _drain(application: web.Application) -> None:
    await application[GATEWAY].drain()


async def _life(application: web.Application) -> AsyncIterator[None]:
    gateway = application[GATEWAY]
    await gateway.access.open()
    application[PUBLISHERS] = publishers = Publishers(gateway)

    async def tidy() -> None:
        while True:
            await asyncio.sleep(TIDY_S)
            publishers.tidy()

    async def look_after() -> None:
        while True:
            await gateway.look_after()
            await asyncio.sleep(LOOK_S)

    tasks = [
        asyncio.create_task(tidy(), name="gamecast gateway tidying"),
        asyncio.create_task(look_after(), name="gamecast gateway looking after tokens"),
    ]
    yield
    for task in tasks:
        task.cancel()
    await publishers.close()
    await gateway.connections.finish()
    await gateway.hooks.close()
    await gateway.guard.close()
    await gateway.replay_cache.close()
    await gateway.access.close()

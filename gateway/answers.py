"""Reading requests and writing responses: JSON, and refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from aiohttp import web

from gateway.messages import read_json
from gateway.refusal import Code, Refusal
from gateway.settings import GatewayLimits


async def read_object(request: web.Request, limits: GatewayLimits) -> tuple[dict[str, Any], bytes]:
    """Return the JSON object of a request, and its bytes.

    Raises `Refusal` if the body is late, too large or not an object.
    """
    try:
        async with asyncio.timeout(limits.request_timeout_s):
            body = await request.read()
    except TimeoutError as error:
        raise Refusal(
            Code.LIMIT, "the request body did not arrive in time: send it faster, or send less", status=408
        ) from error
    except web.HTTPRequestEntityTooLarge as error:
        raise Refusal(
            Code.TOO_LARGE, f"the request body has more than {limits.message_bytes_max} bytes: send less", status=413
        ) from error
    except web.RequestPayloadError as error:
        raise Refusal(Code.MALFORMED, "the request body cannot be read: send it again") from error
    document = read_json(body)
    if not isinstance(document, dict):
        raise Refusal(Code.MALFORMED, "the request body must be a JSON object")
    return document, body


def answer(document: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return a JSON response."""
    return web.Response(body=orjson.dumps(document), status=status, content_type="application/json", headers=headers)


def denial(refusal: Refusal) -> web.Response:
    """Return the response for a refusal."""
    headers: dict[str, str] = {}
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, round(refusal.retry_after_s)))
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refusal.status == 426:
        headers |= {"Upgrade": "websocket", "Connection": "Upgrade"}
    response = answer({"error": refusal.document()}, status=refusal.status, headers=headers)
    if refusal.status in (408, 413):
        response.force_close()  # the rest of the body is not read
    return response

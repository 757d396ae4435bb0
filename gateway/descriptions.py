"""Descriptions of the gateway for tools, made from the schema: OpenAPI of its HTTP part, AsyncAPI of its WebSocket."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

from pydantic.json_schema import models_json_schema

from gateway import httpschema, schema
from gateway.refusal import CLOSES, MEANINGS

REFERENCE = "#/components/schemas/"
HTTP_TYPES = *get_args(httpschema.HttpDocument), *schema.ITEMS, schema.PlacedPublication
SOCKET_TYPES = *get_args(schema.ClientMessage), *get_args(schema.ServerMessage), *schema.ITEMS

FRAMING = (
    "Messages are JSON, in UTF-8 text: an object, or, from clients, an array of them, processed in order. Both sides "
    "ignore unknown fields. The first message is a hello, answered by a welcome."
)
_KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    "description": "The same key with the same body is answered as it was the first time, for ten minutes, by every "
    "gateway of the network.",
}
_REGION = {"type": "string", "minLength": 1, "maxLength": 200}
_PUBLISHING = 400, 401, 403, 408, 409, 413, 422, 429, 503, 504
_READING = 400, 401, 403, 429, 503


def schemas(types: tuple[Any, ...]) -> dict[str, dict[str, Any]]:
    """Return the JSON schemas of some types and of all that they need, by name."""
    _, made = models_json_schema([(each, "validation") for each in types], ref_template=REFERENCE + "{model}")
    components: dict[str, dict[str, Any]] = {name: _tidied(each) for name, each in made["$defs"].items()}
    for name, choices in schema.EXACTLY_ONE.items():
        if name in components:
            alternatives = [{"oneOf": [{"required": [field]} for field in fields]} for fields in choices]
            components[name] |= alternatives[0] if len(alternatives) == 1 else {"allOf": alternatives}
    for component in components.values():
        component.pop("additionalProperties", None)  # unknown fields are ignored, on both sides
    return dict(sorted(components.items()))


def _tidied(part: Any) -> Any:
    """Return a schema without titles, and without defaults that only say that a field may be missing."""
    if isinstance(part, list):
        return [_tidied(each) for each in part]
    if not isinstance(part, dict):
        return part
    is_fields = "properties" not in part and all(isinstance(each, dict) for each in part.values())
    kept = part if is_fields else {name: each for name, each in part.items() if name != "title"}
    if kept.get("default", 0) is None:
        kept = {name: each for name, each in kept.items() if name != "default"}
    return {name: _tidied(each) for name, each in kept.items()}


@cache
def openapi() -> dict[str, Any]:
    """Return the OpenAPI description of the gateway's HTTP part."""
    return {
        "openapi": "3.1.0",
        "info": {
            **_info(),
            "description": "Ordered publish-subscribe for game worlds, over HTTP. /v1/asyncapi.json describes the "
            "WebSocket at /v1/socket.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "paths": {
            "/healthz": _get("health", "Whether the gateway is alive.", _json("Status", "It is."), open=True),
            "/readyz": _get(
                "ready",
                "Whether the network behind it answers.",
                {**_json("Status", "It does."), **_json("Status", "It does not, or the gateway ends.", status=503)},
                open=True,
            ),
            "/metrics": _get(
                "metrics",
                "Metrics, for this machine and for tokens that may watch.",
                _text("text/plain", "As Prometheus reads them.") | _refused(401, 403),
            ),
            "/v1/socket": _get(
                "socket",
                "The WebSocket.",
                {"101": {"description": "Speak the protocol of /v1/asyncapi.json."}} | _refused(401, 403, 426),
            ),
            "/v1/openapi.json": _description("openapi", "This description."),
            "/v1/asyncapi.json": _description("asyncapi", "The description of the WebSocket."),
            "/v1/events": {**_post_batch(), **_stream()},
            "/v1/regions/{region}/events": {
                "parameters": [{"name": "region", "in": "path", "required": True, "schema": _REGION}],
                **_history(),
                **_post_one(),
            },
            "/client/gamecast.js": _get(
                "client", "The JavaScript client.", _text("text/javascript", "An ES module."), open=True
            ),
            "/client/gamecast.d.ts": _get(
                "clientTypes", "Its types, for TypeScript.", _text("text/plain", "They."), open=True
            ),
            "/client/messages.d.ts": _get(
                "messageTypes", "The messages, for TypeScript.", _text("text/plain", "They."), open=True
            ),
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
            "responses": {"Refused": _body("Refused", "Why not.")},
            "schemas": schemas(HTTP_TYPES),
        },
    }


@cache
def asyncapi() -> dict[str, Any]:
    """Return the AsyncAPI description of the gateway's WebSocket."""
    from_client = [each.__name__ for each in get_args(schema.ClientMessage)]
    from_server = [each.__name__ for each in get_args(schema.ServerMessage)]
    described = schemas(SOCKET_TYPES)
    codes = [f"- `{code}`: {meaning}" for code, meaning in MEANINGS.items()]
    closes = [f"- {code}: {meaning}" for code, meaning in CLOSES.items()]
    return {
        "asyncapi": "3.0.0",
        "info": {
            **_info(),
            "description": "\n".join(
                [FRAMING, "", "The codes of errors:", "", *codes, "", "The codes of a close:", "", *closes]
            ),
        },
        "defaultContentType": "application/json",
        "channels": {
            "socket": {
                "address": "/v1/socket",
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in (*from_client, *from_server)},
                "bindings": {"ws": {"method": "GET"}},
            }
        },
        "operations": {
            "fromClient": _operation("receive", from_client),
            "toClient": _operation("send", from_server),
        },
        "components": {
            "messages": {
                name: {
                    "name": described[name]["properties"]["type"]["const"],
                    "summary": described[name]["description"],
                    "payload": {"$ref": REFERENCE + name},
                }
                for name in (*from_client, *from_server)
            },
            "schemas": described,
        },
    }


def _info() -> dict[str, Any]:
    license_ = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
    return {"title": "gamecast gateway", "version": str(schema.PROTOCOL), "license": license_}


def _operation(action: str, names: list[str]) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": "#/channels/socket"},
        "messages": [{"$ref": f"#/channels/socket/messages/{name}"} for name in names],
    }


def _get(name: str, summary: str, responses: dict[str, Any], *, open: bool = False, **more: Any) -> dict[str, Any]:  # noqa: A002
    """``open``: no token is needed."""
    security: dict[str, Any] = {"security": []} if open else {}
    return {"get": {"operationId": name, "summary": summary, **security, **more, "responses": responses}}


def _description(name: str, summary: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}}}
    return _get(name, summary, {"200": {"description": "It.", "content": content}}, open=True)


def _post_batch() -> dict[str, Any]:
    answers = _json("Results", "All are published.") | _json("Results", "Some are; each result says.", status=207)
    return _post("publishBatch", "Publish several events.", "Publications", answers)


def _post_one() -> dict[str, Any]:
    return _post("publishOne", "Publish an event.", "Publication", _json("Receipt", "It is published."))


def _post(name: str, summary: str, body: str, answers: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": REFERENCE + body}}}
    return {
        "post": {
            "operationId": name,
            "summary": summary,
            "parameters": [_KEY_HEADER],
            "requestBody": {"required": True, "content": content},
            "responses": answers | _refused(*_PUBLISHING),
        }
    }


def _history() -> dict[str, Any]:
    parameters = [
        _query(
            "after", {"type": "string", "pattern": schema.POSITION}, "Begin behind this; left out: with the oldest."
        ),
        _query(
            "limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "Events of a page, at most."
        ),
    ]
    answers = _json("Page", "A page, in order.") | _refused(*_READING)
    return _get("history", "What a region has kept, page by page.", answers, parameters=parameters)


def _stream() -> dict[str, Any]:
    many = {"type": "array", "minItems": 1, "maxItems": 32, "items": _REGION}
    parameters = [
        {"name": "region", "in": "query", "required": True, "schema": many, "explode": True},
        _query(
            "after", {"type": "string"}, "The id of an event of an earlier stream of these regions, as Last-Event-ID."
        ),
        {"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"}},
        _query(
            "state",
            {"type": "string", "enum": ["true", "false", "1", "0"]},
            "Begin with the state of the regions' keys. Has no effect on a stream that resumes.",
        ),
        _query("access_token", {"type": "string"}, "For those who cannot set headers; prefer tokens for single use."),
    ]
    answers = _text("text/event-stream", 'Server-sent events, each with a "Streamed" as its data.')
    return _get("stream", "Follow regions by server-sent events.", answers | _refused(*_READING), parameters=parameters)


def _query(name: str, kind: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": kind, "description": description}


def _json(name: str, description: str, *, status: int = 200) -> dict[str, Any]:
    return {str(status): _body(name, description)}


def _body(name: str, description: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": REFERENCE + name}}}
    return {"description": description, "content": content}


def _text(kind: str, description: str) -> dict[str, Any]:
    return {"200": {"description": description, "content": {kind: {"schema": {"type": "string"}}}}}


def _refused(*statuses: int) -> dict[str, Any]:
    return {str(status): {"$ref": "#/components/responses/Refused"} for status in statuses}

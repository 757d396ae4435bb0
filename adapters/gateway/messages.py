"""The messages of the WebSocket protocol: parse what clients send, and write what the gateway sends.

`docs/gateway.md` describes them for users. This file does no input or output.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import orjson

from adapters.gateway.ports import Since
from adapters.gateway.regions import check_public_region
from sequencing.depth import PAYLOAD_DEPTH_MAX, is_deeper
from sequencing.errors import (
    BufferFull,
    Conflict,
    GamecastError,
    InvalidInput,
    InvalidName,
    NotConnected,
    NotTogether,
    PayloadTooLarge,
    Superseded,
    TooManyKeys,
    UsageError,
)
from sequencing.joint import SET_REGIONS_MAX
from sequencing.keyed import CONDITIONS_MAX
from sequencing.names import check_key

PROTOCOL = 1
SUBPROTOCOL = "gamecast.v1"

ID_LETTERS_MAX = 64
Position = tuple[int, int]
"""Epoch and sequence."""

_POSITION = re.compile(r"(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})")


class Code(StrEnum):
    """Why a request was refused."""

    MALFORMED = "malformed"
    TOO_LARGE = "too-large"
    INVALID_REGION = "invalid-region"
    INVALID_PAYLOAD = "invalid-payload"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    RATE = "rate"
    LIMIT = "limit"
    ORDER = "order"
    BUSY = "busy"
    UNREACHABLE = "unreachable"
    UNCERTAIN = "uncertain"
    SUPERSEDED = "superseded"
    TOO_SLOW = "too-slow"
    EXPIRED = "expired"
    ORIGIN = "origin"
    CONFLICT = "conflict"
    INVALID_KEY = "invalid-key"
    KEY_CONFLICT = "key-conflict"
    TOO_MANY_KEYS = "too-many-keys"
    NOT_TOGETHER = "not-together"
    NOT_FOUND = "not-found"
    INTERNAL = "internal"
    DENIED = "denied"
    BACKEND_DOWN = "backend-down"


class Close:
    """The codes with which the gateway closes a WebSocket."""

    GOING_AWAY = 1001
    UNSUPPORTED = 1003
    TOO_LARGE = 1009
    INTERNAL = 1011
    TRY_LATER = 1013
    MALFORMED = 4000
    UNAUTHORIZED = 4001
    HELLO_TIMEOUT = 4002
    DENIED = 4003
    TOO_SLOW = 4008
    SUPERSEDED = 4009
    EXPIRED = 4010
    IDLE = 4012
    LIMIT = 4013
    RATE = 4014


class Refusal(Exception):
    """The gateway does not do what a client asked for."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        status: int = 400,
        retriable: bool = False,
        definite: bool = True,
        retry_after_s: float | None = None,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """``more``: what else the client receives."""
        super().__init__(message)
        self.more = more
        self.code, self.message, self.status = code, message, status
        self.retriable, self.definite, self.retry_after_s = retriable, definite, retry_after_s

    def document(self) -> dict[str, Any]:
        """Return the document that the client receives."""
        told = {
            "code": str(self.code),
            "message": self.message,
            "retriable": self.retriable,
            "definite": self.definite,
        }
        if self.retry_after_s is not None:
            told["retry_after_ms"] = round(self.retry_after_s * 1000)
        return {**told, **self.more}

    @classmethod
    def of(cls, error: GamecastError) -> Refusal:
        """Return the refusal that a client receives for an error of the library."""
        code, status = Code.UNREACHABLE, 503
        if isinstance(error, InvalidName):
            code, status = Code.INVALID_REGION, 400
        elif isinstance(error, PayloadTooLarge):
            code, status = Code.TOO_LARGE, 413
        elif isinstance(error, InvalidInput):
            code, status = Code.MALFORMED, 400
        elif isinstance(error, BufferFull):
            code, status = Code.BUSY, 503
        elif isinstance(error, NotTogether):
            code, status = Code.NOT_TOGETHER, 409
        elif isinstance(error, UsageError) and not isinstance(error, NotConnected):
            code, status = Code.MALFORMED, 400
        elif isinstance(error, Superseded):
            code, status = Code.SUPERSEDED, 409
        elif isinstance(error, Conflict):
            more = {"region": error.region, "key": error.key, "position": error.position}
            return cls(Code.KEY_CONFLICT, str(error), status=409, more=more)
        elif isinstance(error, TooManyKeys):
            code, status = Code.TOO_MANY_KEYS, 409
        elif not error.definite:
            code, status = Code.UNCERTAIN, 504
        # The library's own texts may name servers, which clients must not see.
        said = str(error) if code in _TELLING else _WORDS[code]
        return cls(code, said, status=status, retriable=error.retriable, definite=error.definite)


_TELLING = {Code.INVALID_REGION, Code.TOO_LARGE, Code.MALFORMED, Code.TOO_MANY_KEYS, Code.NOT_TOGETHER}
_WORDS = {
    Code.UNREACHABLE: "the network behind the gateway does not answer now",
    Code.BUSY: "too many publishes are in flight: publish more slowly",
    Code.SUPERSEDED: "another session took over this name",
    Code.UNCERTAIN: "the network did not answer: the event may or may not have been published",
}


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a client: its token, its name and its wishes."""

    token: str | None
    name: str | None
    batch_ms: int
    message_bytes_max: int | None = None
    """The maximum size of a message with several events or acks; None: the default."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Join regions."""

    id: str | int | None
    regions: tuple[str, ...]
    since: Since | None
    state: bool = False
    """Whether the state of the regions is to come first."""


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Leave regions."""

    id: str | int | None
    regions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish one event. ``after`` is set if the event may have been published before the session was resumed.

    ``region``: its region, or the first of several; ``regions``: all, where the message lists them. ``about``: ``key``
    and ``only_if``, as `Connection.publish_async` takes them.
    """

    id: str | int | None
    region: str
    payload: Any
    payload_bytes: int
    retry: bool
    after: str | None
    about: Mapping[str, Any] = field(default_factory=dict)
    regions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ping:
    """Answer me."""

    id: str | int | None


Message = Hello | Subscribe | Unsubscribe | Publish | Ping


def read_json(text: str | bytes) -> Any:
    """Return the parsed JSON of a text; raises `Refusal`."""
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise Refusal(Code.MALFORMED, f"this is not JSON: {error}") from error


def names_in(document: Any) -> int:
    """Return how many regions a message lists to follow or to leave, before any of them is checked."""
    if not isinstance(document, dict) or document.get("type") == "publish":
        return 0
    regions = document.get("regions")
    return len(regions) if isinstance(regions, list) else 0


def read_message(document: Any) -> Message:
    """Return the message that a client sent; raises `Refusal`."""
    if not isinstance(document, dict):
        raise Refusal(Code.MALFORMED, f"a message must be an object with a type, not {_kind(document)}")
    reader = _READERS.get(kind) if isinstance(kind := document.get("type"), str) else None
    if reader is None:
        known = ", ".join(_READERS)
        raise Refusal(Code.MALFORMED, f"type must be one of {known}, not {str(document.get('type'))[:40]!r}")
    message: Message = reader(document)
    return message


def message_id(document: Any) -> str | int | None:
    """Return the id of a message, None if it has no valid id."""
    given = document.get("id") if isinstance(document, dict) else None
    if (number := _integer(given)) is not None:
        return number if abs(number) < 2**53 else None
    return given if isinstance(given, str) and len(given) <= ID_LETTERS_MAX else None


def read_payload(document: Mapping[str, Any]) -> tuple[Any, int]:
    """Return a payload and its encoded size in bytes: any JSON as ``payload``, or bytes as ``base64``."""
    if ("payload" in document) == ("base64" in document):
        raise Refusal(Code.INVALID_PAYLOAD, "an event must have either payload (any JSON) or base64 (bytes)")
    if "payload" in document:
        payload = document["payload"]
        try:
            text = orjson.dumps(payload)
        except TypeError as error:
            raise Refusal(Code.INVALID_PAYLOAD, f"the payload cannot be encoded: {error}") from error
        if is_deeper(payload, text, PAYLOAD_DEPTH_MAX):
            raise Refusal(Code.INVALID_PAYLOAD, f"the payload is nested deeper than {PAYLOAD_DEPTH_MAX}")
        return payload, len(text)
    try:
        raw = base64.b64decode(document["base64"], validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise Refusal(Code.INVALID_PAYLOAD, f"base64 must be a base64 string: {error}") from error
    return raw, len(raw)


def read_places(document: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the region of an event, and its ``regions`` if it lists them: then the first; raises `Refusal`."""
    if "regions" not in document:
        return read_region(document.get("region")), ()
    if "region" in document:
        raise Refusal(Code.MALFORMED, "an event must have either a region or regions, not both")
    listed = document["regions"]
    if not isinstance(listed, list) or not 0 < len(listed) <= SET_REGIONS_MAX:
        raise Refusal(Code.MALFORMED, f"the regions of an event must be a list of 1 to {SET_REGIONS_MAX} regions")
    regions = tuple(map(read_region, listed))
    if len(set(regions)) < len(regions):
        raise Refusal(Code.MALFORMED, "the regions of an event must name each region once")
    return regions[0], regions


def read_about(document: Mapping[str, Any], regions: Sequence[str] = ()) -> dict[str, Any]:
    """Return what an event says of keys, ``key`` and ``only_if``, as far as it does; raises `Refusal`.

    ``regions``: where the event lists them. Then the conditions are of (region, key) each.
    """
    about: dict[str, Any] = {}
    if document.get("key") is not None:
        about["key"] = _key(document["key"])
    if "only_if" in document:
        about["only_if"] = only_if = document["only_if"]
        if isinstance(only_if, dict) and regions:
            about["only_if"] = _conditions(only_if, regions)
        elif isinstance(only_if, dict):
            if not 0 < len(only_if) <= CONDITIONS_MAX:
                raise Refusal(Code.MALFORMED, f"only_if must have 1 to {CONDITIONS_MAX} keys")
            about["only_if"] = {_key(key): _head(position) for key, position in only_if.items()}
        elif "key" not in about:
            raise Refusal(Code.MALFORMED, "only_if must have a key beside it, or be an object: key to position")
        elif len(regions) > 1 and only_if is not None:
            raise Refusal(
                Code.MALFORMED, "with several regions, only_if must be null, or an object: {region: {key: position}}"
            )
        else:
            _head(only_if)
    return about


def _conditions(only_if: Mapping[str, Any], regions: Sequence[str]) -> dict[tuple[str, str], str | None]:
    """Return the conditions of an event that lists its regions: (region, key) to position."""
    found: dict[tuple[str, str], str | None] = {}
    for region, keys in only_if.items():
        if region not in regions:
            raise Refusal(Code.MALFORMED, "only_if must name regions of the event: {region: {key: position}}")
        if not isinstance(keys, dict):
            raise Refusal(Code.MALFORMED, "with several regions, only_if must be an object: {region: {key: position}}")
        found |= {(region, _key(key)): _head(position) for key, position in keys.items()}
    if not 0 < len(found) <= CONDITIONS_MAX:
        raise Refusal(Code.MALFORMED, f"only_if must have 1 to {CONDITIONS_MAX} keys")
    return found


def written_about(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `read_about` returned, in the encoding of clients."""
    only_if = about.get("only_if")
    if not isinstance(only_if, dict) or not isinstance(next(iter(only_if)), tuple):
        return dict(about)
    conditions: dict[str, dict[str, str | None]] = {}
    for (region, key), position in only_if.items():
        conditions.setdefault(region, {})[key] = position
    return {**about, "only_if": conditions}


def _key(given: Any) -> str:
    try:
        return check_key(given)
    except InvalidName as error:
        raise Refusal(Code.INVALID_KEY, str(error)) from error


def _head(given: Any) -> str | None:
    return None if given is None else read_position(given)


def read_region(given: Any) -> str:
    """Return a region name; raises `Refusal`."""
    if not isinstance(given, str):
        raise Refusal(Code.INVALID_REGION, f"a region must be a string, not {_kind(given)}")
    try:
        return check_public_region(given)
    except InvalidName as error:
        raise Refusal(Code.INVALID_REGION, str(error)) from error


def read_position(given: Any) -> str:
    """Return a position, ``epoch-sequence``; raises `Refusal`."""
    if not isinstance(given, str) or not _POSITION.fullmatch(given):
        raise Refusal(Code.MALFORMED, f"a position must be a string like '3-120', not {str(given)[:40]!r}")
    return given


def position_of(text: str) -> Position:
    """Return epoch and sequence of a text that `read_position` returned."""
    epoch, _, sequence = text.partition("-")
    return int(epoch), int(sequence)


def _hello(document: dict[str, Any]) -> Hello:
    version = document.get("protocol", PROTOCOL)
    if version != PROTOCOL:
        raise Refusal(Code.MALFORMED, f"this gateway speaks protocol {PROTOCOL}, not {str(version)[:20]!r}")
    token, name, batch_ms = document.get("token"), document.get("name"), document.get("batch_ms", 0)
    if token is not None and not isinstance(token, str):
        raise Refusal(Code.MALFORMED, "token must be a string")
    if name is not None and not isinstance(name, str):
        raise Refusal(Code.MALFORMED, "name must be a string")
    batch = _integer(batch_ms)
    if batch is None or not 0 <= batch <= 1000:
        raise Refusal(Code.MALFORMED, "batch_ms must be a number of milliseconds from 0 to 1000")
    bytes_max = _integer(document.get("message_bytes_max"))
    if document.get("message_bytes_max") is not None and (bytes_max is None or bytes_max < 1):
        raise Refusal(Code.MALFORMED, "message_bytes_max must be a number of bytes above 0")
    return Hello(token, name, batch, bytes_max)


def _regions(document: dict[str, Any]) -> tuple[str, ...]:
    regions = document.get("regions")
    if not isinstance(regions, list) or not regions:
        raise Refusal(Code.MALFORMED, "regions must be a list of at least one region")
    return tuple(dict.fromkeys(map(read_region, regions)))


def _subscribe(document: dict[str, Any]) -> Subscribe:
    regions, since, state = _regions(document), document.get("since"), document.get("state", False)
    if not isinstance(state, bool):
        raise Refusal(Code.MALFORMED, "state must be true or false")
    if state and since is not None:
        raise Refusal(
            Code.MALFORMED, "subscribe with state, to begin with the regions as they are now, or with since, not both"
        )
    return Subscribe(_id(document), regions, None if since is None else read_since(since, regions), state)


def read_since(since: Any, regions: Sequence[str]) -> Since:
    """Return the start of a replay: an epoch, or a position for each region; raises `Refusal`."""
    if isinstance(since, dict):
        if since.keys() != set(regions):
            raise Refusal(Code.MALFORMED, "since must have a position for each of the regions, and no other")
        return {region: _epoch_or_position(since[region]) for region in regions}
    one = _epoch_or_position(since)
    if isinstance(one, str) and len(regions) > 1:
        raise Refusal(
            Code.MALFORMED,
            "a position belongs to one region: with several regions, since must be {region: position, …}",
        )
    return one


def _epoch_or_position(since: Any) -> int | str:
    if (epoch := _integer(since)) is not None and 0 <= epoch < 2**53:
        return epoch
    return read_position(since)


def _unsubscribe(document: dict[str, Any]) -> Unsubscribe:
    return Unsubscribe(_id(document), _regions(document))


def _publish(document: dict[str, Any]) -> Publish:
    region, regions = read_places(document)
    payload, payload_bytes = read_payload(document)
    retry, after = document.get("retry", False), document.get("after")
    if not isinstance(retry, bool):
        raise Refusal(Code.MALFORMED, "retry must be true or false")
    if after is not None:
        after = read_position(after)
    if retry and after is None:
        raise Refusal(
            Code.MALFORMED, "a retry needs after: the position of the region after which the event was first sent"
        )
    about = read_about(document, regions)
    return Publish(_id(document), region, payload, payload_bytes, retry, after, about, regions)


def _ping(document: dict[str, Any]) -> Ping:
    return Ping(_id(document))


def _id(document: dict[str, Any]) -> str | int | None:
    if document.get("id") is not None and message_id(document) is None:
        raise Refusal(Code.MALFORMED, f"id must be an integer, or a string of at most {ID_LETTERS_MAX} letters")
    return message_id(document)


def _integer(value: Any) -> int | None:
    """Return a number without a fraction, as JSON has it: engines whose only number is a float write ``0.0``."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


_READERS: Mapping[str, Any] = {
    "hello": _hello,
    "subscribe": _subscribe,
    "unsubscribe": _unsubscribe,
    "publish": _publish,
    "ping": _ping,
}

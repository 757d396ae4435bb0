"""The messages of clients: their shape is checked by `gateway.schema`, and what a schema cannot say, here.

`docs/gateway.md` describes them for users. This file does no input or output.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError

from gamecast.client.history import Since
from gateway import schema
from gateway.refusal import Code, Refusal
from gateway.regions import check_public_region
from gateway.schema import POSITION, PROTOCOL
from sequencing.depth import PAYLOAD_DEPTH_MAX, PAYLOAD_LISTS_MAX, has_more_lists, is_deeper
from sequencing.errors import InvalidName
from sequencing.joint import SET_REGIONS_MAX
from sequencing.keyed import CONDITIONS_MAX
from sequencing.names import check_guest_key, check_key

SUBPROTOCOL = "gamecast.v1"

T = TypeVar("T", bound=BaseModel)
Position = tuple[int, int]
"""Epoch and sequence."""

_POSITION = re.compile(POSITION)


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a client: its token, its name and its wishes."""

    token: str | None
    name: str | None
    batch_ms: int
    message_bytes_max: int | None = None
    """The maximum size of a message with several events or acks; None: the default."""
    updates: bool = False
    """Whether the client wants updates."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Join regions."""

    id: str | int | None
    regions: tuple[str, ...]
    since: Since | None
    state: bool = False
    """Whether the state of the regions is to come first."""
    presence: Mapping[str, Any] = field(default_factory=dict)
    """Region → what others are to see of the client there, or "watch"."""


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


class OneUpdate(NamedTuple):
    """One update; ``position``: up to where its maker had seen the region."""

    region: str
    key: str
    payload: Any
    payload_bytes: int
    position: str | None


@dataclass(frozen=True, slots=True)
class Updates:
    """Tell others the newest values of keys."""

    id: str | int | None
    updates: tuple[OneUpdate, ...]


@dataclass(frozen=True, slots=True)
class Ping:
    """Answer me."""

    id: str | int | None


Message = Hello | Subscribe | Unsubscribe | Publish | Updates | Ping


def read_json(text: str | bytes) -> Any:
    """Return the parsed JSON of a text; raises `Refusal`."""
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise Refusal(Code.MALFORMED, f"this is not JSON: {error}") from error


def updates_in(document: Any) -> int:
    """Return how many updates a message has, before any of them is checked; 0 if it is another message."""
    if not isinstance(document, dict) or document.get("type") != "updates":
        return 0
    updates = document.get("updates")
    return max(1, len(updates)) if isinstance(updates, list) else 1


def copies_in(document: Any) -> int:
    """Return in how many regions an event is, before any of it is checked: each keeps a copy."""
    regions = document.get("regions") if isinstance(document, dict) else None
    return max(1, len(regions)) if isinstance(regions, list) else 1


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
    given = document.get("type")
    reader = _READERS.get(given) if isinstance(given, str) else None
    if reader is None:
        known = ", ".join(_READERS)
        raise Refusal(Code.MALFORMED, f"type must be one of {known}, not {str(given)[:40]!r}")
    kind, read = reader
    message: Message = read(_shaped(document, kind))
    return message


def message_id(document: Any) -> str | int | None:
    """Return the id of a message, None if it has no valid id."""
    given = document.get("id") if isinstance(document, dict) else None
    try:
        return _ID.validate_python(_integers(given))
    except ValidationError:
        return None


def read_payload(document: Mapping[str, Any]) -> tuple[Any, int]:
    """Return a payload and its encoded size in bytes: any JSON as ``payload``, or bytes as ``base64``."""
    return _content(_shaped(document, schema.Content))


def _content(given: schema.Content) -> tuple[Any, int]:
    if ("payload" in given.model_fields_set) == ("base64" in given.model_fields_set):
        raise Refusal(Code.INVALID_PAYLOAD, "an event must have either payload (any JSON) or base64 (bytes)")
    if "payload" not in given.model_fields_set:
        try:
            raw = base64.b64decode(given.base64 or b"!", validate=True) if given.base64 != "" else b""
        except (ValueError, binascii.Error) as error:
            raise Refusal(Code.INVALID_PAYLOAD, f"base64 must be a base64 string: {error}") from error
        return raw, len(raw)
    try:
        text = orjson.dumps(given.payload)
    except TypeError as error:
        raise Refusal(Code.INVALID_PAYLOAD, f"the payload cannot be encoded: {error}") from error
    if is_deeper(given.payload, text, PAYLOAD_DEPTH_MAX):
        raise Refusal(Code.INVALID_PAYLOAD, f"the payload is nested deeper than {PAYLOAD_DEPTH_MAX}")
    if has_more_lists(given.payload, text, PAYLOAD_LISTS_MAX):
        told = f"the payload has more than {PAYLOAD_LISTS_MAX:,} lists and objects: send fewer, or bytes"
        raise Refusal(Code.INVALID_PAYLOAD, told)
    return given.payload, len(text)


def read_publication(document: Any) -> Publish:
    """Return an event to publish, as HTTP has it, with its region or regions; raises `Refusal`."""
    if not isinstance(document, dict):
        raise Refusal(Code.MALFORMED, "an event must be an object")
    return _publication(_shaped(document, schema.PlacedPublication))


def _publication(
    given: schema.PlacedPublication, *, answered: str | int | None = None, retry: bool = False, after: str | None = None
) -> Publish:
    region, regions = _places(given)
    payload, payload_bytes = _content(given)
    return Publish(answered, region, payload, payload_bytes, retry, after, _about(given, regions), regions)


def _places(given: schema.PlacedPublication) -> tuple[str, tuple[str, ...]]:
    """Return the region of an event, and its ``regions`` if it lists them: then the first; raises `Refusal`."""
    if given.regions is None:
        return read_region(given.region), ()
    if given.region is not None:
        raise Refusal(Code.MALFORMED, "an event must have either a region or regions, not both")
    regions = tuple(map(read_region, given.regions))
    if len(set(regions)) < len(regions):
        raise Refusal(Code.MALFORMED, "the regions of an event must name each region once")
    return regions[0], regions


def _about(given: schema.Publication, regions: Sequence[str]) -> dict[str, Any]:
    """Return what an event says of keys, ``key`` and ``only_if``, as far as it does; raises `Refusal`.

    ``regions``: where the event lists them. Then the conditions are of (region, key) each.
    """
    about: dict[str, Any] = {}
    if given.key is not None:
        about["key"] = _key(given.key, check_guest_key)
    only_if = given.only_if
    if "only_if" not in given.model_fields_set:
        return about
    if isinstance(only_if, dict):
        about["only_if"] = _conditions(only_if, regions) if regions else _simple_conditions(only_if)
    elif "key" not in about:
        raise Refusal(Code.MALFORMED, "only_if must have a key beside it, or be an object: key to position")
    elif len(regions) > 1 and only_if is not None:
        raise Refusal(
            Code.MALFORMED, "with several regions, only_if must be null, or an object: {region: {key: position}}"
        )
    else:
        about["only_if"] = only_if
    return about


def _simple_conditions(only_if: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the conditions of an event of one region: key to position."""
    if not 0 < len(only_if) <= CONDITIONS_MAX:
        raise Refusal(Code.MALFORMED, f"only_if must have 1 to {CONDITIONS_MAX} keys")
    return {_key(key): _head(position) for key, position in only_if.items()}


def _conditions(only_if: Mapping[str, Any], regions: Sequence[str]) -> dict[tuple[str, str], str | None]:
    """Return the conditions of an event that lists its regions: (region, key) to position."""
    conditions: dict[tuple[str, str], str | None] = {}
    for region, keys in only_if.items():
        if region not in regions:
            raise Refusal(Code.MALFORMED, "only_if must name regions of the event: {region: {key: position}}")
        if not isinstance(keys, dict):
            raise Refusal(Code.MALFORMED, "with several regions, only_if must be an object: {region: {key: position}}")
        conditions |= {(region, _key(key)): position for key, position in keys.items()}
    if not 0 < len(conditions) <= CONDITIONS_MAX:
        raise Refusal(Code.MALFORMED, f"only_if must have 1 to {CONDITIONS_MAX} keys")
    return conditions


def written_about(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `read_about` returned, in the encoding of clients."""
    only_if = about.get("only_if")
    if not isinstance(only_if, dict) or not isinstance(next(iter(only_if)), tuple):
        return dict(about)
    conditions: dict[str, dict[str, str | None]] = {}
    for (region, key), position in only_if.items():
        conditions.setdefault(region, {})[key] = position
    return {**about, "only_if": conditions}


def _key(given: Any, check: Callable[[object], str] = check_key) -> str:
    try:
        return check(given)
    except InvalidName as error:
        raise Refusal(Code.INVALID_KEY, str(error)) from error


def _head(given: str | dict[str, Any] | None) -> str | None:
    if isinstance(given, dict):
        raise Refusal(Code.MALFORMED, "of an event of one region, only_if must be an object: key to position")
    return given


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


def _hello(given: schema.Hello) -> Hello:
    return Hello(given.token, given.name, given.batch_ms, given.message_bytes_max, given.updates)


def _subscribe(given: schema.Subscribe) -> Subscribe:
    regions = _distinct(given.regions)
    if given.state and given.since is not None:
        raise Refusal(
            Code.MALFORMED, "subscribe with state, to begin with the regions as they are now, or with since, not both"
        )
    since = None if given.since is None else _since(given.since, regions)
    presence = given.presence or {}
    if not presence.keys() <= set(regions):
        raise Refusal(Code.MALFORMED, "presence must name regions of the message")
    if presence and not (given.state or isinstance(since, dict)):
        raise Refusal(Code.MALFORMED, "presence needs state, to begin with who is there, or since with positions")
    return Subscribe(given.id, regions, since, given.state, presence)


def _unsubscribe(given: schema.Unsubscribe) -> Unsubscribe:
    return Unsubscribe(given.id, _distinct(given.regions))


def _publish(given: schema.Publish) -> Publish:
    event = _publication(given, answered=given.id, retry=given.retry, after=given.after)
    if given.retry and given.after is None:
        raise Refusal(
            Code.MALFORMED, "a retry needs after: the position of the region after which the event was first sent"
        )
    return event


def _updates(given: schema.SendUpdates) -> Updates:
    return Updates(
        given.id,
        tuple(
            OneUpdate(read_region(it.region), _key(it.key, check_guest_key), *_content(it), it.position)
            for it in given.updates
        ),
    )


def _ping(given: schema.Ping) -> Ping:
    return Ping(given.id)


def _distinct(regions: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(read_region, regions)))


def _since(since: int | str | dict[str, int | str], regions: Sequence[str]) -> Since:
    """Return the start of a replay: an epoch, or a position for each region; raises `Refusal`."""
    if isinstance(since, dict):
        if since.keys() != set(regions):
            raise Refusal(Code.MALFORMED, "since must have a position for each of the regions, and no other")
    elif isinstance(since, str) and len(regions) > 1:
        raise Refusal(
            Code.MALFORMED,
            "a position belongs to one region: with several regions, since must be {region: position, …}",
        )
    return since


def _shaped(document: Mapping[str, Any], kind: type[T]) -> T:
    """Return a document as a type of the schema; raises `Refusal` if it has another shape."""
    try:
        return kind.model_validate(_whole(document))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name, *inside = map(str, first["loc"])
        is_element = any(part.isdecimal() for part in inside)
        given = document.get(name)
        code, must = (_MUST.get(f"{name}[") if is_element else None) or _MUST.get(name, _OTHER)
        where = ".".join((name, *inside))
        told = f"{where}: {first['msg']}"
        said = must.format(name=name, given=str(given)[:40], kind=_kind(given), error=told[:200])
        raise Refusal(code, said) from error


_ID: TypeAdapter[int | str | None] = TypeAdapter(schema.Id, config={"strict": True})
_A_POSITION = "{name} must have positions, each a string like '3-120', not {given!r}"
_MUST: Mapping[str, tuple[Code, str]] = {
    "protocol": (Code.MALFORMED, f"this gateway speaks protocol {PROTOCOL}, not {{given!r}}"),
    "token": (Code.MALFORMED, "token must be a string"),
    "name": (Code.MALFORMED, "name must be a string"),
    "batch_ms": (Code.MALFORMED, f"batch_ms must be a number of milliseconds from 0 to {schema.BATCH_MS_MAX}"),
    "message_bytes_max": (Code.MALFORMED, "message_bytes_max must be a number of bytes above 0"),
    "id": (Code.MALFORMED, f"id must be an integer, or a string of at most {schema.ID_LETTERS_MAX} letters"),
    "region": (Code.INVALID_REGION, "a region must be a string, not {kind}"),
    "regions": (
        Code.MALFORMED,
        f"regions must be a list of at least one region, and of an event a list of 1 to {SET_REGIONS_MAX} regions",
    ),
    "regions[": (Code.INVALID_REGION, "a region must be a string: {error}"),
    "since": (
        Code.MALFORMED,
        "since must be an epoch, or a position: a position must be a string like '3-120', not {given!r}",
    ),
    "state": (Code.MALFORMED, "state must be true or false"),
    "updates": (Code.MALFORMED, "updates must be true or false in a hello, and else a list of at least one: {error}"),
    "updates[": (Code.MALFORMED, "an update has region, key, and payload or base64: {error}"),
    "presence": (Code.MALFORMED, 'presence must be an object: region to an object, or to "watch"'),
    "retry": (Code.MALFORMED, "retry must be true or false"),
    "after": (Code.MALFORMED, _A_POSITION),
    "only_if": (Code.MALFORMED, _A_POSITION),
    "key": (Code.INVALID_KEY, "a key must be a string, not {kind}"),
    "base64": (Code.INVALID_PAYLOAD, "base64 must be a base64 string, not {kind}"),
}
"""Field → the code and text of the refusal if it has another shape than in the schema; with "[", of what is in it."""
_OTHER = Code.MALFORMED, "{name} is not as the protocol has it: {error}"


def _whole(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a document with integers where it has numbers like ``20.0``: engines whose only number is a float do."""
    changed = {
        name: whole
        for name in _INTEGERS
        if (given := document.get(name)) is not None and (whole := _integers(given)) is not given
    }
    return {**document, **changed} if changed else document


_INTEGERS = "protocol", "batch_ms", "message_bytes_max", "id", "since"


def _integers(given: Any) -> Any:
    if isinstance(given, dict):
        return {name: _integers(each) for name, each in given.items()}
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


_READERS: Mapping[str, tuple[Any, Callable[[Any], Message]]] = {
    "hello": (schema.Hello, _hello),
    "subscribe": (schema.Subscribe, _subscribe),
    "unsubscribe": (schema.Unsubscribe, _unsubscribe),
    "publish": (schema.Publish, _publish),
    "updates": (schema.SendUpdates, _updates),
    "ping": (schema.Ping, _ping),
}

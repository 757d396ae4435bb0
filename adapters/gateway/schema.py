"""Every message of the gateway, over WebSocket, as a type: the one place that says what they look like.

The gateway checks clients' messages by these types. Its descriptions (`/v1/openapi.json`, `/v1/asyncapi.json`), the
page docs/messages.md and the TypeScript types of the messages are made from them, and the tests check by them all that
a gateway sends. This file does no input or output.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from sequencing.joint import SET_REGIONS_MAX
from sequencing.keyed import CONDITIONS_MAX
from sequencing.names import NAME_BYTES_MAX

PROTOCOL = 1
ID_LETTERS_MAX = 64
BATCH_MS_MAX = 1_000
INTEGERS_BELOW = 2**53
"""Integers up to here are exact in the languages whose only number is a float."""

POSITION = r"^(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})$"

# Which names are allowed is more than a schema can say: `adapters.gateway.regions` checks them, and says why not.
_NAME = Meta(extra_json_schema={"minLength": 1, "maxLength": NAME_BYTES_MAX})
Region = Annotated[str, _NAME]
Key = Annotated[str, _NAME]
Position = Annotated[str, Meta(pattern=POSITION)]
Epoch = Annotated[int, Meta(ge=0, lt=INTEGERS_BELOW)]
Id = (
    Annotated[int, Meta(gt=-INTEGERS_BELOW, lt=INTEGERS_BELOW)] | Annotated[str, Meta(max_length=ID_LETTERS_MAX)] | None
)
Regions = Annotated[list[Region], Meta(min_length=1)]
Together = Annotated[
    list[Region],
    Meta(
        min_length=1,
        max_length=SET_REGIONS_MAX,
        description="Publish to all of these regions at once, or to none.",
        extra_json_schema={"uniqueItems": True},
    ),
]
Conditions = Annotated[dict[str, Position | dict[str, Position | None] | None], Meta(max_length=CONDITIONS_MAX)]
Base64 = Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})]
AnswerId = Annotated[
    int | str | UnsetType, Meta(description="That of the message that this answers; missing if it had none.")
]


class Content(Struct, kw_only=True):
    """What an event says: exactly one of payload and base64."""

    payload: Annotated[Any | UnsetType, Meta(description="Any JSON, nested 64 deep at most.")] = UNSET
    base64: Annotated[Base64 | UnsetType, Meta(description="Bytes, in base64.")] = UNSET


class Publication(Content, kw_only=True):
    """An event to publish."""

    key: Annotated[
        Key | UnsetType | None,
        Meta(description="The event sets this key of the region, or, with the payload null, deletes it."),
    ] = UNSET
    only_if: Annotated[
        Position | Conditions | UnsetType | None,
        Meta(
            description="Publish only if the key was last set at this position; null: only if it is not set. Or of "
            "some keys: {key: position}. Of an event with regions: {region: {key: position}}."
        ),
    ] = UNSET


class PlacedPublication(Publication, kw_only=True):
    """An event to publish, and where: exactly one of region and regions."""

    region: Region | UnsetType = UNSET
    regions: Together | UnsetType = UNSET


class Hello(Struct, tag="hello", kw_only=True):
    """The first message of a session. In a running session: a new token."""

    protocol: Annotated[Literal[1], Meta(description="The version of the protocol.")] = 1
    token: Annotated[
        str | None,
        Meta(description="A signed token; not needed with an Authorization header, or if the gateway has no keys."),
    ] = None
    name: Annotated[
        str | None, Meta(description="The token's sub, or this, ~ and any text. Left out: one is generated.")
    ] = None
    batch_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=BATCH_MS_MAX,
            description="How long to collect events, or until a message is full. 0: send what arrived during the last "
            "send.",
        ),
    ] = 0
    message_bytes_max: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="The largest message of several events or acks to receive, within the gateway's limit. Left "
            "out: 60,000. A larger single event comes alone."
        ),
    ] = None
    updates: Annotated[
        bool, Meta(description="Whether to receive the updates of the regions that the session follows.")
    ] = False


class Subscribe(Struct, tag="subscribe", kw_only=True):
    """Follow regions."""

    regions: Regions
    id: Id = None
    since: Annotated[
        Epoch | Position | dict[Region, Epoch | Position] | None,
        Meta(
            description="First come the events after these positions: {region: position} for each of the regions. "
            "0: from the oldest event; another integer: from that epoch. A single value applies to all regions."
        ),
    ] = None
    state: Annotated[bool, Meta(description="First comes the state of the regions' keys. Not together with since.")] = (
        False
    )


class Unsubscribe(Struct, tag="unsubscribe", kw_only=True):
    """Follow regions no longer."""

    regions: Regions
    id: Id = None


class Publish(PlacedPublication, tag="publish", kw_only=True):
    """Publish an event."""

    id: Id = None
    retry: Annotated[
        bool, Meta(description="The event may have been published before the connection was lost: publish it once.")
    ] = False
    after: Annotated[
        Position | None,
        Meta(
            description="Of a retry: the region's latest position that the client had when it first sent the event. "
            "With regions: that of the first."
        ),
    ] = None


class SentUpdate(Content, kw_only=True):
    """The newest value of a key, for those who follow the region."""

    region: Region
    key: Key
    position: Annotated[
        Position | None, Meta(description="The region's latest position that the client has, if it follows it.")
    ] = None


class SendUpdates(Struct, tag="updates", kw_only=True):
    """Tell others the newest values of keys. There is no answer, unless it is refused: they may be lost."""

    updates: Annotated[list[SentUpdate], Meta(min_length=1)]
    id: Id = None


class Ping(Struct, tag="ping", kw_only=True):
    """Answer this."""

    id: Id = None


ClientMessage = Hello | Subscribe | Unsubscribe | Publish | SendUpdates | Ping


class Sent(Struct, kw_only=True, forbid_unknown_fields=True):
    """What the gateway sends has no fields but these, in this version: the tests check it."""


class Limits(Sent, kw_only=True):
    """What a session may do at most."""

    message_bytes: Annotated[int, Meta(description="Of one message that the client sends.")]
    payload_bytes: Annotated[int, Meta(description="Of one event, as JSON or bytes.")]
    messages_per_array: int
    regions: Annotated[int, Meta(description="That the session follows.")]
    unanswered: Annotated[int, Meta(description="Publishes without an ack, until the socket is not read.")]


class Welcome(Sent, tag="welcome", kw_only=True):
    """The session has begun, or goes on with a new token."""

    protocol: Literal[1]
    gateway: str
    session: str
    name: Annotated[str, Meta(description="By which others know this sender.")]
    heartbeat_ms: int
    expires_at_ms: Annotated[int | None, Meta(description="When the token expires; null: never.")]
    message_bytes_max: Annotated[int, Meta(description="As in the hello, within the gateway's limit.")]
    limits: Limits
    data: Annotated[Any | UnsetType, Meta(description="From the game's backend, if its connect hook gave any.")] = UNSET
    subscribe: Annotated[list[Region] | UnsetType, Meta(description="Regions to follow, from the game's backend.")] = (
        UNSET
    )


class Subscribed(Sent, tag="subscribed", kw_only=True):
    """The regions are followed: every event after these positions comes."""

    regions: dict[Region, Position]
    id: AnswerId = UNSET


class Unsubscribed(Sent, tag="unsubscribed", kw_only=True):
    """No event of these regions follows."""

    regions: list[Region]
    id: AnswerId = UNSET


class Ack(Sent, kw_only=True):
    """An event is published, durably."""

    region: Annotated[Region, Meta(description="Of an event of several regions: the first.")]
    position: Position
    id: AnswerId = UNSET
    positions: Annotated[
        dict[Region, Position] | UnsetType,
        Meta(description="Of an event of several regions: its position in each; only in the first if repeated."),
    ] = UNSET
    repeated: Annotated[
        Literal[True] | UnsetType, Meta(description="It had been published before the connection was lost.")
    ] = UNSET


class Acks(Sent, tag="acks", kw_only=True):
    """Events are published."""

    acks: list[Ack]


class Pong(Sent, tag="pong", kw_only=True):
    """The answer to a ping."""

    id: AnswerId = UNSET


Timestamp = Annotated[float, Meta(description="In milliseconds since 1970, by the publisher's clock.")]


class Event(Sent, kw_only=True):
    """An event of a region that the client follows: exactly one of payload and base64."""

    region: Region
    position: Position
    sender: str
    sent_at_ms: Timestamp
    payload: Any | UnsetType = UNSET
    base64: Base64 | UnsetType = UNSET
    key: Annotated[Key | UnsetType, Meta(description="The key that the event names, if it names one.")] = UNSET
    regions: Annotated[
        list[Region] | UnsetType, Meta(description="Of an event of several regions: those that the client follows.")
    ] = UNSET
    positions: Annotated[
        dict[Region, Position] | UnsetType,
        Meta(description="Of an event of several regions: its position in each of these. Keep all of them."),
    ] = UNSET


class Missing(Sent, kw_only=True):
    """Which events will not come, and why."""

    first: Position
    last: Annotated[Position | None, Meta(description="Null: it is not known how many are missing.")]
    reason: str


class Gap(Sent, kw_only=True):
    """Stands in the place of events that will not come."""

    region: Region
    position: Annotated[Position | None, Meta(description="Where the region goes on after it; null: not known.")]
    gap: Missing
    regions: Annotated[
        list[Region] | UnsetType, Meta(description="Of an event of several regions that JSON cannot represent.")
    ] = UNSET
    positions: dict[Region, Position] | UnsetType = UNSET


class StateValue(Sent, kw_only=True):
    """What a key is set to: one of payload, base64 and gap."""

    position: Annotated[Position, Meta(description="Where the key was set, as only_if takes it.")]
    sender: str
    sent_at_ms: Timestamp
    payload: Any | UnsetType = UNSET
    base64: Base64 | UnsetType = UNSET
    gap: Annotated[Missing | UnsetType, Meta(description="JSON cannot represent the value.")] = UNSET


class State(Sent, kw_only=True):
    """The keys of a region, or a part of them, as they are at this place among the events."""

    region: Region
    position: Annotated[
        Position | None,
        Meta(
            description="As of which it is: all later items of the region are behind it. Null in all parts but the "
            "last."
        ),
    ]
    state: Annotated[dict[str, StateValue], Meta(description="Key to value.")]
    part: Annotated[int | UnsetType, Meta(description="Its number, if there are several: begin with nothing at 0.")] = (
        UNSET
    )
    more: Annotated[bool | UnsetType, Meta(description="Whether another part follows.")] = UNSET
    incomplete: Annotated[
        Literal[True] | UnsetType, Meta(description="The network has lost keys that no event has named since.")
    ] = UNSET


def one_of(*names: str) -> Meta:
    """Return the annotation of what is one of several types of this schema."""
    return Meta(extra_json_schema={"oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]})


Item = Annotated[Any, one_of("Event", "Gap", "State")]


class Events(Sent, tag="events", kw_only=True):
    """Events, gaps and states, in their order, across regions too."""

    events: list[Item]


class UpdateItem(Sent, kw_only=True):
    """The newest value of a key, by one sender: exactly one of payload and base64."""

    region: Region
    key: Key
    sender: str
    sent_at_ms: Timestamp
    position: Annotated[
        Position, Meta(description="Up to where its sender had seen the region: a later event is news to it.")
    ]
    payload: Any | UnsetType = UNSET
    base64: Base64 | UnsetType = UNSET


class Updates(Sent, tag="updates", kw_only=True):
    """Updates, after the events that their senders had seen or published before. Others may have been lost."""

    updates: list[UpdateItem]


class ErrorBody(Sent, kw_only=True):
    """Why not."""

    code: str
    message: Annotated[str, Meta(description="For people.")]
    retriable: Annotated[bool, Meta(description="The same may succeed later.")]
    definite: Annotated[bool, Meta(description="What was asked for has certainly not happened.")]
    retry_after_ms: int | UnsetType = UNSET
    region: Annotated[
        Region | UnsetType, Meta(description="Of key-conflict: the key's region; of forbidden: the region.")
    ] = UNSET
    key: Annotated[Key | UnsetType, Meta(description="Of key-conflict: the key whose condition does not hold.")] = UNSET
    position: Annotated[
        Position | UnsetType | None, Meta(description="Of key-conflict: where the key was set last; null: not set.")
    ] = UNSET


class ErrorMessage(ErrorBody, tag="error", kw_only=True):
    """A message is refused; or, without an id, the session, before it is closed."""

    id: AnswerId = UNSET


ITEMS = Event, Gap, State
ServerMessage = Welcome | Subscribed | Unsubscribed | Acks | Pong | Events | Updates | ErrorMessage


EXACTLY_ONE: dict[str, tuple[tuple[str, ...], ...]] = {
    "Publication": (("payload", "base64"),),
    "PlacedPublication": (("payload", "base64"), ("region", "regions")),
    "Publish": (("payload", "base64"), ("region", "regions")),
    "SentUpdate": (("payload", "base64"),),
    "UpdateItem": (("payload", "base64"),),
    "Event": (("payload", "base64"),),
    "StateValue": (("payload", "base64", "gap"),),
}
"""Message → fields of which it has exactly one."""

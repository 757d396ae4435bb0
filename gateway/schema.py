"""Every message of the gateway, over WebSocket, as a type: the one place that says what they look like.

The gateway checks clients' messages by these types. Its descriptions (`/v1/openapi.json`, `/v1/asyncapi.json`), the
page docs/messages.md and the TypeScript types of the messages are made from them, and the tests check by them all that
a gateway sends. This file does no input or output.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sequencing.joint import SET_REGIONS_MAX
from sequencing.keyed import CONDITIONS_MAX
from sequencing.names import NAME_BYTES_MAX

PROTOCOL = 1
ID_LETTERS_MAX = 64
BATCH_MS_MAX = 1_000
INTEGERS_BELOW = 2**53
"""Integers up to here are exact in the languages whose only number is a float."""

POSITION = r"^(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})$"

MISSING: Any = None
"""The default of a field that may be missing, and is not null if it is there."""

# Which names are allowed is more than a schema can say: `gateway.regions` checks them, and says why not.
_NAME = Field(json_schema_extra={"minLength": 1, "maxLength": NAME_BYTES_MAX})
Region = Annotated[str, _NAME]
Key = Annotated[str, _NAME]
Position = Annotated[str, Field(pattern=POSITION)]
Epoch = Annotated[int, Field(ge=0, lt=INTEGERS_BELOW)]
Id = (
    Annotated[int, Field(gt=-INTEGERS_BELOW, lt=INTEGERS_BELOW)]
    | Annotated[str, Field(max_length=ID_LETTERS_MAX)]
    | None
)
Regions = Annotated[list[Region], Field(min_length=1)]
Together = Annotated[
    list[Region],
    Field(
        min_length=1,
        max_length=SET_REGIONS_MAX,
        description="Publish to all of these regions at once, or to none.",
        json_schema_extra={"uniqueItems": True},
    ),
]
Conditions = Annotated[dict[str, Position | dict[str, Position | None] | None], Field(max_length=CONDITIONS_MAX)]
Base64 = Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]
AnswerId = Annotated[int | str, Field(description="That of the message that this answers; missing if it had none.")]


class Read(BaseModel):
    """What clients send; fields that are not known are ignored."""

    model_config = ConfigDict(strict=True)


class Sent(BaseModel):
    """What the gateway sends has no fields but these, in this version: the tests check it."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Content(Read):
    """What an event says: exactly one of payload and base64."""

    payload: Annotated[Any, Field(description="Any JSON, nested 64 deep at most.")] = MISSING
    base64: Annotated[Base64, Field(description="Bytes, in base64.")] = MISSING


class Publication(Content):
    """An event to publish."""

    key: Annotated[
        Key | None,
        Field(description="The event sets this key of the region, or, with the payload null, deletes it."),
    ] = None
    only_if: Annotated[
        Position | Conditions | None,
        Field(
            description="Publish only if the key was last set at this position; null: only if it is not set. Or of "
            "some keys: {key: position}. Of an event with regions: {region: {key: position}}."
        ),
    ] = None


class PlacedPublication(Publication):
    """An event to publish, and where: exactly one of region and regions."""

    region: Region = MISSING
    regions: Together = MISSING


class Hello(Read):
    """The first message of a session. In a running session: a new token."""

    type: Literal["hello"]

    protocol: Annotated[Literal[1], Field(description="The version of the protocol.")] = 1
    token: Annotated[
        str | None,
        Field(description="A signed token; not needed with an Authorization header, or if the gateway has no keys."),
    ] = None
    name: Annotated[
        str | None, Field(description="The token's sub, or this, ~ and any text. Left out: one is generated.")
    ] = None
    batch_ms: Annotated[
        int,
        Field(
            ge=0,
            le=BATCH_MS_MAX,
            description="How long to collect events, or until a message is full. 0: send what arrived during the last "
            "send.",
        ),
    ] = 0
    message_bytes_max: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Field(
            description="The largest message of several events or acks to receive, within the gateway's limit. Left "
            "out: 60,000. A larger single event comes alone."
        ),
    ] = None
    updates: Annotated[
        bool, Field(description="Whether to receive the updates of the regions that the session follows.")
    ] = False


class Subscribe(Read):
    """Follow regions."""

    type: Literal["subscribe"]

    regions: Regions
    id: Id = MISSING
    since: Annotated[
        Epoch | Position | dict[Region, Epoch | Position] | None,
        Field(
            description="First come the events after these positions: {region: position} for each of the regions. "
            "0: from the oldest event; another integer: from that epoch. A single value applies to all regions."
        ),
    ] = None
    state: Annotated[
        bool, Field(description="First comes the state of the regions' keys. Not together with since.")
    ] = False
    presence: Annotated[
        dict[Region, dict[str, Any] | Literal["watch"]] | None,
        Field(
            description="Regions, with state or since, where others see that this client is there, and what it says of "
            'itself; it hears who else arrives and leaves. "watch": only that.'
        ),
    ] = None


class Unsubscribe(Read):
    """Follow regions no longer."""

    type: Literal["unsubscribe"]

    regions: Regions
    id: Id = MISSING


class Publish(PlacedPublication):
    """Publish an event."""

    type: Literal["publish"]

    id: Id = MISSING
    retry: Annotated[
        bool, Field(description="The event may have been published before the connection was lost: publish it once.")
    ] = False
    after: Annotated[
        Position | None,
        Field(
            description="Of a retry: the region's latest position that the client had when it first sent the event. "
            "With regions: that of the first."
        ),
    ] = None


class SentUpdate(Content):
    """The newest value of a key, for those who follow the region."""

    region: Region
    key: Key
    position: Annotated[
        Position | None, Field(description="The region's latest position that the client has, if it follows it.")
    ] = None


class SendUpdates(Read):
    """Tell others the newest values of keys. There is no answer, unless it is refused: they may be lost."""

    type: Literal["updates"]

    updates: Annotated[list[SentUpdate], Field(min_length=1)]
    id: Id = MISSING


class Ping(Read):
    """Answer this."""

    type: Literal["ping"]

    id: Id = MISSING


ClientMessage = Hello | Subscribe | Unsubscribe | Publish | SendUpdates | Ping


class Limits(Sent):
    """What a session may do at most."""

    message_bytes: Annotated[int, Field(description="Of one message that the client sends.")]
    payload_bytes: Annotated[int, Field(description="Of one event, as JSON or bytes.")]
    messages_per_array: int
    regions: Annotated[int, Field(description="That the session follows.")]
    unanswered: Annotated[int, Field(description="Publishes without an ack, until the socket is not read.")]


class Welcome(Sent):
    """The session has begun, or goes on with a new token."""

    type: Literal["welcome"]

    protocol: Literal[1]
    gateway: str
    session: str
    name: Annotated[str, Field(description="By which others know this sender.")]
    heartbeat_ms: int
    expires_at_ms: Annotated[int | None, Field(description="When the token expires; null: never.")]
    message_bytes_max: Annotated[int, Field(description="As in the hello, within the gateway's limit.")]
    limits: Limits
    data: Annotated[Any, Field(description="From the game's backend, if its connect hook gave any.")] = None
    subscribe: Annotated[list[Region], Field(description="Regions to follow, from the game's backend.")] = MISSING


class Subscribed(Sent):
    """The regions are followed: every event after these positions comes."""

    type: Literal["subscribed"]

    regions: dict[Region, Position]
    id: AnswerId = MISSING


class Unsubscribed(Sent):
    """No event of these regions follows."""

    type: Literal["unsubscribed"]

    regions: list[Region]
    id: AnswerId = MISSING


class Ack(Sent):
    """An event is published, durably."""

    region: Annotated[Region, Field(description="Of an event of several regions: the first.")]
    position: Position
    id: AnswerId = MISSING
    positions: Annotated[
        dict[Region, Position],
        Field(description="Of an event of several regions: its position in each; only in the first if repeated."),
    ] = MISSING
    repeated: Annotated[Literal[True], Field(description="It had been published before the connection was lost.")] = (
        MISSING
    )


class Acks(Sent):
    """Events are published."""

    type: Literal["acks"]

    acks: list[Ack]


class Pong(Sent):
    """The answer to a ping."""

    type: Literal["pong"]

    id: AnswerId = MISSING


Timestamp = Annotated[float, Field(description="In milliseconds since 1970, by the publisher's clock.")]


class Event(Sent):
    """An event of a region that the client follows: exactly one of payload and base64."""

    region: Region
    position: Position
    sender: str
    sent_at_ms: Timestamp
    payload: Any = MISSING
    base64: Base64 = MISSING
    key: Annotated[Key, Field(description="The key that the event names, if it names one.")] = MISSING
    regions: Annotated[
        list[Region], Field(description="Of an event of several regions: those that the client follows.")
    ] = MISSING
    positions: Annotated[
        dict[Region, Position],
        Field(description="Of an event of several regions: its position in each of these. Keep all of them."),
    ] = MISSING


class Missing(Sent):
    """Which events will not come, and why."""

    first: Position
    last: Annotated[Position | None, Field(description="Null: it is not known how many are missing.")]
    reason: str


class Gap(Sent):
    """Stands in the place of events that will not come."""

    region: Region
    position: Annotated[Position | None, Field(description="Where the region goes on after it; null: not known.")]
    gap: Missing
    regions: Annotated[
        list[Region], Field(description="Of an event of several regions that JSON cannot represent.")
    ] = MISSING
    positions: dict[Region, Position] = MISSING


class Presence(Sent):
    """Who arrives or leaves."""

    name: str
    here: Annotated[bool, Field(description="Whether it arrives.")]
    info: Annotated[Any, Field(description="What it says of itself; of a leave, what it had said, if that is known.")]


class PresenceItem(Sent):
    """Somebody arrives in a region, or leaves it. After a leave, nothing more of that stay comes."""

    region: Region
    position: Position
    presence: Presence


class StateValue(Sent):
    """What a key is set to: one of payload, base64 and gap."""

    position: Annotated[Position, Field(description="Where the key was set, as only_if takes it.")]
    sender: str
    sent_at_ms: Timestamp
    payload: Any = MISSING
    base64: Base64 = MISSING
    gap: Annotated[Missing, Field(description="JSON cannot represent the value.")] = MISSING


class State(Sent):
    """The keys of a region, or a part of them, as they are at this place among the events."""

    region: Region
    position: Annotated[
        Position | None,
        Field(
            description="As of which it is: all later items of the region are behind it. Null in all parts but the "
            "last."
        ),
    ]
    state: Annotated[dict[str, StateValue], Field(description="Key to value.")]
    part: Annotated[int, Field(description="Its number, if there are several: begin with nothing at 0.")] = MISSING
    more: Annotated[bool, Field(description="Whether another part follows.")] = MISSING
    present: Annotated[
        dict[str, Any],
        Field(description="Where the client asked for presence: name to what it says of itself. In the last part."),
    ] = MISSING
    incomplete: Annotated[
        Literal[True], Field(description="The network has lost keys that no event has named since.")
    ] = MISSING


def one_of(*names: str) -> Any:
    """Return the annotation of what is one of several types of this schema."""
    return Field(json_schema_extra={"oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]})


Item = Annotated[Any, one_of("Event", "Gap", "State", "PresenceItem")]


class Events(Sent):
    """Events, gaps and states, in their order, across regions too."""

    type: Literal["events"]

    events: list[Item]


class UpdateItem(Sent):
    """The newest value of a key, by one sender: exactly one of payload and base64."""

    region: Region
    key: Key
    sender: str
    sent_at_ms: Timestamp
    position: Annotated[
        Position, Field(description="Up to where its sender had seen the region: a later event is news to it.")
    ]
    payload: Any = MISSING
    base64: Base64 = MISSING


class Updates(Sent):
    """Updates, after the events that their senders had seen or published before. Others may have been lost."""

    type: Literal["updates"]

    updates: list[UpdateItem]


class ErrorBody(Sent):
    """Why not."""

    code: str
    message: Annotated[str, Field(description="For people.")]
    retriable: Annotated[bool, Field(description="The same may succeed later.")]
    definite: Annotated[bool, Field(description="What was asked for has certainly not happened.")]
    retry_after_ms: int = MISSING
    region: Annotated[Region, Field(description="Of key-conflict: the key's region; of forbidden: the region.")] = (
        MISSING
    )
    key: Annotated[Key, Field(description="Of key-conflict: the key whose condition does not hold.")] = MISSING
    position: Annotated[
        Position | None, Field(description="Of key-conflict: where the key was set last; null: not set.")
    ] = MISSING


class ErrorMessage(ErrorBody):
    """A message is refused; or, without an id, the session, before it is closed."""

    type: Literal["error"]

    id: AnswerId = MISSING


ITEMS = Event, Gap, State, PresenceItem
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

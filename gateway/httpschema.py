"""The bodies of the gateway's HTTP requests and answers, as types; see `gateway.schema`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.schema import (
    MISSING,
    ErrorBody,
    Item,
    PlacedPublication,
    Position,
    Publication,
    Read,
    Region,
    Sent,
    one_of,
)

PastItem = Annotated[Any, one_of("Event", "Gap")]
Result = Annotated[Any, one_of("Receipt", "Failed")]


class Publications(Read):
    """Several events to publish."""

    events: Annotated[list[PlacedPublication], Field(min_length=1, max_length=256)]


class Receipt(Sent):
    """An event is published, durably."""

    region: Annotated[Region, Field(description="Of an event of several regions: the first.")]
    position: Position
    positions: Annotated[
        dict[Region, Position], Field(description="Of an event of several regions: its position in each.")
    ] = MISSING


class Failed(Sent):
    """An event is not published."""

    region: Region
    error: ErrorBody
    status: Annotated[int, Field(description="The HTTP status that it would have had alone.")]


class Results(Sent):
    """One result an event, in their order."""

    results: list[Result]


class Page(Sent):
    """A part of a region's history, in order."""

    region: Region
    events: list[PastItem]
    next: Annotated[Position, Field(description="Where the next page begins: pass it as after.")]
    more: Annotated[bool, Field(description="Whether there are events after next.")]


class Streamed(Sent):
    """The data of one server-sent event."""

    events: list[Item]


class Refused(Sent):
    """The body of every answer with an error status."""

    error: ErrorBody


class Status(Sent):
    """How a gateway is."""

    gateway: str
    status: Literal["alive", "ready", "leaving", "unreachable"]
    keys: Annotated[str, Field(description="What is wrong with the keys for tokens, if anything.")] = MISSING


HttpDocument = Publication | Publications | Receipt | Results | Failed | Page | Streamed | Refused | Status

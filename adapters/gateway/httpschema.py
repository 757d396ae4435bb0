"""The bodies of the gateway's HTTP requests and answers, as types; see `adapters.gateway.schema`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from adapters.gateway.schema import ErrorBody, Item, PlacedPublication, Position, Publication, Region, Sent, one_of

PastItem = Annotated[Any, one_of("Event", "Gap")]
Result = Annotated[Any, one_of("Receipt", "Failed")]


class Publications(Struct, kw_only=True):
    """Several events to publish."""

    events: Annotated[list[PlacedPublication], Meta(min_length=1, max_length=256)]


class Receipt(Sent, kw_only=True):
    """An event is published, durably."""

    region: Annotated[Region, Meta(description="Of an event of several regions: the first.")]
    position: Position
    positions: Annotated[
        dict[Region, Position] | UnsetType, Meta(description="Of an event of several regions: its position in each.")
    ] = UNSET


class Failed(Sent, kw_only=True):
    """An event is not published."""

    region: Region
    error: ErrorBody
    status: Annotated[int, Meta(description="The HTTP status that it would have had alone.")]


class Results(Sent, kw_only=True):
    """One result an event, in their order."""

    results: list[Result]


class Page(Sent, kw_only=True):
    """A part of a region's history, in order."""

    region: Region
    events: list[PastItem]
    next: Annotated[Position, Meta(description="Where the next page begins: pass it as after.")]
    more: Annotated[bool, Meta(description="Whether there are events after next.")]


class Streamed(Sent, kw_only=True):
    """The data of one server-sent event."""

    events: list[Item]


class Refused(Sent, kw_only=True):
    """The body of every answer with an error status."""

    error: ErrorBody


class Status(Sent, kw_only=True):
    """How a gateway is."""

    gateway: str
    status: Literal["alive", "ready", "leaving", "unreachable"]
    keys: Annotated[str | UnsetType, Meta(description="What is wrong with the keys for tokens, if anything.")] = UNSET


HttpDocument = Publication | Publications | Receipt | Results | Failed | Page | Streamed | Refused | Status

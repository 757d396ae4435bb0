"""The items that a connection returns: events, gaps, receipts, statistics."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from gamecast.holding import HOLD_BOUNDS_MS, NOTHING_HELD, HoldTimes


class Event(NamedTuple):
    """One event, in delivery order.

    A tuple, because one is made for every delivery. ``payload`` is the decoded JSON of the published value, or `bytes`.
    ``sequence`` numbers the events of the region within ``epoch``. It grows, and skips the numbers that markers have.
    Times are nanoseconds since the Unix epoch: ``sent_at_ns`` by the publisher's clock, ``delivered_at_ns`` by this
    process's. ``replayed``: whether the event comes with the history that ``subscribe(since=…)`` requests, and not
    live, in one order with all other regions. ``key``: the key that the event names, if it names one.
    """

    region: str
    sender: str
    payload: Any
    epoch: int
    sequence: int
    sent_at_ns: int
    delivered_at_ns: int
    replayed: bool = False
    key: str | None = None

    @property
    def position(self) -> str:
        """A printable token that names this event's place in its region: ``epoch-sequence``."""
        return f"{self.epoch}-{self.sequence}"

    @property
    def regions(self) -> tuple[str, ...]:
        """The event's regions, as far as this connection has them: more than one only for a `JointEvent`."""
        return (self.region,)

    @property
    def positions(self) -> dict[str, str]:
        """Region → the event's position there, of `regions`."""
        return {self.region: self.position}


class JointEvent(Event):
    """An event that was published to several regions at once: it comes once, to each that has any of them.

    ``region``, ``epoch`` and ``sequence`` are of the region that it came by. As a tuple it has two elements
    more than an event: take its fields by their names.
    """

    __slots__ = ()

    def __new__(cls, *fields: Any) -> Self:
        """The fields of an event, and its parts."""
        return tuple.__new__(cls, fields)

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """Region and sequence there, all in the event's epoch."""
        parts: tuple[tuple[str, int], ...] = self[9]  # type: ignore[misc]
        return parts

    @property
    def regions(self) -> tuple[str, ...]:
        """The event's regions, as far as this connection has them."""
        return tuple(region for region, _ in self.parts)

    @property
    def positions(self) -> dict[str, str]:
        """Region → the event's position there, of `regions`."""
        return {region: f"{self.epoch}-{sequence}" for region, sequence in self.parts}

    @property
    def everywhere(self) -> tuple[tuple[str, int], ...]:
        """As `parts`, of all regions that it was published to; gamecast's own."""
        parts: tuple[tuple[str, int], ...] = self[10]  # type: ignore[misc]
        return parts

    def within(self, regions: Container[str]) -> JointEvent | None:
        """Return the event as one of some regions only, None if it has none of them."""
        parts = tuple(part for part in self.parts if part[0] in regions)
        if not parts:
            return None
        region, sequence = next((part for part in parts if part[0] == self.region), parts[0])
        _, *fields = self[:9]
        fields[3] = sequence
        return JointEvent(region, *fields, parts, self.everywhere)

    def _replace(self, **fields: Any) -> JointEvent:
        return JointEvent(*Event(*self[:9])._replace(**fields), *self[9:])

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in zip(Event._fields, self, strict=False))
        return f"JointEvent({told}, parts={self.parts!r})"


class Gap(NamedTuple):
    """Events of a region that cannot be delivered, in the place where they are missing.

    ``first_sequence`` and ``last_sequence`` are included. ``last_sequence`` is 0 if it is unknown how many events are
    missing in this epoch, if any.
    """

    region: str
    epoch: int
    first_sequence: int
    last_sequence: int
    reason: str

    @property
    def position(self) -> str | None:
        """The position after the gap, ``epoch-sequence``, to pass as ``since``; None if it is unknown."""
        return f"{self.epoch}-{self.last_sequence}" if self.last_sequence else None


class State:
    """The keys of regions, as of one place in the order: all that comes of these regions after it is newer.

    It comes once for each call of ``subscribe(…, state=True)``. On several nodes it may come in parts, each of some
    regions: of those that enter the network at one node, or are joined later than others.

    ``values``: region → key → the last event that named it, with `Event.replayed` set. ``positions``: region → the
    position that its state is as of, to resume from. ``present``: region that is subscribed to with presence → name →
    what it says of itself. ``incomplete``: regions whose node may have lost keys: one that is not here may be set.
    """

    __slots__ = ("incomplete", "positions", "present", "values")

    def __init__(
        self,
        values: Mapping[str, Mapping[str, Event]],
        positions: dict[str, str],
        incomplete: frozenset[str],
        present: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        self.values = values
        """Region → key → the last event that named it, with `Event.replayed` set."""
        self.positions = positions
        """Region → the position that its state is as of."""
        self.incomplete = incomplete
        """Regions that may have keys which are not here: their node has lost some, or has no value of some."""
        self.present = present
        """Region that is subscribed to with presence → name → what it says of itself: who was there."""

    def without(self, regions: Container[str]) -> State | None:
        """Return it without some regions, None if there is none left."""
        left = [region for region in self.values if region not in regions]
        if not left:
            return None
        values, positions = {one: self.values[one] for one in left}, {one: self.positions[one] for one in left}
        present = {region: roster for region, roster in self.present.items() if region in values}
        return State(values, positions, self.incomplete.intersection(left), present)

    def __repr__(self) -> str:
        return f"State({self.values!r}, {self.positions!r}, {self.incomplete!r})"


class Presence:
    """Somebody arrives in a region, or leaves it, in its place among the events.

    After a leave, nothing that was published in that stay comes any more. A second arrival without a leave: a newer
    connection of the same name.

    ``region``; ``name``: who; ``is_here``: it arrives, or leaves; ``info``: what it says of itself, or had said.
    """

    __slots__ = ("before", "epoch", "info", "is_here", "name", "region", "sent_at_ns", "sequence")

    def __init__(self, of: Event, name: str, info: Any, *, is_here: bool, before: Any) -> None:
        """``of``: the event that says so."""
        self.region, self.epoch, self.sequence, self.sent_at_ns = of.region, of.epoch, of.sequence, of.sent_at_ns
        self.name, self.is_here = name, is_here
        self.info = info
        """What it says of itself; of a leave, what it had said."""
        self.before = before
        """What was known of it before, None if it was not there; gamecast's own."""

    @property
    def position(self) -> str:
        """Its place in the region, ``epoch-sequence``."""
        return f"{self.epoch}-{self.sequence}"

    def fold(self, roster: dict[str, Any]) -> None:
        """Change a roster of the region, name → what it says of itself, by this arrival or leave.

        Begin with a copy of `State.present`: then it is who is there at this item, whatever was taken with it.
        """
        if self.is_here:
            roster[self.name] = self.info
        else:
            roster.pop(self.name, None)

    def __repr__(self) -> str:
        return f"Presence({self.region!r}, {self.name!r}, is_here={self.is_here}, info={self.info!r})"


Item = Event | Gap | State | Presence
"""What a connection returns, in order. A `JointEvent` is an `Event`."""


class Update(NamedTuple):
    """The newest value of a key of a region, by one sender: see `Client.update`.

    ``payload``: JSON, or `bytes`. ``epoch`` and ``sequence``: up to where the sender had had the region's events, 0 and
    0 if it does not subscribe to it. ``sent_at_ns``: by the sender's clock, since the Unix epoch.
    """

    region: str
    key: str
    sender: str
    payload: Any
    epoch: int
    sequence: int
    sent_at_ns: int

    @property
    def position(self) -> str:
        """The region's last event that the sender had had, ``epoch-sequence``.

        An event with a later position is news to the sender: one that removes the key's entity makes this update void.
        """
        return f"{self.epoch}-{self.sequence}"


class Receipt(NamedTuple):
    """The acknowledgement of the ingress: the event's region, its epoch, and its sequence in the region."""

    region: str
    epoch: int
    sequence: int

    @property
    def position(self) -> str:
        """The position of the event in its region, ``epoch-sequence``, as subscribers see it in `Event.position`."""
        return f"{self.epoch}-{self.sequence}"

    @property
    def positions(self) -> dict[str, str]:
        """Region → the event's position there."""
        return {self.region: self.position}


class JointReceipt(Receipt):
    """The receipt of an event of several regions. ``region`` and ``sequence`` are of the first one.

    As a tuple it has one element more, `parts`.
    """

    __slots__ = ()

    def __new__(cls, *fields: Any) -> Self:
        """The fields of a receipt, and its parts."""
        return tuple.__new__(cls, fields)

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """Region and sequence there, all in the event's epoch."""
        parts: tuple[tuple[str, int], ...] = self[3]  # type: ignore[misc]
        return parts

    @property
    def positions(self) -> dict[str, str]:
        """Region → the event's position there."""
        return {region: f"{self.epoch}-{sequence}" for region, sequence in self.parts}

    def __repr__(self) -> str:
        return f"JointReceipt(epoch={self.epoch}, parts={self.parts!r})"


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of one connection's counters.

    ``delivered_events`` counts events made ready for the application; `unsubscribe` may discard some of them before the
    application takes them.
    """

    published_events: int
    refused_events: int
    buffered_events: int
    received_frames: int
    delivered_events: int
    held_frames: int
    gaps: int
    inbox_events: int
    reconnects: int
    hold: HoldTimes = NOTHING_HELD
    """How long received frames waited for others, of those that did."""
    own_events: int = 0
    """This connection's own events that came back to it, in the regions that it is subscribed to."""
    overtaken_events: int = 0
    """Those of them before which, since they were published, an event of somebody else came in their region: who had
    applied them at once would have had to roll back. See docs/prediction.md."""
    sent_updates: int = 0
    taken_updates: int = 0
    dropped_updates: int = 0
    """Received updates that found no room, or waited 10 s for an event; see `Client.update`."""
    pending_retries: int = 0
    """How often events with conditions were offered again because another node was deciding a key: at a busy border."""

    @property
    def hold_counts(self) -> tuple[int, ...]:
        """Received frames by how long they waited for others, up to each of `HOLD_BOUNDS_MS`, and longer than all."""
        at_once = self.received_frames - self.held_frames - self.hold.frames
        return self.hold.within(HOLD_BOUNDS_MS, at_once=at_once)

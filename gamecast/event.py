"""What a connection hands out: events, gaps, receipts, statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Event(NamedTuple):
    """One event, in delivery order.

    A tuple, because one is made for every delivery. ``payload`` is what JSON made of what was published, or `bytes`.
    ``sequence`` numbers the events of the region within ``epoch``: it grows, and leaves out the numbers that markers
    have. Times are nanoseconds since the Unix epoch: ``sent_at_ns`` by the publisher's clock,
    ``delivered_at_ns`` by this process's.
    """

    region: str
    sender: str
    payload: Any
    epoch: int
    sequence: int
    sent_at_ns: int
    delivered_at_ns: int

    @property
    def position(self) -> str:
        """A printable token that names this event's place in its region: ``epoch-sequence``."""
        return f"{self.epoch}-{self.sequence}"


class Gap(NamedTuple):
    """Events of a region that will not come, in the place where they are missing; both numbers included."""

    region: str
    epoch: int
    first_sequence: int
    last_sequence: int
    reason: str


class Receipt(NamedTuple):
    """The ingress has the event: its region, epoch, and sequence in the region."""

    region: str
    epoch: int
    sequence: int


HOLD_BOUNDS_MS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
"""How `Statistics` tells short holds from long ones; 0 is for frames that could be delivered at once."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of one connection's counters.

    ``hold_counts``: received frames by how long they waited for others, at most so many milliseconds as
    `HOLD_BOUNDS_MS` says, and longer than the bound before; the last count is of those that waited longer than all.
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
    hold_counts: tuple[int, ...] = ()

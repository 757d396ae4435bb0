"""What the gateway needs of the library above it: connections, and what a region has kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Since = int | str | Mapping[str, int | str]
WhenBehind = Literal["wait", "skip", "disconnect"]


class Receipt(Protocol):
    """Where an event was published."""

    @property
    def epoch(self) -> int:
        """The outermost digit of its position."""

    @property
    def sequence(self) -> int:
        """Its number in the region and epoch."""


class Connection(Protocol):
    """One subscriber and publisher of its own name; opens once."""

    name: str

    async def open(self) -> object:
        """Reach the network; raises `NetworkError` or `OtherSideError`."""

    async def close(self) -> None:
        """End now."""

    async def subscribe(self, *regions: str, since: Since | None = None) -> dict[str, str]:
        """Join regions; return region → the position after which its events come."""

    async def unsubscribe(self, *regions: str) -> None:
        """Leave regions."""

    def publish_async(self, region: str, payload: Any) -> asyncio.Future[Any]:
        """Publish; returns a future of a `Receipt`."""

    def batches(self) -> AsyncIterator[Sequence[Any]]:
        """Iterate over lists of events and gaps, in order; each has the fields of the library's own."""

    async def ping(self) -> None:
        """Ask whether it is its name's newest still; raises `Superseded` or `NetworkError`."""

    def statistics(self) -> Any:
        """Return the connection's counters."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some of what a region has kept: events and gaps, and whether there is more behind the last one.

    ``is_late``: whether something may be missing behind the last one that comes later, before all that is there.
    """

    items: Sequence[Any]
    next: str
    more: bool
    is_late: bool = False


class NetworkAccess(Protocol):
    """Lets sessions into one network."""

    @property
    def event_type(self) -> type[Any]:
        """What is an event in a batch; anything else there is a gap."""

    @property
    def hold_bounds_ms(self) -> Sequence[float]:
        """The bounds of ``hold_counts`` in connections' statistics."""

    async def open(self) -> None:
        """Reach the network; raises `NetworkError` or `OtherSideError`."""

    def connection(self, name: str, *, when_behind: WhenBehind, inbox_events_max: int) -> Connection:
        """Return a connection that is not open yet."""

    async def regions(self) -> AbstractSet[str]:
        """Return all regions that there are; raises `NetworkError` or `OtherSideError`."""

    async def history(self, region: str, *, after: str, events_max: int) -> Page:
        """Return what a region has kept after a position; raises `InvalidInput`, `NetworkError`, `OtherSideError`."""

    async def is_ready(self) -> bool:
        """Return whether the network answers."""

    async def close(self) -> None:
        """Release what the access holds."""

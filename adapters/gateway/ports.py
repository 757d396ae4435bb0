"""The ports of the gateway to the library above it: connections, and the history of regions."""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict, Unpack

Since = int | str | Mapping[str, int | str]
WhenBehind = Literal["wait", "skip", "disconnect"]


class Receipt(Protocol):
    """The position of a published event."""

    @property
    def epoch(self) -> int:
        """The first part of its position."""

    @property
    def sequence(self) -> int:
        """Its number in the region and epoch."""

    @property
    def positions(self) -> Mapping[str, str]:
        """Region → its position there."""


class Connection(Protocol):
    """One subscriber and publisher with a name of its own; it opens once."""

    name: str

    async def open(self) -> object:
        """Connect to the network; raises `NetworkError` or `OtherSideError`."""

    async def close(self) -> None:
        """End now."""

    async def subscribe(self, *regions: str, since: Since | None = None, state: bool = False) -> dict[str, str]:
        """Join regions; return region → the position after which its events are delivered.

        ``state``: first deliver the state of their keys, in one or more items of a batch, each of some of the regions.
        """

    async def unsubscribe(self, *regions: str) -> None:
        """Leave regions."""

    def publish_async(
        self, region: str | tuple[str, ...], payload: Any, *, key: str | None = ..., only_if: Any = ...
    ) -> Future[Any]:
        """Publish; returns a future of a `Receipt`. ``key`` and ``only_if``: as the library takes them.

        ``region``: a tuple of several publishes the event to all of them at once.
        """

    def watch_presence(self, *regions: str) -> None:
        """Have who arrives and leaves come with the events of regions that are joined next, with their state or not."""

    async def arrive(self, regions: Mapping[str, Mapping[str, Any]]) -> None:
        """Say to others that this connection is in regions, and what it says of itself."""

    def update(self, region: str, key: str, payload: Any, *, position: str | None = ...) -> None:
        """Tell others the newest value of a key; ``position``: up to where its maker had seen the region."""

    async def next_updates(self) -> Sequence[Any]:
        """Return the newest updates of others, waiting for them; they have the fields of the library's own.

        Raises `NotConnected` when the connection closes.
        """

    def batches(self) -> AsyncIterator[Sequence[Any]]:
        """Iterate over lists of events, gaps and states, in order; they have the fields of the library's own."""

    async def ping(self) -> None:
        """Check that this is still the newest connection of its name; raises `Superseded` or `NetworkError`."""

    def statistics(self) -> Any:
        """Return the connection's counters."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a region's history: events and gaps, and whether there is more after the last one.

    ``is_late``: whether an event may be missing after the last one that arrives later and precedes everything now
    there.
    """

    items: Sequence[Any]
    next: str
    more: bool
    is_late: bool = False


class ConnectionBounds(TypedDict):
    """The bounds of one connection, as the library names them."""

    inbox_events_max: int
    inbox_bytes_max: int
    held_bytes_max: int
    updates_max: int
    updates_bytes_max: int


class NetworkAccess(Protocol):
    """Opens connections to one network."""

    @property
    def event_type(self) -> type[Any]:
        """The type of events in a batch; anything else there is a gap, or a state, which has ``incomplete``."""

    @property
    def hold_bounds_ms(self) -> Sequence[float]:
        """The bounds of ``hold_counts`` in connections' statistics."""

    async def open(self) -> None:
        """Connect to the network; raises `NetworkError` or `OtherSideError`."""

    def connection(self, name: str, *, when_behind: WhenBehind, **bounds: Unpack[ConnectionBounds]) -> Connection:
        """Return a connection that is not open yet."""

    async def regions(self) -> AbstractSet[str]:
        """Return all existing regions; raises `NetworkError` or `OtherSideError`."""

    async def history(self, region: str, *, after: str, events_max: int) -> Page:
        """Return the stored events of a region after a position.

        Raises `InvalidInput`, `NetworkError`, `OtherSideError`.
        """

    async def is_ready(self) -> bool:
        """Return whether the network answers."""

    async def close(self) -> None:
        """Release all resources."""

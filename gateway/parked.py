"""A client's place in the network: a connection under its name, which stays open for some seconds after its session.

Most clients that disconnect come back within seconds. The network does not notice: no client leaves or joins. The
events that the client missed are in the connection's inbox, or were sent and did not arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from gamecast.client.client import Client
from gateway.eventtexts import Told
from gateway.grants import ANYBODY
from gateway.messages import Position
from gateway.sent import RESENT_BYTES_MAX, SentEvents
from gateway.settings import GatewayLimits


class ParkedSession:
    """A connection, and the state that the next session of the name needs to continue on it."""

    def __init__(
        self, connection: Client, *, subject: str, resent_events_max: int, resent_bytes_max: int = RESENT_BYTES_MAX
    ) -> None:
        """``connection``: open; ``subject``: of the session."""
        self.connection, self.subject = connection, subject
        self.sent = SentEvents(resent_events_max, resent_bytes_max)
        self.is_uncertain = False
        """Whether an event may have been published, or may still be, and this connection cannot find out."""
        self._under_way: set[asyncio.Future[Any]] = set()
        self._published: dict[str, dict[str, Position]] = {}
        """Region → the positions of the last event that was published there: in that region, and its others."""
        self._moved = asyncio.Event()
        self._beginning: set[str] = set()
        """The regions whose state is to be sent yet, of the last subscribe that asked for it."""

    def publish(
        self, regions: str | tuple[str, ...], payload: Any, about: Mapping[str, Any] = MappingProxyType({})
    ) -> asyncio.Future[Any]:
        """See `Client.publish_async`."""
        receipt = self.connection.publish_async(regions, payload, **about)
        only = regions if isinstance(regions, str) else regions[0]
        self._under_way.add(receipt)

        def settled(receipt: asyncio.Future[Any]) -> None:
            self._under_way.discard(receipt)
            if receipt.cancelled():
                self.is_uncertain = True
            elif (error := receipt.exception()) is not None:
                self.is_uncertain |= not getattr(error, "definite", False)
            else:
                epoch, first = receipt.result().epoch, receipt.result().sequence
                parts = getattr(receipt.result(), "parts", None) or ((only, first),)
                positions = {region: (epoch, sequence) for region, sequence in parts}
                for region, at in positions.items():
                    if self._published.get(region, positions)[region] <= at:
                        self._published[region] = positions

        receipt.add_done_callback(settled)
        return receipt

    def tell(self, item: Told) -> None:
        """Note the next item that is sent to the client."""
        self.sent.add(item)
        if item.begins:
            self._beginning.discard(item.region)
        self._moved.set()

    def begins(self, regions: Iterable[str]) -> None:
        """Note that the state of some regions is about to be asked for; until it has come, no other is."""
        self._beginning = set(regions)

    async def until_begun(self) -> None:
        """Wait until all of the state that was asked for has been given to the client's session."""
        while self._beginning:
            self._moved.clear()
            await self._moved.wait()

    async def until_arrived(self, region: str) -> None:
        """Wait until all publishes are settled and, in a subscribed region, their events have been delivered here."""
        if self._under_way:
            await asyncio.wait(self._under_way)
        last, now = self._published.get(region, {}), self.sent.now
        # An event of several regions comes once, by any of them.
        while region in last and region in now and all(now[each] < at for each, at in last.items() if each in now):
            self._moved.clear()
            await self._moved.wait()


class KeptPlaces:
    """The parked sessions of disconnected clients, each kept for some seconds."""

    def __init__(self, limits: GatewayLimits, release: Callable[[Client], None]) -> None:
        """``release``: closes the connection of a client that did not come back."""
        self._limits, self._release = limits, release
        self._kept: dict[str, tuple[ParkedSession, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def items(self) -> list[tuple[str, ParkedSession]]:
        """Return the name and the place of each."""
        return [(name, place) for name, (place, _) in self._kept.items()]

    def put(self, name: str, place: ParkedSession) -> None:
        """Park a session; if there are too many, release the oldest."""
        self.drop(name)
        same = [each for each, (kept, _) in self._kept.items() if kept.subject == place.subject]
        if place.subject != ANYBODY and len(same) >= self._limits.sessions_per_token_max:
            self.drop(same[0])
        elif len(self._kept) >= self._limits.kept_sessions_max:
            self.drop(next(iter(self._kept)))
        timer = asyncio.get_running_loop().call_later(self._limits.keep_s, self.drop, name)
        self._kept[name] = place, timer

    def take(self, name: str, subject: str) -> ParkedSession | None:
        """Remove and return the parked session of a name and subject."""
        place, timer = self._kept.get(name, (None, None))
        if place is None or timer is None or place.subject != subject:
            return None
        del self._kept[name]
        timer.cancel()
        return place

    def drop(self, name: str) -> None:
        """Release the parked session of a name; has no effect if there is none."""
        if (kept := self._kept.pop(name, None)) is not None:
            kept[1].cancel()
            self._release(kept[0].connection)

    def clear(self) -> None:
        """Release all."""
        for name in list(self._kept):
            self.drop(name)

"""Updates of a connection: a thin shell around `sequencing.updates`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

from orjson import Fragment

from adapters.network import Network, UpdatePort
from adapters.places import Position
from gamecast.client.configuration import Limits
from gamecast.client.incoming import Incoming
from gamecast.client.outgoing import Outgoing
from gamecast.client.pulling import Puller
from gamecast.client.receipts import Token
from gamecast.event import Gap, Item, JointEvent, State, Update
from gamecast.positions import parse_position
from sequencing.errors import NotConnected, UsageError
from sequencing.names import check_key
from sequencing.plan import Plan
from sequencing.session import Session
from sequencing.updates import Bundle, NewestUpdates, OutgoingUpdates, encode

CHECKED_MAX = 65_536

_FIRST: Position = (0, 1)
_ANYWHERE: Position = (sys.maxsize, 0)

_checked_key = lru_cache(CHECKED_MAX)(check_key)
"""Keys come again and again."""

_new_update = partial(tuple.__new__, Update)


class Updating:
    """The updates of one connection, from `open` to `close`. Implements `adapters.network.UpdateUser`."""

    def __init__(
        self,
        network: Network,
        session: Session[Token],
        outgoing: Outgoing,
        incoming: Incoming,
        puller: Puller,
        limits: Limits,
    ) -> None:
        self._network = network
        self._outgoing, self._incoming, self._puller = outgoing, incoming, puller
        self._loop = asyncio.get_running_loop()
        self._port: UpdatePort | None = None
        """None until the application uses updates."""
        most = limits.updates_max, limits.updates_bytes_max
        self._to_send = OutgoingUpdates(session.name, session.incarnation, session.own_events, *most)
        self._received = NewestUpdates(session.name, *most)
        self._is_due = self._is_listening = self._is_closed = False
        self._changed = asyncio.Event()
        """Set when there may be something to take."""
        self._plan: Plan | None = None
        self._given: dict[str, _Given] = {}
        """What is known of regions since something was decoded last."""
        self._behind: dict[str, Position] = {}
        """Region → the last event that the application had been given when it made what is not sent yet."""
        self.sent_updates = self.taken_updates = 0

    @property
    def dropped_updates(self) -> int:
        """Updates that found no room, or that were received and waited too long for an event."""
        return self._received.dropped + self._to_send.dropped

    def update(self, region: str, key: str, payload: Any, position: str | None = None) -> None:
        """See `Client.update`."""
        encoded = self._outgoing.encoded(region, payload)
        _checked_key(key)
        seen_max = None if position is None else parse_position(position)
        if position is not None and seen_max is None:
            raise UsageError(f"the position of an update is like '3-120', not {position!r}")
        if self._is_closed:
            raise NotConnected
        self._opened()
        # As of now: until it is sent, the application may be given more, or leave the region.
        given = self._given_of(region)
        seen = given.seen(self._incoming.passed(region))
        seen = seen if seen_max is None else min(seen, seen_max)
        self._behind[region] = max(given.last_event, self._behind.get(region, given.last_event))
        self._to_send.put(region, key, encoded if type(payload) is bytes else Fragment(encoded), len(encoded), seen)
        self._send_soon()

    def updates(self) -> list[Update]:
        """See `Client.updates`."""
        if self._is_closed:
            raise NotConnected
        if not self._is_listening:
            self._is_listening = True
            self._opened()
            self._incoming.tell_reads(self._listen)
        if not self._received.has_some:
            return []
        # Not even known before the first use: no update precedes what the application was not given.
        taken = self._received.take(
            lambda region, position: self._incoming.has_had(region, position) and self._given_of(region).has(position),
            time.monotonic(),
        )
        self.taken_updates += len(taken)
        return [
            _new_update((region, key, sender, payload, *seen, sent_at_ns))
            for region, key, sender, payload, seen, sent_at_ns in taken
        ]

    async def next_updates(self) -> list[Update]:
        """See `Client.next_updates`."""
        while True:
            if ready := self.updates():
                return ready
            self._changed.clear()
            await self._changed.wait()

    def follow(self, plan: Plan) -> None:
        """Go on by a newer plan."""
        self._plan = plan
        if self._port is not None:
            self._port.follow(plan)
            self._send_soon()

    def settled(self) -> None:
        """Hear that events of this connection have their answers."""
        if self._to_send.regions:
            self._send_soon()

    def left(self, regions: Iterable[str]) -> None:
        """Hear that regions were left."""
        self._received.drop(regions)
        self._given.clear()

    async def close(self) -> None:
        """End; what was not sent is lost."""
        self._is_closed = True
        self._changed.set()
        port, self._port = self._port, None
        if port is not None:
            await port.close()

    def take_updates(self, region: str, bundle: Bundle) -> None:
        """See `UpdateUser.take_updates`."""
        plan = self._plan
        if (
            plan is not None
            and bundle.network == plan.first_epoch
            and self._received.put(region, bundle, time.monotonic())
        ):
            self._changed.set()

    def on_room(self) -> None:
        """See `UpdateUser.on_room`."""
        if self._to_send.regions:
            self._send_soon()

    def _opened(self) -> UpdatePort:
        if self._port is None:
            self._port = self._network.updates(self)
            self._outgoing.on_settled = self.settled
            self._incoming.on_decoded = self._decoded
            self._incoming.keep_places()
            if self._plan is not None:
                self._port.follow(self._plan)
        return self._port

    def _listen(self, node: str, region: str, is_read: bool) -> None:
        if self._port is not None:
            self._port.listen(node, region, on=is_read)

    def _decoded(self) -> None:
        self._given.clear()
        if self._received.has_some:
            self._changed.set()

    def _send_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        plan, port = self._plan, self._port
        if plan is None or port is None:
            return
        for region in self._to_send.regions:
            path = plan.paths.get(region)
            if path is None:
                self._outgoing.want_place(region)
                continue
            node = path[-1]
            if not port.has_room(node):
                continue
            where = _ANYWHERE, self._behind[region]  # each says itself what its maker had seen
            for bundle in self._to_send.take(region, plan.first_epoch, *where, time.time_ns()):
                port.send(node, region, encode(bundle))
                self.sent_updates += len(bundle.keys)
        self._behind = {region: self._behind[region] for region in self._to_send.regions}

    def _given_of(self, region: str) -> _Given:
        """Return what the application was given of a region.

        Looked up once, until something is decoded, or what waits of the region is taken.
        """
        left = self._puller.untaken_items
        given = self._given.get(region)
        if given is None or left < given.left_min:
            left_min, first = self._first_untaken(region, left)
            given = self._given[region] = _Given(left_min, first, self._incoming.last_event(region, first))
        return given

    def _first_untaken(self, region: str, left: int) -> tuple[int, Position | None]:
        """Return the position of the first of ``left`` untaken items that is of a region, and how many there are from
        it on; 0 and None if there is none."""
        for place, item in enumerate(self._puller.untaken()):
            for each, position in _positions(item):
                if each == region:
                    return left - place, position
        return 0, None


class _Given(NamedTuple):
    """What the application was given of a region.

    ``left_min``: it holds while so many items are untaken. ``first_untaken``: where the first item is that was decoded,
    and not given to the application; ``last_event``: where the last event is that it was given, as far as is known.
    """

    left_min: int
    first_untaken: Position | None
    last_event: Position

    def has(self, position: Position) -> bool:
        """Return whether nothing up to a position is untaken."""
        return self.first_untaken is None or position < self.first_untaken

    def seen(self, decoded: Position) -> Position:
        """Return up to where the application was given the region, of which so much was decoded."""
        if self.first_untaken is None:
            return decoded
        epoch, sequence = self.first_untaken
        return epoch, max(0, sequence - 1)


def _positions(item: Item) -> Iterator[tuple[str, Position]]:
    """Yield where an item is in its regions."""
    if isinstance(item, State):
        for region in item.values:
            yield region, _FIRST
    elif isinstance(item, JointEvent):
        for region, sequence in item.everywhere:
            yield region, (item.epoch, sequence)
    else:
        yield item.region, (item.epoch, item.first_sequence if isinstance(item, Gap) else item.sequence)

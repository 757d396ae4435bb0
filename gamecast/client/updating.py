"""Updates of a connection: a thin shell around `sequencing.updates`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any

from orjson import Fragment

from adapters.network import Network, UpdatePort
from adapters.places import Position
from gamecast.client.incoming import Incoming
from gamecast.client.outgoing import Outgoing
from gamecast.client.pulling import Puller
from gamecast.client.receipts import Token
from gamecast.event import Gap, JointEvent, State, Update
from gamecast.positions import parse_position
from sequencing.errors import NotConnected, UsageError
from sequencing.names import check_key
from sequencing.plan import Plan
from sequencing.session import Session
from sequencing.updates import Bundle, NewestUpdates, OutgoingUpdates, encode

KEYS_MAX = 65_536
"""Keys of which a connection keeps the newest update that was not taken, and that was not sent."""

_FIRST: Position = (0, 1)

_checked_key = lru_cache(KEYS_MAX)(check_key)
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
    ) -> None:
        self._network = network
        self._outgoing, self._incoming, self._puller = outgoing, incoming, puller
        self._loop = asyncio.get_running_loop()
        self._port: UpdatePort | None = None
        """None until the application uses updates."""
        self._to_send = OutgoingUpdates(session.name, session.incarnation, session.own_events, KEYS_MAX)
        self._received = NewestUpdates(session.name, KEYS_MAX)
        self._is_due = self._is_listening = self._is_closed = False
        self._changed = asyncio.Event()
        """Set when there may be something to take."""
        self._plan: Plan | None = None
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
        self._to_send.put(region, key, encoded if type(payload) is bytes else Fragment(encoded), len(encoded), seen_max)
        self._send_soon()

    def updates(self) -> list[Update]:
        """See `Client.updates`."""
        if self._is_closed:
            raise NotConnected
        if not self._is_listening:
            self._is_listening = True
            self._opened()
            self._incoming.on_decoded = self._decoded
            self._incoming.tell_reads(self._listen)
        if not self._received.has_some:
            return []
        untaken = self._untaken()
        # Not even known before the first use: no update precedes what the application was not given.
        taken = self._received.take(
            lambda region, position: (
                self._incoming.has_had(region, position) and (region not in untaken or position < untaken[region])
            ),
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
            if found := self.updates():
                return found
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
            self._incoming.keep_places()
            if self._plan is not None:
                self._port.follow(self._plan)
        return self._port

    def _listen(self, node: str, region: str, is_read: bool) -> None:
        if self._port is not None:
            self._port.listen(node, region, on=is_read)

    def _decoded(self) -> None:
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
        untaken = self._untaken()
        for region in self._to_send.regions:
            path = plan.paths.get(region)
            if path is None:
                self._outgoing.want_place(region)
                continue
            node = path[-1]
            if not port.has_room(node):
                continue
            where = self._seen(region, untaken), self._last_event(region, untaken)
            for bundle in self._to_send.take(region, plan.first_epoch, *where, time.time_ns()):
                port.send(node, region, encode(bundle))
                self.sent_updates += len(bundle.keys)

    def _seen(self, region: str, untaken: dict[str, Position]) -> Position:
        """Return up to where the application was given a region."""
        if region not in untaken:
            return self._incoming.passed(region)
        epoch, sequence = untaken[region]
        return epoch, max(0, sequence - 1)

    def _last_event(self, region: str, untaken: dict[str, Position]) -> Position:
        """Return the last event of a region that the application was given, as far as is known."""
        return self._incoming.last_event(region, untaken.get(region))

    def _untaken(self) -> dict[str, Position]:
        """Return region → the position of the first event that was decoded, and not given to the application."""
        found: dict[str, Position] = {}
        for item in self._puller.untaken():
            if isinstance(item, State):
                for region in item.values:
                    found.setdefault(region, _FIRST)
            elif isinstance(item, JointEvent):
                for region, sequence in item.everywhere:
                    found.setdefault(region, (item.epoch, sequence))
            else:
                first = item.first_sequence if isinstance(item, Gap) else item.sequence
                found.setdefault(item.region, (item.epoch, first))
        return found

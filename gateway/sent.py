"""The last items that a client was sent: when its socket breaks, some of them were in flight and never arrived."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from gateway.eventtexts import Told
from gateway.messages import Position

RESENT_BYTES_MAX = 2_097_152


class SentEvents:
    """The last events and gaps of a session, and the position of each region before and after them.

    They are in the session's order, and the client received a prefix of them. The positions that the client names
    identify the prefix: each event changes one position, or several if it has several regions, so no two prefixes have
    the same positions.
    """

    def __init__(self, events_max: int, bytes_max: int = RESENT_BYTES_MAX) -> None:
        self._events_max, self._bytes_max, self._bytes = events_max, bytes_max, 0
        self._items: deque[Told] = deque()
        self._before: dict[str, Position] = {}
        self._now: dict[str, Position] = {}
        self._is_known = True

    @property
    def now(self) -> Mapping[str, Position]:
        """Region → the position of its last event, or of its join."""
        return self._now

    def joined(self, begins: Mapping[str, Position]) -> None:
        """Note the positions after which the events of some regions begin.

        Some of these events may be noted already.
        """
        for region, begin in begins.items():
            self._before.setdefault(region, begin)
            self._now.setdefault(region, begin)

    def left(self, regions: Collection[str]) -> None:
        """Note that some regions are no longer sent."""
        for region in regions:
            self._before.pop(region, None)
            self._now.pop(region, None)
        kept = deque[Told]()
        for item in self._items:
            staying = {region: at for region, at in item.positions.items() if region not in regions}
            if len(staying) == len(item.positions):
                kept.append(item)
            elif staying:  # its text names a region that the client has left: it is not sent again, nor what is before
                for each in (*kept, item):
                    self._before |= {region: at for region, at in each.positions.items() if region not in regions}
                kept.clear()
        self._items, self._bytes = kept, sum(len(item.text) for item in kept)

    def add(self, item: Told) -> None:
        """Note the next item."""
        if item.begins and item.position is not None:
            self._begin(item.region, item.position)
            return
        if item.position is None:  # a gap without an end: it is unknown where its region continues
            self._is_known = False
            self._forget()
        if not self._is_known or item.position is None:
            return
        self._items.append(item)
        self._bytes += len(item.text)
        self._now |= item.positions
        while len(self._items) > self._events_max or self._bytes > self._bytes_max:
            oldest = self._items.popleft()
            self._bytes -= len(oldest.text)
            self._before |= oldest.positions

    def _begin(self, region: str, position: Position) -> None:
        """Note that the state of a region was sent, which is as of this position.

        A client that names the region in its positions has received it, and all that was sent before it. So that is
        not sent again. A client that has not received it names other regions than these.
        """
        for item in self._items:
            self._before |= item.positions
        self._forget()
        self._before[region] = self._now[region] = position

    def _forget(self) -> None:
        self._items.clear()
        self._bytes = 0

    def after(self, since: Mapping[str, Position]) -> list[Told] | None:
        """Return the items after the prefix that ends at these positions; None if no known prefix ends there."""
        if not self._is_known or since.keys() != self._before.keys():
            return None
        elsewhere = {region for region, position in self._before.items() if position != since[region]}
        for place, item in enumerate(self._items):
            if not elsewhere:
                return list(self._items)[place:]
            for region, position in item.positions.items():
                if region not in since:
                    return None
                if position == since[region]:
                    elsewhere.discard(region)
                else:
                    elsewhere.add(region)
        return None if elsewhere else []

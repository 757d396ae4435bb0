"""What a connection has had of its regions, so that an event of several regions is handed out once.

Each of its regions has a copy of such an event, and a connection that has several of them gets several. All copies name
all positions. So a copy is passed over if another region has brought the event: if its position there lies within what
this connection has had of that region, in this stay or an earlier one. Gaps and skipped events were not had. What an
earlier connection of the name has had is not known here: who resumes says so, with all positions of the event.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping

from sequencing.frames import JointPart

Position = tuple[int, int]
"""Epoch, and number in the region."""

STRETCHES_MAX = 256
REGIONS_MAX = 1024
"""How much is known of what ended: the last stretches of a region, and of the last regions that were left or had a
gap."""

LONE_MAX = 65_536
"""How many events are known that stay as those of another region: as many as wait when a region is left."""


class Had:
    """The stretches that a connection has had of its regions: after one position, and up to another."""

    def __init__(self, passed: Mapping[str, Position]) -> None:
        """``passed``: the caller's own mapping of a region to the position up to which it has had it."""
        self._passed = passed
        self._begins: dict[str, Position] = {}
        self._lone: OrderedDict[tuple[str, Position], None] = OrderedDict()
        self._earlier: OrderedDict[str, deque[tuple[Position, Position]]] = OrderedDict()

    def begin(self, region: str, after: Position) -> None:
        """Have a region after a position from now on, unless that is known already."""
        self._begins.setdefault(region, after)

    def resume(self, region: str, after: Position) -> None:
        """Have a region after a position. Whether what was before was had cannot be told from that."""
        self.leave(region)
        self._begins[region] = after

    def miss(self, region: str, upto: Position) -> None:
        """Note that what follows what was had of a region is missing up to a position."""
        self.leave(region)
        self._begins[region] = upto

    def leave(self, region: str) -> None:
        """Have no more of a region; call it before what was passed of it is forgotten."""
        if (begin := self._begins.pop(region, None)) is not None:
            self._keep(region, begin, self._passed.get(region, begin))

    def take_back(self, region: str, after: Position) -> None:
        """Note that what was passed of a region after a position, before it was left, was not handed out after all."""
        stretches = self._earlier.get(region)
        if stretches:
            begin, upto = stretches.pop()
            self._keep(region, begin, min(upto, after))

    def keep(self, region: str, position: Position) -> None:
        """Note that an event of a region that was left is handed out all the same, as one of another region."""
        self._lone[region, position] = None
        if len(self._lone) > LONE_MAX:
            self._lone.popitem(last=False)

    def drop(self, region: str, position: Position) -> None:
        """Note that such an event is not handed out after all."""
        self._lone.pop((region, position), None)

    def has(self, parts: Iterable[JointPart], epoch: int, behind: int, *, by: str) -> bool:
        """Return whether an event of several regions was had by another region than the one that brings it now.

        ``parts``: of its frame; ``behind``: how many events of the frame come after it.
        """
        return any(self._has(region, (epoch, last - behind)) for region, last, _ in parts if region != by)

    def _has(self, region: str, position: Position) -> bool:
        """Return whether the event at a position of a region was had there."""
        begin = self._begins.get(region)
        if begin is not None and begin < position <= self._passed.get(region, begin):
            return True
        if (region, position) in self._lone:
            return True
        return any(after < position <= upto for after, upto in self._earlier.get(region, ()))

    def _keep(self, region: str, after: Position, upto: Position) -> None:
        if after < upto:
            self._earlier.setdefault(region, deque(maxlen=STRETCHES_MAX)).append((after, upto))
            self._earlier.move_to_end(region)
            if len(self._earlier) > REGIONS_MAX:
                self._earlier.popitem(last=False)

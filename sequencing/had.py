"""What a connection has had of its regions, so that an event of several regions is handed out once.

Each of its regions has a copy of such an event, and a connection that has several of them gets several. All copies name
all positions. So a copy is passed over if another region has brought the event: if its position there lies within what
this connection has had of that region, in this stay or an earlier one. Gaps and skipped events were not had.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping

from sequencing.frames import JointPart

Position = tuple[int, int]
"""Epoch, and number in the region."""

STRETCHES_MAX = 16
REGIONS_MAX = 1024
"""How much is known of what ended: the last stretches of a region, and of the last regions that were left or had a
gap. The copies of an event are seldom far apart."""

_BEGINNING = 0, 0


class Had:
    """The stretches that a connection has had of its regions: after one position, and up to another."""

    def __init__(self, passed: Mapping[str, Position]) -> None:
        """``passed``: the caller's own mapping of a region to the position up to which it has had it."""
        self._passed = passed
        self._begins: dict[str, Position] = {}
        self._earlier: OrderedDict[str, deque[tuple[Position, Position]]] = OrderedDict()

    def begin(self, region: str, after: Position) -> None:
        """Have a region after a position from now on, unless that is known already."""
        self._begins.setdefault(region, after)

    def resume(self, region: str, after: Position) -> None:
        """Have a region after a position; all up to there was had before."""
        self._keep(region, _BEGINNING, after)
        self._begins[region] = after

    def miss(self, region: str, upto: Position) -> None:
        """Note that what follows what was had of a region is missing up to a position."""
        self.leave(region)
        self._begins[region] = upto

    def leave(self, region: str) -> None:
        """Have no more of a region; call it before what was passed of it is forgotten."""
        if (begin := self._begins.pop(region, None)) is not None:
            self._keep(region, begin, self._passed.get(region, begin))

    def take_back(self, region: str, after: Position, but: Iterable[Position] = ()) -> None:
        """Note that what was passed of a region after a position, before it was left, was not handed out after all.

        ``but``: the positions of events that were, as events of other regions.
        """
        stretches = self._earlier.get(region)
        if stretches:
            begin, upto = stretches.pop()
            self._keep(region, begin, min(upto, after))
        for epoch, sequence in but:
            self._keep(region, (epoch, sequence - 1), (epoch, sequence))

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
        return any(after < position <= upto for after, upto in self._earlier.get(region, ()))

    def _keep(self, region: str, after: Position, upto: Position) -> None:
        if after < upto:
            self._earlier.setdefault(region, deque(maxlen=STRETCHES_MAX)).append((after, upto))
            self._earlier.move_to_end(region)
            if len(self._earlier) > REGIONS_MAX:
                self._earlier.popitem(last=False)

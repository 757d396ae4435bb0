"""Delivery: decide from a received frame's stamp alone whether it can be delivered.

A subscriber reads the egress streams of its regions. What it reads at one node is a *lane*: it comes in the node's own
order, as far as that is known (`sequencing.cut`), and is delivered in that order, so only the heads of lanes can wait.
A head is delivered when

- its region sequence is the next of its region, and
- each *relevant* atom on its stamp, one whose regions the subscriber has all, shows the next number of that atom.

A frame that its node did not number (an end that was set from outside) waits for its region only. There is no deadlock:
the orders of all nodes, and so those of lanes and atoms, are parts of one acyclic order (`sequencing.conditions`). The
first undelivered frame in that order waits for nothing.

No timeout takes part (Lumezanu 2006, §3.1: destinations decide immediately whether to deliver or to buffer).

After a loss the decision stays immediate. A jump of the region sequence is delivered as `Missing`, in place. A jump of
an atom's numbers is settled by the first waiting frame of each region, wherever in its lane that frame is. Streams are
in order. So when every region of the atom shows a number and none shows the awaited one, that number will never come,
and the smallest number shown is next. A quiet region shows none, and may never show one: behind a gap, quiet regions
are marked.

The epoch of a region ends with a TICK, after which the region need not show any more numbers. A region may also be
joined while the epoch runs; `sequencing.joins` explains from where on it is delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from sequencing.frames import StampedFrame, node_number
from sequencing.lanes import Lanes, Received
from sequencing.ordering import Expected, Ordering
from sequencing.plan import Atom
from sequencing.ready import Missing, Ready


class Delivery:
    """The delivery order of one subscriber within one epoch."""

    def __init__(
        self, epoch: int, regions: Iterable[str], atoms: Iterable[Atom], lanes: Mapping[str, str] | None = None
    ) -> None:
        """``regions``: the subscriber's since the epoch began; ``atoms``: the plan's (irrelevant ones are ignored).

        ``lanes``: region → the node where it is read; regions that are missing from it have a lane of their own.
        """
        self.epoch = epoch
        ended: set[str] = set()
        self._lanes = Lanes(epoch, ended)
        self._ordering = Ordering(epoch, atoms, self._lanes, ended)
        names, regions = lanes or {}, tuple(regions)
        self._begin_lanes(regions, names, is_placed=True)
        self._ordering.start(regions, names)
        self.silent = self._ordering.silent
        """Frames of regions that are being joined, which arrived and were not delivered; for the caller to clear."""

    def receive(self, frames: Sequence[StampedFrame], whole: Mapping[str, int] | None = None) -> list[Ready | Missing]:
        """Take frames, each region's in its stream's order; return what may be delivered now, in order.

        ``whole``: see `sequencing.cut.ReadResult`; None if nothing was left out. Frames of regions that are not the
        subscriber's, and repeated ones, are ignored; unreadable ones count as lost.
        """
        out: list[Ready | Missing] = []
        self._ordering.take(self._lanes.admit(frames, whole), out)
        if self._lanes.frames_ahead:
            self._go_on(out)
            self._ordering.look_ahead(out)
            self._go_on(out)
        return out

    def cursors(self, region: str, whole: Mapping[str, int] | None) -> tuple[Received | None, Expected | None]:
        """Return what the next frame of a region moves, if it is delivered at once; None where it may have to wait.

        ``whole``: see `sequencing.cut.ReadResult`.
        """
        return self._lanes.cursor(region, whole), self._ordering.cursor(region)

    def found_end(
        self, region: str, newest: StampedFrame | None = None, *, is_direct: bool = False, begins: bool = False
    ) -> None:
        """Note that the start of a joined region's stream is known; its lane continues once all starts are.

        ``newest``: the frame after which the region is read, no older than what was read at the node before.
        ``is_direct``: whether its path visits no other node, and nothing else requires a marker; then the region may be
        joined at once. ``begins``: whether an empty stream is then read from its first frame, because the region has no
        earlier epoch.
        """
        self._lanes.place(region)
        if newest is None and is_direct and begins:
            if self._ordering.joins.do_without_marker(region, 0):
                self._ordering.skip(region, 0)
            return
        if newest is None or not is_direct or not node_number(newest.stamp):
            return
        if self._ordering.joins.do_without_marker(region, newest.last):
            self._lanes.skip(region, newest)
            self._ordering.skip(region, newest.last)

    def join(self, markers: Mapping[str, bytes], lanes: Mapping[str, str] | None = None) -> None:
        """Add regions, each from its marker on: region → the body of the JOIN that this subscriber publishes there.

        ``lanes``: as at the beginning. See `found_end`.
        """
        self._begin_lanes(markers, lanes or {}, is_placed=False)
        self._ordering.join(markers, lanes or {})

    def leave(self, region: str) -> list[Ready | Missing]:
        """Take a region out, so that nothing waits for it any more; return the frames that can be delivered now."""
        out: list[Ready | Missing] = []
        self._lanes.forget(region)
        self._ordering.leave(region, out)
        self._go_on(out)
        return out

    def miss(self, region: str) -> list[Ready | Missing]:
        """Treat a region as ended before its marker came; return the frames that can be delivered now.

        It is not taken out: its atoms may be the only order between two other regions.
        """
        out: list[Ready | Missing] = []
        self._ordering.miss(region, out)
        self._go_on(out)
        return out

    def join_probes(
        self, body: Callable[[], bytes], *, unmarked: AbstractSet[str], is_quiet: Callable[[str], bool], request: int
    ) -> dict[str, bytes]:
        """Return further markers to publish, region → body, because views wait for them; each region is named once.

        ``body``: makes one; ``unmarked``: the regions whose awaited markers were not published, and are not about to
        be; ``is_quiet``: whether a region is not expected to show anything soon; ``request``: grows when more regions
        may have become quiet.
        """
        return self._ordering.joins.join_probes(
            body,
            unmarked=unmarked,
            is_quiet=is_quiet,
            request=request,
            ended=self.ended,
            last_number=self._ordering.last_number,
        )

    def gap_probes(self, body: Callable[[], bytes]) -> dict[str, bytes]:
        """Return markers to publish, region → body, because frames behind a gap wait for them; each region is named
        once.

        The numbers that an atom lacks may be in the gap, or in flight in a region that shows nothing.
        """
        return self._ordering.gap_probes(body)

    @property
    def is_behind_gap(self) -> bool:
        """Return whether a frame behind a gap waits."""
        return bool(self._ordering.behind_gap)

    @property
    def is_joining(self) -> bool:
        """Return whether there are views that have not begun."""
        return bool(self._ordering.joins.views)

    def binds(self, atom: Atom) -> bool:
        """Return whether the numbers of an atom bind."""
        return self._ordering.is_relevant(atom.id) and atom.id not in self._ordering.joins.views

    def may_hold(self, atom: Atom) -> bool:
        """Return whether frames may be held for an atom: if it binds, or its view waits for no marker."""
        view = self._ordering.joins.views.get(atom.id)
        return self._ordering.is_relevant(atom.id) if view is None else not view.waiting

    def take_ended(self) -> list[str]:
        """Return the regions that have `ended` since the last call."""
        return _taken(self._ordering.ended_now)

    def take_joined(self) -> list[str]:
        """Return the regions that may be `joined` since the last call, and were not before."""
        return _taken(self._ordering.joins.ended_now)

    @property
    def regions(self) -> AbstractSet[str]:
        """The regions whose frames are accepted."""
        return self._ordering.regions

    def begin(self, region: str) -> int:
        """Return the region sequence after which a joined region is delivered."""
        return self._ordering.joins.begins(region)

    def marker(self, region: str) -> bytes | None:
        """Return the body of the marker that is awaited in a region, None if there is none."""
        return self._ordering.joins.marker(region)

    def delivered(self, region: str) -> int:
        """Return the region sequence up to which a region is delivered."""
        return self._ordering.delivered(region)

    def joined(self, region: str) -> bool:
        """Return whether events of a region are delivered."""
        return region in self.regions and self._ordering.joins.joined(region)

    def ended(self, region: str) -> bool:
        """Return whether all of a region's epoch is delivered, or it ended before its marker came."""
        return self._ordering.ended(region)

    @property
    def held_frames(self) -> int:
        """Frames that are received and wait for others."""
        return self._ordering.queued + self._lanes.frames_ahead

    @property
    def is_ahead(self) -> bool:
        """Return whether a frame waits for a read of all streams of its lane."""
        return self._lanes.frames_ahead > 0

    def held(self, region: str) -> int:
        """Return how many frames of a region are received and not delivered."""
        return self._ordering.held(region) + self._lanes.held(region)

    def _begin_lanes(self, regions: Iterable[str], names: Mapping[str, str], *, is_placed: bool) -> None:
        for region in regions:
            if region in self.regions:
                self._lanes.forget(region)
            self._lanes.begin(region, names.get(region, region), is_placed=is_placed)

    def _go_on(self, out: list[Ready | Missing]) -> None:
        """Take the frames that waited for a read of regions that have since been left, or have ended."""
        while self._lanes.frames_ahead and (through := self._lanes.admit_again()):
            self._ordering.take(through, out)


def _taken(items: list[str]) -> list[str]:
    taken = items[:]
    items.clear()
    return taken

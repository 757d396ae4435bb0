"""Joins: where the delivery of a region begins that is joined in a network which carries traffic.

The joiner marks the region: it publishes a JOIN, and drops everything before it. An atom that becomes relevant with the
region has no first number for the joiner. So a *view* of the atom begins at M: the largest number of the atom that is
on a marker of the new regions, or was delivered until these markers arrived. Up to M, the atom does not bind here;
above M, its numbers bind as ever.

Nothing above M is delivered before no region of the atom can bring a number up to M any more, because only then is
everything up to M delivered. A region can bring none if

- it shows M or a larger number at its head, or
- it has ended, or
- all numbers between the last that it showed and M were shown by other regions.

A region that stays quiet is marked, too, to show a number. Regions that were there before are marked along with the new
ones, so that a quiet world is settled in one round. A region that turns out to need it is marked once more.

Events of a new region up to M are not delivered: another subscriber may order them against events that were delivered
here. So every delivered event of a new region is above every M of its atoms. Hence it follows everything delivered up
to M, and is in the order of the numbers with everything above: the order of passage through the atom's node, which is
the same for all subscribers. Regions that were delivered before the join never wait for a marker. If one of them is
left meanwhile, the atom does not bind any more, but events of it stay delivered: events of the new regions up to M are
still not delivered.

If no atom becomes relevant with a region, and its path is one node, none of this is needed: the order is that of the
node alone. Once an event was published in the epoch there, so that all earlier ingresses are closed, the region is
joined at the end that is found. All later frames have larger numbers than the frames read at the node before, and
precede nothing, at any node, that was delivered here. (With a longer path, a frame may be on a link while a frame that
follows it is delivered and that region left. Then only the marker, behind it on the link, shows that it has arrived.)
The marker also follows this connection's own events there, which causal order waits for, and ends what an earlier
connection of the name has in flight. So markers are kept in causal order, and for subscribers that return.

`sequencing.delivery` holds frames, and decides the order in which they are delivered once nothing holds them. It
reports to this module what its regions show, and learns which atoms have something new to say about the frames held.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

SHOWN_MAX = 256
"""How many numbers a view notes while it waits for markers. With more, some regions are marked in vain."""

HasEnded = Callable[[str], bool]
"""Whether all of a region's epoch is delivered."""


class Joins:
    """The regions that one subscriber is joining within one epoch."""

    def __init__(self) -> None:
        self.views: dict[int, View] = {}
        """The views of the atoms that do not bind yet."""
        self.regions: dict[str, Joining] = {}
        """Regions of which nothing is delivered yet."""
        self.ended_now: list[str] = []
        """Regions whose joining has ended; for the caller to clear."""
        self._begins: dict[str, int] = {}
        self._missed: set[str] = set()
        """Regions that ended before their markers came: they are joined as their next epoch begins."""

    def begin(
        self, markers: Mapping[str, bytes], before: Collection[int], regions_of: Mapping[int, tuple[str, ...]]
    ) -> list[int]:
        """Add the markers that are to come, region → body; return the atoms whose views are new.

        ``before``: the atoms that were relevant; ``regions_of``: those of the new regions that are relevant now, and
        their regions.
        """
        for region, marker in markers.items():
            self._forget(region)
            self.regions[region] = Joining(marker)
        fresh: list[int] = []
        for atom, members in regions_of.items():
            left = self.views.get(atom)
            if atom in before and (left is None or set(left.members).issuperset(members)):
                continue
            waiting = {region for region in members if self.marker(region) is not None}
            self.views[atom] = View(members, waiting, left.begin if left is not None else 0)
            for region in self.regions.keys() & set(members):  # including those that other views still hold back
                self.regions[region].atoms.add(atom)
            fresh.append(atom)
        return fresh

    def leave(self, region: str, atoms: Iterable[int], ended: HasEnded) -> None:
        """Take a region out: its atoms will not bind, and only regions that are being joined wait for them."""
        self._forget(region)
        for atom in atoms:
            view = self.views.get(atom)
            if view is not None and region in view.members:
                view.members = tuple(other for other in view.members if other in self.regions)
                view.is_left = True
                if view.waiting == {region}:
                    view.unsettled = view.bringing(ended)
                else:
                    view.unsettled.intersection_update(view.members)
                view.waiting.discard(region)
                if not (view.waiting or view.unsettled):
                    self.end(atom)

    def marked(self, region: str, last: int, numbers: Mapping[int, int], ended: HasEnded) -> list[int]:
        """Take the marker of a region; return the atoms whose views wait for no other."""
        self._begins[region] = last
        for atom, number in numbers.items():
            view = self.views.get(atom)
            if view is not None and region in view.waiting:
                view.show(region, number)
        return self._came(region, numbers, ended)

    def miss(self, region: str, ended: HasEnded) -> list[int]:
        """Treat a region as ended before its marker came; return the atoms whose views wait for no other."""
        self._missed.add(region)
        return self._came(region, self.views, ended)

    def end(self, atom: int) -> None:
        """Drop a view: its atom binds, or is no longer relevant."""
        view = self.views.pop(atom)
        for region in view.members:
            joining = self.regions.get(region)
            if joining is not None:
                joining.atoms.discard(atom)
                self._hand_out_if_due(region, joining)

    def do_without_marker(self, region: str, last: int) -> bool:
        """Deliver a region after a region sequence if no atom has to order it; return whether that is so."""
        joining = self.regions.get(region)
        if joining is None or joining.atoms:
            return False
        self._end(region)
        self._begins[region] = last
        return True

    def skip(self, region: str, last: int) -> None:
        """Note up to where frames of a region were taken and not delivered to the application."""
        self._begins[region] = last

    def blocks(self, region: str, atom: int, number: int) -> bool:
        """Return whether a frame of a region has to wait, as far as the view of an atom on its stamp can tell."""
        view = self.views[atom]
        if region not in view.members:
            return False
        if view.waiting:
            return region in self.regions
        return number > view.begin

    def came_along(self, region: str, body: bytes | None) -> None:
        """Note that a region has shown what it was marked for along with others; with None, that the marker may be
        lost.

        If that was too early, the region may be marked once more.
        """
        for view in self.views.values():
            if region in view.along and body in (None, view.along[region]):
                view.along[region] = None

    def join_probes(
        self,
        body: Callable[[], bytes],
        *,
        unmarked: AbstractSet[str],
        is_quiet: Callable[[str], bool],
        request: int,
        ended: HasEnded,
        last_number: Callable[[str, int], int],
    ) -> dict[str, bytes]:
        """Return further markers to publish; see `Delivery.join_probes`.

        ``last_number``: the last number of an atom that a region is known to bring, 0 for none.
        """
        bodies: dict[str, bytes] = {}
        for atom, view in self.views.items():
            if view.waiting:
                if view.request == request or not view.waiting.isdisjoint(unmarked):
                    continue
                view.request = request
                there = {region for region in view.members if region not in view.along and is_quiet(region)}
                due = {region for region in there if not (ended(region) or region in self.regions)}
            else:
                due = {region for region in view.unsettled - view.nudged if view.along.get(region) is None}
                due = {region for region in due if last_number(region, atom) <= view.begin}
            for region in sorted(due):
                if region not in bodies:
                    bodies[region] = body()
                if view.waiting:
                    view.along[region] = bodies[region]
                else:
                    view.nudged.add(region)
        return bodies

    def left(self, atom: int) -> tuple[str, ...] | None:
        """Return the regions of an atom that are being joined, if some other region of it was left; else None."""
        view = self.views.get(atom)
        return view.members if view is not None and view.is_left else None

    def joined(self, region: str) -> bool:
        """Return whether events of a region are delivered."""
        return region not in self.regions and region not in self._missed

    def marker(self, region: str) -> bytes | None:
        """Return the body of the marker that is awaited in a region, None if there is none."""
        joining = self.regions.get(region)
        return joining.marker if joining is not None else None

    def begins(self, region: str) -> int:
        """Return the region sequence up to which nothing was delivered, because the region was being joined."""
        return self._begins.get(region, 0)

    def _came(self, region: str, atoms: Iterable[int], ended: HasEnded) -> list[int]:
        """Note that nothing needs to wait for the marker of a region any more."""
        joining = self.regions[region]
        joining.marker = None
        self._hand_out_if_due(region, joining)
        known: list[int] = []
        for atom in atoms:
            view = self.views.get(atom)
            if view is not None and region in view.waiting:
                view.waiting.discard(region)
                if not view.waiting:
                    view.unsettled = view.bringing(ended)
                    known.append(atom)
        return known

    def _hand_out_if_due(self, region: str, joining: Joining) -> None:
        if joining.marker is None and not joining.atoms:
            self._end(region)

    def _end(self, region: str) -> None:
        del self.regions[region]
        self.ended_now.append(region)

    def _forget(self, region: str) -> None:
        self.regions.pop(region, None)
        self._begins.pop(region, None)
        self._missed.discard(region)


@dataclass(slots=True)
class Joining:
    """A region that is being joined."""

    marker: bytes | None
    """The body of the awaited JOIN: everything before it is dropped."""
    atoms: set[int] = field(default_factory=set)
    """The atoms that became relevant with this region, while a view of one of them has not begun."""


@dataclass(slots=True)
class View:
    """The state of an atom whose numbers do not bind yet."""

    members: tuple[str, ...]
    """The atom's regions; once one of them was left, those that are being joined: only these are held back."""
    waiting: set[str]
    """Regions whose marker has not come."""
    begin: int
    is_left: bool = False
    unsettled: set[str] = field(default_factory=set)
    """Regions that may still bring a number up to ``begin``; of use once no marker is awaited."""
    nudged: set[str] = field(default_factory=set)
    request: int = -1
    """The request at which quiet regions were last marked along."""
    along: dict[str, bytes | None] = field(default_factory=dict)
    """Region that was marked along with the new ones → its marker, None when that has come, or may be lost."""
    last: dict[str, int] = field(default_factory=dict)
    """Region → the last number that it showed while markers were waited for."""
    shown: set[int] = field(default_factory=set)
    """These numbers, and those before them."""

    def show(self, region: str, number: int) -> None:
        """Take a number of a marker, or of a frame that was delivered while a marker is awaited."""
        self.begin = max(self.begin, number)
        if len(self.shown) < SHOWN_MAX:
            self.last[region] = number
            self.shown.add(number)

    def bringing(self, ended: HasEnded) -> set[str]:
        """Return the regions that may still bring a number up to ``begin``."""
        return {region for region in self.members if not (ended(region) or self.is_through(region))}

    def is_through(self, region: str) -> bool:
        """Return whether all numbers up to ``begin`` that a region has not shown are those of others."""
        last = self.last.get(region)
        if last is None or self.begin - last > len(self.shown):
            return False
        return self.shown.issuperset(range(last + 1, self.begin + 1))

"""State, then everything after it: the keys of regions that are being joined, as of one place in the order.

Who subscribes with ``state=True`` joins the regions as ever, and then asks their ingresses for the keys. An ingress
answers as of one moment: the last value of each key, and the number of each region's last event. What this connection
delivers of a region up to that number is in the values, so it is passed over. The state is delivered in its place, and
then all that comes after it. So nothing is missing or repeated, and no history is needed.

The place of a state is where this connection delivers the last event that is in it. Where that was published before the
connection joined, it is not delivered here, and others that precede it may still be on their way in other regions. Then
the state waits for the first event of its regions that is newer: as there may be none, the connection publishes a
marker. Who has no other regions need not wait.

An event of several regions that is in the state of one of them comes by the others all the same, if they were joined
before. It comes before the state, at its first copy, whichever region that is of. So nothing that is in a state comes
after it.

What comes of such a region before the answer may be older or newer than that. From the first such event on, all that
is delivered is held back until the answer is there, or the connection gives it up, so that it keeps its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from adapters.places import Position
from gamecast.event import Gap
from sequencing.errors import InvalidInput
from sequencing.frames import UNKNOWN_END, FrameKind, JointPart, joint_parts
from sequencing.keyed import Snapshot
from sequencing.plan import Plan
from sequencing.ready import Missing, Ready


@dataclass(slots=True)
class Standing:
    """The state of regions, to be delivered in its place: region → (the position that it is as of, its keys)."""

    snapshots: dict[str, tuple[Position, Snapshot]]

    @property
    def region(self) -> str:
        """One of its regions."""
        return next(iter(self.snapshots), "")

    def without(self, regions: AbstractSet[str]) -> Standing | None:
        """Return it without some regions; None if there is none left."""
        left = {region: known for region, known in self.snapshots.items() if region not in regions}
        return Standing(left) if left else None


class Contained(Ready):
    """An event of several regions that the state of this one has: it comes now, as one of the others only."""

    __slots__ = ()


@dataclass(slots=True)
class _Coming:
    """A state that an ingress has told. It is delivered before the first event of its regions that is newer, or sooner,
    when all of them have been delivered so far, if that shows its place."""

    standing: Standing
    shows_place: bool
    """Whether nothing that precedes it is on its way when all of its regions have been delivered so far."""
    left: set[str] = field(default_factory=set)
    """The regions of which something is to be delivered yet that is in the state."""
    is_told: bool = False
    behind: list[Missing] = field(default_factory=list)
    """What is missing after the state, of gaps that began before it: their place does not show that of the state."""


Item = Ready | Missing | Standing


class States:
    """The states of one connection that are asked for, or on their way."""

    def __init__(self) -> None:
        self.calls: dict[str, object] = {}
        """The regions whose state is not known yet, and the call that asks for it."""
        self.on_the_way: dict[str, _Coming] = {}
        self._held: list[Ready | Missing] = []
        self.held_events = self.held_bytes = 0
        """What is held back."""

    @property
    def asked(self) -> AbstractSet[str]:
        """The regions whose state is not known yet."""
        return self.calls.keys()

    @property
    def known(self) -> AbstractSet[str]:
        """The regions whose state is known and not delivered yet, or of which something is to come that is in it."""
        return self.on_the_way.keys()

    @property
    def is_holding(self) -> bool:
        """Whether anything is held back."""
        return bool(self._held)

    def __bool__(self) -> bool:
        return bool(self.calls or self.on_the_way)

    def begin(self, regions: Iterable[str], call: object = None) -> None:
        """Deliver the state of some regions before what comes of them; ``call``: stands for who asks."""
        self.calls.update(dict.fromkeys(regions, call))

    def call_of(self, region: str) -> object:
        """Return the call that has asked for the state of a region, None if none has, or it is known."""
        return self.calls.get(region)

    def asked_by(self, call: object) -> set[str]:
        """Return the regions that a call has asked for, and whose state is not known yet."""
        return {region for region, each in self.calls.items() if each is call}

    def told(
        self,
        snapshots: Mapping[str, tuple[Position, Snapshot]],
        begins: Mapping[str, Position],
        others: AbstractSet[str] = frozenset(),
    ) -> tuple[list[Item], str | None]:
        """Take the state of some regions, as one ingress told it.

        ``begins``: region → the position after which it is joined; ``others``: all regions that are wanted. Returns
        what is to be delivered now, and a region to publish a marker in, None if none is needed.
        """
        wanted = {region: known for region, known in snapshots.items() if region in self.calls}
        left = {region for region, (position, _) in wanted.items() if begins.get(region, (0, 0)) < position}
        coming = _Coming(Standing(wanted), left == wanted.keys() or others <= wanted.keys(), left)
        for region in wanted:
            del self.calls[region]
            self.on_the_way[region] = coming
        out: list[Item] = [*self._tell(coming)] if coming.shows_place and not left else []
        out += self._go_on()
        needs_marker = not coming.shows_place and not coming.is_told
        return out, min(wanted) if needs_marker and wanted else None

    def leave(self, regions: AbstractSet[str]) -> list[Item]:
        """Deliver nothing more of some regions, which are left; return what is to be delivered now of others."""
        held, self._held = self._held, []
        self.held_events = self.held_bytes = 0
        for item in held:
            if region_of(item) not in regions:
                self._hold(item)
        return self.drop(regions)

    def drop(self, regions: AbstractSet[str]) -> list[Item]:
        """Deliver no state of some regions; return what is to be delivered now: they may be joined all the same."""
        for region in self.calls.keys() & regions:
            del self.calls[region]
        dropped = [(region, self.on_the_way.pop(region)) for region in self.on_the_way.keys() & regions]
        for region, coming in dropped:
            coming.standing.snapshots.pop(region, None)
            coming.left.discard(region)
            coming.behind = [missing for missing in coming.behind if missing.region != region]
        out: list[Item] = []
        for _, coming in dropped:
            if not coming.left and coming.shows_place:
                out += self._tell(coming)
        return out + self._go_on()

    def keep(self, items: Iterable[Ready | Missing]) -> list[Item]:
        """Return what of delivered items goes on, with states in their places."""
        out: list[Item] = []
        for item in items:
            region, others = region_of(item), _others(item)
            if self._held or region in self.calls or not self.calls.keys().isdisjoint(part.region for part in others):
                self._hold(item)
                continue
            for part in others:
                # An event of several regions that is newer than the state of one comes after that.
                coming = self.on_the_way.get(part.region)
                if coming is not None and (_epoch(item), part.last) > coming.standing.snapshots[part.region][0]:
                    out += self._tell(coming)
            if region in self.on_the_way:
                out += self._take(region, item, is_joint=bool(others))
            else:
                out.append(item)
        return out

    def _hold(self, item: Ready | Missing) -> None:
        self._held.append(item)
        if isinstance(item, Ready):
            self.held_events += item.meta.events
            self.held_bytes += len(item.frame.body)

    def _tell(self, coming: _Coming) -> Iterator[Standing | Missing]:
        """Yield a state, once; go on with those of its regions that have been delivered so far."""
        if not coming.is_told and coming.standing.snapshots:
            coming.is_told = True
            for region in coming.standing.snapshots.keys() - coming.left:
                del self.on_the_way[region]
            yield Standing(dict(coming.standing.snapshots))
            yield from coming.behind

    def _go_on(self) -> list[Item]:
        held, self._held = self._held, []
        self.held_events = self.held_bytes = 0
        return self.keep(held)

    def _take(self, region: str, item: Ready | Missing, *, is_joint: bool) -> Iterator[Item]:
        """Yield what becomes of an item of a region whose state is known; ``is_joint``: it is one of others, too."""
        coming = self.on_the_way[region]
        position, _ = coming.standing.snapshots[region]
        if isinstance(item, Missing):
            last = item.epoch, item.last or UNKNOWN_END
        else:
            last = item.frame.epoch, item.frame.last
        if is_joint and isinstance(item, Ready) and last <= position:
            yield Contained(*item)
        if last < position:
            return
        coming.left.discard(region)
        if isinstance(item, Missing) and (item.epoch, item.first) <= position < last:
            item = item._replace(first=position[1] + 1)
            if not coming.is_told:
                coming.behind.append(item)
                last = position
        elif isinstance(item, Ready) and item.meta.kind == FrameKind.TICK and not item.frame.stamp:
            last = position  # a stream that was sealed ends anywhere
        if last > position or (coming.shows_place and not coming.left):
            yield from self._tell(coming)
        if coming.is_told:
            self.on_the_way.pop(region, None)
        if last > position:
            yield item


def cuts_in(plan: Plan, regions: Iterable[str]) -> list[list[str]]:
    """Return the parts of some regions that enter at one node in which an answer of that node is a cut.

    Regions of different epochs have no order. Nor have those that end apart where only double overlaps are ordered.
    """
    parts: dict[tuple[int, str], list[str]] = {}
    for region in regions:
        end = plan.paths[region][-1] if plan.ordering == "overlap" else ""
        parts.setdefault((plan.epoch_of(region), end), []).append(region)
    return list(parts.values())


def region_of(item: Ready | Missing | Gap | Standing) -> str:
    """Return the region of an item; of a state, one of its regions."""
    return item.frame.region if isinstance(item, Ready) else item.region


def _epoch(item: Ready | Missing) -> int:
    return item.epoch if isinstance(item, Missing) else item.frame.epoch


def _others(item: Ready | Missing) -> Sequence[JointPart]:
    """Return the further regions of an event of several."""
    if isinstance(item, Missing) or item.meta.kind != FrameKind.JOINT:
        return ()
    try:
        return [part for part in joint_parts(item.frame.meta) if part.region != item.frame.region]
    except InvalidInput:  # it becomes a gap
        return ()

"""The subscriber: which streams to read, what to mark, and what to deliver, through joins, leaves and epochs.

A subscriber follows the plans of its network one by one. In each epoch it has a `Delivery` for the regions whose
numbering began there; what it does between them is this:

*Epochs.* The numbers of a component start again with each epoch. The last frame of a region in its old epoch is a
TICK; a subscriber goes on to the region's new stream when that is delivered, and delivers nothing of the new epoch
before the TICKs of all its regions that moved there are delivered. So, for every subscriber, all that it delivers of a
component's old epoch comes before all that it delivers of the new one: a consistent cut between two acyclic orders.

*Joins.* A region is joined when a plan grants it (`sequencing.grants`). It is read from its end, marked if need be, and
handed out as `sequencing.joins` says. A region that ends before its marker comes is marked again in its next epoch.
Where the epoch begins with the plan that grants, there is nothing to catch up with: the region is read and delivered
from its first frame, like those that go over into the epoch, and is joined when its marker has come. Whatever is
published from the join on is delivered, and behind a marker nothing of an earlier connection of the name comes.

*Shadows.* More may have to be followed than is wanted, and not all that is followed is delivered
(`sequencing.shadows`).

Nothing here reads, publishes or waits: the caller reads the streams of `reads`, publishes the markers of `marks`, and
hands in what comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import count

from sequencing.delivery import Delivery
from sequencing.followed import FollowedEpoch, FollowedRegion, Read, may_be_past, skips
from sequencing.frames import FrameKind, StampedFrame, parse_meta
from sequencing.grants import Grants
from sequencing.owndeliveries import OwnDeliveries
from sequencing.plan import Plan
from sequencing.ready import Missing, Ready
from sequencing.record import Interest, Record
from sequencing.shadows import Silence, is_ordered, shadows, staying


class Subscriber:
    """One connection's incoming side."""

    def __init__(self, name: str, incarnation: int) -> None:
        """``name`` and ``incarnation`` make its markers known from those of others."""
        self.name = name
        self.incarnation = incarnation
        self.joined: set[str] = set()
        """Regions whose events are delivered."""
        self.returns = OwnDeliveries(name, incarnation)
        self._plan: Plan | None = None
        self._grants = Grants(name, incarnation)
        self._regions: dict[str, FollowedRegion] = {}
        self._silence = Silence()
        self._asked_after: dict[str, int | None] = {}
        """Region → after what it was read when others were asked for last: whether it is quiet tells what is new."""
        self._epochs: dict[int, FollowedEpoch] = {}
        self._serial = count(1)
        self._returning: set[str] = set()
        """Regions that are marked in any case: behind the marker, an ingress takes nothing of an earlier connection."""
        self.generation = 0
        """Grows whenever there are other streams to read than before, or other places in them to go on from."""
        self._adjusted = True
        """Whether what is followed is what is to be followed."""
        self.is_settled = True
        """Whether all that is followed is delivered, and no region moves to another epoch: frames change neither, and
        there is nothing to mark."""

    @property
    def wanted(self) -> set[str]:
        """The regions that are wanted."""
        return self._grants.wanted

    def subscribe(self, regions: Iterable[str], floor: int = 0, *, returns: bool = False) -> list[Ready | Missing]:
        """Want regions; they are `joined` some time after a plan grants them. ``floor``: see `Grants.want`.

        ``returns``: whether they are joined no sooner than nothing more of an earlier connection of the name can come.
        """
        regions = set(regions)
        if returns:
            self._returning |= regions
        if self._grants.want(regions, floor):
            self._adjusted = False
            self._asked_after = {region: state.after for region, state in self._regions.items()}
        return self._handed_out(self._go_on())

    def unsubscribe(self, regions: Iterable[str]) -> list[Ready | Missing]:
        """Want regions no more; return what may be delivered now that nothing waits for them."""
        if gone := self._grants.release(regions):
            self._adjusted = False
            self._returning -= gone
            for region in gone:
                self._silence.forget(region)
        return self._handed_out(self._go_on())

    def update(self, record: Record) -> list[Ready | Missing]:
        """Follow the next plan; return what may be delivered now.

        Records must come in order, and each of them: an epoch that is left out could not be read. Raises
        `SessionExpired`, or `Superseded`, when they go on without this subscriber: what it would deliver from here on
        is not ordered any more.
        """
        plan, before = record.plan, self._plan
        if before is not None and plan.is_laid_out_as(before) and self._grants.are_told_by(record):
            self._plan = plan
            return []  # it is about others
        self._plan, self._adjusted = plan, False
        self._silence.regions |= self._regions.keys() & self._grants.take(record)
        self._grants.require_kept(plan.epoch)
        moving: dict[int, set[str]] = {}
        for region, state in self._regions.items():
            epoch = plan.epoch_of(region)
            if before is not None and before.epoch_of(region) < epoch:
                state.later.append(epoch)
                moving.setdefault(epoch, set()).add(region)
        joining: dict[int, set[str]] = {}
        for region in self._grants.mine.keys() - self._regions.keys():
            if before is not None and before.epoch < plan.epoch_of(region):
                joining.setdefault(plan.epoch_of(region), set()).add(region)
        barrier = set[str]().union(*moving.values())  # shared: what moves at once is one cut, wherever it goes
        for epoch in moving.keys() | joining.keys():
            regions, fresh = moving.get(epoch, set()), joining.get(epoch, set())
            followed = regions & self._grants.mine.keys() | fresh
            followed |= self._shadows(plan, followed)
            self._epochs[epoch] = FollowedEpoch(plan, Delivery(epoch, followed, plan.atoms, plan.egresses), barrier)
            for region in sorted(followed - self._regions.keys()):
                marker = self._body() if region in fresh else None
                self._read(region, FollowedRegion(plan.paths[region][-1], epoch, 0, marker, marker))
        return self._handed_out(self._go_on())

    def interest(self) -> Interest:
        """Return what to tell the manager, whenever it has changed."""
        return self._grants.interest()

    def reads(self, node: str | None = None) -> dict[str, Read]:
        """Return what to read, at one node or everywhere: region → stream and position."""
        return {
            region: Read(state.node, state.epoch, state.after)
            for region, state in self._regions.items()
            if node is None or state.node == node
        }

    def found_ends(self, ends: Iterable[tuple[str, int, StampedFrame | None]]) -> list[Ready | Missing]:
        """Take the newest frames of streams whose ends were to be found, None of empty ones: (region, epoch, frame)."""
        out: list[Ready | Missing] = []
        for region, epoch, newest in ends:
            state = self._regions.get(region)
            if state is None or state.epoch != epoch or state.after is not None:
                continue
            state.after = newest.last if newest is not None else 0
            self.generation += 1
            delivery = self._epochs[epoch].delivery
            is_over = newest is not None and parse_meta(newest.meta).kind == FrameKind.TICK
            delivery.found_end(region, newest, is_direct=state.is_direct and not is_over)
            state.marker = delivery.marker(region)
            if is_over:
                out += delivery.miss(region)
        return self._handed_out(out + self._go_on())

    def marks(self) -> list[tuple[str, bytes]]:
        """Return the markers to publish now, (region, body) each; each is returned once."""
        found: list[tuple[str, bytes]] = []
        for region, state in self._regions.items():
            if state.marker is not None and state.after is not None:
                found.append((region, state.marker))
                state.marker = None
        for number, epoch in self._epochs.items():
            if epoch.delivery.is_joining:
                here = {region: state for region, state in self._regions.items() if state.epoch == number}
                marked = {region for region, state in here.items() if state.marker is None}
                quiet = {region for region, state in here.items() if self._asked_after.get(region) == state.after}
                found += epoch.delivery.join_probes(self._body, marked, quiet).items()
            if epoch.delivery.is_behind_gap:
                found += epoch.delivery.gap_probes(self._body).items()
        return found

    def receive(self, frames: Iterable[StampedFrame], whole: Mapping[str, int] | None = None) -> list[Ready | Missing]:
        """Take frames that were read; return what may be delivered now, in order.

        ``whole``: see `sequencing.cut.ReadResult`; None if nothing was left out.
        """
        by_epoch: dict[int, list[StampedFrame]] = {}
        for frame in frames:
            state = self._regions.get(frame.region)
            if state is None or state.epoch != frame.epoch or state.after is None or frame.last <= state.after:
                continue
            if state.awaited is not None and may_be_past(state.awaited, state.after, frame):
                state.awaited = None
            if not self.is_settled and state.marker is None and skips(state.after, frame):
                # If it waits for its marker, that may be in what is missing.
                state.marker = self._epochs[state.epoch].delivery.marker(frame.region)
            state.after = frame.last
            by_epoch.setdefault(frame.epoch, []).append(frame)
        out: list[Ready | Missing] = []
        for number, epoch in self._epochs.items():
            received = by_epoch.get(number, [])
            if epoch.barrier and (received or epoch.held):
                epoch.hold(received, whole)
            elif received or epoch.delivery.is_ahead:
                out += epoch.delivery.receive(received, whole)
            if epoch.delivery.is_behind_gap:
                self.is_settled = False
        if not self.is_settled:
            return self._handed_out(out + self._go_on())
        self.returns.note(out)
        return out  # all that is followed is delivered

    def begin(self, region: str) -> tuple[int, int]:
        """Return (epoch, region sequence) after which a region, joined just now, is delivered."""
        epoch = self._regions[region].epoch
        return self._silence.begin(region) or (epoch, self._epochs[epoch].delivery.begin(region))

    def held(self, region: str) -> int:
        """Return how many frames of a region that is being read are received and wait for others."""
        epoch = self._epochs[self._regions[region].epoch]
        return epoch.held_of(region) + epoch.delivery.held(region)

    @property
    def held_frames(self) -> int:
        """Frames that are received and wait for others."""
        held = 0
        for epoch in self._epochs.values():
            held += epoch.delivery.held_frames + sum(len(frames) for frames, _ in epoch.held)
        return held

    def _handed_out(self, items: list[Ready | Missing]) -> list[Ready | Missing]:
        """Keep what is for the application, and note the rest, too."""
        self._note(items)
        return [item for item in items if self._is_mine(item)]

    def _note(self, items: list[Ready | Missing]) -> None:
        """Note what is delivered, to the application or silently."""
        for epoch in self._epochs.values():
            if epoch.delivery.silent:
                self.returns.note(epoch.delivery.silent)
                epoch.delivery.silent.clear()
        self.returns.note(items)

    def _is_mine(self, item: Ready | Missing) -> bool:
        of = item if isinstance(item, Missing) else item.frame
        if of.epoch < self._grants.mine.get(of.region, of.epoch + 1):
            return False
        return not self._silence.covers(of.region, of.epoch, of.last)

    def _begin_to_hand_out(self) -> None:
        """Deliver what was followed before it was wanted, once atoms that bind order it among what is delivered."""
        for region in sorted(self._silence.regions):
            state = self._regions[region]
            if state.epoch >= self._grants.mine[region] and self._is_ordered(region, state):
                self._silence.end(region, state.epoch, self._epochs[state.epoch].delivery.delivered(region))

    def _is_ordered(self, region: str, state: FollowedRegion) -> bool:
        """Return whether atoms that bind order a region with all others that they are to order it with."""
        epoch = self._epochs[state.epoch]
        if epoch.barrier or not epoch.delivery.joined(region):
            return False
        others = {other for other in self._grants.mine if other != region and epoch.delivery.joined(other)}
        atoms = epoch.plan.atoms_of.get(region, ())
        if not state.later:
            atoms = tuple(atom for atom in atoms if self._grants.granted >= set(atom.regions))
        return is_ordered(others, atoms, epoch.delivery.binding)

    def _adjust(self) -> list[Ready | Missing]:
        """Begin to follow what is wanted and granted, and end what is neither wanted nor needed."""
        if self._plan is None or self._adjusted:
            return []
        self._adjusted = True
        mine = self._grants.mine.keys()
        followed = mine | self._shadows(self._plan, mine)
        deliveries = [epoch.delivery for epoch in self._epochs.values()]
        if needed := staying(self._plan, followed, now=self._regions.keys(), deliveries=deliveries):
            self._adjusted = False
            followed |= needed
        behind = {self._plan.epoch_of(region) for region in followed if self._is_behind(region)}
        joining = (region for region in followed - self._regions.keys() if self._plan.epoch_of(region) not in behind)
        self._begin_joins(sorted(joining), self._plan)
        out: list[Ready | Missing] = []
        for region in sorted(self._regions.keys() - followed):
            if not self._regions[region].later:  # else its old epoch still needs it
                out += self._drop(region)
        return out

    def _is_behind(self, region: str) -> bool:
        """Return whether a region comes from an epoch before, and has to be joined again in its newest one.

        Others that its atoms order are joined together with it and not earlier, when nothing would order them.
        """
        state = self._regions.get(region)
        if state is None or not state.later:
            return False
        return region not in self._epochs[state.later[-1]].delivery.regions

    def _shadows(self, plan: Plan, mine: AbstractSet[str]) -> set[str]:
        return shadows(plan, mine, granted=self._grants.granted, now=self._regions.keys())

    def _begin_joins(self, regions: Iterable[str], plan: Plan) -> None:
        markers: dict[int, dict[str, bytes]] = {}
        for region in regions:
            markers.setdefault(plan.epoch_of(region), {})[region] = self._body()
        for number, joining in markers.items():
            if number not in self._epochs:
                self._epochs[number] = FollowedEpoch(plan, Delivery(number, (), plan.atoms, plan.egresses))
            self._epochs[number].delivery.join(joining, plan.egresses)
            for region, marker in joining.items():
                path = plan.paths[region]
                is_direct = len(path) == 1 and plan.ordering != "causal" and region not in self._returning
                self._read(region, FollowedRegion(path[-1], number, None, marker, is_direct=is_direct))

    def _go_on(self) -> list[Ready | Missing]:
        """Take the regions whose epoch has ended to their next one, and open the epochs that nothing holds back."""
        out: list[Ready | Missing] = []
        for region, state in sorted(self._regions.items()):
            delivery = self._epochs[state.epoch].delivery
            if not state.later or not delivery.ended(region):
                continue
            self._adjusted = False
            while state.later and region not in self._epochs[state.later[0]].delivery.regions:
                self._epochs[state.later.pop(0)].barrier.discard(region)
            if state.later:
                number, *later = state.later
                self._epochs[number].barrier.discard(region)
                node = self._epochs[number].plan.paths[region][-1]
                marker = None if region in self.joined or region not in self._grants.mine else self._body()
                self._read(region, FollowedRegion(node, number, 0, marker, marker, later))
            else:
                self._stop(region)  # it is marked in its newest epoch, when that grants it
        for _, epoch in sorted(self._epochs.items()):
            if epoch.held and not epoch.barrier:
                held, epoch.held = epoch.held, []
                for frames, whole in held:
                    out += epoch.delivery.receive(frames, whole)
                return out + self._go_on()
        out += self._adjust()
        self._begin_to_hand_out()
        used = {state.epoch for state in self._regions.values()}
        self._epochs = {n: epoch for n, epoch in self._epochs.items() if n in used or epoch.barrier}
        self.joined = self.joined & self._grants.mine.keys() | {
            region
            for region, state in self._regions.items()
            if state.epoch >= self._grants.mine.get(region, state.epoch + 1)
            and state.awaited is None
            and region not in self._silence.regions
            and not self._epochs[state.epoch].barrier
            and self._epochs[state.epoch].delivery.joined(region)
        }
        self.is_settled = (
            self._adjusted
            and self.joined == self._regions.keys()
            and not any(state.later for state in self._regions.values())
            and not any(epoch.barrier or epoch.held or epoch.delivery.is_behind_gap for epoch in self._epochs.values())
        )
        return out

    def _read(self, region: str, state: FollowedRegion) -> None:
        self._regions[region] = state
        self.generation += 1

    def _stop(self, region: str) -> None:
        """Stop reading a region. In the epochs where it has ended it still tells that nothing more comes of it."""
        del self._regions[region]
        self.generation += 1
        self.joined.discard(region)
        self._silence.forget(region)
        for epoch in self._epochs.values():
            epoch.barrier.discard(region)
            epoch.held = [([frame for frame in held if frame.region != region], whole) for held, whole in epoch.held]

    def _drop(self, region: str) -> list[Ready | Missing]:
        """Stop reading a region, wherever on its way it is, and have nothing wait for it."""
        out: list[Ready | Missing] = []
        self._stop(region)
        for _, epoch in sorted(self._epochs.items()):
            if region in epoch.delivery.regions and not epoch.delivery.ended(region):
                out += epoch.delivery.leave(region)
        return out

    def _body(self) -> bytes:
        return b"%b %d %d" % (self.name.encode(), self.incarnation, next(self._serial))

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

*States.* What is to be done for a region follows from its state, see `sequencing.regionlife`.

*Shadows.* More may have to be followed than is wanted, and not all that is followed is delivered
(`sequencing.shadows`).

Nothing here reads, publishes or waits: the caller reads the streams of `reads`, publishes the markers of `marks`, and
hands in what comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from sequencing.delivery import Delivery
from sequencing.followed import FollowedEpoch, FollowedEpochs, FollowedRegion, FollowedRegions, Read, may_be_past, skips
from sequencing.frames import UNKNOWN_END, FrameKind, StampedFrame, parse_meta
from sequencing.grants import Grants
from sequencing.markers import Markers
from sequencing.node import TICK_META
from sequencing.owndeliveries import OwnDeliveries
from sequencing.plan import Plan
from sequencing.ready import Missing, Ready
from sequencing.record import Interest, Record, Request
from sequencing.regionlife import Check, Checks, Lives, RegionEvent, RegionState
from sequencing.settled import Track, Tracks
from sequencing.shadows import shadows, staying, unordered_by

_EVENTS = int(FrameKind.EVENTS)


class Subscriber:
    """One connection's incoming side."""

    def __init__(self, name: str, incarnation: int) -> None:
        """``name`` and ``incarnation`` make its markers known from those of others."""
        self.name = name
        self.incarnation = incarnation
        self._lives = Lives()
        self.joined = self._lives.joined
        """Regions whose events are delivered."""
        self.joined_now: list[str] = []
        """Those that became so, for the caller to clear."""
        self.returns = OwnDeliveries(name, incarnation)
        self._plan: Plan | None = None
        self._grants = Grants(name, incarnation)
        self._regions = FollowedRegions()
        self._checks = Checks()
        self._epochs = FollowedEpochs()
        self._markers = Markers(name, incarnation, self._regions, self._epochs)
        self._tracks = Tracks(name)
        self._turn = 0
        """Grows with all that may change what comes next of a region, but for the next event itself."""
        self._adjusted = True
        """Whether what is followed is what is to be followed."""
        self.is_settled = True
        """Whether all that is followed is delivered, and no region moves to another epoch: frames change neither, and
        there is nothing to mark."""

    @property
    def wanted(self) -> set[str]:
        """The regions that are wanted."""
        return self._grants.wanted

    @property
    def generation(self) -> int:
        """Grows whenever there are other streams to read than before, or other places in them to go on from."""
        return self._regions.generation

    def subscribe(self, regions: Iterable[str], floor: int = 0, *, returns: bool = False) -> list[Ready | Missing]:
        """Want regions; they are `joined` some time after a plan grants them. ``floor``: see `Grants.want`.

        ``returns``: whether they are joined no sooner than nothing more of an earlier connection of the name can come.
        """
        if self._grants.want(regions, floor, returns=returns):
            self._markers.requests += 1
        return self._handed_out(self._go_on())

    def unsubscribe(self, regions: Iterable[str]) -> list[Ready | Missing]:
        """Want regions no more; return what may be delivered now that nothing waits for them."""
        if gone := self._grants.release(regions):
            self._adjusted = False
            for region in gone:
                self._lives.move(region, RegionEvent.RELEASE)
        return self._handed_out(self._go_on())

    def update(self, record: Record) -> list[Ready | Missing]:
        """Follow the next plan; return what may be delivered now.

        Records must come in order, and each of them: an epoch that is left out could not be read. Raises
        `SessionExpired`, or `Superseded`, when they go on without this subscriber: what it would deliver from here on
        is not ordered any more.
        """
        plan, before = record.plan, self._plan
        if plan.sole:
            self._plan = plan
            return []  # it grants what is asked for, see `granted`
        if before is not None and plan.is_laid_out_as(before) and self._grants.are_told_by(record):
            self._plan = plan
            return []  # it is about others
        self._plan = plan
        fresh = self._grants.take(record)
        self._take_in(fresh)
        if record.born is not None:
            self._note_unborn(record.born.intersection(fresh))
        elif before is not None:
            self._note_unborn(region for region in fresh if region not in before.paths)
        self._grants.require_kept(plan.epoch)
        if before is not None and before.epoch < plan.epoch:
            self._begin_epochs(plan, after=before.epoch)
        if plan.given_up:
            regions = self._regions.all.items()
            self._checks.add(Check.SEVERED, (region for region, state in regions if self._is_severed(state)))
        return self._handed_out(self._go_on())

    def granted(self, request: Request) -> list[Ready | Missing]:
        """Take that a network of one node has granted a request; return what may be delivered now."""
        if self._plan is not None and self._plan.sole:
            self._take_in(self._grants.take_in_place(request, self._plan.epoch))
        else:
            self._grants.noted(request)
        return self._handed_out(self._go_on())

    def _take_in(self, fresh: Iterable[str]) -> None:
        """Note regions that are granted just now."""
        self._adjusted = False
        for region in fresh:
            self._lives.move(region, RegionEvent.GRANT)

    def _note_unborn(self, regions: Iterable[str]) -> None:
        """Note that nothing was ever published in regions."""
        for region in regions:
            self._lives.all[region].is_unborn = True

    def _sever(self) -> list[Ready | Missing]:
        """End the streams that are read at nodes that were given up: nothing more comes of them."""
        read: list[StampedFrame] = []
        unread: list[StampedFrame] = []
        for region in self._checks.take(Check.SEVERED):
            state = self._regions.all.get(region)
            if state is not None and self._is_severed(state):
                last = max(UNKNOWN_END, (state.after or 0) + 1)
                end = StampedFrame(region, state.epoch, last, TICK_META, b"", b"")
                (unread if state.after is None else read).append(end)
        out = self._found_ends([(end.region, end.epoch, end) for end in unread])
        # Nothing else is known of these streams, nor will be; of those at other nodes, that says nothing.
        whole = {end.region: end.epoch for end in (*read, *unread)}
        return out + self._receive_all(read, whole) if read else out

    def _is_severed(self, state: FollowedRegion) -> bool:
        return bool(state.later) and self._plan is not None and state.node in self._plan.given_up

    def _begin_epochs(self, plan: Plan, after: int) -> None:
        """Go on to the epochs that begin with a plan; the plan before was of epoch ``after``."""
        moving: dict[int, set[str]] = {}
        for region in plan.begun_after(after, self._regions.all.keys()):
            epoch = plan.epoch_of(region)
            self._regions.move(region, epoch)
            self._lives.all[region].is_unborn = False
            self._checks.add(Check.ENDED, (region,))
            moving.setdefault(epoch, set()).add(region)
        joining: dict[int, set[str]] = {}
        for region in plan.begun_after(after, self._lives.all_in(RegionState.LACKING)):
            joining.setdefault(plan.epoch_of(region), set()).add(region)
            self._lives.all[region].is_unborn = False
        barrier = set[str]().union(*moving.values())  # shared: what moves at once is one cut, wherever it goes
        for epoch in sorted(moving.keys() | joining.keys()):
            regions, fresh = moving.get(epoch, set()), joining.get(epoch, set())
            followed = regions & self._grants.mine.keys() | fresh
            followed |= self._shadows(plan, followed)
            delivery = Delivery(epoch, followed, plan.atoms, plan.ends_of(followed))
            self._epochs.begin(epoch, FollowedEpoch(plan, delivery, barrier))
            for region in sorted(followed - self._regions.all.keys()):
                marker = self._markers.body() if region in fresh else None
                self._read(region, FollowedRegion(plan.paths[region][-1], epoch, 0, marker, marker))

    def request(self, *, whole: bool = False) -> Request | None:
        """Return what to ask the network for; see `Grants.request`."""
        return self._grants.request(whole=whole)

    def noted(self, request: Request) -> None:
        """Take that the network knows a request, which a plan is to grant."""
        self._grants.noted(request)

    def interest(self) -> Interest:
        """Return all that is wanted."""
        return self._grants.interest()

    def reads(self, node: str | None = None) -> dict[str, Read]:
        """Return what to read, at one node or everywhere: region → stream and position."""
        return self._regions.reads(node)

    def changed_reads(self, node: str) -> dict[str, Read | None]:
        """Return what of `reads` at a node is not as at the last call; None: it is not read there any more."""
        return self._regions.changed_reads(node)

    def turned(self) -> list[str]:
        """Return the nodes where another stream is to be read than at the last call."""
        return self._regions.turned()

    def found_ends(self, ends: Iterable[tuple[str, int, StampedFrame | None]]) -> list[Ready | Missing]:
        """Take the newest frames of streams whose ends were to be found, None of empty ones: (region, epoch, frame)."""
        return self._handed_out(self._found_ends(ends) + self._go_on())

    def _found_ends(self, ends: Iterable[tuple[str, int, StampedFrame | None]]) -> list[Ready | Missing]:
        out: list[Ready | Missing] = []
        epochs: set[int] = set()
        for region, epoch, newest in ends:
            state = self._regions.all.get(region)
            if state is None or state.epoch != epoch or state.after is not None:
                continue
            state.after = newest.last if newest is not None else 0
            state.moved_in = self._markers.requests
            self._regions.note_place(region, state)
            delivery = self._epochs.all[epoch].delivery
            is_over = newest is not None and parse_meta(newest.meta).kind == FrameKind.TICK
            is_direct = state.is_direct and not is_over
            begins = bool(self._epochs.all[epoch].plan.sole) or self._lives.all[region].is_unborn
            delivery.found_end(region, newest, is_direct=is_direct, begins=begins)
            self._lives.all[region].is_unborn = False
            self._regions.mark(region, delivery.marker(region))
            epochs.add(epoch)
            if is_over:
                out += delivery.miss(region)
        for epoch in epochs:
            self._look_at(epoch)
        return out

    def marks(self) -> list[tuple[str, bytes]]:
        """Return the markers to publish now, (region, body) each; each is returned once."""
        return self._markers.due()

    def receive(self, frames: Sequence[StampedFrame], whole: Mapping[str, int] | None = None) -> list[Ready | Missing]:
        """Take frames that were read; return what may be delivered now, in order.

        ``whole``: see `sequencing.cut.ReadResult`; None if nothing was left out.
        """
        is_quiet = self.is_settled and not self._epochs.restless
        if len(frames) == 1 and is_quiet:
            out = self._receive_lone(frames[0], whole)
            self._expect_after(frames[0], out, whole)
        else:
            out = self._receive_all(frames, whole)
            if not is_quiet or not self._has_delivered(frames, out):
                self._turn += 1
        if not self.is_settled:
            return self._handed_out(out + self._go_on())
        self.returns.note(out)
        return out  # all that is followed is delivered

    def receive_next(self, frame: StampedFrame, whole: Mapping[str, int] | None) -> Ready | None:
        """Take a frame that came alone if it is what is expected next of its region; None leaves all to `receive`,
        which would do the same. Nothing else may have changed then.

        ``whole``: as of `receive`. See `sequencing.settled`.
        """
        return self._tracks.next(frame, whole, self._turn, self._markers.requests)

    def _expect_after(
        self, frame: StampedFrame, out: Sequence[Ready | Missing], whole: Mapping[str, int] | None
    ) -> None:
        """Expect the next frame of a region after one that came alone; ``out``: what was delivered with that."""
        if not self._has_delivered((frame,), out):
            self._turn += 1
        elif self._tracks.lacks(frame.region, self._turn, whole):
            state = self._regions.all[frame.region]
            epoch = self._epochs.all[state.epoch]
            if state.awaited is None and not state.later and not epoch.barrier and frame.region in self.joined:
                received, expected = epoch.delivery.cursors(frame.region, whole)
                if received is not None and expected is not None:
                    self._tracks.put(frame.region, Track(self._turn, whole, state.epoch, state, received, expected))

    def _has_delivered(self, frames: Sequence[StampedFrame], out: Sequence[Ready | Missing]) -> bool:
        """Return whether each of some frames was one of plain events that is delivered, and nothing else has changed:
        where nothing was held before, then nothing is held now, and what was expected next has moved by these."""
        if not self.is_settled or len(out) != len(frames):
            return False
        return all(type(item) is Ready and item.meta.kind == _EVENTS for item in out)

    def _is_next(self, frame: StampedFrame) -> bool:
        """Note a frame that was read; return whether it is one that is followed, and new."""
        state = self._regions.all.get(frame.region)
        if state is None or state.epoch != frame.epoch or state.after is None or frame.last <= state.after:
            return False
        if state.awaited is not None and may_be_past(state.awaited, state.after, frame):
            state.awaited = None
            self._checks.add(Check.JOINED, (frame.region,))
        if not self.is_settled and state.marker is None and skips(state.after, frame):
            # If it waits for its marker, that may be in what is missing.
            self._regions.mark(frame.region, self._epochs.all[state.epoch].delivery.marker(frame.region))
        state.after = frame.last
        state.moved_in = self._markers.requests
        return True

    def _receive_all(self, frames: Sequence[StampedFrame], whole: Mapping[str, int] | None) -> list[Ready | Missing]:
        by_epoch: dict[int, list[StampedFrame]] = {}
        for frame in frames:
            if self._is_next(frame):
                by_epoch.setdefault(frame.epoch, []).append(frame)
        out: list[Ready | Missing] = []
        for number in sorted(by_epoch.keys() | self._epochs.restless):
            epoch, received = self._epochs.all[number], by_epoch.get(number, [])
            if epoch.barrier and (received or epoch.held):
                epoch.hold(received, whole)
            elif received or epoch.delivery.is_ahead:
                out += epoch.delivery.receive(received, whole)
                if not self.is_settled or epoch.delivery.held_frames or number in self._epochs.restless:
                    self._look_at(number)  # as nearly never: something waits, joins or moves
        return out

    def _receive_lone(self, frame: StampedFrame, whole: Mapping[str, int] | None) -> list[Ready | Missing]:
        """Take a frame alone while nothing waits, joins or moves: as `_receive_all`, with less to look at."""
        if not self._is_next(frame):
            return []
        delivery = self._epochs.all[frame.epoch].delivery
        out = delivery.receive((frame,), whole)
        if not self.is_settled or delivery.held_frames:
            self._look_at(frame.epoch)
        return out

    def begin(self, region: str) -> tuple[int, int]:
        """Return (epoch, region sequence) after which a region, joined just now, is delivered."""
        epoch, life = self.epoch(region), self._lives.all[region]
        return life.silent_to or life.begun or (epoch, self._epochs.all[epoch].delivery.begin(region))

    def epoch(self, region: str) -> int:
        """Return the epoch that a region is followed in; of epochs before, all that there was is delivered."""
        return self._regions.all[region].epoch

    def delivers_after(self, region: str) -> tuple[int, int] | None:
        """Return (epoch, region sequence) after which a region is delivered, joined or not yet; None if it is not."""
        state = self._regions.all.get(region)
        return self.begin(region) if state is not None and self._is_delivered(region, state) else None

    def held(self, region: str) -> int:
        """Return how many frames of a region that is being read are received and wait for others."""
        epoch = self._epochs.all[self._regions.all[region].epoch]
        return epoch.held_of(region) + epoch.delivery.held(region)

    @property
    def held_frames(self) -> int:
        """Frames that are received and wait for others."""
        return self._epochs.held_frames if self._epochs.restless else 0

    def _handed_out(self, items: list[Ready | Missing]) -> list[Ready | Missing]:
        """Keep what is for the application, and note the rest, too."""
        self.returns.note(items)
        return [item for item in items if self._is_mine(item)]

    def _is_mine(self, item: Ready | Missing) -> bool:
        of = item if isinstance(item, Missing) else item.frame
        if of.epoch < self._grants.mine.get(of.region, of.epoch + 1):
            return False
        return not self._lives.all[of.region].is_silent_at(of.epoch, of.last)

    def _look_at(self, number: int) -> None:
        """Take note of what has happened in an epoch."""
        self._epochs.note(number)
        delivery = self._epochs.all[number].delivery
        if delivery.is_behind_gap:
            self.is_settled = False
        if self.is_settled:
            return  # nothing joins or moves
        if delivery.silent:
            self.returns.note(delivery.silent)
            delivery.silent.clear()
        for region in delivery.take_ended():
            state = self._regions.all.get(region)
            if state is not None and state.epoch == number and state.later:
                self._checks.add(Check.ENDED, (region,))
        self._checks.add(Check.JOINED, delivery.take_joined())

    def _begin_to_hand_out(self) -> None:
        """Deliver what was followed before it was wanted, once atoms that bind order it among what is delivered."""
        for region in sorted(self._lives.all_in(RegionState.SILENT)):
            state = self._regions.all[region]
            if state.epoch >= self._grants.mine[region] and self._is_ordered(region, state):
                last = self._epochs.all[state.epoch].delivery.delivered(region)
                self._lives.end_silence(region, state.epoch, last)
                self._checks.add(Check.JOINED, (region,))

    def _is_ordered(self, region: str, state: FollowedRegion) -> bool:
        """Return whether atoms that bind order a region with all others that they are to order it with."""
        epoch = self._epochs.all[state.epoch]
        if epoch.barrier or not epoch.delivery.joined(region):
            return False
        atoms = epoch.plan.atoms_of.get(region, ())
        if not state.later:
            atoms = tuple(atom for atom in atoms if self._grants.granted.issuperset(atom.regions))
        mine, joined = self._grants.mine, epoch.delivery.joined
        others = unordered_by(atoms, epoch.delivery.binds) - {region}
        return not any(other in mine and joined(other) for other in others)

    def _adjust(self) -> list[Ready | Missing]:
        """Begin to follow what is wanted and granted, and end what is neither wanted nor needed."""
        if self._plan is None or self._adjusted:
            return []
        self._adjusted = True
        plan, mine, regions = self._plan, self._grants.mine.keys(), self._regions.all
        shadow = self._shadows(plan, mine)
        leaving = self._lives.all_in(RegionState.SURPLUS) - shadow
        if needed := staying(plan, leaving, mine, shadow, self._delivery_of):
            self._adjusted = False
            leaving -= needed
        behind = {plan.epoch_of(region) for region in self._regions.moving - leaving if self._is_behind(region)}
        more = {region for region in shadow | needed if region not in regions}
        lacking = self._lives.all_in(RegionState.LACKING) | more
        self._begin_joins(sorted(region for region in lacking if plan.epoch_of(region) not in behind), plan)
        out: list[Ready | Missing] = []
        for region in sorted(leaving):
            if not regions[region].later:  # else its old epoch still needs it
                out += self._drop(region)
        return out

    def _delivery_of(self, epoch: int) -> Delivery | None:
        state = self._epochs.all.get(epoch)
        return state.delivery if state is not None else None

    def _is_behind(self, region: str) -> bool:
        """Return whether a region comes from an epoch before, and has to be joined again in its newest one.

        Others that its atoms order are joined together with it and not earlier, when nothing would order them.
        """
        return region not in self._epochs.all[self._regions.all[region].later[-1]].delivery.regions

    def _shadows(self, plan: Plan, mine: AbstractSet[str]) -> set[str]:
        return shadows(plan, mine, self._grants.unwanted, self._regions.all.keys())

    def _begin_joins(self, regions: Iterable[str], plan: Plan) -> None:
        markers: dict[int, dict[str, bytes]] = {}
        for region in regions:
            markers.setdefault(plan.epoch_of(region), {})[region] = self._markers.body()
        for number, joining in markers.items():
            if number not in self._epochs.all:
                self._epochs.begin(number, FollowedEpoch(plan, Delivery(number, (), plan.atoms)))
            self._epochs.all[number].delivery.join(joining, plan.ends_of(joining))
            for region, marker in joining.items():
                path = plan.paths[region]
                is_direct = len(path) == 1 and plan.ordering != "causal" and region not in self._grants.returning
                self._read(region, FollowedRegion(path[-1], number, None, marker, is_direct=is_direct))
            self._look_at(number)

    def _go_on(self) -> list[Ready | Missing]:
        """Take the regions whose epoch has ended to their next one, and open the epochs that nothing holds back."""
        self.is_settled = False
        self._turn += 1
        out = self._sever() if self._checks.is_due(Check.SEVERED) else []
        for region in self._checks.take(Check.ENDED):
            state = self._regions.all.get(region)
            if state is not None and state.later and self._epochs.all[state.epoch].delivery.ended(region):
                self._move_on(region, state)
        for number in sorted(self._epochs.restless):
            epoch = self._epochs.all[number]
            if epoch.held and not epoch.barrier:
                held, epoch.held = epoch.held, []
                for frames, whole in held:
                    out += epoch.delivery.receive(frames, whole)
                self._look_at(number)
                return out + self._go_on()
        out += self._adjust()
        if self._checks.is_due(Check.ENDED) or self._checks.is_due(Check.SEVERED):
            return out + self._go_on()
        self._begin_to_hand_out()
        self._checks.add(Check.JOINED, self._epochs.opened())
        for number in list(self._epochs.restless):
            self._epochs.note(number)
        self._epochs.forget_unused()
        for region in self._checks.take(Check.JOINED):
            if self._lives.state(region) is RegionState.JOINING and self._is_joined(region):
                self._lives.move(region, RegionEvent.JOIN)
                self.joined_now.append(region)
        self.is_settled = (
            self._adjusted
            and len(self.joined) == len(self._regions.all)
            and not self._regions.moving
            and not self._epochs.are_held_back
        )
        return out

    def _move_on(self, region: str, state: FollowedRegion) -> None:
        """Go on to the next epoch of a region."""
        self._adjusted = False
        life = self._lives.all[region]
        if life.state is RegionState.JOINING and life.begun is None and self._is_delivered(region, state):
            life.begun = self.begin(region)
        while state.later and region not in self._epochs.all[state.later[0]].delivery.regions:
            self._epochs.all[state.later.pop(0)].barrier.discard(region)
        if not state.later:
            self._stop(region)  # it is marked in its newest epoch, when that grants it
            return
        number, *later = state.later
        self._epochs.all[number].barrier.discard(region)
        node = self._epochs.all[number].plan.paths[region][-1]
        marker = self._markers.body() if life.state in (RegionState.SILENT, RegionState.JOINING) else None
        self._read(region, FollowedRegion(node, number, 0, marker, marker, later))

    def _is_joined(self, region: str) -> bool:
        state = self._regions.all.get(region)
        return state is not None and state.awaited is None and self._is_delivered(region, state)

    def _is_delivered(self, region: str, state: FollowedRegion) -> bool:
        """Return whether a region is delivered, although perhaps not joined: its own marker has not come yet."""
        return (
            self._lives.state(region) in (RegionState.JOINING, RegionState.JOINED)
            and not self._epochs.all[state.epoch].barrier
            and self._epochs.all[state.epoch].delivery.joined(region)
        )

    def _read(self, region: str, state: FollowedRegion) -> None:
        before = self._regions.all.get(region)
        if before is not None:
            self._epochs.leave(before.epoch, region)
        state.moved_in = self._markers.requests
        self._regions.put(region, state)
        self._epochs.enter(state.epoch, region)
        self._lives.move(region, RegionEvent.FOLLOW if before is None else RegionEvent.MOVE_ON)
        self._checks.add(Check.JOINED, (region,))
        if state.later and self._epochs.all[state.epoch].delivery.ended(region):
            self._checks.add(Check.ENDED, (region,))
        if self._is_severed(state):
            self._checks.add(Check.SEVERED, (region,))

    def _stop(self, region: str) -> None:
        """Stop reading a region. In the epochs where it has ended it still tells that nothing more comes of it."""
        self._epochs.leave(self._regions.all[region].epoch, region)
        self._regions.drop(region)
        self._lives.move(region, RegionEvent.STOP)
        self._epochs.stop(region)

    def _drop(self, region: str) -> list[Ready | Missing]:
        """Stop reading a region, wherever on its way it is, and have nothing wait for it."""
        out: list[Ready | Missing] = []
        state = self._regions.all[region]
        self._stop(region)
        for number in (state.epoch, *state.later):
            delivery = self._epochs.all[number].delivery
            if region in delivery.regions and not delivery.ended(region):
                out += delivery.leave(region)
                self._look_at(number)
        return out

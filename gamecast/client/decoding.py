"""Decode frames for the application: into events, and gaps in the place of missing events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import orjson

from adapters.places import Position
from gamecast.client.states import Contained, Standing
from gamecast.event import Event, Gap, Item, JointEvent, Presence, State
from sequencing.errors import InvalidInput
from sequencing.frames import UNKNOWN_END, FrameKind, JointPart, StampedFrame, decode_keyed_body, joint_parts
from sequencing.had import Had
from sequencing.names import PRESENT
from sequencing.ready import Missing, Ready

if TYPE_CHECKING:
    from gamecast.recording.tap import Tap

_EVENTS, _JOINT = int(FrameKind.EVENTS), int(FrameKind.JOINT)

_new_event = partial(tuple.__new__, Event)
_NO_KEYS = repeat(None)
_NOWHERE = 0, 0


PLACES_KEPT = 128
"""Of so many frames of a region, it is known where the application has had events; it leaves fewer untaken."""

Place = tuple[str, Position]
"""A region, and a position there."""

Together = Callable[[str, Position], bool]


def _apart(region: str, position: Position) -> bool:
    """No other region comes in one order with what is decoded."""
    return False


class EventDecoder:
    """Decodes frames to events, in the order in which it is given them."""

    def __init__(self, tap: Tap | None, own_name: str = "") -> None:
        """``own_name``: of the connection, whose own events are told apart."""
        self._tap, self._own_name = tap, own_name
        self._others_at_ns: dict[str, int] = {}
        """Region → when an event of somebody else was decoded last."""
        self.own_events = self.overtaken_events = 0
        """Own events that came back live, and how many of them after one of somebody else that had come meanwhile."""
        self._floors: dict[str, Position] = {}
        """Region → the position after which its history begins: nothing up to there is delivered."""
        self._passed: dict[str, Position] = {}
        """Region → the position up to which it was decoded: of an event, or a state."""
        self._markers: dict[str, Position] = {}
        """Region → a marker; all that was before it was decoded."""
        self._places: dict[str, deque[tuple[int, int, int]]] | None = None
        """Region → epoch, first and last of what was decoded last; None if it is not asked for."""
        self._rosters: dict[str, dict[str, Any]] = {}
        """Region of which presence is delivered → name → what it says of itself."""
        self._partly: set[str] = set()
        """Those of them whose roster is not known from the beginning: a leave may be of somebody who came before."""
        self._had = Had(self._passed)
        self.delivered_events = 0
        self.gaps = 0

    def has_passed(self, region: str, position: Position) -> bool:
        """Return whether what is at a position of a region, if anything is, was decoded before."""
        return max(self._passed.get(region, _NOWHERE), self._markers.get(region, _NOWHERE)) >= position

    def reach(self, markers: Mapping[str, Position]) -> None:
        """Note that all before a marker of each region was decoded: a state may be as of that."""
        self._markers |= markers

    def passed(self, region: str) -> Position:
        """Return up to where a region was decoded, (0, 0) for nothing."""
        return self._passed.get(region, _NOWHERE)

    def keep_places(self) -> None:
        """Keep from now on what `last_event` needs to find events before the last ones."""
        if self._places is None:
            self._places = {}

    def last_event(self, region: str, before: Position | None = None) -> Position:
        """Return the position of the last event of a region that was decoded, also as one of another region, or that
        the region's state is as of; (0, 0) for none.

        ``before``: the last one before a position, as far as that was kept.
        """
        places: Iterable[tuple[int, int, int]] = (self._places or {}).get(region, ())
        if before is not None:
            epoch, sequence = before
            earlier = ((each, last) for each, first, last in places if (each, first) < before)
            return max((min(place, (epoch, sequence - 1)) for place in earlier), default=_NOWHERE)
        return max((self._passed.get(region, _NOWHERE), *((epoch, last) for epoch, _, last in places)))

    def _note(self, region: str, epoch: int, first: int, last: int) -> None:
        """Keep where events of a region were decoded, once `keep_places` was called."""
        if self._places is not None:
            places = self._places.get(region)
            if places is None:
                places = self._places[region] = deque(maxlen=PLACES_KEPT)
            places.append((epoch, first, last))

    def begin_after(self, positions: Mapping[str, Position]) -> None:
        """Deliver no events of these regions that the application has had: up to the position of each."""
        self._floors |= positions
        for region, position in positions.items():
            self._had.resume(region, position)

    def drop(self, regions: Iterable[str]) -> None:
        """Forget where the history of some regions was to begin: they were left."""
        for region in regions:
            self._had.leave(region)
            self._floors.pop(region, None)
            self._passed.pop(region, None)
            self._markers.pop(region, None)
            self._rosters.pop(region, None)
            if self._places is not None:
                self._places.pop(region, None)
            self._partly.discard(region)

    def not_taken(self, first: Mapping[str, Position], kept: Iterable[Place], dropped: Iterable[Place]) -> None:
        """Note what the application was not given of regions that were left: from the first position of each on.

        ``kept``: the places of events that it will be given as those of other regions; ``dropped``: of those that it
        will not.
        """
        for region, (epoch, sequence) in first.items():
            self._had.take_back(region, (epoch, sequence - 1))
        for place in kept:
            self._had.keep(*place)
        for place in dropped:
            self._had.drop(*place)

    def tell(self, standing: Standing, batch: list[Item]) -> None:
        """Deliver a state."""
        at_ns, values, incomplete = time.time_ns(), dict[str, dict[str, Event]](), set[str]()
        for region, (position, snapshot) in standing.snapshots.items():
            values[region] = known = {}
            if snapshot.lost or snapshot.lacks_some:
                incomplete.add(region)
            for key, ((epoch, sequence), sent_at_ns, binary, publisher, encoded) in snapshot.values.items():
                try:
                    payload = encoded if binary else orjson.loads(encoded)
                except orjson.JSONDecodeError:  # no publisher of ours writes that
                    incomplete.add(region)
                    continue
                if key.startswith(PRESENT):
                    if region in self._rosters:
                        self._rosters[region][key.removeprefix(PRESENT)] = info_in(payload)
                    continue
                times = sent_at_ns, at_ns
                known[key] = Event(region, publisher, payload, epoch, sequence, *times, replayed=True, key=key)
            self._had.miss(region, position)
            self._passed[region] = position
            self._note(region, position[0], position[1], position[1])
        positions = {region: f"{epoch}-{last}" for region, ((epoch, last), _) in standing.snapshots.items()}
        present = {region: dict(self._rosters[region]) for region in values if region in self._rosters}
        batch.append(State(values, positions, frozenset(incomplete), present))

    def decode(
        self,
        item: Ready | Missing | Gap | Standing,
        batch: list[Item],
        *,
        together: Together = _apart,
        replayed: bool = False,
    ) -> None:
        """Decode a frame into items for the application. ``replayed``: the frame comes from history.

        ``together``: whether a region comes in one order with this one, from before a position on.
        """
        if isinstance(item, Gap):
            self.announce(item, batch)
            return
        if isinstance(item, Standing):
            self.tell(item, batch)
            return
        if isinstance(item, Missing):
            gap = Gap(item.region, item.epoch, item.first, item.last, "the node no longer has them")
            self.announce(gap, batch)
            return
        frame, meta = item
        first = frame.last - meta.events + 1
        if meta.kind != _EVENTS and meta.kind != _JOINT:
            reason = f"this version of gamecast knows no frames of kind {meta.kind}: upgrade it"
            self.announce(Gap(frame.region, frame.epoch, first, frame.last, reason), batch)
            return
        try:
            sent_at_ns, payloads, keys = decode_keyed_body(frame.body)
            if len(payloads) != meta.events:
                raise InvalidInput(f"a frame of {meta.events} events has {len(payloads)}")
            parts = joint_parts(frame.meta) if meta.kind == _JOINT else ()
        except InvalidInput as error:
            gap = Gap(frame.region, frame.epoch, first, frame.last, f"the frame cannot be read: {error}")
            self.announce(gap, batch)
            return
        if frame.region in self._floors and (known := self._known(frame, meta.events)):
            first, sent_at_ns, payloads, keys = first + known, sent_at_ns[known:], payloads[known:], keys[known:]
        region, publisher, epoch, at_ns = frame.region, meta.publisher, frame.epoch, time.time_ns()
        if region not in self._passed:
            self._had.begin(region, (epoch, first - 1))
        events: Iterable[Event]
        if len(payloads) == 1:  # as in quiet worlds, where each is waited for
            [payload], [sent] = payloads, sent_at_ns
            key = keys[0] if keys else None
            events = (_new_event((region, publisher, payload, epoch, frame.last, sent, at_ns, replayed, key)),)
        else:
            same = repeat(region), repeat(publisher), payloads, repeat(epoch), range(first, frame.last + 1)
            rest = repeat(at_ns), repeat(replayed), keys or _NO_KEYS
            events = map(_new_event, zip(*same, sent_at_ns, *rest, strict=False))
        before = len(batch)
        if parts:
            events = self._once(frame, parts, events, together)
            if isinstance(item, Contained):
                batch += self._by_others(events)
                self.delivered_events += len(batch) - before
                return
            batch += events
        elif keys and any(key is not None and key.startswith(PRESENT) for key in keys):
            batch += self._presences(events)
        else:
            batch += events
        self._passed[region] = epoch, frame.last
        self._note(region, epoch, first, frame.last)
        self.delivered_events += len(batch) - before
        if publisher != self._own_name:
            self._others_at_ns[region] = at_ns
        elif not replayed:
            self.own_events += len(sent_at_ns)
            others_at_ns = self._others_at_ns.get(region, 0)
            self.overtaken_events += sum(sent <= others_at_ns for sent in sent_at_ns)
        if self._tap is not None:
            self._tap.delivered(
                frame, meta.publisher, first=first, sent_at_ns=sent_at_ns, at_ns=at_ns, replayed=replayed
            )

    def _once(
        self, frame: StampedFrame, parts: Sequence[JointPart], events: Iterable[Event], together: Together
    ) -> Iterator[JointEvent]:
        """Yield those events of several regions that no other region has brought."""
        for event in events:
            behind = frame.last - event.sequence
            if not self._had.has(parts, event.epoch, behind, by=event.region):
                here = (
                    part
                    for part in parts
                    if part.region == event.region or together(part.region, (event.epoch, part.last - behind))
                )
                everywhere = tuple((part.region, part.last - behind) for part in parts)
                for other, number in everywhere:
                    self._note(other, event.epoch, number, number)
                yield JointEvent(*event, tuple((part.region, part.last - behind) for part in here), everywhere)

    def _by_others(self, events: Iterable[JointEvent]) -> Iterator[JointEvent]:
        """Yield events of several regions as those of the others only, and note that these have them so."""
        for event in events:
            places = {region: (event.epoch, number) for region, number in event.parts if region != event.region}
            # A region in which it is behind what was delivered has announced it as missing.
            part = event.within([each for each, at in places.items() if at > self._passed.get(each, _NOWHERE)])
            if part is not None:
                self._had.keep(event.region, (event.epoch, event.sequence))
                yield part

    def watch(self, regions: Iterable[str], *, partly: bool) -> None:
        """Deliver who arrives in some regions, and who leaves; ``partly``: who is there already will not be known."""
        for region in regions:
            self._rosters.setdefault(region, {})
            if partly:
                self._partly.add(region)

    def unwatch(self, regions: Iterable[str]) -> None:
        """Deliver that no more."""
        for region in regions:
            self._rosters.pop(region, None)
            self._partly.discard(region)

    def roster(self, region: str) -> dict[str, Any] | None:
        """Return who is in a region, name → what it says of itself; None if nothing is delivered of that."""
        return self._rosters.get(region)

    def _presences(self, events: Iterable[Event]) -> Iterator[Event | Presence]:
        """Yield events; those that say who is present only where somebody wants to know, as `Presence`."""
        for event in events:
            key = event.key
            if key is None or not key.startswith(PRESENT):
                yield event
            elif (roster := self._rosters.get(event.region)) is not None:
                name, is_here = key.removeprefix(PRESENT), event.payload is not None
                before = roster.pop(name, None)
                if not is_here and before is None and event.region not in self._partly:
                    continue  # it had not arrived
                info = info_in(event.payload) if is_here else before
                if is_here:
                    roster[name] = info
                yield Presence(event, name, info, is_here=is_here, before=before)

    def announce(self, gap: Gap, batch: list[Item]) -> None:
        """Deliver a gap."""
        self.gaps += 1
        self._had.miss(gap.region, (gap.epoch, gap.last_sequence or UNKNOWN_END))
        if gap.last_sequence:
            self._passed[gap.region] = max(self._passed.get(gap.region, _NOWHERE), (gap.epoch, gap.last_sequence))
        batch.append(gap)
        if self._tap is not None:
            self._tap.announced(gap)

    def _known(self, frame: StampedFrame, events: int) -> int:
        """Return how many of a frame's first events the application has had before it subscribed."""
        epoch, sequence = self._floors[frame.region]
        if (frame.epoch, frame.last) > (epoch, sequence):
            del self._floors[frame.region]
        if frame.epoch > epoch:
            return 0
        return min(events, max(0, sequence - frame.last + events)) if frame.epoch == epoch else events


def info_in(payload: Any) -> Any:
    """Return what an arrival says of who arrives; empty for what none of ours has written."""
    return payload.get("info") if isinstance(payload, dict) and payload.get("info") is not None else {}

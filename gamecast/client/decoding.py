"""Decode frames for the application: into events, and gaps in the place of missing events."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from adapters.places import Position
from gamecast.event import Event, Gap
from sequencing.errors import InvalidInput
from sequencing.frames import FrameKind, StampedFrame, decode_keyed_body
from sequencing.ready import Missing, Ready

if TYPE_CHECKING:
    from gamecast.recording.tap import Tap

_EVENTS = int(FrameKind.EVENTS)

_new_event = partial(tuple.__new__, Event)
_NO_KEYS = repeat(None)
_NOWHERE = 0, 0


class EventDecoder:
    """Decodes frames to events, in the order in which it is given them."""

    def __init__(self, tap: Tap | None) -> None:
        self._tap = tap
        self._floors: dict[str, Position] = {}
        """Region → the position after which its history begins: nothing up to there is delivered."""
        self._passed: dict[str, Position] = {}
        """Region → the position up to which it was decoded."""
        self.delivered_events = 0
        self.gaps = 0

    def has_passed(self, region: str, position: Position) -> bool:
        """Return whether what is at a position of a region, if anything is, was decoded before."""
        return self._passed.get(region, _NOWHERE) >= position

    def begin_after(self, positions: Mapping[str, Position]) -> None:
        """Deliver no events of these regions that the application has had: up to the position of each."""
        self._floors |= positions

    def drop(self, regions: Iterable[str]) -> None:
        """Forget where the history of some regions was to begin: they were left."""
        for region in regions:
            self._floors.pop(region, None)
            self._passed.pop(region, None)

    def decode(self, item: Ready | Missing | Gap, batch: list[Event | Gap], *, replayed: bool = False) -> None:
        """Decode a frame into items for the application. ``replayed``: the frame comes from history."""
        if isinstance(item, Gap):
            self.announce(item, batch)
            return
        if isinstance(item, Missing):
            gap = Gap(item.region, item.epoch, item.first, item.last, "the node no longer has them")
            self.announce(gap, batch)
            return
        frame, meta = item
        first = frame.last - meta.events + 1
        if meta.kind != _EVENTS:
            reason = f"this version of gamecast knows no frames of kind {meta.kind}: upgrade it"
            self.announce(Gap(frame.region, frame.epoch, first, frame.last, reason), batch)
            return
        try:
            sent_at_ns, payloads, keys = decode_keyed_body(frame.body)
            if len(payloads) != meta.events:
                raise InvalidInput(f"a frame of {meta.events} events has {len(payloads)}")
        except InvalidInput as error:
            gap = Gap(frame.region, frame.epoch, first, frame.last, f"the frame cannot be read: {error}")
            self.announce(gap, batch)
            return
        if frame.region in self._floors and (known := self._known(frame, meta.events)):
            first, sent_at_ns, payloads, keys = first + known, sent_at_ns[known:], payloads[known:], keys[known:]
        same = repeat(frame.region), repeat(meta.publisher), payloads, repeat(frame.epoch)
        numbers, at_ns = range(first, frame.last + 1), time.time_ns()
        rest = repeat(at_ns), repeat(replayed), keys or _NO_KEYS
        batch += map(_new_event, zip(*same, numbers, sent_at_ns, *rest, strict=False))
        self._passed[frame.region] = frame.epoch, frame.last
        self.delivered_events += len(payloads)
        if self._tap is not None:
            self._tap.delivered(frame, meta.publisher, first=first, sent_at_ns=sent_at_ns, at_ns=at_ns)

    def announce(self, gap: Gap, batch: list[Event | Gap]) -> None:
        """Deliver a gap."""
        self.gaps += 1
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

"""The tap of one connection: it notes publishes, receives and deliveries as they happen, for a recorder's thread.

The connection's event loop appends notes, a few for each frame, and never waits; the recorder's thread takes them. Each
end counts for itself, so neither needs a lock. Notes hold no payloads, so recording holds no memory for long.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from operator import itemgetter
from struct import pack
from typing import Any

from gamecast.event import Gap
from sequencing.frames import StampedFrame
from sequencing.keyed import Position
from sequencing.plan import Plan
from sequencing.resolved import Resolved

Row = Mapping[str, Any]

RECEIVED_FRAMES_KEPT = 32_768
"""The most frames of each region whose time of receipt is kept until delivery; for older frames it stays unknown."""

LOOK_FRAMES = 8_192
"""When this many more times are kept, those no longer needed are removed."""

FULL = "full"
"""The reason of a loss: more rows waited than ``pending_rows_max``."""


@dataclass(slots=True)
class _Stay:
    number: int
    region: str
    asked_at_ns: int
    from_index: int
    revision: int = 0
    joined_at_ns: int | None = None
    left_at_ns: int | None = None
    to_index: int | None = None
    epoch: int | None = None
    since: Position | None = None
    begin: Position | None = None


class Tap:
    """The notes of one connection; all but `take` is called from the thread of its event loop."""

    def __init__(self, on_plan: Callable[[Plan], None], name: str, incarnation: int, *, pending_rows_max: int) -> None:
        """Use `Recorder.tap`. ``on_plan`` is called with each plan that the connection follows from then on."""
        self.name = name
        self.incarnation = incarnation
        self.index = 0
        """The place of the next delivery."""
        self.lost: Counter[str] = Counter()
        """Table → rows that were dropped because too many waited."""
        self.opened_at_ns = time.time_ns()
        self.closed_at_ns: int | None = None
        self._on_plan = on_plan
        self._pending_max = pending_rows_max
        self._put = 0
        self._taken = 0
        self._deliveries: list[tuple[Any, ...]] = []
        self._receives: list[tuple[Any, ...]] = []
        self._publishes: list[tuple[Any, ...]] = []
        self._rows: list[tuple[str, Row]] = []
        self._stays: dict[str, _Stay] = {}
        self._stay_count = 0

    @property
    def pending_rows(self) -> int:
        """Rows that wait for the recorder's thread."""
        return self._put - self._taken

    def received(self, frames: Sequence[StampedFrame]) -> None:
        """Note frames that were read just now."""
        if self._is_full("receives", len(frames)):
            self.lost["frames"] += len(frames)
            return
        at = time.time_ns()
        self._receives += [
            (region, epoch, last, meta, stamp, len(body), at) for region, epoch, last, meta, stamp, body in frames
        ]

    def delivered(
        self,
        frame: StampedFrame,
        publisher: str,
        *,
        first: int,
        sent_at_ns: Sequence[int],
        at_ns: int,
        replayed: bool = False,
    ) -> None:
        """Note that the events of a frame, from number ``first`` on, are delivered to the application.

        ``replayed``: whether from history.
        """
        index, events = self.index, len(sent_at_ns)
        self.index += events
        if self._put - self._taken + events > self._pending_max:
            self.lost["deliveries"] += events
            return
        self._put += events
        # Sending times are kept as the body's own text: Python numbers for each event, kept until the thread comes,
        # would cost more than all else here. The text has the times of all the frame's events, also before `first`.
        body = frame.body
        # A tuple in the order of `DeliveredFrame`, and the frame's last number in place of when it was received.
        times, told = body[: body.find(b"]")], 1 if replayed else None
        note = (frame.region, publisher, frame.epoch, first, events, index, times, frame.last, at_ns, told)
        self._deliveries.append(note)

    def published(self, resolved: Resolved[Any]) -> None:
        """Note the fate of the events of a frame; of one of several regions, in each of them."""
        for region, first in resolved.also:
            self.published(replace(resolved, region=region, first_sequence=first, also=()))
        events = len(resolved.tokens)
        if self._is_full("publishes", events):
            return
        at, error, sizes = time.time_ns(), resolved.error, list(map(len, resolved.payloads))
        sent_at_ns = pack(
            f"={len(resolved.sent_at_ns)}q", *resolved.sent_at_ns
        )  # not as numbers of Python's, as in `delivered`
        if error is None:
            fate: tuple[Any, ...] = resolved.epoch, resolved.first_sequence, sizes, sent_at_ns
            self._publishes.append((resolved.region, *fate, "acknowledged", None, at))
        else:
            outcome = "refused" if error.definite else "unknown"
            nothing = resolved.region, None, None, sizes, sent_at_ns
            self._publishes.append((*nothing, outcome, type(error).__name__, at))

    def announced(self, gap: Gap) -> None:
        """Note a gap that is delivered to the application."""
        row = {**gap._asdict(), "index": self.index, "announced_at_ns": time.time_ns()}
        self._note("gaps", {"subscriber": self.name, "incarnation": self.incarnation, **row})

    def planned(self, plan: Plan) -> None:
        """Note a plan that the connection follows from now on."""
        self._on_plan(plan)

    def asked(self, regions: Iterable[str], since: Mapping[str, Position] | None = None) -> None:
        """Note that the application wants regions that it did not want before; ``since``: behind which position."""
        at, since = time.time_ns(), since or {}
        for region in sorted(regions):
            self._stays[region] = stay = _Stay(self._stay_count, region, at, self.index, since=since.get(region))
            self._stay_count += 1
            self._note_stay(stay, at)

    def joined(self, epochs: Mapping[str, int], begins: Mapping[str, Position]) -> None:
        """Note that regions are joined: region → the epoch of the join, and the position behind which it is given."""
        at = time.time_ns()
        for region, epoch in sorted(epochs.items()):
            stay = self._stays.get(region)
            if stay is not None and stay.joined_at_ns is None:
                stay.joined_at_ns, stay.epoch, stay.begin = at, epoch, begins.get(region)
                self._note_stay(stay, at)

    def left(self, regions: Iterable[str]) -> None:
        """Note that regions are left: no more of their events will be delivered."""
        at = time.time_ns()
        for region in sorted(regions):
            stay = self._stays.pop(region, None)
            if stay is not None:
                stay.left_at_ns, stay.to_index = at, self.index
                self._note_stay(stay, at)

    def close(self) -> None:
        """Note that the connection is closed: its stays end."""
        self.left(list(self._stays))
        self.closed_at_ns = time.time_ns()

    def take(self) -> Taken:
        """Return the notes since the last call; for the recorder's thread."""
        taken = Taken(cut(self._deliveries), cut(self._receives), cut(self._publishes), cut(self._rows))
        self._taken += taken.rows
        return taken

    def _note_stay(self, stay: _Stay, at_ns: int) -> None:
        row = {
            "subscriber": self.name,
            "incarnation": self.incarnation,
            "stay": stay.number,
            "revision": stay.revision,
            "region": stay.region,
            "asked_at_ns": stay.asked_at_ns,
            "joined_at_ns": stay.joined_at_ns,
            "left_at_ns": stay.left_at_ns,
            "from_index": stay.from_index,
            "to_index": stay.to_index,
            "epoch": stay.epoch,
            "since_epoch": stay.since and stay.since[0],
            "since_sequence": stay.since and stay.since[1],
            "begin_epoch": stay.begin and stay.begin[0],
            "begin_sequence": stay.begin and stay.begin[1],
            "noted_at_ns": at_ns,
        }
        stay.revision += 1
        self._note("stays", row)

    def _note(self, table: str, row: Row) -> None:
        """Have a row of gaps or stays recorded; it is lost, and counted, while too much waits to be taken."""
        if not self._is_full(table, 1):
            self._rows.append((table, row))

    def _is_full(self, table: str, rows: int) -> bool:
        if self._put - self._taken + rows > self._pending_max:
            self.lost[table] += rows
            return True
        self._put += rows
        return False


@dataclass(frozen=True, slots=True)
class Taken:
    """Notes, as tuples: the fields of `DeliveredFrame` except the time of receipt; those of a read; and those of
    `ResolvedFrame`. ``rows``: (table, row) one by one."""

    deliveries: list[tuple[Any, ...]]
    receives: list[tuple[Any, ...]]
    publishes: list[tuple[Any, ...]]
    single: list[tuple[str, Row]]

    def regions(self) -> set[str]:
        """Return the regions that notes are about."""
        noted = (row["region"] for table, row in self.single if table == "stays")
        return {note[0] for notes in (self.receives, self.publishes) for note in notes}.union(noted)

    @property
    def rows(self) -> int:
        """The number of rows, as the tap counted them."""
        delivered: int = sum(map(itemgetter(4), self.deliveries))
        published = sum(map(len, map(itemgetter(3), self.publishes)))  # the sizes of their events
        return delivered + len(self.receives) + published + len(self.single)


class Receipts:
    """The times of receipt of frames that are not delivered yet; a frame is (region, epoch, last number)."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, int, int], int] = {}
        self._reached: dict[str, tuple[str, int, int]] = {}
        self._look_at_frames = LOOK_FRAMES

    def received(self, frames: Iterable[tuple[str, int, int]], at_ns: Iterable[int]) -> None:
        """Keep when frames were received."""
        self._at.update(zip(frames, at_ns, strict=False))
        if len(self._at) >= self._look_at_frames:
            self._forget()
            self._look_at_frames = 2 * len(self._at) + LOOK_FRAMES

    def delivered(self, frames: Sequence[tuple[str, int, int]]) -> list[int | None]:
        """Return when frames were received, None if unknown; the frames of each region are given in their order."""
        self._reached.update(zip(map(itemgetter(0), frames), frames, strict=True))
        return list(map(self._at.pop, frames, repeat(None)))

    def _forget(self) -> None:
        """Forget frames that will not be delivered: they preceded delivered ones, as markers do, or their region was
        left."""
        kept: list[tuple[tuple[str, int, int], int]] = []
        frames_of: Counter[str] = Counter()
        for frame, at_ns in reversed(self._at.items()):
            region = frame[0]
            if self._reached.get(region, (region, 0, 0)) < frame and frames_of[region] < RECEIVED_FRAMES_KEPT:
                frames_of[region] += 1
                kept.append((frame, at_ns))
        self._at = dict(reversed(kept))


def cut(notes: list[Any]) -> list[Any]:
    """Take the present contents of a list; another thread may append to it meanwhile."""
    taken = notes[: len(notes)]
    del notes[: len(taken)]
    return taken

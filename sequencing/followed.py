"""What a subscriber notes of each region and each epoch that it follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sequencing.delivery import Delivery
from sequencing.frames import FrameKind, StampedFrame, parse_meta
from sequencing.plan import Plan


class Read(NamedTuple):
    """A stream to read: ``after`` is the region sequence of the last event received, None to find the end first."""

    node: str
    epoch: int
    after: int | None


@dataclass(slots=True)
class FollowedRegion:
    """A region that is being read at ``node``, in ``epoch``, after region sequence ``after``."""

    node: str
    epoch: int
    after: int | None
    marker: bytes | None = None
    """To be published."""
    awaited: bytes | None = None
    """The marker that is to come before it is joined, where the delivery does not wait for it."""
    later: list[int] = field(default_factory=list)
    """The epochs that the region went on to, as far as the plans have told."""
    is_direct: bool = False
    """Whether it needs no marker if no atom orders it; see `sequencing.joins`."""
    moved_in: int = 0
    """The last of the subscriber's requests for regions before ``after`` changed."""


class FollowedRegions:
    """All regions that a subscriber reads, and which of them need something: never found by a look at all of them."""

    def __init__(self) -> None:
        self.all: dict[str, FollowedRegion] = {}
        self.moving: set[str] = set()
        """Regions that go on to a later epoch."""
        self.unmarked: dict[str, None] = {}
        """Regions with a marker that is not published."""
        self.generation = 0
        """Grows whenever there are other streams to read than before, or other places in them to go on from."""
        self._at: dict[str, dict[str, FollowedRegion]] = {}
        self._turned: dict[str, None] = {}
        self._changed: dict[str, set[str]] = {}

    def reads(self, node: str | None) -> dict[str, Read]:
        """Return what to read, at one node or everywhere: region → stream and position."""
        there = self.all if node is None else self._at.get(node, {})
        return {region: Read(state.node, state.epoch, state.after) for region, state in there.items()}

    def changed_reads(self, node: str) -> dict[str, Read | None]:
        """Return what of `reads` at a node is not as at the last call; None: it is not read there any more."""
        there = self._at.get(node, {})
        changed: dict[str, Read | None] = {}
        for region in self._changed.pop(node, ()):
            state = there.get(region)
            changed[region] = Read(state.node, state.epoch, state.after) if state is not None else None
        return changed

    def put(self, region: str, state: FollowedRegion) -> None:
        """Read a region, or read it elsewhere than before."""
        if region in self.all:
            self.drop(region)
        self.all[region] = self._at.setdefault(state.node, {})[region] = state
        if state.marker is not None:
            self.unmarked[region] = None
        if state.later:
            self.moving.add(region)
        self._turned[state.node] = None
        self.note_place(region, state)

    def drop(self, region: str) -> None:
        """Read a region no more."""
        state = self.all.pop(region)
        del self._at[state.node][region]
        self.moving.discard(region)
        self.unmarked.pop(region, None)
        self.note_place(region, state)

    def note_place(self, region: str, state: FollowedRegion) -> None:
        """Note that a region is to be read from another place than before."""
        self.generation += 1
        self._changed.setdefault(state.node, set()).add(region)

    def mark(self, region: str, marker: bytes | None) -> None:
        """Have a region marked; with None, not."""
        self.all[region].marker = marker
        if marker is None:
            self.unmarked.pop(region, None)
        else:
            self.unmarked[region] = None

    def move(self, region: str, epoch: int) -> None:
        """Note the epoch that a region goes on to."""
        self.all[region].later.append(epoch)
        self.moving.add(region)

    def turned(self) -> list[str]:
        """Return the nodes where another stream is to be read than at the last call."""
        turned, self._turned = list(self._turned), {}
        return turned


@dataclass(slots=True)
class FollowedEpoch:
    """One epoch as far as this subscriber sees it."""

    plan: Plan
    delivery: Delivery
    barrier: set[str] = field(default_factory=set)
    """Regions of earlier epochs whose TICK is not delivered yet; epochs that begin with one plan share it."""
    held: list[tuple[list[StampedFrame], Mapping[str, int] | None]] = field(default_factory=list)
    """What reads have brought meanwhile, and what they were whole of."""
    reading: set[str] = field(default_factory=set)
    """Regions that are read in this epoch."""

    def hold(self, frames: list[StampedFrame], whole: Mapping[str, int] | None) -> None:
        """Keep the result of a read, unless it shows nothing that those since the last frame did not show."""
        if not frames:
            for earlier, was_whole in reversed(self.held):
                if was_whole == whole:
                    return
                if earlier:
                    break
        self.held.append((frames, whole))

    def held_of(self, region: str) -> int:
        """Return how many frames of a region are held."""
        return sum(frame.region == region for frames, _ in self.held for frame in frames)


class FollowedEpochs:
    """The epochs in which a subscriber reads anything, and which of them need something."""

    def __init__(self) -> None:
        self.all: dict[int, FollowedEpoch] = {}
        self.restless: set[int] = set()
        """Those that have a barrier, or frames that wait."""
        self.joining: set[int] = set()
        """Those with views that have not begun."""
        self._barred: set[int] = set()
        """Those that had a barrier at the last call of `opened`."""
        self._unused: set[int] = set()
        """Those in which no region is read."""

    def begin(self, number: int, epoch: FollowedEpoch) -> None:
        """Follow an epoch."""
        self.all[number] = epoch
        if epoch.barrier:
            self._barred.add(number)
        self._unused.add(number)
        self.note(number)

    def enter(self, number: int, region: str) -> None:
        """Read a region in an epoch."""
        self.all[number].reading.add(region)
        self._unused.discard(number)

    def leave(self, number: int, region: str) -> None:
        """Read a region in an epoch no more."""
        reading = self.all[number].reading
        reading.discard(region)
        if not reading:
            self._unused.add(number)

    def stop(self, region: str) -> None:
        """Have nothing wait for the end of a region, and drop what is held of it."""
        for number in self.restless:
            epoch = self.all[number]
            epoch.barrier.discard(region)
            epoch.held = [([frame for frame in held if frame.region != region], whole) for held, whole in epoch.held]

    def note(self, number: int) -> None:
        """Note what an epoch needs, after something has happened in it."""
        epoch = self.all[number]
        is_restless = bool(epoch.barrier or epoch.held or epoch.delivery.held_frames)
        for numbers, is_in in ((self.restless, is_restless), (self.joining, epoch.delivery.is_joining)):
            if is_in:
                numbers.add(number)
            else:
                numbers.discard(number)

    def opened(self) -> set[str]:
        """Return the regions that are read in epochs whose barrier has gone since the last call."""
        opened = [number for number in self._barred if not self.all[number].barrier]
        self._barred.difference_update(opened)
        return set[str]().union(*(self.all[number].reading for number in opened))

    def forget_unused(self) -> None:
        """Forget the epochs in which nothing is read, or will be."""
        for number in [number for number in self._unused if not self.all[number].barrier]:
            del self.all[number]
            for numbers in (self._unused, self._barred, self.restless, self.joining):
                numbers.discard(number)

    @property
    def held_frames(self) -> int:
        """Frames that are received and wait for others."""
        held = 0
        for number in self.restless:
            epoch = self.all[number]
            held += epoch.delivery.held_frames + sum(len(frames) for frames, _ in epoch.held)
        return held

    @property
    def are_held_back(self) -> bool:
        """Whether frames of any epoch wait for a TICK, or behind a gap."""
        epochs = (self.all[number] for number in self.restless)
        return any(epoch.barrier or epoch.held or epoch.delivery.is_behind_gap for epoch in epochs)


def may_be_past(marker: bytes, after: int, frame: StampedFrame) -> bool:
    """Return whether a marker has come with the next frame after a number, or is in what is missing before that."""
    return (parse_meta(frame.meta).kind == FrameKind.JOIN and frame.body == marker) or skips(after, frame)


def skips(after: int, frame: StampedFrame) -> bool:
    """Return whether something is missing between a number and a frame."""
    return frame.last - parse_meta(frame.meta).events > after

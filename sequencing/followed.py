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


@dataclass(slots=True)
class FollowedEpoch:
    """One epoch as far as this subscriber sees it."""

    plan: Plan
    delivery: Delivery
    barrier: set[str] = field(default_factory=set)
    """Regions of earlier epochs whose TICK is not delivered yet; epochs that begin with one plan share it."""
    held: list[tuple[list[StampedFrame], Mapping[str, int] | None]] = field(default_factory=list)
    """What reads have brought meanwhile, and what they were whole of."""

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


def may_be_past(marker: bytes, after: int, frame: StampedFrame) -> bool:
    """Return whether a marker has come with the next frame after a number, or is in what is missing before that."""
    return (parse_meta(frame.meta).kind == FrameKind.JOIN and frame.body == marker) or skips(after, frame)


def skips(after: int, frame: StampedFrame) -> bool:
    """Return whether something is missing between a number and a frame."""
    return frame.last - parse_meta(frame.meta).events > after

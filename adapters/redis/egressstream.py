"""One egress stream as the readers of one process share it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from adapters.network import Hidden
from sequencing.frames import StampedFrame, node_number

StreamKey = tuple[str, int]
"""(region, epoch)."""

KEPT_S = 1.0
KEPT_FRAMES_MAX = 512
"""The maximum for each stream. A reader that is further behind reads directly."""

KEPT_BYTES_MAX = 8 * 1024 * 1024
"""The maximum for all streams at a node, of the events."""


class StreamListener(Protocol):
    """What the reading reports to: one connection's reader (`adapters.redis.egressreader`)."""

    def take_next(self, stream: EgressStream, frame: StampedFrame) -> None:
        """Take the next frame of all that are read."""

    def notice(self, stream: EgressStream) -> None:
        """Note that a stream has new frames; `look_again` follows."""

    def look_again(self) -> None:
        """Look for new frames: there are some, or a read which was waited for has ended."""

    def hide(self, place: Hidden) -> None:
        """Note an entry that cannot be read."""

    def fail(self, error: Exception) -> None:
        """Note that reading has ended."""

    def wake(self) -> None:
        """Have a `read` that waits look again."""


@dataclass(slots=True, eq=False)
class EgressStream:
    """``kept``: the frames after ``start``; ``tail``: the last sequence that was read; ``since``: the first read that
    included the stream."""

    key: StreamKey
    start: int
    tail: int
    since: int
    stamp: bytes = b""
    """Of the last frame that was read."""
    kept: deque[StampedFrame] = field(default_factory=deque)
    readers: set[StreamListener] = field(default_factory=set)

    def number(self) -> int:
        """Return the node number of the last frame that was read, 0 where the node has not numbered it."""
        return abs(node_number(self.stamp)) if self.stamp else 0

    def after(self, sequence: int, frames_max: int) -> list[StampedFrame]:
        """Return the frames after a sequence, the oldest first."""
        frames: list[StampedFrame] = []
        for frame in reversed(self.kept):
            if frame.last <= sequence:
                break
            frames.append(frame)
        frames.reverse()
        return frames[:frames_max]


class Kept:
    """The frames that a process keeps at a node, for readers that come a little later, in the order in which they
    came."""

    def __init__(self) -> None:
        self.bytes = 0
        """Of the events."""
        self._all: deque[tuple[float, EgressStream, int]] = deque()
        """When each came, its stream, and its sequence there; some are not kept any more."""

    def __len__(self) -> int:
        return len(self._all)

    def take(self, stream: EgressStream, frame: StampedFrame, now_s: float) -> None:
        """Keep a frame that has come; `drop_old` follows, once those who wait for it have looked."""
        stream.kept.append(frame)
        self._all.append((now_s, stream, frame.last))
        self.bytes += len(frame.body)
        if len(stream.kept) > KEPT_FRAMES_MAX:
            self._drop(stream, stream.kept[0].last)

    def drop_old(self, now_s: float) -> None:
        """Drop what is older than `KEPT_S`, and the oldest of what is more than `KEPT_BYTES_MAX`."""
        ages, oldest_s = self._all, now_s - KEPT_S
        while ages and (ages[0][0] < oldest_s or self.bytes > KEPT_BYTES_MAX):
            _, stream, last = ages.popleft()
            self._drop(stream, last)

    def forget(self, stream: EgressStream) -> None:
        """Drop all frames of a stream that is read no more."""
        if stream.kept:
            self._drop(stream, stream.kept[-1].last)

    def _drop(self, stream: EgressStream, last: int) -> None:
        kept = stream.kept
        while kept and kept[0].last <= last:
            old = kept.popleft()
            stream.start = old.last
            self.bytes -= len(old.body)

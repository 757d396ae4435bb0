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
KEPT_BYTES_MAX = 1024 * 1024
"""The maxima for each stream, but for one frame. A reader that is further behind reads directly."""


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
    """``kept``: the frames after ``start``, each with its monotonic arrival time.

    ``tail``: the last sequence that was read; ``since``: the first read that included the stream.
    """

    key: StreamKey
    start: int
    tail: int
    since: int
    stamp: bytes = b""
    """Of the last frame that was read."""
    kept: deque[tuple[float, StampedFrame]] = field(default_factory=deque)
    kept_bytes: int = 0
    readers: set[StreamListener] = field(default_factory=set)

    def number(self) -> int:
        """Return the node number of the last frame that was read, 0 where the node has not numbered it."""
        return abs(node_number(self.stamp)) if self.stamp else 0

    def take(self, frame: StampedFrame, now_s: float) -> None:
        """Keep a frame that arrived, and drop old ones."""
        kept = self.kept
        kept.append((now_s, frame))
        self.kept_bytes += len(frame.body)
        while (
            kept[0][0] < now_s - KEPT_S
            or len(kept) > KEPT_FRAMES_MAX
            or (self.kept_bytes > KEPT_BYTES_MAX and len(kept) > 1)
        ):
            old = kept.popleft()[1]
            self.start = old.last
            self.kept_bytes -= len(old.body)

    def after(self, sequence: int, frames_max: int) -> list[StampedFrame]:
        """Return the frames after a sequence, the oldest first."""
        found: list[StampedFrame] = []
        for _, frame in reversed(self.kept):
            if frame.last <= sequence:
                break
            found.append(frame)
        found.reverse()
        return found[:frames_max]

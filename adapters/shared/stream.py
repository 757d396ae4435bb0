"""One egress stream as the readers of one process share it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from adapters.network import Hidden
from sequencing.frames import StampedFrame

StreamKey = tuple[str, int]
"""(region, epoch)."""

KEPT_S = 1.0
KEPT_FRAMES_MAX = 512
"""The maximum for each stream. A reader that is further behind reads directly."""


class StreamListener(Protocol):
    """What the shared reading reports to: a reader (`adapters.shared.reader`)."""

    def notice(self, stream: SharedStream) -> None:
        """Note that a stream has new frames; `look_again` follows."""

    def look_again(self) -> None:
        """Look for new frames: there are some, or a read which was waited for has ended."""

    def hide(self, place: Hidden) -> None:
        """Note an entry that cannot be read."""

    def fail(self, error: Exception) -> None:
        """Note that reading has ended."""


@dataclass(slots=True, eq=False)
class SharedStream:
    """``kept``: the frames after ``start``, each with its monotonic arrival time.

    ``tail``: the last sequence that was read; ``since``: the first read that included the stream.
    """

    key: StreamKey
    start: int
    tail: int
    since: int
    number: int = 0
    """The node number of the last frame that was read."""
    kept: deque[tuple[float, StampedFrame]] = field(default_factory=deque)
    readers: set[StreamListener] = field(default_factory=set)

    def take(self, frame: StampedFrame, now_s: float) -> None:
        """Keep a frame that arrived, and drop old ones."""
        kept = self.kept
        kept.append((now_s, frame))
        while kept[0][0] < now_s - KEPT_S or len(kept) > KEPT_FRAMES_MAX:
            self.start = kept.popleft()[1].last

    def after(self, sequence: int, frames_max: int) -> list[StampedFrame]:
        """Return the frames after a sequence, the oldest first."""
        found: list[StampedFrame] = []
        for _, frame in reversed(self.kept):
            if frame.last <= sequence:
                break
            found.append(frame)
        found.reverse()
        return found[:frames_max]

"""How large the frames of a reader are: reads ask for numbers of frames, and what they bring is bounded in bytes."""

from __future__ import annotations

from collections.abc import Iterable

from sequencing.frames import StampedFrame


class FrameSizes:
    """The size of a reader's frames: that of the largest that came last, which counts less with each one after it."""

    def __init__(self, expected: int = 1) -> None:
        """``expected``: in bytes, before any frame has come."""
        self.bytes = expected
        """The size of one."""

    def note(self, frames: Iterable[StampedFrame]) -> None:
        """Take frames that have come."""
        for frame in frames:
            self.bytes = max(len(frame.body), self.bytes - self.bytes // 64, 1)

    def fit_in(self, size: int, frames_max: int) -> int:
        """Return how many frames have about so many bytes: 1 at least, and ``frames_max`` at most."""
        return max(1, min(frames_max, size // self.bytes))

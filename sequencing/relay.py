"""The relay: it carries frames from a node's link to the next node.

A relay reads the link, offers the frames to the next node's step, and trims from the link the frames that this node
has accepted. It keeps no state that matters: the receiving node accepts each link sequence once and in order, so a
relay may die at any point, start again from the beginning of the link, or run twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sequencing.frames import LinkedFrame
from sequencing.node import TransferAnswer, TransferVerdict
from sequencing.pending import Judgement, Passing

FRAMES_MAX = 256
TRANSFER_BYTES = 4 * 1024 * 1024
"""Bytes of a transfer, about: enough to spread its cost, and few enough that Redis does not block for long."""


class Relay:
    """The progress of one link. This class does not read, send or wait."""

    def __init__(self, frames_max: int = FRAMES_MAX) -> None:
        """``frames_max``: the most frames in one transfer."""
        self.after = 0
        """The link sequence after which to read."""
        self.frames_max = frames_max
        """How many frames to read."""
        self.frames_moved = 0
        self.refused = False
        """Whether the next node did not accept all offered frames: their epoch's plan is not installed there yet, or
        earlier frames are missing."""
        self.awaits_verdicts = False
        """Whether what became of frames that name keys is awaited from beyond this link."""
        self._limit = frames_max

    def read(self, frames: Sequence[LinkedFrame]) -> Sequence[LinkedFrame]:
        """Take the frames read; return those to offer to the next node."""
        if frames:
            largest_bytes = max(len(linked.frame.body) for linked in frames)
            self.frames_max = max(1, min(self._limit, 2 * self.frames_max, TRANSFER_BYTES // (largest_bytes + 1)))
        return frames

    def answered(self, answer: TransferAnswer) -> int | None:
        """Take the next node's answer; return the link sequence up to which to trim, None if it accepted no more."""
        self.refused = answer.verdict is not TransferVerdict.OK
        if answer.accepted > self.after:
            return answer.accepted
        self.after = answer.accepted
        return None

    def trimmed(self, accepted: int) -> None:
        """Continue after the frames trimmed from the link; until this is called, they are read and offered again."""
        self.frames_moved += accepted - self.after
        self.after = accepted


def told(
    verdicts: Mapping[str, Judgement], passing: Mapping[str, Passing], target: str
) -> tuple[dict[str, Judgement], bool]:
    """Return the verdicts that the near end of a link waits for, and whether it waits for more.

    ``verdicts``: those that the far end, ``target``, has for it; ``passing``: what has passed the near end undecided,
    asked for later: what has a verdict, and is not awaited any more, was told before.
    """
    awaited = {of for of, each in passing.items() if each.target == target}
    known = {of: verdict for of, verdict in verdicts.items() if of in awaited}
    return known, len(known) < len(awaited)

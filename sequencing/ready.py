"""What a subscriber delivers: frames, and what it can say of events that are missing."""

from __future__ import annotations

from typing import NamedTuple

from sequencing.frames import FrameKind, Meta, StampedFrame


class Ready(NamedTuple):
    """A frame to deliver now."""

    frame: StampedFrame
    meta: Meta


class Missing(NamedTuple):
    """Events of a region that will never come: region sequences ``first`` … ``last``, both included.

    ``last`` is 0 if it is unknown how many there were, if any: the ingress lost the end of its epoch.
    """

    region: str
    epoch: int
    first: int
    last: int


def is_marker(ready: Ready, body: bytes | None) -> bool:
    """Return whether a frame is the awaited marker, whose body is given."""
    return ready.meta.kind == FrameKind.JOIN and ready.frame.body == body

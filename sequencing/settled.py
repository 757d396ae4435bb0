"""The short way of a lone event: what a settled subscriber expects next of a region.

While nothing joins, moves or waits, nearly every frame that comes is the next of its region, with one event, and is
delivered at once. A *track* has the cursors that such a frame moves; each belongs to the part that counts with it, and
is the same that the general way moves. So one comparison replaces the general way, and everything else goes that way
(as header prediction in Van Jacobson's TCP).

A track holds for as long as the subscriber's turn lasts: whatever may change the grounds on which it was made, grows
the turn. It is made only where no atom binds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sequencing.followed import FollowedRegion
from sequencing.frames import FrameKind, Meta, StampedFrame
from sequencing.lanes import Received
from sequencing.ordering import Expected
from sequencing.ready import Ready

_LONE = b"%d 1 " % FrameKind.EVENTS
"""How the meta of a frame of one event begins."""
_NODE = b"0,"
"""How a stamp begins that only the egress node has numbered."""
SENDERS_MAX = 1_024


class Track(NamedTuple):
    """The cursors of a region in its epoch, and the streams that were read completely when it was made."""

    turn: int
    """The subscriber's, see `Subscriber`; in another one, the track does not hold."""
    whole: Mapping[str, int] | None
    epoch: int
    followed: FollowedRegion
    received: Received
    expected: Expected


class Tracks:
    """The tracks of one subscriber."""

    def __init__(self, own_name: str) -> None:
        """``own_name``: of the connection; its own events go the general way, for its publisher waits for them."""
        self._own_name = own_name
        self._all: dict[str, Track] = {}
        self._turn = 0
        """The subscriber's turn in which `_all` was made."""
        self._senders: dict[bytes, Meta] = {}

    def next(self, frame: StampedFrame, whole: Mapping[str, int] | None, turn: int, requests: int) -> Ready | None:
        """Return a frame to deliver, if it is what a track of this turn expects; None leaves all as it is.

        ``whole``: see `sequencing.cut.ReadResult`; ``requests``: see `FollowedRegion.moved_in`.
        """
        track = self._all.get(frame.region)
        if track is None or track.turn != turn or track.whole is not whole or frame.meta[:4] != _LONE:
            return None
        expected, last, stamp = track.expected, frame.last, frame.stamp
        if last != expected.next or frame.epoch != track.epoch or stamp[:2] != _NODE or not stamp[2:].isdigit():
            return None
        meta = self._senders.get(frame.meta.split(b" ", 4)[-1]) or self._learn(frame.meta)
        if meta is None:
            return None
        followed, received = track.followed, track.received
        followed.after = received.received = last
        followed.moved_in = requests
        received.number = int(stamp[2:])
        expected.next = last + 1
        return Ready(frame, meta)

    def lacks(self, region: str, turn: int, whole: Mapping[str, int] | None) -> bool:
        """Return whether no track of a region was made in this turn, for what is read completely now."""
        if self._turn != turn:
            self._turn = turn
            self._all.clear()
        track = self._all.get(region)
        return track is None or track.whole is not whole

    def put(self, region: str, track: Track) -> None:
        """Expect what a track says in this turn."""
        self._all[region] = track

    def _learn(self, meta: bytes) -> Meta | None:
        """Return what the meta of a frame of one event says, None if it is to go the general way."""
        try:
            *numbers, sender = meta.split(b" ", 4)
            name = sender.decode()
        except ValueError:
            return None
        if len(numbers) != 4 or name == self._own_name or b"\n" in sender:
            return None
        if len(self._senders) >= SENDERS_MAX:
            self._senders.clear()
        known = self._senders[sender] = Meta(int(FrameKind.EVENTS), 1, name)
        return known

"""Whether what was pushed is what the streams have.

Redis tells apart who may send on a channel by commands and channels, and scripts send with the rights of whoever calls
them. So each user that may publish events can also send on the channels of egress streams by hand. What it sends there
is in no stream: it takes the place of the true event with its number for those who listen. That cannot be prevented
without asking the server for each event, so it is noticed: when a push comes for a number that was pushed differently
before, and when the streams are read again. Then the log says so (``gamecast.security``), and the application gets a
gap in the place of the true events.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from adapters.redis.evidence import Exchange
from sequencing.frames import StampedFrame, parse_meta

KEPT = 32
"""Of each stream: the true event comes right behind the forged one while there is traffic."""

security = logging.getLogger("gamecast.security")


class Forged(NamedTuple):
    """Events of a region that somebody sent in the place of the true ones: region sequences, both included."""

    region: str
    epoch: int
    first: int
    last: int


class PushedFrames:
    """The frames that were pushed to one reader at one node since the streams were compared with them."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._frames: dict[bytes, dict[int, StampedFrame]] = {}
        self._reported: set[tuple[bytes, int]] = set()
        self.is_doubtful = False
        """Whether two pushes contradict each other, or a forged one waits for the true event."""

    def __bool__(self) -> bool:
        return bool(self._frames)

    def forget(self) -> None:
        """Compare nothing of what was pushed: the server has been restarted since, which `Evidence` judges."""
        self._frames.clear()
        self.is_doubtful = False

    def add(self, key: bytes, frame: StampedFrame) -> None:
        """Note a frame that was pushed on the channel of a stream."""
        frames = self._frames.setdefault(key, {})
        frames[frame.last] = frame
        if len(frames) > KEPT:
            del frames[next(iter(frames))]

    def again(self, key: bytes, frame: StampedFrame) -> None:
        """Note a push whose number was there before."""
        known = self._frames.get(key, {}).get(frame.last)
        if known is not None and known != frame:
            self.is_doubtful = True

    async def compare(self, exchange: Exchange) -> list[Forged]:
        """Compare with the streams; return what was forged and is known now to have hidden true events.

        What was forged and hides nothing yet is kept, and compared again.
        """
        if not self._frames:
            return []
        asked: list[tuple[Any, ...]] = []
        for key, frames in self._frames.items():
            epoch = next(iter(frames.values())).epoch
            asked.append(("XRANGE", key, f"{epoch}-{min(frames)}", "+", "COUNT", 2 * KEPT))
            asked.append(("XRANGE", key, "-", "+", "COUNT", 1))
        answers = iter(await exchange(asked))
        found: list[Forged] = []
        kept: dict[bytes, dict[int, StampedFrame]] = {}
        for key, frames in self._frames.items():
            there = {int(entry[0].partition(b"-")[2]): entry[1] for entry in next(answers)}
            oldest = [int(entry[0].partition(b"-")[2]) for entry in next(answers)]
            for last, frame in frames.items():
                if last in there and tuple(there[last][1::2]) == (frame.meta, frame.stamp, frame.body):
                    continue
                if oldest and oldest[0] > last:
                    continue  # it was trimmed
                self._report(key, frame)
                if max(there, default=0) >= last:
                    found.append(Forged(frame.region, frame.epoch, last - _events(frame) + 1, last))
                else:
                    kept.setdefault(key, {})[last] = frame
        self._frames, self.is_doubtful = kept, bool(kept)
        return sorted(found)

    def _report(self, key: bytes, frame: StampedFrame) -> None:
        if (key, frame.last) not in self._reported:
            self._reported.add((key, frame.last))
            security.error(
                "node %s: an event was pushed in region %r as number %d-%d that the node has not numbered: somebody "
                "with a Redis user that may publish has sent it by hand; see docs/security.md",
                self._node,
                frame.region,
                frame.epoch,
                frame.last,
            )


def _events(frame: StampedFrame) -> int:
    return parse_meta(frame.meta).events

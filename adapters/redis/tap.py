"""Read a node from outside: its links and its egress streams, in one read, invisible to others.

Only XREAD, XINFO STREAM and TIME are sent. Frames on a link are trimmed when the next node has them; link sequences are
dense, so frames that were trimmed before they were read are counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from adapters.redis.connection import RedisConnection
from sequencing.errors import OtherSideError
from sequencing.frames import StampedFrame
from sequencing.keyspace import NodeKeys

FRAMES_MAX = 512
READ_BYTES = 16 * 1024 * 1024
"""Frames per stream and read are many, because links are trimmed soon.

But one reply has no more than about these bytes.
"""


BEGIN = b"0-0"
NEVER_USED = b"0-1"
"""Reads from the same place, because entries begin at 1-0. But from here on, every missing number counts as missed."""


class Seen(NamedTuple):
    """A frame at a node; ``leaves``: whether it is from the egress stream; otherwise it goes to the next node."""

    frame: StampedFrame
    leaves: bool


class Look(NamedTuple):
    """The result of one read; times in nanoseconds. ``not_before_ns``: when the previous read was answered, or 0.

    ``missed``: frames that were trimmed from a link before they were read.
    """

    seen: list[Seen]
    at_ns: int
    not_before_ns: int
    missed: int


@dataclass(slots=True)
class _Stream:
    region: str | None
    """None for a link."""
    after: bytes | None
    """The last entry that was read; None means that the end must be found first."""


class NodeTap:
    """One task's access for reading one node."""

    def __init__(self, name: str, url: str) -> None:
        """``url``: of the Redis that hosts the node. Does not connect yet."""
        self.name = name
        self._keys = NodeKeys(name)
        self._connection = RedisConnection(url, name)
        self._streams: dict[bytes, _Stream] = {}
        self._answered_ns = 0
        self._frame_bytes = 1

    def follow(self, streams: Iterable[tuple[str, int]], links: Iterable[str], *, from_begin: bool) -> None:
        """Read these egress streams, (region, epoch) each, and links, by their ends, and no others.

        New streams are read from their beginning if ``from_begin``, otherwise after `find_ends` from their ends.
        """
        wanted = {self._keys.egress(epoch, region).encode(): (region, BEGIN) for region, epoch in streams}
        ends = {self._keys.link(target).encode() for target in links}
        known = self._streams
        if from_begin and not known.keys() >= wanted.keys():
            self._answered_ns = 0  # what they have may be older than the last read
        begin = BEGIN if from_begin else None
        self._streams = {
            **{key: known.get(key) or _Stream(region, begin) for key, (region, _) in wanted.items()},
            **{key: known.get(key) or _Stream(None, begin) for key in ends},
        }

    async def read(self, block_ms: int) -> Look:
        """Return new frames, waiting up to ``block_ms``; raises `NetworkError` or `OtherSideError`."""
        streams = self._streams
        before, missed = self._answered_ns, 0
        keys = [key for key, stream in streams.items() if stream.after is not None]
        if not keys:
            await asyncio.sleep(block_ms / 1000)
            return Look([], time.time_ns(), before, 0)
        places = [streams[key].after or b"" for key in keys]
        frames_max = max(1, min(FRAMES_MAX, READ_BYTES // (self._frame_bytes * len(keys))))
        reply = await self._connection.call(
            *("XREAD", "COUNT", frames_max, "BLOCK", block_ms, "STREAMS"),
            *keys,
            *places,
            timeout_s=block_ms / 1000 + 10,
        )
        self._answered_ns = at_ns = time.time_ns()
        seen: list[Seen] = []
        for key, entries in reply or ():
            stream = streams[key]
            if stream.region is None:
                missed += _missed(stream.after or BEGIN, [entry_id for entry_id, _ in entries])
            for entry_id, fields in entries:
                frame = _egress(stream.region, entry_id, fields) if stream.region is not None else _link(fields)
                if frame is not None:
                    self._frame_bytes = max(len(frame.body), self._frame_bytes - self._frame_bytes // 64, 1)
                    seen.append(Seen(frame, stream.region is not None))
            stream.after = entries[-1][0]
        return Look(seen, at_ns, before, missed)

    async def clock(self) -> tuple[int, int, int]:
        """Return the time of a request, the server's clock in the answer, and the time of the answer; ns each."""
        asked = time.time_ns()
        seconds, micros = await self._connection.call("TIME")
        return asked, (int(seconds) * 1_000_000 + int(micros)) * 1000, time.time_ns()

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def find_ends(self) -> None:
        """Find the ends of new streams, from which they are read."""
        for key in [key for key, stream in self._streams.items() if stream.after is None]:
            try:
                reply = await self._connection.call("XINFO", "STREAM", key)
            except OtherSideError as error:
                if "no such key" not in str(error):
                    raise
                self._streams[key].after = NEVER_USED
            else:
                # A link may be trimmed completely: its last entry is reported all the same.
                about = dict(zip(reply[::2], reply[1::2], strict=True))
                self._streams[key].after = about[b"last-generated-id"]


def _missed(after: bytes, entry_ids: list[bytes]) -> int:
    if after == BEGIN:  # its end was not read before
        after = b"%d-0" % (int(entry_ids[0].partition(b"-")[0]) - 1)
    first, last = (int(entry_id.partition(b"-")[0]) for entry_id in (after, entry_ids[-1]))
    return last - first - len(entry_ids)


def _egress(region: str, entry_id: bytes, fields: list[bytes]) -> StampedFrame | None:
    epoch, _, last = entry_id.partition(b"-")
    if len(fields) != 6:
        return None
    _, meta, _, stamp, _, body = fields
    return StampedFrame(region, int(epoch), int(last), meta, stamp, body)


def _link(fields: list[bytes]) -> StampedFrame | None:
    if len(fields) != 12:
        return None
    _, region, _, epoch, _, last, _, meta, _, stamp, _, body = fields
    return StampedFrame(region.decode(errors="replace"), int(epoch), int(last), meta, stamp, body)

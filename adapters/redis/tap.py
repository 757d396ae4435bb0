"""A node read from beside: its links and its egress streams, in one read, without a word to anybody.

Only XREAD, XINFO STREAM and TIME are sent. What a link carries is trimmed when the next node has it; link sequences are
dense, so what was trimmed before it was read is counted.
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
"""Frames a stream and read: many, for links are trimmed soon, and not more than about so many bytes in one reply."""


BEGIN = b"0-0"
NEVER_USED = b"0-1"
"""Reads from the same place: entries begin at 1-0. But from here on, every number that is missing was missed."""


class Seen(NamedTuple):
    """A frame at a node; ``leaves``: from its egress stream, else it goes on to the next node."""

    frame: StampedFrame
    leaves: bool


class Look(NamedTuple):
    """What one read found; times in nanoseconds. ``not_before_ns``: when the read before it was answered, or 0.

    ``missed``: frames that were on a link and gone before they were read.
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
    """The entry that was read last; None to find the end first."""


class NodeTap:
    """One task's way to read one node."""

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

        What is new is read from its begin if ``from_begin``, else from what comes after `find_ends`.
        """
        wanted = {self._keys.egress(epoch, region).encode(): (region, BEGIN) for region, epoch in streams}
        ends = {self._keys.link(target).encode() for target in links}
        known = self._streams
        begin = BEGIN if from_begin else None
        self._streams = {
            **{key: known.get(key) or _Stream(region, begin) for key, (region, _) in wanted.items()},
            **{key: known.get(key) or _Stream(None, begin) for key in ends},
        }

    async def read(self, block_ms: int) -> Look:
        """Return frames that came, waiting up to ``block_ms``; raises `NetworkError` or `OtherSideError`."""
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
        """Return when the node's server was asked, what its clock said, and when the answer was there; ns each."""
        asked = time.time_ns()
        seconds, micros = await self._connection.call("TIME")
        return asked, (int(seconds) * 1_000_000 + int(micros)) * 1000, time.time_ns()

    async def close(self) -> None:
        """Release the connection."""
        await self._connection.close()

    async def find_ends(self) -> None:
        """Find the ends of streams from which on they are to be read."""
        for key in [key for key, stream in self._streams.items() if stream.after is None]:
            try:
                found = await self._connection.call("XINFO", "STREAM", key)
            except OtherSideError as error:
                if "no such key" not in str(error):
                    raise
                self._streams[key].after = NEVER_USED
            else:
                # Of a link all may be trimmed: what it carried last is told all the same.
                about = dict(zip(found[::2], found[1::2], strict=True))
                self._streams[key].after = about[b"last-generated-id"]


def _missed(after: bytes, entry_ids: list[bytes]) -> int:
    if after == BEGIN:  # nobody looked how far it was before
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

"""The reading of a node's streams together, over and over, by commands that are put together only once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from adapters.network import Position
from adapters.redis.evidence import Evidence
from sequencing.frames import StampedFrame
from sequencing.keyspace import NodeKeys

Stream = Any
"""A stream's region, or its region and epoch where two epochs of a region may be read at once."""


class StreamsRead:
    """Streams that are read together, over and over: where possible, a read costs what changed since the last one.

    To put together a command for forty streams takes longer than to answer it.
    """

    def __init__(self, keys: NodeKeys, after: Mapping[Stream, Position], evidence: Evidence) -> None:
        self._after, self._evidence = after, evidence
        self.streams: dict[Stream, int] = {stream: epoch for stream, (epoch, _) in after.items()}
        egress = {
            stream: keys.egress(epoch, stream[0] if isinstance(stream, tuple) else stream).encode()
            for stream, (epoch, _) in after.items()
        }
        self._stream_of = {key: stream for stream, key in egress.items()}
        self.places = {key: (str(stream), self.streams[stream]) for stream, key in egress.items()}
        """Key, and channel → region and epoch; of regions."""
        self._place_of = {stream: place for place, stream in enumerate(egress)}
        self._packed_keys = _packed(*egress.values())
        self._packed_ids = [_packed_id(position) for position in after.values()]
        self._moved: set[Stream] = set()
        """The streams whose positions may have changed since the last read."""

    @property
    def is_single(self) -> bool:
        """Whether there is one stream."""
        return len(self._packed_ids) == 1

    def goes_on(self, after: Mapping[Stream, Position]) -> bool:
        """Return whether the same streams are read from these positions on; if so, take them over.

        The very object of the last time can differ only where frames have come since.
        """
        if after is not self._after:
            if {stream: epoch for stream, (epoch, _) in after.items()} != self.streams:
                return False
            self._after = after
            self._moved.update(after)
        return True

    def moved(self, frames: Iterable[StampedFrame]) -> None:
        """Note frames that came another way."""
        for frame in frames:
            self._moved.add(frame.region)
            self._evidence.read((frame.region, frame.epoch), frame.last, frame.meta)

    def last_of(self) -> dict[bytes, int]:
        """Return the positions: key → region sequence."""
        return {key: self._after[stream][1] for key, stream in self._stream_of.items()}

    def command(self, frames_max: int, block_ms: int | None) -> bytes:
        """Return the command that reads; ``block_ms``: for how long it may wait, None for not at all."""
        for stream in self._moved:
            self._packed_ids[self._place_of[stream]] = _packed_id(self._after[stream])
        self._moved.clear()
        block = (b"BLOCK", b"%d" % block_ms) if block_ms is not None else ()
        words = b"XREAD", b"COUNT", b"%d" % frames_max, *block, b"STREAMS"
        length = b"*%d\r\n" % (len(words) + 2 * len(self._packed_ids))
        return b"".join((length, _packed(*words), self._packed_keys, *self._packed_ids))

    def frames_in(self, reply: Any) -> list[StampedFrame]:
        """Return the frames in an answer."""
        frames: list[StampedFrame] = []
        for key, entries in reply or ():
            stream = self._stream_of[key]
            self._moved.add(stream)
            region = stream[0] if isinstance(stream, tuple) else stream
            frames += frames_of(region, entries)
            if entries:
                self._evidence.read((region, self.streams[stream]), frames[-1].last, frames[-1].meta)
        return frames


def _packed(*words: bytes) -> bytes:
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def _packed_id(position: Position) -> bytes:
    return _packed(b"%d-%d" % position)


def frames_of(region: str, entries: Any) -> list[StampedFrame]:
    """Return the frames of a stream's entries."""
    frames: list[StampedFrame] = []
    for entry_id, fields in entries:
        epoch, _, last = entry_id.partition(b"-")
        # An entry that no node wrote becomes a frame that cannot be read.
        _, meta, _, stamp, _, body = fields if len(fields) == 6 else (b"",) * 6
        frames.append(StampedFrame(region, int(epoch), int(last), meta, stamp, body))
    return frames

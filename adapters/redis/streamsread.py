"""The reading of a node's streams together, over and over, by commands that are put together only once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from adapters.places import Places, Position
from adapters.redis.evidence import Evidence
from sequencing.cut import Streams
from sequencing.frames import StampedFrame
from sequencing.keyspace import NodeKeys

Stream = Any
"""A stream's region, or its region and epoch where two epochs of a region may be read at once."""


class StreamsRead:
    """Streams that are read together, over and over: where possible, a read costs what changed since the last one.

    To put together a command for forty streams takes longer than to answer it.
    """

    def __init__(self, keys: NodeKeys, after: Mapping[Stream, Position], evidence: Evidence) -> None:
        self._keys, self._after, self._evidence = keys, after, evidence
        self.streams = Streams({})
        """Stream → epoch. Another object whenever it changes."""
        self.places: dict[bytes, tuple[str, int]] = {}
        """Key, and channel → region and epoch; of regions."""
        self._stream_of: dict[bytes, Stream] = {}
        self._at: dict[Stream, int] = {}
        """Stream → its place in the command."""
        self._names: list[bytes] = []
        """The keys, packed."""
        self._packed_names: bytes | None = None
        self._packed_ids: list[bytes] = []
        self._moved: set[Stream] = set()
        """The streams whose positions may have changed since the last read."""
        self._turned: set[bytes] | None = None
        if isinstance(after, Places):
            after.take_changes()
        self._change(after)

    @property
    def is_single(self) -> bool:
        """Whether there is one stream."""
        return len(self._packed_ids) == 1

    def turn(self) -> None:
        """Take over what has changed in `Places` since the last call."""
        if isinstance(self._after, Places):
            self._change(self._after.take_changes())

    def take_turned(self) -> set[bytes] | None:
        """Return the keys of streams that are new or gone since the last call; None at the first one."""
        turned, self._turned = self._turned, set()
        return turned

    def position(self, key: bytes) -> Position | None:
        """Return the position in the stream of a key; None if it is not read any more, perhaps since just now."""
        stream = self._stream_of.get(key)
        return self._after.get(stream) if stream is not None else None

    def _change(self, changed: Collection[Stream]) -> None:
        """Take over streams that are new, gone, or read from elsewhere on."""
        if not changed:
            return
        changes: dict[Stream, int | None] = {}
        for stream in changed:
            position, epoch = self._after.get(stream), self.streams.get(stream)
            if epoch is not None and (position is None or position[0] != epoch):
                self._remove(stream, epoch)
                changes[stream], epoch = None, None
            if position is None:
                continue
            if epoch is None:
                changes[stream] = position[0]
                self._add(stream, position)
            else:
                self._note_turned(self._key(stream, epoch))  # it may go on from elsewhere
            self._moved.add(stream)
        if changes:
            self.streams = self.streams.with_changes(changes)
            self._packed_names = None

    def _add(self, stream: Stream, position: Position) -> None:
        key = self._key(stream, position[0])
        self._stream_of[key] = stream
        self.places[key] = _region_of(stream), position[0]
        self._at[stream] = len(self._names)
        self._names.append(_packed(key))
        self._packed_ids.append(_packed_id(position))
        self._note_turned(key)

    def _remove(self, stream: Stream, epoch: int) -> None:
        key, place = self._key(stream, epoch), self._at.pop(stream)
        last = self._stream_of[_unpacked(self._names[-1])]
        del self._stream_of[key], self.places[key]
        for packed in (self._names, self._packed_ids):
            end = packed.pop()
            if last != stream:
                packed[place] = end
        if last != stream:
            self._at[last] = place
        self._moved.discard(stream)
        self._note_turned(key)

    def _note_turned(self, key: bytes) -> None:
        """Have `take_turned` return a key: of a stream that is new, gone, or read from elsewhere on."""
        if self._turned is not None:
            self._turned.add(key)

    def _key(self, stream: Stream, epoch: int) -> bytes:
        return self._keys.egress(epoch, _region_of(stream)).encode()

    def moved(self, frames: Iterable[StampedFrame]) -> None:
        """Note frames that came another way."""
        at, moved, evidence = self._at, self._moved, self._evidence.last_read
        for frame in frames:
            stream = frame.region, frame.epoch
            moved.add(stream if stream in at else frame.region)
            evidence[stream] = frame.last, frame.meta

    def last_of(self) -> dict[bytes, int]:
        """Return the positions: key → region sequence."""
        places = ((key, self._after.get(stream)) for key, stream in self._stream_of.items())
        return {key: place[1] for key, place in places if place is not None}

    def command(self, frames_max: int, block_ms: int | None) -> bytes:
        """Return the command that reads; ``block_ms``: for how long it may wait, None for not at all."""
        for stream in self._moved:
            if (position := self._after.get(stream)) is not None:  # else it is dropped with the next read
                self._packed_ids[self._at[stream]] = _packed_id(position)
        self._moved.clear()
        block = (b"BLOCK", b"%d" % block_ms) if block_ms is not None else ()
        words = b"XREAD", b"COUNT", b"%d" % frames_max, *block, b"STREAMS"
        if self._packed_names is None:
            self._packed_names = b"".join(self._names)
        length = b"*%d\r\n" % (len(words) + 2 * len(self._packed_ids))
        return b"".join((length, _packed(*words), self._packed_names, *self._packed_ids))

    def frames_in(self, reply: Any) -> list[StampedFrame]:
        """Return the frames in an answer."""
        frames: list[StampedFrame] = []
        for key, entries in reply or ():
            stream = self._stream_of[key]
            self._moved.add(stream)
            region = _region_of(stream)
            frames += frames_of(region, entries)
            if entries:
                self._evidence.last_read[region, self.streams[stream]] = frames[-1].last, frames[-1].meta
        return frames


def _region_of(stream: Stream) -> str:
    return str(stream[0] if isinstance(stream, tuple) else stream)


def _packed(*words: bytes) -> bytes:
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def _unpacked(word: bytes) -> bytes:
    return word.partition(b"\r\n")[2][:-2]


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

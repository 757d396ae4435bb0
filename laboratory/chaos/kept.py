"""What is in the egress streams at the end of a run: the order that each region has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from laboratory.chaos.items import own_name
from placement.textlines import read_lines
from sequencing.frames import CARRIES_EVENTS, FrameKind, decode_keyed_body, joint_parts, parse_meta
from sequencing.keyed import Position


class Kept(NamedTuple):
    """A frame in an egress stream at the end. ``kind``: a `FrameKind`; ``last``: the region sequence of its last event;
    ``stamp``: as it is on the frame; ``keys``: of each event, none at all where no event names one; ``said``: the
    payloads, of events that gamecast itself published."""

    node: str
    region: str
    epoch: int
    last: int
    kind: int
    publisher: str
    events: tuple[str, ...]
    stamp: str
    incarnation: int = 0
    keys: tuple[str | None, ...] = ()
    said: tuple[Any, ...] = ()

    @classmethod
    def of(cls, node: str, region: str, epoch: int, entry_id: bytes, fields: Sequence[bytes]) -> Self:
        """Read an entry of a stream; raises `InvalidInput` when it is none that a server or a node wrote."""
        _, meta, _, stamp, _, body = fields
        kind, _, publisher = parse_meta(meta)
        _, payloads, keys = decode_keyed_body(body) if kind in CARRIES_EVENTS else ([], [], ())
        last = int(entry_id.partition(b"-")[2])
        lasts = [(part.region, part.last) for part in joint_parts(meta)] if kind == FrameKind.JOINT else []
        events, said = [], []
        for behind, payload in zip(range(len(payloads) - 1, -1, -1), payloads, strict=True):
            if isinstance(payload, bytes):
                events.append(payload.decode().rstrip())
            else:
                everywhere = [(name, at - behind) for name, at in lasts or [(region, last)]]
                events.append(own_name(everywhere, epoch))
                said.append(payload)
        incarnation = int(meta.split(b" ", 3)[2])
        there = node, region, epoch, last, kind, publisher, tuple(events), stamp.decode(), incarnation
        return cls(*there, tuple(keys), tuple(said))

    def numbered(self) -> Iterator[tuple[str, int]]:
        """Yield its events and their region sequences."""
        yield from zip(self.events, range(self.last - len(self.events) + 1, self.last + 1), strict=True)

    def keyed(self) -> Iterator[Keyed]:
        """Yield its events that name keys."""
        saids = self.said or (None,) * len(self.events)
        for (event, number), key, said in zip(self.numbered(), self.keys, saids, strict=bool(self.keys)):
            if key is not None:
                yield Keyed((self.epoch, number), event, key, bool(self.said) and said is None, said)


class Keyed(NamedTuple):
    """An event that names a key. ``deletes``: whether the key ends with it; ``said``: its payload, if gamecast itself
    published it."""

    position: Position
    event: str
    key: str
    deletes: bool
    said: Any


def write_kept(file: Path, kept: Iterable[Kept]) -> None:
    """Write what `read_kept` reads."""
    file.write_bytes(b"".join(orjson.dumps(each._asdict()) + b"\n" for each in kept))


def read_kept(file: Path) -> list[Kept]:
    """Read the frames back; raises `InvalidInput` for what cannot be read."""
    found = (orjson.loads(line) for _, line in read_lines(file))
    lists = "events", "keys", "said"
    return [Kept(**{**each, **{name: tuple(each.get(name, ())) for name in lists}}) for each in found]

"""Read the notes of the servers: each of their sessions as the judges of simulated runs know them, and when."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from adapters.textlines import read_lines
from gamecast.positions import parse_position
from laboratory.simulation.server import Delivered, Diary
from sequencing.errors import InvalidInput
from sequencing.frames import FrameKind, decode_body, parse_meta
from sequencing.keyed import Position
from sequencing.ready import Missing

NEVER_MS = math.inf


class Kept(NamedTuple):
    """A frame in an egress stream at the end. ``kind``: a `FrameKind`; ``last``: the region sequence of its last event;
    ``stamp``: as it is on the frame."""

    node: str
    region: str
    epoch: int
    last: int
    kind: int
    publisher: str
    events: tuple[str, ...]
    stamp: str

    @classmethod
    def of(cls, node: str, region: str, epoch: int, entry_id: bytes, fields: Sequence[bytes]) -> Self:
        """Read an entry of a stream; raises `InvalidInput` when it is none that a server or a node wrote."""
        _, meta, _, stamp, _, body = fields
        kind, _, publisher = parse_meta(meta)
        payloads = decode_body(body)[1] if kind == FrameKind.EVENTS else []
        events = tuple(bytes(payload).decode().rstrip() for payload in payloads)
        last = int(entry_id.partition(b"-")[2])
        return cls(node, region, epoch, last, kind, publisher, events, stamp.decode())

    def numbered(self) -> Iterator[tuple[str, int]]:
        """Yield its events and their region sequences."""
        yield from zip(self.events, range(self.last - len(self.events) + 1, self.last + 1), strict=True)


@dataclass(slots=True)
class Tried:
    """A publish that names a key, possibly on the condition that its head is ``requires``; ``found``: the head, where
    that was not so. ``ended_ns``: when its answer came, None if none came."""

    region: str
    key: str
    requires: tuple[Position | None, ...]
    began_ns: int
    ended_ns: int | None = None
    is_refused: bool = False
    found: Position | None = None


@dataclass(slots=True)
class Life:
    """One session of a server, from the opening of a connection until that is closed, lost or killed.

    ``opened_ns``, ``closed_ns``: by the monotonic clock, the latter of the last note before it was to be closed;
    ``closing``: whether it was to be closed, else the server was killed, or hangs.
    ``stays``: (region, joined, left) in ns, infinite if that did not happen. ``seen``: (event, region, epoch, sequence)
    of each event that was delivered or has a receipt. ``failures``: by the error's name; ``trouble``: failed calls, as
    they were noted.
    """

    server: str
    session: Diary
    opened_ns: int
    closed_ns: int
    closing: bool = False
    delivered_ns: list[int] = field(default_factory=list)
    stays: list[tuple[str, float, float]] = field(default_factory=list)
    seen: list[tuple[str, str, int, int]] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    attempts: dict[str, Tried] = field(default_factory=dict)
    """Event → what it was to do with a key."""
    trouble: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Notes:
    """The notes of all servers. ``published_ns``: event → when its publish was called; ``trouble``: that of servers
    that had no connection, as it was noted, with ``server``."""

    lives: list[Life] = field(default_factory=list)
    published_ns: dict[str, int] = field(default_factory=dict)
    trouble: list[Mapping[str, Any]] = field(default_factory=list)


def write_kept(file: Path, kept: Iterable[Kept]) -> None:
    """Write what `read_kept` reads."""
    file.write_bytes(b"".join(orjson.dumps(each._asdict()) + b"\n" for each in kept))


def read_kept(file: Path) -> list[Kept]:
    """Read the frames back; raises `InvalidInput` for what cannot be read."""
    found = (orjson.loads(line) for _, line in read_lines(file))
    return [Kept(**{**each, "events": tuple(each["events"])}) for each in found]


def read_notes(files: Mapping[str, Path]) -> Notes:
    """Read the notes of each server, name → file. Raises `InvalidInput` for what a server cannot have written."""
    notes = Notes()
    for server, file in files.items():
        if file.exists():
            _NodeReader(notes, server).read(file)
    return notes


class _NodeReader:
    """One server's file, line by line."""

    def __init__(self, notes: Notes, server: str) -> None:
        self._notes = notes
        self._server = server
        self._life: Life | None = None
        self._asked: dict[str, int] = {}
        """Region → its place in ``stays`` and in ``session.joined``."""
        self._region_of: dict[str, str] = {}

    def read(self, file: Path) -> None:
        torn = ""
        for number, line in read_lines(file):
            if torn:
                self._life = None  # a process was killed in the middle of a line: another one goes on
            try:
                note = orjson.loads(line) if line != b"\n" else {"did": "start"}
            except orjson.JSONDecodeError as error:
                if torn:
                    raise InvalidInput(torn) from error
                torn = f"{file}, line {number}: is not JSON: {error}"
                continue
            torn = ""
            try:
                self._take(note)
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidInput(f"{file}, line {number}: is not a note of a server: {error!r}") from error

    def _take(self, note: dict[str, Any]) -> None:
        if note["did"] == "start":  # a new process, where the one before had written its last line to the end
            self._life = None
            return
        at, did = note["at"], note["did"]
        if did == "open":
            self._begin(at, note["session"])
            return
        if did == "trouble" and note["call"] == "open":
            self._life = None
        life = self._life
        if life is None:
            if did != "trouble":
                raise ValueError(f"{did} without a connection")
            self._notes.trouble.append({"server": self._server, **note})
            return
        if not life.closing:
            life.closed_ns = at
        life.closing = life.closing or did in ("trouble", "end")
        session = life.session
        match did:
            case "ask":
                region = note["region"]
                self._asked[region] = len(session.joined)
                session.joined.append((region, len(session.deliveries), None))
                session.joined_ms.append(NEVER_MS)
                life.stays.append((region, math.inf, math.inf))
            case "joined":
                place = self._asked[note["region"]]
                session.joined_ms[place] = at / 1e6
                life.stays[place] = note["region"], at, math.inf
            case "left":
                place = self._asked.pop(note["region"])
                region, since, _ = session.joined[place]
                session.joined[place] = region, since, len(session.deliveries)
                life.stays[place] = *life.stays[place][:2], at
            case "publish":
                session.published.append((note["event"], note["region"]))
                self._region_of[note["event"]] = note["region"]
                self._notes.published_ns[note["event"]] = at
                if (key := note.get("key")) is not None:
                    requires = (parse_position(note["only_if"]),) if "only_if" in note else ()
                    life.attempts[note["event"]] = Tried(note["region"], key, requires, at)
            case "receipt":
                session.receipts[note["event"]] = {self._region_of[note["event"]]: (note["epoch"], note["sequence"])}
                life.seen.append((note["event"], self._region_of[note["event"]], note["epoch"], note["sequence"]))
                if (tried := life.attempts.get(note["event"])) is not None:
                    tried.ended_ns = at
            case "fail":
                life.failures[note["error"]] += 1
                if note["uncertain"]:
                    session.uncertain.add(note["event"])
                tried = life.attempts.get(note["event"])
                if tried is not None and "position" in note:
                    tried.ended_ns, tried.is_refused, tried.found = at, True, parse_position(note["position"])
            case "deliver":
                session.deliveries.append(Delivered(note["event"], note["region"], note["sender"], at / 1e6))
                life.seen.append((note["event"], note["region"], note["epoch"], note["sequence"]))
                life.delivered_ns.append(at)
            case "gap":
                missing = Missing(note["region"], note["epoch"], note["first"], note["last"])
                session.deliveries.append(Delivered("", note["region"], "", at / 1e6, missing))
            case "trouble":
                life.trouble.append(note)
            case "end":
                session.ended = False
            case _:
                raise ValueError(did)

    def _begin(self, at: int, session: int) -> None:
        # Its "end" shows whether it ended in peace.
        self._life = Life(self._server, Diary(f"{self._server}#{session}", ended=True), at, at)
        self._asked = {}
        self._notes.lives.append(self._life)

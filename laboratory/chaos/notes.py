"""Read the notes of the servers: each of their sessions as the judges of simulated runs know them, and when."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from gamecast.positions import parse_position
from laboratory.chaos.items import own_name
from laboratory.simulation.server import Delivered, Diary, State
from placement.textlines import read_lines
from sequencing.errors import InvalidInput
from sequencing.keyed import Position
from sequencing.ready import Missing

NEVER_MS = math.inf

PRESENCE = "@"
"""Ends the name of the region under which arrivals and leaves are delivered: not all who follow a region get them."""


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


class Moved(NamedTuple):
    """An update that was taken after ``place`` deliveries. ``seen``: its position; ``number``: its sender's connection,
    and how many updates that had made; ``behind``: the event that its sender had published before it, if any."""

    place: int
    region: str
    key: str
    sender: str
    seen: Position
    number: tuple[int, int]
    behind: str


class Roster(NamedTuple):
    """Who was in a region, when its state was given after ``place`` deliveries."""

    place: int
    region: str
    position: Position
    names: frozenset[str]
    is_incomplete: bool


class Seen(NamedTuple):
    """An arrival or a leave that was delivered after ``place`` deliveries."""

    place: int
    region: str
    position: Position
    name: str
    is_here: bool


class Owned(NamedTuple):
    """An authority that a server was given. ``token``: where it begins."""

    region: str
    entity: str
    token: Position


class Since(NamedTuple):
    """Where a session goes on in a region. ``stay``: the place of that stay in `Diary.joined`."""

    position: Position
    stay: int


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
    attempts: dict[tuple[str, str], Tried] = field(default_factory=dict)
    """(event, region) → what it was to do with a key."""
    rosters: list[Roster] = field(default_factory=list)
    arrivals: list[Seen] = field(default_factory=list)
    """And leaves."""
    updates: list[Moved] = field(default_factory=list)
    owned: list[Owned] = field(default_factory=list)
    guarded: dict[str, Owned] = field(default_factory=dict)
    """Event → the authority by which it was published."""
    calls: Counter[str] = field(default_factory=Counter)
    """What it called of ownership → how often that ended so: ``began``, and of these ``done``, ``none``, ``refused``,
    ``uncertain`` or ``cancelled``; none of them if the process was killed."""
    replayed: set[int] = field(default_factory=set)
    """The places of those deliveries that came with history."""
    since: dict[str, Since] = field(default_factory=dict)
    """Region → where it went on, if the session began so and was not refused."""
    of: int | None = None
    """The session that it went on with."""
    caught_up: frozenset[str] = frozenset()
    """The regions whose history it has had."""
    refused: str = ""
    """The error by which it was refused to begin with history."""
    refused_stays: list[int] = field(default_factory=list)
    """The stays, places in `Diary.joined`, that never were because of it."""
    refused_of: int | None = None
    """The session that it was to go on with then."""
    last_look: tuple[frozenset[str], Mapping[str, frozenset[str]]] | None = None
    """At the end: the regions in which it was present, and region → whom it saw there."""
    trouble: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Notes:
    """The notes of all servers. ``published_ns``: event → when its publish was called; ``trouble``: that of servers
    that had no connection, as it was noted, with ``server``."""

    lives: list[Life] = field(default_factory=list)
    published_ns: dict[str, int] = field(default_factory=dict)
    trouble: list[Mapping[str, Any]] = field(default_factory=list)


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
        self._regions_of: dict[str, list[str]] = {}

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
        life.closing = life.closing or did in ("trouble", "close", "end")
        session = life.session
        match did:
            case "ask":
                region = note["region"]
                self._asked[region] = len(session.joined)
                session.joined.append((region, len(session.deliveries), None))
                session.joined_ms.append(NEVER_MS)
                life.stays.append((region, math.inf, math.inf))
                if (since := note.get("since")) is not None:
                    life.since[region] = Since(parse_position(since) or (0, 0), len(session.joined) - 1)
                    life.of = note.get("of")
                if note.get("state"):
                    session.asked.append((region, len(session.deliveries)))
            case "joined":
                place = self._asked[note["region"]]
                session.joined_ms[place] = at / 1e6
                life.stays[place] = note["region"], at, math.inf
            case "left" if note["region"] in self._asked:
                self._leave(life, note["region"], at)
            case "refused":
                for region in note["regions"]:
                    if region in self._asked:  # else it was left meanwhile
                        life.refused_stays.append(self._leave(life, region, at))
                life.refused, life.refused_of = note["error"], life.of
                life.since, life.of = {}, None
            case "caught_up":
                life.caught_up |= frozenset(note["regions"])
            case "publish":
                self._take_publish(life, note)
            case "receipt":
                event, regions = note["event"], self._regions_of[note["event"]]
                places = {regions[0]: note["sequence"]} | note.get("also", {})
                session.receipts[event] = {region: (note["epoch"], place) for region, place in places.items()}
                life.seen += ((event, region, note["epoch"], place) for region, place in places.items())
                for region in regions:
                    if (tried := life.attempts.get((event, region))) is not None:
                        tried.ended_ns = at
            case "fail":
                life.failures[note["error"]] += 1
                (session.uncertain if note["uncertain"] else session.refused).add(note["event"])
                tried = life.attempts.get((note["event"], note.get("region", "")))
                if tried is not None:
                    tried.ended_ns, tried.is_refused, tried.found = at, True, parse_position(note["position"])
            case "deliver":
                self._take_delivery(life, note)
            case "state":
                self._take_state(life, note)
            case "presence" if life.last_look is None:  # after it, the servers leave one after the other
                region, position = note["region"], (note["epoch"], note["sequence"])
                life.arrivals.append(Seen(len(session.deliveries), region, position, note["name"], note["here"]))
                event = own_name([(region, note["sequence"])], note["epoch"])
                session.deliveries.append(Delivered(event, region + PRESENCE, note["name"], at / 1e6))
                life.delivered_ns.append(at)
            case "update":
                seen, number = (note["epoch"], note["sequence"]), (note["session"], note["number"])
                there = len(session.deliveries), note["region"], note["key"], note["sender"]
                life.updates.append(Moved(*there, seen, number, note["behind"]))
            case "own":
                life.calls[f"{note['call']} {note['ended']}"] += 1
                if (token := parse_position(note.get("token"))) is not None:
                    life.owned.append(Owned(note["region"], note["entity"], token))
            case "look":
                saw = {region: frozenset(names) for region, names in note["saw"].items()}
                life.last_look = frozenset(note["here"]), saw
            case "gap":
                missing = Missing(note["region"], note["epoch"], note["first"], note["last"])
                session.deliveries.append(Delivered("", note["region"], "", at / 1e6, missing))
            case "trouble":
                life.trouble.append(note)
            case "end":
                session.ended = False
            case "presence" | "left" | "close":
                pass
            case _:
                raise ValueError(did)

    def _take_publish(self, life: Life, note: Mapping[str, Any]) -> None:
        event, regions = note["event"], note.get("regions") or [note["region"]]
        life.session.published.append((event, regions[0]))
        self._regions_of[event] = regions
        self._notes.published_ns[event] = note["at"]
        if "token" in note:
            life.guarded[event] = Owned(regions[0], note["entity"], parse_position(note["token"]) or (0, 0))
        if (key := note.get("key")) is None:
            return
        only_if = note.get("only_if")
        for region in regions:
            required = only_if[region] if isinstance(only_if, dict) else only_if
            requires = (parse_position(required),) if "only_if" in note else ()
            life.attempts[event, region] = Tried(region, key, requires, note["at"])

    def _leave(self, life: Life, region: str, at: int) -> int:
        place, session = self._asked.pop(region), life.session
        _, since, _ = session.joined[place]
        session.joined[place] = region, since, len(session.deliveries)
        life.stays[place] = *life.stays[place][:2], at
        session.left.append((region, len(session.deliveries)))
        return place

    @staticmethod
    def _take_delivery(life: Life, note: Mapping[str, Any]) -> None:
        event, at = note["event"], note["at"]
        parts = [(note["region"], note["sequence"]), *note.get("also", {}).items()]
        for region, sequence in parts:
            if note.get("replayed"):
                life.replayed.add(len(life.session.deliveries))
            is_again = region != note["region"]
            given = Delivered(event, region, note["sender"], at / 1e6, is_again=is_again)
            life.session.deliveries.append(given)
            life.seen.append((event, region, note["epoch"], sequence))
        life.delivered_ns.append(at)

    @staticmethod
    def _take_state(life: Life, note: Mapping[str, Any]) -> None:
        place = len(life.session.deliveries)
        for region, text in note["as_of"].items():
            position, is_incomplete = parse_position(text), region in note["incomplete"]
            heads = {key: parse_position(head) for key, head in note["heads"][region].items()}
            if position is None or None in heads.values():
                raise ValueError("a state has positions")
            known = {key: head for key, head in heads.items() if head is not None}
            life.session.states.append(State(place, region, position, known, is_incomplete))
            if region in note["present"]:
                names = frozenset(note["present"][region])
                life.rosters.append(Roster(place, region, position, names, is_incomplete))

    def _begin(self, at: int, session: int) -> None:
        # Its "end" shows whether it ended in peace.
        self._life = Life(self._server, Diary(f"{self._server}#{session}", ended=True), at, at)
        self._asked = {}
        self._notes.lives.append(self._life)

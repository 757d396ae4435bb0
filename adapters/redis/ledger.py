"""A leader's copy of what the control Redis has: read once, then kept up to date by the changes that are noted there.

What it writes is a difference, too, and is carried out only if the state is still as it knows.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from adapters.redis.announced import (
    People,
    Pipeline,
    Standing,
    announcement,
    heard_text,
    number_of,
    people_between,
    people_document,
    plan_of,
    read_announced,
    read_people,
    wire_message,
    with_people,
    write_all,
)
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.rows import Call, pairs, read_interests, read_overlaps, read_standings, readable
from sequencing.errors import PlanError
from sequencing.joint import check_wish
from sequencing.names import check_region
from sequencing.planchange import change_between, changed
from sequencing.record import WIRE, Interest, Record, Request

logger = logging.getLogger("gamecast.manager")

NEWS_KEPT = 1_024
"""How many announcements a connection may be behind."""

FOR_ALL_EVERY = 256
"""One of so many announcements wakes all who wait for news, so that none of them is too far behind."""

READINGS_MAX = 64
"""How often somebody who does not lead reads the record, until nothing was written meanwhile."""


class Ledger:
    """The state of a network, as its leader knows it."""

    def __init__(self) -> None:
        self.record: Record | None = None
        """The record that was saved last."""
        self.announced: Record | None = None
        """The one that was announced last."""
        self.interests: dict[str, Interest] = {}
        self.published: set[str] = set()
        """The regions to be published to that had no place when that was last looked at."""
        self.noted = 0
        """How many changes are known."""
        self.touched: set[str] | None = None
        """The names that these concern, since that was looked at last; None: any."""
        self.number = -1
        """How often the state was written; -1: it is not known."""

    async def load(self, call: Call, pipeline: Pipeline, noted: int) -> None:
        """Read all, for somebody who knows of so many changes; raises `PlanError`.

        No other candidate may write meanwhile. What connections tell meanwhile is noted, and read again.
        """
        with _reading(ControlKeys.state):
            state = dict(pairs(await call("HGETALL", ControlKeys.state)))
            number = int(state.get(b"number", b"0"))
        with _reading(f"{ControlKeys.plan}, {ControlKeys.regions} or {ControlKeys.atoms}"):
            self.announced = announced = await read_announced(pipeline)
        if (head := state.get(b"head")) is not None:
            with _reading(ControlKeys.heard):
                standings = await read_standings(call, pipeline)
            expected = await call("SMEMBERS", ControlKeys.ordered)
            with _reading(ControlKeys.state):
                self.record, self.announced = _read_record(head, state, announced, standings, expected)
        await self.read_interests(call, pipeline)
        members = await call("SMEMBERS", ControlKeys.published)
        self.published = {name for name, _ in readable(((name, b"") for name in members), check_wish, _warn)}
        self.noted, self.number = noted, number

    async def read_interests(self, call: Call, pipeline: Pipeline) -> dict[str, Interest]:
        """Read what connections want, and return it."""
        self.interests = await read_interests(call, pipeline, _warn)
        return self.interests

    def take(self, entries: Iterable[tuple[bytes, Sequence[bytes]]]) -> bool:
        """Take changes, as they were noted; return whether none before them is missing."""
        for number, fields in entries:
            place = int(number.partition(b"-")[0])
            if place <= self.noted:
                continue
            if place != self.noted + 1:
                return False
            self.noted = place
            try:
                self._take_one(fields)
            except (ValueError, IndexError) as error:
                _warn(b" ".join(fields[:2]).decode(errors="replace"), error)
        return True

    def _take_one(self, fields: Sequence[bytes]) -> None:
        verb, who = fields[0], fields[1]
        if self.touched is not None and verb != b"place":
            self.touched.add(who.decode())
        if verb == b"gone":
            self.interests.pop(who.decode(), None)
        elif verb == b"place":
            named = zip(fields[2::2], fields[3::2], strict=True)
            self.published.update(name for name, _ in readable(named, check_wish, _warn))
        elif verb == b"join":
            name = who.decode()
            incarnation, said, floor, is_whole = map(int, fields[3].split())
            named = zip(fields[4::2], fields[5::2], strict=True)
            wanted = {region: int(since) for region, since in readable(named, check_region, _warn)}
            request = Request(incarnation, said, wanted, bool(is_whole), floor)
            if (interest := request.after(self.interests.get(name))) is not None:
                self.interests[name] = interest

    def unplaced(self) -> frozenset[str]:
        """Return the regions that events are to be published to, and that have no place."""
        if self.record is not None and not self.record.plan.sole:
            self.published = {*self.record.plan.without_place(self.published)}
        return frozenset(self.published)

    def saving(self, record: Record) -> list[tuple[Any, ...]]:
        """Return the commands that save a record."""
        return _saving(self.record, record, self.announced)

    def announcing(self, record: Record, saved: Record) -> tuple[list[tuple[Any, ...]], frozenset[str] | None]:
        """Return the commands that announce a record, after which another one is what leaders go on from, and the
        names that it concerns; None: all.
        """
        told = announcement(self.announced, record, os.urandom(6).hex())
        commands = [
            *_saving(self.record, saved, record),
            ("SET", ControlKeys.plan, told.head),
            *told.rows,
            ("XADD", ControlKeys.news, "MAXLEN", "=", NEWS_KEPT, number_of(record.plan), "told", told.news),
        ]
        return commands, told.names if record.plan.version % FOR_ALL_EVERY else None

    def wrote(self, saved: Record, announced: Record | None = None) -> None:
        """Note what was written."""
        self.record = saved
        self.announced = announced if announced is not None else self.announced
        self.number += 1


def _saving(before: Record | None, record: Record, announced: Record | None) -> list[tuple[Any, ...]]:
    commands: list[tuple[Any, ...]] = []
    heard: list[tuple[Any, ...]] = []
    gone: list[tuple[Any, ...]] = []
    for name, change in people_between(before, record).items():
        text = heard_text(change.heard)
        known = before.members.get(name, frozenset[str]()) if before is not None else frozenset[str]()
        counted = record.members.get(name, frozenset[str]())
        commands += write_all("SADD", ControlKeys.counted(name), [(region,) for region in counted - known])
        commands += write_all("SREM", ControlKeys.counted(name), [(region,) for region in known - counted])
        if text or counted:
            heard.append((name, text))
        else:
            gone.append((name,))
    commands += write_all("HSET", ControlKeys.heard, heard)
    commands += write_all("HDEL", ControlKeys.heard, gone)
    known_pairs = before.expected if before is not None else frozenset()
    if record.expected is not known_pairs:
        new_pairs = [("\n".join(pair),) for pair in record.expected - known_pairs]
        commands += write_all("SADD", ControlKeys.ordered, new_pairs)
    if record.ended and (before is None or record.ended != before.ended):
        commands.append(("HSET", ControlKeys.state, "ended", orjson.dumps(record.ended)))
    commands.append(("HSET", ControlKeys.state, "head", _head(record, announced)))
    return commands


def _head(record: Record, announced: Record | None) -> bytes:
    """Return what is stored of a record beside rows: in relation to what is announced."""
    base = plan_of(announced)
    document: dict[str, Any] = {
        "wire": WIRE,
        "plan": change_between(base, record.plan),
        "next_atom": record.next_atom,
    }
    if record.behind:
        document["behind"] = [change_between(base, plan) for plan in record.behind]
        document["ending"] = sorted(record.ending())
    if record.abandoned:
        document["abandoned"] = [change_between(base, plan) for plan in record.abandoned]
    if record.leaving:
        document["leaving"] = {name: sorted(regions) for name, regions in record.leaving.items()}
    # What was announced of people, if it is something else than what is saved.
    if announced is not None and (people := people_between(record, announced)):
        document["people"] = people_document(people)
    return orjson.dumps(document)


def _read_record(
    head: bytes,
    state: dict[bytes, bytes],
    announced: Record | None,
    standings: dict[str, Standing],
    expected: Iterable[bytes],
) -> tuple[Record, Record | None]:
    """Return what is saved and what is announced."""
    try:
        document = orjson.loads(head)
        if (wire := document["wire"]) != WIRE:
            raise PlanError(wire_message(wire))
        base = plan_of(announced)
        ended = orjson.loads(state.get(b"ended", b"{}"))
        saved = Record(
            changed(base, document["plan"]),
            behind=tuple(changed(base, each) for each in document.get("behind", ())),
            abandoned=tuple(changed(base, each) for each in document.get("abandoned", ())),
            next_atom=int(document["next_atom"]),
            ended={node: tuple((str(r), int(e)) for r, e in streams) for node, streams in ended.items()},
            expected=read_overlaps(expected)[0],
            leaving={name: frozenset(regions) for name, regions in document.get("leaving", {}).items()},
        )
        saved = with_people(saved, standings)
        people = read_people(document.get("people", {}))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PlanError(f"this is not the state of a gamecast network: {error!r}") from error
    return saved, _as_announced(saved, announced, people) if announced is not None else None


def _as_announced(saved: Record, announced: Record, people: People) -> Record:
    """Return the announced record with its people."""
    members, heard = dict(saved.members), dict(saved.heard)
    for name, change in people.items():
        standing = change.after(Standing(heard.get(name), members.get(name, frozenset())))
        members[name] = standing.regions
        heard.pop(name, None)
        if standing.heard is not None:
            heard[name] = standing.heard
    members = {name: regions for name, regions in members.items() if regions}
    return replace(announced, members=members, heard=heard)


async def read_record(call: Call, pipeline: Pipeline) -> Record | None:
    """Return the record from which leaders continue, for somebody who does not lead.

    Leaders write meanwhile, so it is read again until nothing was written in between; raises `PlanError`, also if
    they never stop.
    """
    for _ in range(READINGS_MAX):
        ledger, error = Ledger(), None
        before = await call("HGET", ControlKeys.state, "number")
        try:
            await ledger.load(call, pipeline, 0)
        except PlanError as problem:
            error = problem
        if await call("HGET", ControlKeys.state, "number") == before:
            if error is not None:
                raise error
            return ledger.record
    raise PlanError(f"the network has changed each time that its state was read, {READINGS_MAX} times")


class Underway(NamedTuple):
    """The transition to a plan: how many plans are behind it, and the epochs that are ending, (region, epoch) each."""

    epoch: int
    version: int
    plans_behind: int
    ending: frozenset[tuple[str, int]]


async def read_underway(call: Call) -> Underway | None:
    """Return the transition that goes on, None if there is none; raises `PlanError`."""
    head = await call("HGET", ControlKeys.state, "head")
    if not head:
        return None
    try:
        document = orjson.loads(head)
        if not (behind := document.get("behind", ())):
            return None
        plan = document["plan"]
        ending = frozenset((str(region), int(epoch)) for region, epoch in document["ending"])
        return Underway(int(plan["epoch"]), int(plan["version"]), len(behind), ending)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PlanError(f"this is not the state of a gamecast network: {error!r}") from error


@contextmanager
def _reading(key: str) -> Iterator[None]:
    """Name the key that cannot be read."""
    try:
        yield
    except (PlanError, ValueError) as error:
        raise PlanError(f"{key}: {error}") from error


def _warn(name: str, error: Exception) -> None:
    logger.warning("what another program has stored as, or of, %r is left out: %s", name, error)

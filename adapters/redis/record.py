"""How records are stored in the control Redis: the parts that seldom change are separate from those that change often.

The lines of a record about all regions, atoms and expected overlaps take megabytes in a large network, and stay the
same through thousands of joins. So each long line is stored once, as a *part* under its digest, for all records that
have it. A record is stored as a *story*: a line with the digests of its parts, then its lines, with ``@`` and the
digest in the place of each part. The script counts which stories have which parts, and removes unused parts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from hashlib import sha1
from itertools import chain

from sequencing.errors import NetworkError, PlanError
from sequencing.identity import KeptFor
from sequencing.plan import Plan
from sequencing.record import Record

Ask = Callable[[Sequence[bytes]], Awaitable[Sequence[bytes | None]]]
"""Requests the parts with some digests: returns what HMGET answers."""

PART_BYTES_MIN = 1_000
"""Shorter lines are sent each time: requesting them would take longer."""

STORIES_AT_ONCE = 16
"""How many stories' parts are requested together.

From far away each request takes long, but Redis does nothing else while it answers one.
"""

PARTS_KEPT = 32
RECORDS_KEPT = 8
"""How many recently read records the connections of this process share."""

_DIGESTS = re.compile(rb"([0-9a-f]{40}( |$))*")

_parts: dict[bytes, bytes] = {}
_records: dict[bytes, Record] = {}


def told(record: Record) -> tuple[bytes, Mapping[bytes, bytes]]:
    """Return the story of a record, and its parts: digest → line."""
    parts: dict[bytes, bytes] = {}
    lines: list[bytes] = []
    head, people, *others = record.to_lines()
    for line in others:
        if len(line) < PART_BYTES_MIN:
            lines.append(line)
        else:
            digest = _digest(line)
            parts[digest] = line
            lines.append(b"@" + digest)
    return b"\n".join((b" ".join(parts), head, people, *lines)), parts


async def read(story: bytes, ask: Ask) -> Record:
    """Return the record of a story, parsed once for all connections of this process.

    Raises `PlanError` if the story is invalid, and `NetworkError` if parts of it are missing.
    """
    [record] = await read_all([story], ask)
    return record


async def read_all(stories: Sequence[bytes], ask: Ask) -> list[Record]:
    """Return the records of stories, the oldest first; raises as `read`.

    A concurrent announcement removes the oldest. Those are left out; the newest must be there.
    """
    found = {story: record for story in stories if (record := _records.get(story)) is not None}
    for story, lines in (await _lines_of_all([story for story in stories if story not in found], ask)).items():
        record = _records.get(story) or Record.from_lines(lines)  # another task may have read it meanwhile
        found[story] = _records[story] = record
        _forget_old(_records, RECORDS_KEPT)
        await _let_others_go_on()
    return [found[story] for story in _kept(stories, found)]


async def read_plan(story: bytes, ask: Ask) -> Plan:
    """Return only the plan of a record; raises as `read`."""
    return Record.plan_of(await lines_of(story, ask))


async def lines_of(story: bytes, ask: Ask) -> list[bytes]:
    """Return the lines of a story's record, as `Record.to_lines` does; raises as `read`."""
    found = await _lines_of_all([story], ask)
    [kept] = _kept([story], found)
    return found[kept]


def _kept(stories: Sequence[bytes], found: Container[bytes]) -> list[bytes]:
    """Return the stories whose parts were all found; raises `NetworkError` if the newest is not among them."""
    if stories and stories[-1] not in found:
        raise NetworkError("the record was replaced while it was being read")
    return [story for story in stories if story in found]


async def _lines_of_all(stories: Sequence[bytes], ask: Ask) -> dict[bytes, list[bytes]]:
    """Return story → the lines of its record, for stories whose parts are all still stored."""
    found: dict[bytes, list[bytes]] = {}
    for start in range(0, len(stories), STORIES_AT_ONCE):
        some = stories[start : start + STORIES_AT_ONCE]
        parts = await _parts_of(some, ask)
        for story in some:
            digests, *lines = story.split(b"\n")
            if parts.keys() >= set(digests.split()):
                found[story] = [parts.get(line[1:]) or line for line in lines]
    return found


async def _parts_of(stories: Iterable[bytes], ask: Ask) -> dict[bytes, bytes]:
    """Return the parts of some stories, digest → line, without missing ones; unknown parts are requested."""
    parts = {digest: _parts.get(digest) for digest in chain.from_iterable(map(_digests_of, stories))}
    if unknown := [digest for digest, part in parts.items() if part is None]:
        for digest, part in zip(unknown, await ask(unknown), strict=True):
            if part is not None:
                parts[digest] = _parts.setdefault(digest, part)
        _forget_old(_parts, PARTS_KEPT)
    return {digest: part for digest, part in parts.items() if part is not None}


def _digests_of(story: bytes) -> list[bytes]:
    digests, *_ = story.split(b"\n", 1)
    if _DIGESTS.fullmatch(digests) is None:
        raise PlanError(f"this is not the record of a gamecast network: it begins with {digests[:40]!r}")
    return digests.split()


async def _let_others_go_on() -> None:
    """Yield to the other tasks of this event loop: parsing many large records takes long."""
    await asyncio.sleep(0)


def _forget_old(kept: dict[bytes, Record] | dict[bytes, bytes], most: int) -> None:
    for key in list(kept)[:-most]:  # several threads may each have an event loop
        kept.pop(key, None)


@KeptFor
def _digest(line: bytes) -> bytes:
    return sha1(line, usedforsecurity=False).hexdigest().encode()

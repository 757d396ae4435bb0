"""How records are kept in the control Redis: what seldom changes, apart from what changes with each join.

The lines of a record that tell of all regions, atoms and expected overlaps take megabytes in a large network, and stay
as they are through thousands of joins. So each long line is kept once, as a *part* under its digest, for all records
that have it, and a record is kept as a *story*: a line of the digests of its parts, then its lines, with ``@`` and the
digest in the place of parts. The script counts which stories have which parts, and drops those that none has.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha1

from sequencing.errors import NetworkError, PlanError
from sequencing.identity import KeptFor
from sequencing.plan import Plan
from sequencing.record import Record

Ask = Callable[[Sequence[bytes]], Awaitable[Sequence[bytes | None]]]
"""Asks for the parts of some digests: what HMGET answers."""

PART_BYTES_MIN = 1_000
"""What is shorter is told each time: asking for it would take longer."""

PARTS_KEPT = 32
RECORDS_KEPT = 8
"""What connections of this process share of what they have read last."""

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
    """Return the record that a story is of, parsed once for all connections of this process.

    Raises `PlanError` when it is something else, and `NetworkError` when parts of it are gone.
    """
    record = _records.get(story)
    if record is None:
        lines = await lines_of(story, ask)
        record = _records.get(story) or Record.from_lines(lines)  # somebody else may have read it meanwhile
        _records[story] = record
        _forget_old(_records, RECORDS_KEPT)
    return record


async def read_plan(story: bytes, ask: Ask) -> Plan:
    """Return the plan only of the record that a story is of, at a small part of the cost; raises as `read`."""
    return Record.plan_of(await lines_of(story, ask))


async def lines_of(story: bytes, ask: Ask) -> list[bytes]:
    """Return the lines of the record that a story is of, as `Record.to_lines` does; raises as `read`."""
    digests, *lines = story.split(b"\n")
    if _DIGESTS.fullmatch(digests) is None:
        raise PlanError(f"this is not the record of a gamecast network: it begins with {digests[:40]!r}")
    parts = {digest: _parts.get(digest) for digest in digests.split()}
    if unknown := [digest for digest, part in parts.items() if part is None]:
        for digest, part in zip(unknown, await ask(unknown), strict=True):
            if part is None:
                raise NetworkError("the record was replaced while it was being read")
            parts[digest] = _parts.setdefault(digest, part)
        _forget_old(_parts, PARTS_KEPT)
    return [parts.get(line[1:]) or line for line in lines]


def _forget_old(kept: dict[bytes, Record] | dict[bytes, bytes], most: int) -> None:
    for key in list(kept)[:-most]:  # several threads may have an event loop each
        kept.pop(key, None)


@KeptFor
def _digest(line: bytes) -> bytes:
    return sha1(line, usedforsecurity=False).hexdigest().encode()

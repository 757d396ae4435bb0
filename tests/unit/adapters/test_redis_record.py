"""Stories: records without what seldom changes, and how they are read back."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1

import pytest

from adapters.redis.record import (
    PART_BYTES_MIN,
    PARTS_KEPT,
    STORIES_AT_ONCE,
    lines_of,
    read,
    read_all,
    read_plan,
    told,
)
from sequencing.errors import NetworkError, PlanError
from sequencing.plan import Atom, AtomId, Plan
from sequencing.record import Interest, Record


def record(tag: str, regions: int = 200) -> Record:
    paths = {f"{tag}-{number}": ("n1",) for number in range(regions)}
    atoms = (Atom(AtomId(1), (f"{tag}-0", f"{tag}-1"), "n1"),)
    interest = Interest(1, 1, {f"{tag}-0": 1})
    return Record(Plan(1, 1, "acyclic", {"n1": ""}, paths, atoms), {"s": frozenset(interest.since)}, {"s": interest})


def answers(*records: Record) -> dict[bytes, bytes]:
    return {digest: part for each in records for digest, part in told(each)[1].items()}


async def test_what_is_long_and_seldom_changes_is_told_by_its_digest() -> None:
    story, parts = told(record("long"))
    [(digest, line)] = parts.items()
    assert digest == sha1(line).hexdigest().encode()
    assert len(line) > PART_BYTES_MIN > len(story)
    assert told(record("short", regions=2))[1] == {}


async def test_a_story_is_read_back_and_its_parts_are_asked_for_once() -> None:
    kept, calls = answers(record("again")), list[list[bytes]]()

    async def ask(digests: Sequence[bytes]) -> list[bytes | None]:
        calls.append(list(digests))
        return [kept.get(digest) for digest in digests]

    story, _ = told(record("again"))
    assert await read(story, ask) == record("again")
    assert await read(story, ask) is await read(story, ask)
    assert await read_plan(story, ask) == record("again").plan
    assert b"\n".join(await lines_of(story, ask)) == record("again").to_json()
    assert calls == [list(kept)]


async def test_more_parts_than_are_kept_are_asked_for_again() -> None:
    records = [record(f"many{number}") for number in range(PARTS_KEPT + 1)]
    kept = answers(*records)

    async def ask(digests: Sequence[bytes]) -> list[bytes | None]:
        return [kept.get(digest) for digest in digests]

    for _ in range(2):
        assert [await read_plan(told(each)[0], ask) for each in records] == [each.plan for each in records]


async def test_the_parts_of_many_stories_are_asked_for_together() -> None:
    records = [record(f"together{number}") for number in range(2 * PARTS_KEPT)]
    kept, calls = answers(*records), 0

    async def ask(digests: Sequence[bytes]) -> list[bytes | None]:
        nonlocal calls
        calls += 1
        return [kept.get(digest) for digest in digests]

    found = await read_all([told(each)[0] for each in records], ask)
    assert [each.plan for each in found] == [each.plan for each in records]
    assert calls == 2 * PARTS_KEPT // STORIES_AT_ONCE


async def test_of_many_stories_the_oldest_may_be_gone_by_now_and_the_newest_may_not() -> None:
    old, new = record("gone-old"), record("gone-new")
    kept = answers(new)

    async def ask(digests: Sequence[bytes]) -> list[bytes | None]:
        return [kept.get(digest) for digest in digests]

    stories = [told(old)[0], told(new)[0]]
    assert len(await read_all(stories, ask)) == 1
    with pytest.raises(NetworkError, match="replaced while it was being read"):
        await read_all(stories[::-1], ask)


async def test_a_part_that_is_gone_is_said_so() -> None:
    async def ask(digests: Sequence[bytes]) -> list[bytes | None]:
        return [None] * len(digests)

    with pytest.raises(NetworkError, match="replaced while it was being read"):
        await read(told(record("gone"))[0], ask)


async def test_what_is_no_story_is_no_record() -> None:
    async def ask(_: Sequence[bytes]) -> list[bytes | None]:
        return [b"[]"]

    for text in (b"", b"nonsense", b"{}\n{}\n@00"):
        with pytest.raises(PlanError, match="not the record"):
            await read(text, ask)

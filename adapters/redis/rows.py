"""What connections want and what a plan counts for them: rows in the control Redis, read page by page.

What changes while the pages are read may be in or not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

from adapters.redis.announced import Pipeline, Standing, read_heard
from adapters.redis.controlkeys import ControlKeys
from sequencing.errors import InvalidName, PlanError
from sequencing.names import check_region
from sequencing.record import Interest, Pair

Call = Callable[..., Awaitable[Any]]

ROWS_A_CALL = 200
FIELDS_A_CALL = 1_000
"""Redis serves no other client while it answers one request."""


async def read_interests(
    call: Call, pipeline: Pipeline, on_spoiled: Callable[[str, Exception], None]
) -> dict[str, Interest]:
    """Return what each connection wants. ``call`` and ``pipeline``: to the control Redis.

    ``on_spoiled``: called with a name, and why what is stored of it is left out: another program has written it.
    """
    said: dict[str, tuple[int, int, int]] = {}
    async for field, text in scan_hash(call, ControlKeys.said):
        try:
            said[field.decode()] = read_said(text)
        except (PlanError, UnicodeDecodeError) as error:
            on_spoiled(field.decode(errors="replace"), error)
    # The rows are read after that: so they are no older.
    interests: dict[str, Interest] = {}
    async for name, flat in _pages("HGETALL", [*said], ControlKeys.rows, pipeline):
        incarnation, number, floor = said[name]
        try:
            since = {region: int(since) for region, since in readable(pairs(flat), check_region, on_spoiled)}
        except ValueError as error:
            on_spoiled(name, error)
            continue
        interests[name] = Interest(incarnation, number, since, floor)
    return interests


def readable(
    named: Iterable[tuple[bytes, bytes]], check: Callable[[object], str], on_spoiled: Callable[[str, Exception], None]
) -> Iterator[tuple[str, bytes]]:
    """Yield what has a name that passes a check, with the name; ``on_spoiled``: as above, for other names.

    Any client may write one, and no plan can have it.
    """
    for name, value in named:
        try:
            yield check(name.decode()), value
        except (UnicodeDecodeError, InvalidName) as error:
            on_spoiled(name.decode(errors="replace"), error)


def read_said(text: bytes) -> tuple[int, int, int]:
    """Return the incarnation of a connection, up to which ``said`` all is known that it wants, and its floor."""
    try:
        incarnation, said, _, is_last, floor = map(int, text.split())
    except ValueError as error:
        raise PlanError(f"this is not what a gamecast connection has said: {text[:40]!r}") from error
    return incarnation, said if is_last else said - 1, floor


async def read_standings(call: Call, pipeline: Pipeline) -> dict[str, Standing]:
    """Return what plans count for each name. ``call`` and ``pipeline``: as above."""
    heard = {field.decode(): text async for field, text in scan_hash(call, ControlKeys.heard)}
    return {
        name: Standing(read_heard(heard[name]), frozenset(region.decode() for region in regions))
        async for name, regions in _pages("SMEMBERS", [*heard], ControlKeys.counted, pipeline)
    }


async def read_begun(call: Call, steps: str, epoch: int) -> frozenset[str]:
    """Return the regions that have a step in an epoch. ``call``: to the server of the node; ``steps``: the key."""
    prefix = b"%d " % epoch
    fields = [field async for field, _ in scan_hash(call, steps, b"%b*" % prefix)]
    return frozenset(field.removeprefix(prefix).decode() for field in fields)


async def scan_hash(call: Call, key: str, pattern: bytes = b"*") -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield the fields and values of a hash, page by page."""
    cursor: Any = b"0"
    while True:
        cursor, flat = await call("HSCAN", key, cursor, "MATCH", pattern, "COUNT", FIELDS_A_CALL)
        for field, value in pairs(flat):
            yield field, value
        if cursor == b"0":
            return


def pairs(flat: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    """Return the fields and values of a hash, as Redis answers them."""
    return zip(flat[::2], flat[1::2], strict=True)


def read_overlaps(members: Iterable[bytes]) -> tuple[frozenset[Pair], list[bytes]]:
    """Return declared overlaps, as they are stored, and the members that are none: any client may write one."""
    overlaps: set[Pair] = set()
    spoiled: list[bytes] = []
    for member in members:
        try:
            one, other = map(check_region, member.decode().split("\n"))
            overlaps.add((one, other))
        except (ValueError, InvalidName):  # of another encoding, or not two
            spoiled.append(member)
    return frozenset(overlaps), spoiled


async def _pages(
    verb: str, names: Sequence[str], key_of: Callable[[str], str], pipeline: Pipeline
) -> AsyncIterator[tuple[str, Sequence[bytes]]]:
    for start in range(0, len(names), ROWS_A_CALL):
        some = names[start : start + ROWS_A_CALL]
        answers = await pipeline([(verb, key_of(name)) for name in some])
        for name, answer in zip(some, answers, strict=True):
            yield name, answer

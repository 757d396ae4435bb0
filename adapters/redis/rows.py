"""Which regions the connections to a network of one node have: rows in the control Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from adapters.redis.controlkeys import ControlKeys
from sequencing.listing import Rows

Call = Callable[..., Awaitable[Any]]

ROWS_A_CALL = 200
FIELDS_A_CALL = 1_000
"""Redis serves no other client while it answers one request."""


async def read_rows(call: Call, pipeline: Callable[[Sequence[tuple[Any, ...]]], Awaitable[Sequence[Any]]]) -> Rows:
    """Return what each connection has. ``call`` and ``pipeline``: to the control Redis.

    Page by page: what changes meanwhile may be in or not.
    """
    said: dict[str, tuple[int, int]] = {}
    async for field, text in scan_hash(call, ControlKeys.said):
        incarnation, _, number = text.partition(b" ")
        said[field.decode()] = int(incarnation), int(number)
    names, members = list(said), dict[str, frozenset[str]]()
    for start in range(0, len(names), ROWS_A_CALL):
        some = names[start : start + ROWS_A_CALL]
        answers = await pipeline([("SMEMBERS", ControlKeys.rows(name)) for name in some])
        for name, regions in zip(some, answers, strict=True):
            members[name] = frozenset(region.decode() for region in regions)
    return Rows(said, members)


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
        for field, value in zip(flat[::2], flat[1::2], strict=True):
            yield field, value
        if cursor == b"0":
            return

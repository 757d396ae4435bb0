"""Where the ended epochs of regions were, as the control Redis stores it for readers of history.

Each plan that ends epochs leaves one document, an entry of the stream ``past`` under the plan's number. It has the
parts of the plans before it that say where these epochs were, and which atoms ordered them (`Record.left_plans`). Each
region has a stream of its own, ``past:REGION``, with the numbers of the plans that ended an epoch of it. So a reader
requests only what its regions need, and a plan costs only what it moves. Both are kept as long as nodes keep the
streams of ended epochs.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import islice

import orjson

from adapters.redis.connection import RedisConnection
from sequencing.errors import PlanError
from sequencing.plan import Plan

PAST_KEPT_MS = 3_660_000
"""A minute longer than `install.lua` keeps the streams of ended epochs."""

PAST = "gamecast:{control}:past"

REGIONS_A_CALL = 500
DOCUMENTS_A_CALL = 64
"""Redis serves no other client while it answers one request."""


def past_document(left: Sequence[Plan]) -> bytes:
    """Return the document about the plans that a plan ends."""
    return zlib.compress(b"\n".join(plan.to_json() for plan in left))


async def read_past(
    connection: RedisConnection,
    regions: Iterable[str],
    after: int,
    turn: AbstractAsyncContextManager[None],
) -> list[Plan]:
    """Return the stored plans that had some regions when plans after epoch ``after`` ended an epoch of them.

    Oldest first. ``turn``: taken for each request.
    """
    numbers: set[bytes] = set()
    left = iter(regions)
    while page := list(islice(left, REGIONS_A_CALL)):
        commands = [("XRANGE", f"{PAST}:{region}", f"({after}-{2**64 - 1}", "+") for region in page]
        async with turn:
            answers = await connection.pipeline(commands)
        numbers.update(number for entries in answers for number, _ in entries)
    plans: list[Plan] = []
    ordered = iter(sorted(numbers, key=_number))
    while ids := list(islice(ordered, DOCUMENTS_A_CALL)):
        async with turn:
            answers = await connection.pipeline([("XRANGE", PAST, each, each) for each in ids])
        for entries in answers:
            for _, fields in entries:  # none if it was removed since
                plans += _plans(fields[3])
                await asyncio.sleep(0)
    return plans


def _number(entry: bytes) -> tuple[int, int]:
    epoch, _, version = entry.partition(b"-")
    return int(epoch), int(version)


def _plans(document: bytes) -> list[Plan]:
    try:
        return [Plan.from_document(orjson.loads(line)) for line in zlib.decompress(document).split(b"\n")]
    except (zlib.error, ValueError) as error:
        raise PlanError(f"this is not the past of a gamecast network: {error!r}") from error

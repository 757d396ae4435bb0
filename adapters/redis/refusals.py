"""Why a Redis server that answers accepts no writes now, by what it reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, get_args

Refusal = Literal["memory", "disk", "replicas", "replica", "loading"]

REFUSALS: tuple[Refusal, ...] = get_args(Refusal)

BECAUSE: Mapping[Refusal, str] = {
    "memory": "its memory is full (maxmemory)",
    "disk": "it could not write to its disk",
    "replicas": "too few of its replicas are there (min-replicas-to-write)",
    "replica": "it is a replica",
    "loading": "it is still loading its data",
}


def refusals(
    info: Mapping[str, str], *, save: str | None, stops_on_save_error: bool | None, writes_need: int | None
) -> tuple[Refusal, ...]:
    """Return why a server refuses writes, empty if it accepts them.

    ``info``: its answer to INFO. The others are settings, None if they cannot be read: ``save``,
    stop-writes-on-bgsave-error and min-replicas-to-write. Redis's defaults are assumed for the first two then, with
    which a failed snapshot stops writes.
    """
    return tuple(_refusals(info, save, stops_on_save_error, writes_need))


def _refusals(
    info: Mapping[str, str], save: str | None, stops_on_save_error: bool | None, writes_need: int | None
) -> Iterator[Refusal]:
    used, limit = _number(info, "used_memory"), _number(info, "maxmemory")
    uncounted = _number(info, "mem_not_counted_for_evict") or 0
    # With allkeys-*, Redis drops keys instead. With volatile-*, it soon has none to drop: few of gamecast's expire.
    drops = info.get("maxmemory_policy", "").startswith("allkeys")
    if used is not None and limit and used - uncounted >= limit and not drops:
        yield "memory"
    if info.get("role") == "slave":
        yield "replica"
    else:
        is_unsaved = info.get("rdb_last_bgsave_status") == "err" and save != "" and stops_on_save_error is not False
        is_unlogged = info.get("aof_enabled") == "1" and info.get("aof_last_write_status") == "err"
        if is_unsaved or is_unlogged:
            yield "disk"
        good = _number(info, "min_slaves_good_slaves")
        # Redis reports them only where it needs one or more.
        if good is not None and good < (1 if writes_need is None else writes_need):
            yield "replicas"
    if info.get("loading", "0") != "0":
        yield "loading"


def _number(info: Mapping[str, str], name: str) -> int | None:
    value = info.get(name, "")
    return int(value) if value.isdecimal() else None

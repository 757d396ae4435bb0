"""Why a server refuses writes, by what it reports of itself."""

from __future__ import annotations

import pytest

from adapters.redis.probe import _writes_need
from adapters.redis.refusals import refusals

FINE = {
    "role": "master",
    "loading": "0",
    "used_memory": "900",
    "maxmemory": "1000",
    "maxmemory_policy": "noeviction",
    "mem_not_counted_for_evict": "0",
    "rdb_last_bgsave_status": "ok",
    "aof_enabled": "1",
    "aof_last_write_status": "ok",
}


@pytest.mark.parametrize(
    ("reported", "reasons"),
    [
        ({}, ()),
        ({"used_memory": "1000"}, ("memory",)),
        ({"used_memory": "1000", "mem_not_counted_for_evict": "8"}, ()),
        ({"used_memory": "1000", "maxmemory": "0"}, ()),
        ({"used_memory": "1000", "maxmemory_policy": "allkeys-lru"}, ()),
        ({"used_memory": "1000", "maxmemory_policy": "volatile-lru"}, ("memory",)),
        ({"rdb_last_bgsave_status": "err"}, ("disk",)),
        ({"aof_last_write_status": "err"}, ("disk",)),
        ({"aof_last_write_status": "err", "aof_enabled": "0"}, ()),
        ({"min_slaves_good_slaves": "1"}, ("replicas",)),
        ({"min_slaves_good_slaves": "2"}, ()),
        ({"role": "slave", "min_slaves_good_slaves": "0", "rdb_last_bgsave_status": "err"}, ("replica",)),
        ({"used_memory": "1001", "loading": "1"}, ("memory", "loading")),
    ],
)
def test_each_reason_is_known_by_what_info_says(reported: dict[str, str], reasons: tuple[str, ...]) -> None:
    assert refusals(FINE | reported, save="60 1", stops_on_save_error=True, writes_need=2) == reasons


@pytest.mark.parametrize(
    ("save", "stops", "reasons"),
    [("", True, ()), ("60 1", False, ()), (None, False, ()), (None, None, ("disk",)), ("60 1", None, ("disk",))],
)
def test_a_failed_snapshot_stops_writes_by_default(
    save: str | None, stops: bool | None, reasons: tuple[str, ...]
) -> None:
    failed = FINE | {"rdb_last_bgsave_status": "err"}
    assert refusals(failed, save=save, stops_on_save_error=stops, writes_need=0) == reasons


def test_without_one_good_replica_writes_are_refused_however_many_it_needs() -> None:
    for good, reasons in (("0", ("replicas",)), ("1", ())):
        reported = FINE | {"min_slaves_good_slaves": good}
        assert refusals(reported, save="", stops_on_save_error=None, writes_need=None) == reasons


def test_how_many_replicas_writes_need_is_unknown_only_where_some_are_needed() -> None:
    assert _writes_need({}, {}) is None, "it does not answer INFO"
    assert _writes_need(FINE, {}) == 0
    assert _writes_need(FINE, {"min-replicas-to-write": "2"}) == 0, "without min-replicas-max-lag, it has no effect"
    counted = FINE | {"min_slaves_good_slaves": "0"}
    assert _writes_need(counted, {}) is None
    assert _writes_need(counted, {"min-replicas-to-write": "2"}) == 2

"""One correction of clocks, before anything is computed: of hosts whose clock probes show to be off for certain.

All times of a session become those of one clock: the reference, with which most hosts agree. A host whose clock is off
by less than the estimate's uncertainty stays as it is, and so does one whose clock was set in between: for that, no
single offset is right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from analytics.jobs.probes import clock_offsets
from analytics.session.clocks import ClockOffset, offsets_from
from analytics.session.reading import Sources

NS_PER_MS = 1e6
BY_HOST: Mapping[str, tuple[str, ...]] = {
    "deliveries": ("received_at_ns", "delivered_at_ns"),
    "publishes": ("published_at_ns", "acknowledged_at_ns"),
    "stays": ("asked_at_ns", "joined_at_ns", "left_at_ns", "noted_at_ns"),
    "receives": ("received_at_ns",),
    "gaps": ("announced_at_ns",),
    "epochs": ("began_at_ns",),
    "stamps": ("stamped_at_ns", "not_before_ns"),
    "connections": ("opened_at_ns", "closed_at_ns", "noted_at_ns"),
}
"""Table → its times by the clock of the row's host."""
BY_PUBLISHER: Mapping[str, str] = {"deliveries": "sent_at_ns", "frames": "first_sent_at_ns"}
"""Table → its time by the clock of the publisher's host."""


@dataclass(frozen=True, slots=True)
class Skew:
    """By how much a host's clock is ahead of the reference's, give or take ``off_by_ms``."""

    session: str
    host: str
    ahead_ms: float
    off_by_ms: float
    corrected: bool

    def __str__(self) -> str:
        what, off = "ahead" if self.ahead_ms > 0 else "behind", abs(self.ahead_ms)
        shown = f"{off:,.0f}" if off >= 100 else f"{off:.2g}"
        return f"the clock of {self.host} is {shown} ± {self.off_by_ms:.2g} ms {what}: all its times are corrected"

    def as_dict(self) -> dict[str, Any]:
        """Return the value for ``--json``."""
        return asdict(self)


def find_skews(sources: Sources, stepped: Collection[str] = ()) -> tuple[Skew, ...]:
    """Return the skew of each host that was probed, in each session, the reference's first.

    ``stepped``: hosts whose clock was set back.
    """
    probes = sources["probes"]
    return tuple(
        skew
        for session in sorted(sources.sessions)
        for skew in _of_session(session, clock_offsets(probes.where(fn.col("session") == session)), stepped)
    )


def _of_session(session: str, pairs: DataFrame, stepped: Collection[str]) -> tuple[Skew, ...]:
    rows = pairs.collect()
    offsets = [ClockOffset(row["one"], row["other"], 0, 0, row["offset_ns"], row["off_by_ns"], 1) for row in rows]
    hosts = sorted({offset.origin for offset in offsets})
    if not hosts:
        return ()
    # A step shows in most of the pairs of the host whose clock was set.
    steps = {host: [row["steps"] > 0 for row in rows if row["one"] == host] for host in hosts}
    set_in_between = {host for host, all_steps in steps.items() if 2 * sum(all_steps) >= len(all_steps)}
    agreeing = dict.fromkeys(hosts, 0)
    for offset in offsets:
        agreeing[offset.origin] += abs(offset.offset_ns) <= offset.uncertainty_ns
    reference = max(hosts, key=lambda host: agreeing[host])  # of several, the first
    ahead = offsets_from(reference, offsets)
    skews = (
        Skew(
            session,
            host,
            offset.offset_ns / NS_PER_MS,
            offset.uncertainty_ns / NS_PER_MS,
            abs(offset.offset_ns) > offset.uncertainty_ns and host not in stepped and host not in set_in_between,
        )
        for host, offset in ahead.items()
    )
    return tuple(sorted(skews, key=lambda skew: (skew.host != reference, skew.host)))


def corrected(sources: Sources, skews: Iterable[Skew]) -> Sources:
    """Return the sources with all times by the reference's clock, as far as the skews are certain."""
    ahead_ns = {_key(skew.session, skew.host): round(skew.ahead_ms * NS_PER_MS) for skew in skews if skew.corrected}
    if not ahead_ns:
        return sources
    of_publisher = _of_publishers(sources["connections"], ahead_ns)
    tables = dict(sources.tables)
    for name, times in BY_HOST.items():
        tables[name] = _shifted(tables[name], times, _ahead(ahead_ns, "host"))
    for name, time in BY_PUBLISHER.items():
        if of_publisher:
            tables[name] = _shifted(tables[name], (time,), _ahead(of_publisher, "publisher"))
    probes = _shifted(tables["probes"], ("sent_at_ns", "returned_at_ns"), _ahead(ahead_ns, "origin_host"))
    tables["probes"] = _shifted(probes, ("reached_at_ns", "answered_at_ns"), _ahead(ahead_ns, "target_host"))
    return replace(sources, tables=tables)


def _key(session: str, name: str) -> str:
    return f"{session}\n{name}"


def _of_publishers(connections: DataFrame, ahead_ns: Mapping[str, int]) -> dict[str, int]:
    """Return session and name → by how much its host's clock is ahead; not of those that were on several hosts."""
    of_name = connections.groupBy("session", "name")
    hosts = of_name.agg(fn.countDistinct("host").alias("n"), fn.first("host", True).alias("host")).where("n = 1")
    rows = hosts.where(fn.concat_ws("\n", "session", "host").isin(*ahead_ns)).collect()
    return {_key(row["session"], row["name"]): ahead_ns[_key(row["session"], row["host"])] for row in rows}


def _ahead(ahead_ns: Mapping[str, int], column: str) -> Column:
    known = fn.create_map(*(fn.lit(each) for pair in ahead_ns.items() for each in pair))
    return fn.coalesce(fn.try_element_at(known, fn.concat_ws("\n", "session", column)), fn.lit(0))


def _shifted(table: DataFrame, times: Iterable[str], ahead: Column) -> DataFrame:
    return table.withColumns({time: fn.col(time) - ahead for time in times})

"""A host's clock that is off: all times are corrected once, so that every figure is what it would be without."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyarrow")
from pyspark.sql import SparkSession

from analytics.jobs.analysis import Analysis, analyse
from analytics.session.reading import read_sources
from tests.analytics.test_verdicts import BEGAN_NS, World, drawn, write
from tests.integration.spark_session import needs_spark

pytestmark = [needs_spark, pytest.mark.timeout(600)]

AHEAD_NS = {"10 s ahead": 10_000_000_000, "10 s behind": -10_000_000_000}
TIMES = (
    "opened_at_ns",
    "closed_at_ns",
    "left_at_ns",
    "received_at_ns",
    "delivered_at_ns",
    "published_at_ns",
    "acknowledged_at_ns",
    "asked_at_ns",
    "joined_at_ns",
)


def probed(seed: str) -> World:
    """A session of servers on a host each, which probed each other: 0.4 ms there, and 0.4 ms back."""
    world = drawn(Random(seed))
    names = sorted({row["name"] for row in world.rows["connections"]})
    for table, key in (("deliveries", "subscriber"), ("publishes", "publisher"), ("stays", "subscriber")):
        for row in world.rows[table]:
            row["host"] = f"host-{row[key]}"
    for row in world.rows["connections"]:
        row["host"] = f"host-{row['name']}"
    world.rows["probes"] = [
        {
            "kind": "direct",
            "origin": one,
            "target": other,
            "origin_host": f"host-{one}",
            "target_host": f"host-{other}",
            "sent_at_ns": (sent := BEGAN_NS + 2_000_000_000 + turn * 10_000_000),
            "reached_at_ns": sent + 400_000,
            "answered_at_ns": sent + 410_000,
            "returned_at_ns": sent + 810_000,
        }
        for turn in range(5)
        for one in names
        for other in names
        if one != other
    ]
    return world


def shifted(world: World, name: str, by_ns: int) -> World:
    """Have a server's host tell all its times by a clock that is off."""
    host = f"host-{name}"
    for table in ("deliveries", "publishes", "stays", "connections"):
        for row in world.rows[table]:
            if row["host"] == host:
                row |= {time: row[time] + by_ns for time in TIMES if row.get(time) is not None}
            if table == "deliveries" and row["publisher"] == name:
                row["sent_at_ns"] += by_ns
    for row in world.rows["probes"]:
        for end, times in (
            ("origin", ("sent_at_ns", "returned_at_ns")),
            ("target", ("reached_at_ns", "answered_at_ns")),
        ):
            if row[f"{end}_host"] == host:
                row |= {time: row[time] + by_ns for time in times}
    return world


def analysed(spark: SparkSession, world: World, directory: Path) -> Analysis:
    write(world, directory)
    return analyse(spark, read_sources(spark, [directory]))


@pytest.mark.parametrize("off", AHEAD_NS)
def test_a_clock_that_is_off_changes_no_figure(spark: SparkSession, tmp_path: Path, off: str) -> None:
    name = sorted({row["name"] for row in probed("skew").rows["connections"]})[1]
    right = analysed(spark, probed("skew"), tmp_path / "right")
    wrong = analysed(spark, shifted(probed("skew"), name, AHEAD_NS[off]), tmp_path / "wrong")
    figures = [each.as_dict() for each in (right, wrong)]
    for each in ("delay_ms", "stretch", "timeline", "stages", "order", "verdict", "turns"):
        assert figures[0][each] == figures[1][each], each
    assert right.audit.verdict == "kept"
    assert not any(skew.corrected for skew in right.skews)
    [skew] = [skew for skew in wrong.skews if skew.corrected]
    assert (skew.host, round(skew.ahead_ms)) == (f"host-{name}", AHEAD_NS[off] // 10**6)
    assert skew.off_by_ms == pytest.approx(0.4)
    assert next(each.session for each in wrong.skews) == "wrong"
    assert any(f"the clock of host-{name} is 10,000 ± 0.4 ms" in note for note in wrong.notes)


def test_a_clock_that_was_set_while_it_was_recorded_is_left_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    name = sorted({row["name"] for row in probed("skew").rows["connections"]})[1]
    before, after = probed("skew"), shifted(probed("skew"), name, AHEAD_NS["10 s ahead"])
    middle = len(before.rows["probes"]) // 2
    after.rows["probes"] = [*before.rows["probes"][:middle], *after.rows["probes"][middle:]]
    assert not any(skew.corrected for skew in analysed(spark, after, tmp_path / "set").skews)


def test_each_session_has_clocks_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    name = sorted({row["name"] for row in probed("skew").rows["connections"]})[1]
    write(probed("skew"), tmp_path / "one")
    write(shifted(probed("skew"), name, AHEAD_NS["10 s behind"]), tmp_path / "other")
    found = analyse(spark, read_sources(spark, [tmp_path / "one", tmp_path / "other"]))
    assert {(skew.session, skew.host) for skew in found.skews if skew.corrected} == {("other", f"host-{name}")}
    delays = found.delay_ms()
    assert delays is not None
    assert delays["p99"] < 10

"""A session with planted faults, analysed on Spark, beside an independent computation with numpy."""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analytics.jobs.analysis import Analysis, analyse
from analytics.jobs.clock_steps import find_clock_steps
from analytics.jobs.completeness import CLOCKS_APART_NS
from analytics.jobs.probes import direct_from_probes, is_one_machine
from analytics.jobs.stretch import direct_from, measure_stretch
from analytics.report.report import render, write_report
from analytics.session.reading import read_sources
from analytics.session.synthetic import FAULTS, Session, World, write_session
from cli.analyze import _tell
from sequencing.checkers.offence import Offence
from tests.integration.spark_session import needs_spark

pytestmark = [needs_spark, pytest.mark.timeout(600)]
WORLD = World(subscribers=12, regions=9, regions_each=3, seed=5)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A session with every fault, and with input around it that must be put aside."""
    directory = tmp_path_factory.mktemp("sessions") / "night"
    made = write_session(directory, WORLD, deliveries=6000, faults=FAULTS, deliveries_a_file=2000)
    [hour] = (directory / "deliveries").iterdir()
    files = sorted(hour.iterdir())
    shutil.copy(files[0], hour / "copy-000000.parquet")
    (hour / "truncated-000000.parquet").write_bytes(files[0].read_bytes()[:-100])
    (hour / "foreign-000000.parquet").write_bytes(b"hello")
    (hour / ".unfinished-000000.parquet").write_bytes(b"PAR1")
    table = pq.read_table(files[0])
    newer = {**table.schema.metadata, b"gamecast.schema": b"3"}
    pq.write_table(table.replace_schema_metadata(newer), hour / "newer-000000.parquet")
    # Its footer is whole, so that only reading the rows tells.
    pq.write_table(table.slice(0, 10), hour / "damaged-000000.parquet")
    damaged = bytearray((hour / "damaged-000000.parquet").read_bytes())
    damaged[4:200] = bytes(196)
    (hour / "damaged-000000.parquet").write_bytes(damaged)
    stays = next((directory / "stays").rglob("*.parquet"))
    silent = pq.read_table(stays).slice(0, 1).to_pylist()
    silent[0] |= {"subscriber": "silent-server"}
    import pyarrow as pa

    pq.write_table(pa.Table.from_pylist(silent, schema=pq.read_schema(stays)), stays.with_name("silent-000000.parquet"))
    return made


@pytest.fixture(scope="module")
def empty(session: Session) -> Path:
    directory = session.directory.with_name("empty")
    directory.mkdir()
    shutil.copy(session.directory / "session.json", directory)
    return directory


@pytest.fixture(scope="module")
def found(spark: SparkSession, session: Session, empty: Path) -> Analysis:
    sources = read_sources(spark, [session.directory, empty])
    direct = WORLD.direct_ms()
    return analyse(
        spark,
        sources,
        direct=lambda cells: direct_from(cells, WORLD.names, direct),
        causal=True,
        deliveries_per_slice=700,
    )


def rows_of(session: Session) -> dict[str, np.ndarray]:
    files = [str(file) for file in session.directory.rglob("deliveries/**/synthetic-*.parquet")]
    table = ds.dataset(files).to_table()
    return {name: table[name].to_numpy() for name in table.column_names}


def test_the_figures_are_those_of_numpy(found: Analysis, session: Session) -> None:
    rows = rows_of(session)
    assert found.deliveries == session.deliveries == len(rows["index"])
    assert found.subscribers == len(set(rows["subscriber"]))
    assert found.regions == len(set(rows["region"]))
    place = {name: number for number, name in enumerate(WORLD.names)}
    direct = WORLD.direct_ms()
    took: defaultdict[str, float] = defaultdict(float)
    straight: defaultdict[str, float] = defaultdict(float)
    for publisher, subscriber, sent, delivered in zip(
        rows["publisher"], rows["subscriber"], rows["sent_at_ns"], rows["delivered_at_ns"], strict=True
    ):
        if publisher != subscriber and publisher in place and subscriber in place:
            took[subscriber] += (delivered - sent) / 1e6
            straight[subscriber] += direct[place[publisher], place[subscriber]]
    stretch = found.stretch()
    assert stretch is not None
    expected = {name: took[name] / straight[name] for name in took}
    assert stretch["by_destination"] == pytest.approx(expected, rel=1e-9)
    assert stretch["max"] == pytest.approx(max(expected.values()), rel=1e-9)
    assert sum(row["deliveries"] for row in found.tables["delays"]) == sum(rows["publisher"] != rows["subscriber"])
    held = sum(rows["delivered_at_ns"] - rows["received_at_ns"]) / len(rows["index"]) / 1e6
    [stage] = [row for row in found.tables["stages"] if row["stage"] == "held for order, and in the inbox"]
    assert (stage["count"], stage["mean_ms"]) == (len(rows["index"]), pytest.approx(held, abs=1e-6))
    busiest = found.load.subscribers[0]
    assert busiest["deliveries"] == max(np.unique(rows["subscriber"].astype(str), return_counts=True)[1])


def test_each_planted_fault_is_found_and_named(found: Analysis, session: Session) -> None:
    audit = found.audit
    published = ds.dataset([str(file) for file in session.directory.rglob("publishes/**/*.parquet")]).to_table()
    stays = ds.dataset([str(file) for file in session.directory.rglob("stays/**/*.parquet")]).to_table().to_pylist()
    [silent] = [row for row in stays if row["subscriber"] == "silent-server"]
    owed_to_silent = sum(
        row["region"] == silent["region"]
        and row["published_at_ns"] > silent["joined_at_ns"] + (0 if row["host"] == silent["host"] else CLOCKS_APART_NS)
        for row in published.select(["region", "published_at_ns", "host"]).to_pylist()
    )
    assert owed_to_silent > 100
    assert (audit.order.inversions, audit.order.cycles, audit.duplicated) == (1, 2, 1)
    assert audit.losses.lost == 1 + owed_to_silent
    assert audit.publisher_order_violations == 0
    swap, again, lost = (session.planted[kind] for kind in ("swap", "duplicate", "loss"))
    assert audit.order.first is not None
    assert set(audit.order.first.events) == set(swap["events"])
    assert swap["subscriber"] in audit.order.first.subscribers
    assert audit.order.cycle is not None
    assert audit.order.cycle.kind == "cycle"
    assert set(audit.order.cycle.events) == set(session.planted["cycle"]["events"])
    named = {each.kind: (each.subscribers, list(each.events)) for each in audit.examples if isinstance(each, Offence)}
    assert named["duplicate"] == ((again["subscriber"],), again["events"])
    assert named["lost"][0] in ((lost["subscriber"],), ("silent-server",))
    assert audit.causality is not None
    said = {(each.cause, each.effect) for each in [audit.causality.first] if each is not None}
    planted = {tuple(session.planted["causal"]["events"]), tuple(swap["events"]), tuple(reversed(swap["events"]))}
    assert said & planted
    assert audit.causality.violations in (1, 2)
    assert not audit.fine


def test_the_stamps_disagree_with_nothing_but_the_swap_of_two_regions(found: Analysis) -> None:
    assert found.audit.stamps is not None
    assert found.audit.stamps.region_disagreements == 0


def test_what_cannot_be_used_is_put_aside_and_counted(found: Analysis) -> None:
    counted = {(each.what, each.reason.split(",")[0].split(":")[0]): each.count for each in found.quarantine.entries}
    assert counted == {
        ("file", "the same content as another file"): 1,
        ("file", "truncated"): 2,
        ("file", "of schema version 3"): 1,
        ("session", "no deliveries in it"): 1,
        ("subscriber", "in a region"): 1,
        ("file", "damaged inside"): 1,
    }
    assert any("not finished" in note for note in found.notes)


def test_skewed_clocks_are_corrected_and_vague_ones_left_out(spark: SparkSession) -> None:
    ahead, way, second = 5_000_000_000, 10_000_000, 1_000_000_000
    probes = []
    for origin, target, skew in (("a", "b", ahead), ("a", "c", 0), ("a", "d", 0)):
        for turn in range(5):
            sent = turn * second
            # The clock of d is set by a second in the middle.
            shown = skew + (second if target == "d" and turn > 2 else 0)
            reached, returned = sent + way + shown, sent + 2 * way + 1000
            times = (sent, reached, reached + 1000, returned)
            probes.append(("direct", origin, target, f"host-{origin}", f"host-{target}", *times))
    table = spark.createDataFrame(
        probes,
        "kind string, origin string, target string, origin_host string, target_host string, sent_at_ns long, "
        "reached_at_ns long, answered_at_ns long, returned_at_ns long",
    )
    columns = (
        "session string, subscriber string, incarnation long, region string, publisher string, deliveries long, "
        "timed long, delay_ns long"
    )
    took = {
        ("a", "b"): 30_000_000 + ahead,
        ("b", "a"): 15_000_000 - ahead,
        ("a", "c"): 20_000_000,
        ("a", "d"): 20_000_000,
    }
    rows = [("s", to, None, "r", publisher, 4, 4, 4 * ns) for (publisher, to), ns in took.items()]
    cells = spark.createDataFrame([*rows, ("s", "e", None, "r", "a", 2, 1, 1)], columns)
    made = measure_stretch(cells, direct_from_probes(table, cells), stepped=["c"])
    found = {row["subscriber"]: (row["stretch"], row["uncertainty"]) for row in made.by_destination.collect()}
    assert found == {"b": (pytest.approx(3.0), pytest.approx(1.0)), "a": (pytest.approx(1.5), pytest.approx(1.0))}
    assert made.left_out == {
        "a clock was set back": 4,
        "the clocks' skew is known less well than the direct way is long": 4,
        "no direct way is known": 1,
        "a time is missing": 1,
    }


def test_a_clock_that_is_set_back_is_noticed(spark: SparkSession) -> None:
    times = [0, 10, 20, 5, 15]
    rows = [("s", "s1", None, index, "r", "p", at * 1_000_000) for index, at in enumerate(times)]
    rows += [("s", "s2", None, index, "r", "p", index) for index in range(5)]
    columns = "session string, subscriber string, incarnation long, index long, region string, publisher string"
    deliveries = spark.createDataFrame(rows, f"{columns}, delivered_at_ns long")
    found = [(row["subscriber"], row["steps"], row["worst_ms"]) for row in find_clock_steps(deliveries).collect()]
    assert found == [("s1", 1, 15.0)]


def test_the_report_stands_by_itself(found: Analysis, tmp_path: Path) -> None:
    written = write_report(tmp_path, found)
    assert {"report.html", "who_hurts.png", "membership.csv", "rates.csv"} <= {file.name for file in written}
    page = (tmp_path / "report.html").read_text()
    assert "A promise was broken." in page
    assert 'src="http' not in page
    json.dumps(found.as_dict())
    assert os.listdir(tmp_path)  # noqa: PTH208


def test_a_stretch_over_direct_ways_that_are_too_short_is_said_to_say_nothing(
    found: Analysis, spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert found.nearness() == ""
    rows = [{**row, "direct_ms": 0.03, "stretch": 7328.0} for row in found.tables["by_destination"]]
    near = replace(found, tables={**found.tables, "by_destination": rows})
    far = [{**rows[0], "direct_ms": 3.0}, *rows[1:]]
    busy = replace(found, tables={**found.tables, "by_destination": far})
    assert busy.nearness() == "", "one of them matters"
    assert ", on one machine: stretch says nothing here" in replace(busy, one_machine=True).nearness()
    said = "he direct ways of this session are 0.03 ms: stretch says nothing here; delays are at most "
    assert near.nearness().startswith(f"t{said}")
    assert near.as_dict()["stretch"]["note"] == near.nearness()
    _tell(near, None)
    page = render(near)
    for text in (capsys.readouterr().out, page):
        assert said in " ".join(text.split())
        assert "7328" not in text.replace(",", "")
        assert "7.33e+03" not in text
    assert "Detour" not in page
    assert "stretch_cdf.png" not in {file.name for file in write_report(tmp_path, near)}
    probed = [("direct", "one", "one"), ("node", "one", "node n1")]
    assert is_one_machine(spark.createDataFrame(probed, "kind string, origin_host string, target_host string"))
    probed.append(("direct", "one", "two"))
    assert not is_one_machine(spark.createDataFrame(probed, "kind string, origin_host string, target_host string"))

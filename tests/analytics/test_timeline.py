"""A session minute by minute: the figures are numpy's, and the server that slowed down is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analytics.jobs.analysis import Analysis, analyse
from analytics.jobs.stretch import FINE_BUCKETS, direct_from
from analytics.jobs.timeline import text_of
from analytics.report.report import render
from analytics.session.reading import read_sources
from analytics.session.synthetic import World, write_session
from tests.integration.spark_session import needs_spark

pytest.importorskip("ruptures")
pytestmark = [needs_spark, pytest.mark.timeout(600)]

WORLD = World(subscribers=6, regions=4, regions_each=2, events_per_s=6, seed=11)
SLOW, AFTER_MINUTES, SLOWER_NS = "server-003", 5, 80_000_000
MINUTE = 60_000_000_000


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine minutes, from the sixth on with a slow server."""
    directory = write_session(tmp_path_factory.mktemp("timeline") / "s", WORLD, deliveries=9000).directory
    slowed(directory, MINUTE, AFTER_MINUTES)
    return directory


def slowed(directory: Path, span_ns: int, after: int) -> int:
    """Let one server deliver late from a span on; return when the first delivery was."""
    began = 0
    for file in (directory / "deliveries").rglob("*.parquet"):
        read = pq.ParquetFile(file).read()
        at = read["delivered_at_ns"].to_numpy().copy()
        late = (np.array(read["subscriber"].to_pylist()) == SLOW) & (at // span_ns - at.min() // span_ns >= after)
        began = int(at.min())
        at[late] += SLOWER_NS
        place = read.schema.get_field_index("delivered_at_ns")
        pq.write_table(read.set_column(place, read.schema.field(place), pa.array(at)), file)
    return began


@pytest.fixture(scope="module")
def found(spark: SparkSession, session: Path) -> Analysis:
    ways = WORLD.direct_ms()
    return analyse(spark, read_sources(spark, [session]), direct=lambda cells: direct_from(cells, WORLD.names, ways))


@pytest.fixture(scope="module")
def rows(session: Path) -> dict[str, Any]:
    read = pa.concat_tables([pq.ParquetFile(file).read() for file in (session / "deliveries").rglob("*.parquet")])
    return {name: np.array(read[name].to_pylist()) for name in read.column_names if "each" not in name}


def percentile(ns: Any, part: float) -> float:
    return float(np.sort(ns)[max(0, int(np.ceil(part * len(ns))) - 1)] / 1e6)


def test_the_lines_are_those_of_numpy(found: Analysis, rows: dict[str, Any]) -> None:
    minute = rows["delivered_at_ns"] // MINUTE
    delay = rows["delivered_at_ns"] - rows["sent_at_ns"]
    others = (rows["subscriber"] != rows["publisher"]) & (delay > 0)
    place = {name: number for number, name in enumerate(WORLD.names)}
    ways = WORLD.direct_ms()
    direct = np.array([ways[place[a]][place[b]] for a, b in zip(rows["publisher"], rows["subscriber"], strict=True)])
    for table, column in (("timeline", None), ("timeline_by_server", "subscriber"), ("timeline_by_region", "region")):
        lines = found.tables[table]
        assert sum(row["deliveries"] for row in lines) == len(minute)
        for row in lines:
            here = np.array([text_of(each) for each in minute.tolist()]) == row["minute"]
            if column is not None:
                here &= rows[column] == row["key"]
            assert row["deliveries"] == here.sum()
            timed = here & others
            for name, part in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
                exact = percentile(delay[timed], part)
                assert exact <= row[name] * (1 + 1e-12) <= exact * 2 ** (1 / FINE_BUCKETS) * (1 + 1e-9)
            stretch = (delay[timed] / 1e6).sum() / direct[timed].sum()
            assert row["stretch"] == pytest.approx(stretch, rel=1e-9)
    first = [row for row in found.tables["timeline"] if row["deliveries"]]
    assert first[3]["events_per_s"] == pytest.approx(WORLD.events_per_s, rel=0.3)
    delays = found.delay_ms()
    assert delays is not None
    exact = percentile(delay[others], 0.99)
    assert exact <= delays["p99"] <= exact * 1.045


def test_the_server_that_slowed_down_is_named_in_the_first_lines(found: Analysis, rows: dict[str, Any]) -> None:
    [turn] = found.turns
    assert (turn.kind, turn.keys) == ("server", (SLOW,))
    assert turn.minute == text_of(int(rows["delivered_at_ns"].min()) // MINUTE + AFTER_MINUTES)
    assert turn.after_ms - turn.before_ms == pytest.approx(SLOWER_NS / 1e6, rel=0.25)
    page = render(found)
    header = page[page.index("<header") : page.index("</header>")]
    assert f"p99 of {SLOW} rose from" in header
    assert found.as_dict()["turns"][0]["text"] == turn.describe()


def test_in_a_session_of_less_than_a_minute_the_second_at_which_a_server_slowed_down_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    busy = World(subscribers=6, regions=4, regions_each=2, events_per_s=60, seed=11)
    directory = write_session(tmp_path / "s", busy, deliveries=7000).directory
    began = slowed(directory, 1_000_000_000, 20)
    found = analyse(spark, read_sources(spark, [directory]))
    assert found.load.seconds < 60
    [turn] = found.turns
    assert (turn.kind, turn.keys) == ("server", (SLOW,))
    assert turn.minute == text_of(began // 10**9 + 20, 10**9)
    assert len(turn.minute) == len("2026-11-26T15:24:05")
    rates = [row["events_per_s"] for row in found.tables["timeline"]][5:15]
    assert np.mean(rates) == pytest.approx(busy.events_per_s, rel=0.3)
    assert f"p99 is highest at {turn.minute[11:17]}" in render(found)

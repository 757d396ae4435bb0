"""Rows that are runs of events: Spark and Arrow make of them what a loop makes, and old files need no other reader."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark", reason="analyses run on Spark")
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from analytics.session.manifest import begin_session
from analytics.session.reading import read_sources
from analytics.session.runs import events_in, events_of, spread, spread_arrow, stored_names
from analytics.session.schema import (
    DELIVERIES,
    FILE_EVENTS,
    FILE_SCHEMA,
    FILE_SESSION,
    PARTITION,
    PUBLISHES,
    RECEIVES,
    TABLES,
    Table,
)
from gamecast.recording.reading import SessionReader

OF_RUNS = [table for table in TABLES if table.runs is not None]


def runs_of(table: Table, count: int, *, seed: int) -> list[dict[str, Any]]:
    """Rows of one event and of several, some without numbers, as those of foreign logs and refused events are."""
    draw = random.Random(seed)
    assert table.runs is not None
    rows = []
    for number in range(count):
        events = draw.choice([None, 1, 2, 5, 300])
        row: dict[str, Any] = {
            column.name: f"{column.name}-{draw.randint(1, 3)}" if column.kind == "string" else draw.randint(1, 2**40)
            for column in table.columns
        }
        row["events"] = events
        if "index" in row:
            row["index"] = 1_000 * number
        if draw.random() < 0.2:
            row["sequence"] = row["epoch"] = None
        for name, each in table.runs.each.items():
            values = [draw.randint(1, 2**40) for _ in range(events or 1)]
            row[name] = values[0]
            row[each] = values if len(values) > 1 else None
        rows.append(row)
    return rows


def each_event_of(table: Table, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert table.runs is not None
    found = []
    for row in rows:
        for place in range(row["events"] or 1):
            event = {name: row[name] for name in table.event_names}
            for name in table.runs.numbered:
                event[name] = None if row[name] is None else row[name] + place
            for name, each in table.runs.each.items():
                event[name] = row[each][place] if row[each] is not None else row[name]
            found.append(event)
    return found


def order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize("table", OF_RUNS, ids=lambda table: table.name)
def test_each_event_gets_a_row_of_its_own(table: Table, spark: SparkSession) -> None:
    rows = runs_of(table, 40, seed=1)
    expected = each_event_of(table, rows)
    stored = pa.Table.from_pylist(rows, schema=table.arrow_schema())
    assert events_of(stored, table) == len(expected)
    assert spread_arrow(stored, table).to_pylist() == expected
    in_spark = spark.createDataFrame([{**row, PARTITION: "unknown"} for row in rows], table.spark_schema())
    found = [row.asDict() for row in spread(in_spark, table).drop(PARTITION).collect()]
    assert order(found) == order(expected)


def test_only_what_is_asked_for_is_read() -> None:
    assert stored_names(DELIVERIES, ("index", "region")) == ("index", "region", "events")
    assert stored_names(PUBLISHES, ("bytes",)) == ("bytes", "events", "each_bytes")
    assert stored_names(RECEIVES, ("region",)) == ("region",)


def test_a_list_of_another_length_is_refused() -> None:
    (row, *_) = (row for row in runs_of(DELIVERIES, 40, seed=2) if row["events"] == 5)
    row["each_sent_at_ns"] = [1, 2]
    with pytest.raises(ValueError, match="length differs"):
        spread_arrow(pa.Table.from_pylist([row], schema=DELIVERIES.arrow_schema()), DELIVERIES)


def test_a_session_of_version_1_is_read_as_it_was(tmp_path: Path, spark: SparkSession) -> None:
    session = begin_session(tmp_path, version="1", ordering="acyclic", url="memory://x")
    described = (tmp_path / "session.json").read_text().replace('"schema":2', '"schema":1')
    (tmp_path / "session.json").write_text(described)
    rows = [{**row, "events": None, "each_sent_at_ns": None} for row in runs_of(DELIVERIES, 20, seed=3)]
    of_then = pa.schema([DELIVERIES.arrow_schema().field(name) for name in DELIVERIES.event_names])
    metadata = {FILE_SCHEMA: "1", FILE_SESSION: session.session}
    file = tmp_path / "deliveries" / f"{PARTITION}=unknown" / "r-000001.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=of_then.with_metadata(metadata)), file)
    expected = each_event_of(DELIVERIES, rows)
    read = [row for batch in SessionReader.open(tmp_path).rows(DELIVERIES) for row in batch.to_pylist()]
    assert read == expected
    sources = read_sources(spark, [tmp_path])
    assert sources.rows["deliveries"] == events_in(pq.read_metadata(file)) == 20
    found = [row.asDict() for row in sources["deliveries"].drop("session").collect()]
    assert order(found) == order(expected)


def test_the_footer_tells_how_many_events_there_are(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(runs_of(DELIVERIES, 10, seed=4), schema=DELIVERIES.arrow_schema())
    file = tmp_path / "file.parquet"
    pq.write_table(rows.replace_schema_metadata({FILE_EVENTS: str(events_of(rows, DELIVERIES))}), file)
    assert events_in(pq.read_metadata(file)) == events_of(rows, DELIVERIES) > 10

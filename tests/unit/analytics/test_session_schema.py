"""The schema of recorded sessions, in the forms that are made of it."""

import pytest

from analytics.session.schema import PARTITION, TABLES, UNKNOWN_HOUR, documentation, hour_of


def test_pyarrow_gets_each_column_with_its_type_and_whether_it_may_be_null() -> None:
    pa = pytest.importorskip("pyarrow")
    kinds = {"int64": pa.int64(), "string": pa.string(), "int64s": pa.list_(pa.int64())}
    for table in TABLES:
        schema = table.arrow_schema({"gamecast.schema": "2"})
        assert tuple(schema.names) == table.names
        assert schema.metadata == {b"gamecast.schema": b"2"}
        for column in table.columns:
            field = schema.field(column.name)
            assert field.nullable == column.nullable
            if column.kind == "stamps":
                assert [part.name for part in field.type.value_type] == ["atom", "number"]
            else:
                assert field.type == kinds[column.kind]


def test_spark_gets_the_same_columns_and_the_partition_last() -> None:
    pytest.importorskip("pyspark")
    simple = {
        "int64": "bigint",
        "string": "string",
        "stamps": "array<struct<atom:bigint,number:bigint>>",
        "int64s": "array<bigint>",
    }
    for table in TABLES:
        found = [(field.name, field.dataType.simpleString()) for field in table.spark_schema()]
        expected = [(column.name, simple[column.kind]) for column in table.columns]
        assert found == [*expected, (PARTITION, "string")]


def test_each_table_is_filed_by_a_column_of_times() -> None:
    for table in TABLES:
        (column,) = (column for column in table.columns if column.name == table.time)
        assert column.unit == "ns"
        assert len(set(table.names)) == len(table.names)


def test_names_of_times_end_in_the_unit() -> None:
    for table in TABLES:
        for column in table.columns:
            assert (column.unit == "ns") == column.name.endswith("_ns")


def test_what_is_left_of_runs_is_a_row_an_event() -> None:
    for table in TABLES:
        if table.runs is None:
            assert table.event_names == table.names
        else:
            of_runs = {"events", *table.runs.each.values()}
            assert set(table.event_names) == set(table.names) - of_runs
            assert {*table.runs.numbered, *table.runs.each} <= set(table.event_names)
            assert of_runs <= set(table.names)


def test_an_hour_is_utc_and_floors() -> None:
    assert hour_of(0) == "1970-01-01T00"
    assert hour_of(3_600_000_000_000 - 1) == "1970-01-01T00"
    assert hour_of(3_600_000_000_000) == "1970-01-01T01"
    assert hour_of(1_795_300_000_000_000_000) == "2026-11-21T22"
    assert hour_of(None) == UNKNOWN_HOUR


def test_the_documentation_has_a_line_for_every_column() -> None:
    lines = list(documentation())
    assert sum(line.startswith("| `") for line in lines) == sum(len(table.columns) for table in TABLES)

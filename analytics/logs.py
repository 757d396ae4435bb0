"""Delivery logs, JSON Lines that anybody wrote, as the tables of a session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from analytics.quarantine import Quarantine
from analytics.schema import TABLE_OF

LOG_SUFFIXES = (".jsonl", ".jsonl.gz")
BAD = "_bad"
_FIELDS = (
    "subscriber string, index long, event string, region string, sender string, sent_at_ns long, delivered_at_ns long, "
    f"stay string, `from` long, `to` long, asked_at_ns long, joined_at_ns long, {BAD} string"
)
_REQUIRED = ("subscriber", "index", "event", "region", "sender")


def read_logs(spark: SparkSession, files: Sequence[Path], quarantine: Quarantine) -> tuple[DataFrame, DataFrame]:
    """Return deliveries and stays; lines that are neither, and indices that a subscriber has twice, are put aside.

    The lines are kept on disk for as long as the Spark session lives, because they are parsed twice otherwise.
    """
    lines = spark.read.schema(_FIELDS).option("columnNameOfCorruptRecord", BAD).json([str(file) for file in files])
    lines = lines.persist()
    stay = F.col("stay").isNotNull() & F.col("event").isNull() & F.col("subscriber").isNotNull()
    whole = F.lit(True)
    for name in _REQUIRED:
        whole &= F.col(name).isNotNull()
    whole &= (F.col("index") >= 0) & F.col(BAD).isNull()
    stay &= F.col("from").isNotNull() & F.col(BAD).isNull()
    wrong = lines.where(~F.coalesce(whole | stay, F.lit(False)))
    bad = wrong.agg(F.count("*").alias("n"), F.first(F.coalesce(BAD, F.to_json(F.struct(*_REQUIRED)))).alias("one")).first()
    if bad is not None and bad["n"]:
        example = str(bad["one"])[:120]
        quarantine.add("line", "neither a delivery nor a stay", count=bad["n"], examples=[example])
    at = Window.partitionBy("subscriber", "index").orderBy("event", "region")
    placed = lines.where(whole & ~F.coalesce(stay, F.lit(False))).withColumn("_turn", F.row_number().over(at)).persist()
    twice = placed.where("_turn > 1").agg(F.count("*").alias("n"), F.first("subscriber").alias("who")).first()
    if twice is not None and twice["n"]:
        quarantine.add("line", "an index that the subscriber has already", count=twice["n"], examples=[twice["who"]])
    deliveries = placed.where("_turn = 1").withColumnRenamed("sender", "publisher").withColumn("host", F.col("subscriber"))
    stays = lines.where(stay).select(
        "subscriber",
        F.col("stay").alias("region"),
        F.col("from").alias("from_index"),
        F.col("to").alias("to_index"),
        "asked_at_ns",
        "joined_at_ns",
    )
    number = Window.partitionBy("subscriber").orderBy("from_index", "region")
    stays = stays.withColumn("stay", F.row_number().over(number)).withColumn("revision", F.lit(0))
    return _shaped(deliveries, "deliveries"), _shaped(stays, "stays")


def _shaped(rows: DataFrame, table: str) -> DataFrame:
    """Return the table's columns, null where the logs have none."""
    schema = TABLE_OF[table].spark_schema()
    return rows.select(
        *(
            (F.col(column.name) if column.name in rows.columns else F.lit(None)).cast(column.dataType).alias(column.name)
            for column in schema
            if column.name in TABLE_OF[table].names
        )
    )

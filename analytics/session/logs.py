"""Delivery logs, JSON Lines from any program, as the tables of a session."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from analytics.session.quarantine import Quarantine
from analytics.session.schema import TABLE_OF

NO_END = "the log has no end: the server was killed, or still ran"
BAD = "_bad"
_FIELDS = (
    "subscriber string, index long, event string, region string, sender string, sent_at_ns long, delivered_at_ns long, "
    "replayed string, stay string, `from` long, `to` long, open boolean, asked_at_ns long, joined_at_ns long, "
    f"{BAD} string"
)
_IS_REPLAYED = "CASE WHEN lower(replayed) IN ('1', 'true') THEN 1L END"
_REQUIRED = ("subscriber", "index", "event", "region", "sender")


def read_logs(spark: SparkSession, files: Sequence[str], quarantine: Quarantine) -> tuple[DataFrame, DataFrame]:
    """Return deliveries and stays; set aside other lines, and indices that a subscriber has twice.

    The lines are kept on disk as long as the Spark session lives, because otherwise they would be parsed twice.
    """
    read = spark.read.schema(_FIELDS).option("columnNameOfCorruptRecord", BAD)
    lines = read.json(list(files)).withColumn("replayed", fn.expr(_IS_REPLAYED))
    lines = lines.persist()
    stay = fn.col("stay").isNotNull() & fn.col("event").isNull() & fn.col("subscriber").isNotNull()
    whole = fn.lit(True)
    for name in _REQUIRED:
        whole &= fn.col(name).isNotNull()
    whole &= (fn.col("index") >= 0) & fn.col(BAD).isNull()
    stay &= fn.col("from").isNotNull() & fn.col(BAD).isNull()
    wrong = lines.where(~fn.coalesce(whole | stay, fn.lit(False)))
    bad = wrong.agg(
        fn.count("*").alias("n"), fn.first(fn.coalesce(BAD, fn.to_json(fn.struct(*_REQUIRED)))).alias("one")
    ).first()
    if bad is not None and bad["n"]:
        example = str(bad["one"])[:120]
        quarantine.add("line", "neither a delivery nor a stay", count=bad["n"], examples=[example], lacks=True)
    at = Window.partitionBy("subscriber", "index").orderBy("event", "region")
    placed = (
        lines.where(whole & ~fn.coalesce(stay, fn.lit(False))).withColumn("_turn", fn.row_number().over(at)).persist()
    )
    twice = placed.where("_turn > 1").agg(fn.count("*").alias("n"), fn.first("subscriber").alias("who")).first()
    if twice is not None and twice["n"]:
        reason = "an index that the subscriber has already"
        quarantine.add("line", reason, count=twice["n"], examples=[twice["who"]], lacks=True)
    deliveries = (
        placed.where("_turn = 1").withColumnRenamed("sender", "publisher").withColumn("host", fn.col("subscriber"))
    )
    unended = [
        row["subscriber"] for row in lines.where(stay & fn.col("open")).select("subscriber").distinct().collect()
    ]
    quarantine.add("subscriber", NO_END, count=len(unended), examples=sorted(unended), lacks=True)
    last = deliveries.groupBy("subscriber").agg((fn.max("index") + 1).alias("behind"))
    stays = lines.where(stay).join(last, "subscriber", "left")
    # Nothing is due after the last line of a server that was killed.
    to = fn.coalesce("to", fn.when(fn.col("open"), fn.coalesce("behind", "from")))
    stays = stays.select(
        "subscriber",
        fn.col("stay").alias("region"),
        fn.col("from").alias("from_index"),
        to.alias("to_index"),
        "asked_at_ns",
        "joined_at_ns",
    )
    number = Window.partitionBy("subscriber").orderBy("from_index", "region")
    stays = stays.withColumn("stay", fn.row_number().over(number)).withColumn("revision", fn.lit(0))
    return _shaped(deliveries, "deliveries"), _shaped(stays, "stays")


def _shaped(rows: DataFrame, table: str) -> DataFrame:
    """Return the table's columns, null where the logs have none."""
    schema = TABLE_OF[table].spark_schema()
    return rows.select(
        *(
            (fn.col(column.name) if column.name in rows.columns else fn.lit(None))
            .cast(column.dataType)
            .alias(column.name)
            for column in schema
            if column.name in TABLE_OF[table].event_names
        )
    )

"""Sessions and delivery logs as DataFrames; unusable parts are set aside and counted.

The driver checks files by their footers and first bytes (`analytics.session.finding`); Spark reads their rows. A
session may be spread over several directories, and several sessions may be analysed together. They may be anywhere
that `analytics.session.storage` can read. Where Spark itself cannot read there, for lack of a connector, and where
very many files are small, a Spark on this machine gets their rows in larger files.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from analytics.jobs.spark import SMALL, kept
from analytics.session.allowance import PARQUET_TIMES, Allowance
from analytics.session.compaction import gather
from analytics.session.finding import Finding, damaged_among, find, read_footer
from analytics.session.logs import read_logs
from analytics.session.quarantine import Quarantine
from analytics.session.runs import events_in, spread, spread_arrow
from analytics.session.schema import DELIVERIES, TABLE_OF, TABLES, Table
from analytics.session.storage import StorageUnavailable, Stored, side_by_side
from sequencing.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

SMALL_FILES = 1000
SMALL_BYTES = 256 * 1024
"""Files of a table that are more and smaller than this are put together first: Spark reads them several times."""
LITTLE_BYTES = 16 * 1024 * 1024
PLANNED_ROWS_MAX = 1000
"""Tables of few rows are part of a job's plan."""
LOGS_SESSION = "logs"
"""The session of all delivery logs together: their subscribers may be spread over files."""


@dataclass(slots=True)
class Sources:
    """The input of an analysis: a DataFrame for each table, with a column session before the schema's columns.

    A table of runs has a row for each event. ``rows`` is the number of rows, or events, that a table's files claim;
    Spark may find fewer in a damaged file.
    """

    tables: Mapping[str, DataFrame]
    rows: Mapping[str, int]
    sessions: Mapping[str, Mapping[str, Any]]
    quarantine: Quarantine
    logs: bool
    unfinished: int
    """Files that a recorder was still writing, or left behind when it was killed."""
    files: Mapping[tuple[str, str], Sequence[Stored]] = field(default_factory=dict)
    """By session and table."""
    _latest_stays: DataFrame | None = field(default=None, init=False)

    def __getitem__(self, table: str) -> DataFrame:
        return self.tables[table]

    @property
    def latest_stays(self) -> DataFrame:
        """The last revision of each stay, as the subscribers themselves recorded it.

        A tap records stays too, but not the places in the delivery order at which they begin and end.
        """
        if self._latest_stays is None:
            own = self["stays"].where("from_index IS NOT NULL")
            last = Window.partitionBy("session", "subscriber", "incarnation", "stay").orderBy(fn.desc("revision"))
            latest = own.withColumn("_turn", fn.row_number().over(last)).where("_turn = 1").drop("_turn")
            self._latest_stays = kept(latest)
        return self._latest_stays


def read_sources(spark: SparkSession, sources: Iterable[str | Path] | Finding) -> Sources:
    """Read session directories, and delivery logs or directories of them, by path or URL; or what `find` has found.

    Raises `InvalidInput` for missing files, and if no delivery is left to analyse; `StorageUnavailable`.
    """
    finding = sources if isinstance(sources, Finding) else find(sources)
    quarantine = finding.quarantine
    rows: dict[str, int] = {}
    by_table: dict[tuple[str, str], list[Stored]] = {}
    for usable in sorted(finding.usable, key=lambda each: (each.session, each.table)):
        rows[usable.table] = rows.get(usable.table, 0) + usable.events
        by_table.setdefault((usable.session, usable.table), []).append(usable.file)
    files: dict[tuple[str, str], Sequence[Stored]] = {}
    allowance = Allowance("the sessions", (each.file for each in finding.usable), times=PARQUET_TIMES)
    for (session, name), small in by_table.items():
        files[session, name] = small
        if _must_gather(spark, small):
            gathered = gather(small, TABLE_OF[name], _scratch(), session=session, allowance=allowance)
            rows[name] -= _put_aside(gathered.damaged, name, session, quarantine)
            files[session, name] = gathered.files
    tables: dict[str, list[DataFrame]] = {table.name: [] for table in TABLES}
    for (session, name), each in files.items():
        if each:
            tables[name].append(_read(spark, session, name, each))
    if finding.logs:
        deliveries, stays = read_logs(
            spark, [each.for_spark for each in _logs_for_spark(spark, finding.logs)], quarantine
        )
        tables["deliveries"].append(deliveries.withColumn("session", fn.lit(LOGS_SESSION)))
        tables["stays"].append(stays.withColumn("session", fn.lit(LOGS_SESSION)))
    if not tables["deliveries"]:
        raise finding.nothing()
    read = Sources(
        {table.name: union_of(spark, table.name, tables[table.name]) for table in TABLES},
        rows,
        finding.sessions,
        quarantine,
        bool(finding.logs),
        finding.unfinished,
        files,
    )
    return without_damaged(spark, read, _short(read))


def _short(sources: Sources) -> list[str]:
    """Return the tables, beside the deliveries, of which fewer rows can be read than the footers say."""
    others = [name for name in sources.rows if name != DELIVERIES.name]
    files = {
        name: [file for (_, table), each in sources.files.items() if table == name for file in each] for name in others
    }
    if sum(file.size for some in files.values() for file in some) <= LITTLE_BYTES:
        # A job of Spark's takes longer than to read so little here.
        return [name for name in others if damaged_among(files[name])]
    # A sum of hashes needs all columns of all rows, so that all are read.
    parts = [
        sources[name].select(fn.lit(name).alias("table"), fn.hash(*TABLE_OF[name].event_names).alias("hash"))
        for name in others
    ]
    united = reduce(DataFrame.unionAll, parts).groupBy("table")
    counted = united.agg(fn.count("*").alias("rows"), fn.sum("hash")).collect()
    counts = {row["table"]: row["rows"] for row in counted}
    return [name for name in others if counts.get(name, 0) < sources.rows[name]]


def without_damaged(spark: SparkSession, sources: Sources, tables: Sequence[str]) -> Sources:
    """Return the sources without the files of some tables whose footers can be read but not their rows.

    Reads every one of these files: call it if fewer rows were found than the footers say. Raises `InvalidInput` if
    no delivery is left.
    """
    if not tables:
        return sources
    rows = dict(sources.rows)
    parts: dict[str, list[DataFrame]] = {name: [] for name in tables}
    for (session, name), files in sorted(sources.files.items()):
        if name not in parts:
            continue
        damaged = damaged_among(files)
        rows[name] -= _put_aside(damaged, name, session, sources.quarantine)
        if whole := [file for file in files if file not in damaged]:
            parts[name].append(_read(spark, session, name, whole))
    if DELIVERIES.name in parts and not parts[DELIVERIES.name]:
        raise InvalidInput("there are no deliveries to analyse: every file of them is damaged")
    mended = {name: union_of(spark, name, parts[name]) for name in tables}
    return replace(sources, tables={**sources.tables, **mended}, rows=rows)


def _put_aside(damaged: Sequence[Stored], table: str, session: str, quarantine: Quarantine) -> int:
    """Count the files, and return how many events they say they have."""
    for file in damaged:
        quarantine.add("file", "damaged inside", examples=[str(file)], lacks=True)
    return sum(read_footer(file, table, session).events for file in damaged)


def _read(spark: SparkSession, session: str, table: str, files: Sequence[Stored]) -> DataFrame:
    here = _read_here(files, TABLE_OF[table])
    if here is not None:
        rows = spark.createDataFrame(here).coalesce(1)
    else:
        read = spark.read.schema(TABLE_OF[table].spark_schema()).option("ignoreCorruptFiles", "true")
        rows = spread(read.parquet(*(each.for_spark for each in files)), TABLE_OF[table])
    rows = rows.withColumn("session", fn.lit(session))
    if here is not None and len(here) > PLANNED_ROWS_MAX:
        rows = rows.localCheckpoint()
    # One row without an event must not keep all others from being numbered.
    return (
        rows.where("event IS NOT NULL OR (epoch IS NOT NULL AND sequence IS NOT NULL)")
        if table == DELIVERIES.name
        else rows
    )


def _read_here(files: Sequence[Stored], table: Table) -> pa.Table | None:
    """Return the events of a few small files, read in this process; None if they are many, large or damaged.

    Spark plans anew what it reads from files for every job, and starts one for each table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if sum(file.size for file in files) > LITTLE_BYTES:
        return None
    schema, parts, left = table.arrow_schema(), [], SMALL
    try:
        for file in files:
            with file.open() as stream, pq.ParquetFile(stream) as opened:
                left -= max(opened.metadata.num_rows, events_in(opened.metadata))
                if left < 0:
                    return None
                rows = opened.read([name for name in schema.names if name in opened.schema_arrow.names])
            columns = {
                field.name: rows[field.name].cast(field.type)
                if field.name in rows.column_names
                else pa.nulls(len(rows), field.type)
                for field in schema
            }
            parts.append(spread_arrow(pa.table(columns), table).select(table.event_names))
    except (pa.ArrowException, OSError, ValueError):
        return None
    return pa.concat_tables(parts)


def union_of(spark: SparkSession, name: str, parts: Sequence[DataFrame]) -> DataFrame:
    """Return the parts of a table as one, with a column session; an empty table of none."""
    columns = ["session", *TABLE_OF[name].event_names]
    if not parts:
        empty = spark.createDataFrame([], TABLE_OF[name].spark_schema()).withColumn("session", fn.lit(""))
        return empty.select(*columns)
    return reduce(DataFrame.unionByName, [part.select(*columns) for part in parts])


def _must_gather(spark: SparkSession, files: Sequence[Stored]) -> bool:
    """Return whether Spark had better get the rows of these files in others, on this machine."""
    small = len(files) > SMALL_FILES and sum(each.size for each in files) < len(files) * SMALL_BYTES
    return (small and runs_here(spark)) or _must_fetch(spark, files)


def _logs_for_spark(spark: SparkSession, files: Sequence[Stored]) -> list[Stored]:
    if not _must_fetch(spark, files):
        return list(files)
    folder = _scratch()
    numbered = list(enumerate(files))
    return list(side_by_side(lambda each: each[1].fetch(folder / str(each[0]) / each[1].last), numbered, far=True))


def _must_fetch(spark: SparkSession, files: Sequence[Stored]) -> bool:
    """Return whether Spark lacks the connector for some files, and is on this machine."""
    far = [each for each in files if not each.is_local]
    if all(spark_reads(spark, each) for each in _one_of_each_system(far)):
        return False
    if not runs_here(spark):
        scheme = urlparse(far[0].name).scheme
        raise StorageUnavailable(
            f"Spark cannot read {scheme}:// there: give it the connector of that file system (spark.jars.packages)"
        )
    return True


def _scratch() -> Path:
    """Return a new folder on this machine, which is removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="gamecast-analyze-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _one_of_each_system(files: Sequence[Stored]) -> list[Stored]:
    return list({urlparse(each.name)[:2]: each for each in files}.values())


def spark_reads(spark: SparkSession, file: Stored) -> bool:
    """Return whether Spark has what it takes to read a file's system; tries it."""
    try:
        # Spark may leave out files that are missing, without an error.
        return bool(spark.read.format("binaryFile").load(file.for_spark).select("length").collect())
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        return False


def runs_here(spark: SparkSession) -> bool:
    """Return whether all of Spark is one process on this machine."""
    try:
        return str(spark.sparkContext.master).startswith("local")
    except Exception:  # noqa: BLE001 - Connect has no context, and says so with errors of its own
        return False

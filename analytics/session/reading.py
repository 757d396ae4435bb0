"""Sessions and delivery logs as DataFrames; unusable parts are set aside and counted.

The driver checks files here, by their footers and first bytes; Spark reads their rows. A file is set aside if it is
truncated, of another kind, of another version of the schema or of another session, or if it is a copy of another file.
A session may be spread over several directories, and several sessions may be analysed together.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from analytics.session.logs import LOG_SUFFIXES, read_logs
from analytics.session.quarantine import Quarantine
from analytics.session.runs import events_in, spread
from analytics.session.schema import (
    DELIVERIES,
    FILE_SCHEMA,
    FILE_SESSION,
    FILE_SUFFIX,
    READABLE,
    READABLE_VERSIONS,
    SESSION_FILE,
    TABLE_OF,
    TABLES,
)
from sequencing.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BYTES = 1 << 20
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
    files: Mapping[tuple[str, str], Sequence[Path]] = field(default_factory=dict)
    """By session and table."""

    def __getitem__(self, table: str) -> DataFrame:
        return self.tables[table]


def read_sources(spark: SparkSession, sources: Iterable[Path]) -> Sources:
    """Read session directories, and delivery logs or directories of them.

    Raises `InvalidInput` for missing files, and if no delivery is left to analyse.
    """
    quarantine = Quarantine()
    found = Finding(quarantine)
    for source in dict.fromkeys(Path(each).absolute() for each in sources):
        found.take(source)
    tables: dict[str, list[DataFrame]] = {table.name: [] for table in TABLES}
    for (session, name), files in sorted(found.files.items()):
        tables[name].append(_read(spark, session, name, files))
    if found.logs:
        deliveries, stays = read_logs(spark, found.logs, quarantine)
        tables["deliveries"].append(deliveries.withColumn("session", fn.lit(LOGS_SESSION)))
        tables["stays"].append(stays.withColumn("session", fn.lit(LOGS_SESSION)))
    if not tables["deliveries"]:
        said = "; ".join(f"{each.reason}: {', '.join(each.examples)}" for each in quarantine.entries[:3])
        raise InvalidInput(f"there are no deliveries to analyse{' – ' + said if said else ''}")
    return Sources(
        {table.name: union_of(spark, table.name, tables[table.name]) for table in TABLES},
        found.rows,
        found.sessions,
        quarantine,
        bool(found.logs),
        found.unfinished,
        found.files,
    )


def without_damaged(spark: SparkSession, sources: Sources) -> Sources:
    """Return the sources without the files of deliveries whose footers can be read but not their rows.

    Reads every one of these files: call it if fewer rows were found than the footers say. Raises `InvalidInput` if
    nothing is left.
    """
    import pyarrow.parquet as pq

    parts = []
    rows = dict(sources.rows)
    for (session, name), files in sorted(sources.files.items()):
        if name != "deliveries":
            continue
        whole = [file for file in files if is_whole(file)]
        for file in sorted(set(files) - set(whole)):
            sources.quarantine.add("file", "damaged inside", examples=[str(file)], lacks=True)
            rows[name] -= events_in(pq.read_metadata(file))
        if whole:
            parts.append(_read(spark, session, name, whole))
    if not parts:
        raise InvalidInput("there are no deliveries to analyse: every file of them is damaged")
    return replace(sources, tables={**sources.tables, "deliveries": union_of(spark, "deliveries", parts)}, rows=rows)


def _read(spark: SparkSession, session: str, table: str, files: Sequence[Path]) -> DataFrame:
    read = spark.read.schema(TABLE_OF[table].spark_schema()).option("ignoreCorruptFiles", "true")
    rows = spread(read.parquet(*map(str, files)), TABLE_OF[table]).withColumn("session", fn.lit(session))
    # One row without an event must not keep all others from being numbered.
    return (
        rows.where("event IS NOT NULL OR (epoch IS NOT NULL AND sequence IS NOT NULL)")
        if table == DELIVERIES.name
        else rows
    )


def is_whole(file: Path) -> bool:
    """Return whether all rows of a Parquet file can be read; reads them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as opened:
            for _ in opened.iter_batches():
                pass
    except (pa.ArrowException, OSError):
        return False
    return True


def union_of(spark: SparkSession, name: str, parts: Sequence[DataFrame]) -> DataFrame:
    """Return the parts of a table as one, with a column session; an empty table of none."""
    columns = ["session", *TABLE_OF[name].event_names]
    if not parts:
        empty = spark.createDataFrame([], TABLE_OF[name].spark_schema()).withColumn("session", fn.lit(""))
        return empty.select(*columns)
    return reduce(DataFrame.unionByName, [part.select(*columns) for part in parts])


class Finding:
    """The valid files of each session and table, and the logs."""

    def __init__(self, quarantine: Quarantine) -> None:
        self.files: dict[tuple[str, str], list[Path]] = {}
        self.rows: dict[str, int] = {}
        self.sessions: dict[str, Mapping[str, Any]] = {}
        self.logs: list[Path] = []
        self.unfinished = 0
        self._quarantine = quarantine
        self._of_size: dict[int, list[Path]] = {}

    def take(self, source: Path) -> None:
        """Check a session, a log, or a directory of these. Raises `InvalidInput`."""
        if not source.exists():
            raise InvalidInput(f"{source} does not exist")
        if source.is_file():
            self._log(source)
            return
        if (source / SESSION_FILE).exists() or any((source / table.name).is_dir() for table in TABLES):
            self._session(source)
            return
        logs = sorted(file for file in source.iterdir() if file.name.endswith(LOG_SUFFIXES) and file.is_file())
        inner = sorted(folder for folder in source.iterdir() if (folder / SESSION_FILE).exists())
        # The demo writes both for the same run; a session has more data.
        for log in logs if not inner else ():
            self._log(log)
        for folder in inner:
            self._session(folder)
        if not logs and not inner:
            raise InvalidInput(
                f"{source} is neither a session nor a directory of {' or '.join('*' + s for s in LOG_SUFFIXES)}"
            )

    def _session(self, directory: Path) -> None:
        described = self._described(directory)
        if described is None:
            return
        deliveries = 0
        for file in sorted(directory.rglob("*")):
            place = file.relative_to(directory).parts
            if not file.is_file() or place == (SESSION_FILE,):
                continue
            if any(part.startswith((".", "_")) for part in place):
                self.unfinished += file.suffix == FILE_SUFFIX or file.name.startswith(".")
                continue
            if file.suffix != FILE_SUFFIX or place[0] not in TABLE_OF:
                self._aside(file, "not of a recorded session")
                continue
            rows = self.check(file, place[0], described["session"])
            if rows:
                self.files.setdefault((described["session"], place[0]), []).append(file)
                self.rows[place[0]] = self.rows.get(place[0], 0) + rows
                deliveries += rows if place[0] == "deliveries" else 0
        if deliveries:
            self.sessions[described["session"]] = described
        else:
            self._quarantine.add("session", "no deliveries in it", examples=[str(directory)])

    def _described(self, directory: Path) -> Mapping[str, Any] | None:
        file = directory / SESSION_FILE
        try:
            described = json.loads(file.read_bytes())
            schema, session = described["schema"], described["session"]
        except (OSError, ValueError, KeyError, TypeError):
            self._quarantine.add(
                "session", f"its {SESSION_FILE} is missing or cannot be read", examples=[str(directory)]
            )
            return None
        if schema not in READABLE_VERSIONS or not isinstance(session, str):
            reason = f"of schema version {schema}, and this reads {READABLE}"
            self._quarantine.add("session", reason, examples=[str(directory)])
            return None
        return {**described, "directory": str(directory)}

    def check(self, file: Path, table: str, session: str) -> int:
        """Return how many rows, or events, a Parquet file has, 0 if it is set aside."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if file.stat().st_size == 0:
            return self._aside(file, "empty", lacks=True)
        try:
            footer = pq.read_metadata(file)
            schema = pq.read_schema(file)
        except (pa.ArrowException, OSError):
            return self._aside(file, "truncated, or not a Parquet file", lacks=True)
        notes = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
        if FILE_SCHEMA not in notes:
            return self._aside(file, "foreign: says nothing of a schema")
        if notes[FILE_SCHEMA] not in map(str, READABLE_VERSIONS):
            reason = f"of schema version {notes[FILE_SCHEMA]}, and this reads {READABLE}"
            return self._aside(file, reason, lacks=True)
        if notes.get(FILE_SESSION) != session:
            return self._aside(file, "of another session")
        wrong = _wrong_columns(schema, table)
        if wrong:
            return self._aside(file, f"columns are missing or of another type: {', '.join(wrong)}", lacks=True)
        if not footer.num_rows or self.again(file):
            return 0
        # Deliveries are most of a session: `without_damaged` reads them if fewer are found than expected.
        if table != "deliveries" and not is_whole(file):
            return self._aside(file, "damaged inside", lacks=True)
        return events_in(footer)

    def _log(self, file: Path) -> None:
        with file.open("rb") as stream:
            start = stream.read(4)
        if not start:
            self._aside(file, "empty")
        elif start == b"PAR1":
            self._aside(file, "a Parquet file by itself: name the session's directory")
        elif start.startswith(b"\x1f\x8b"):
            if file.suffix != ".gz":
                self._aside(file, "gzip-compressed, and not named .gz")
            elif not _unzips(file):
                self._aside(file, "truncated gzip", lacks=True)
            elif not self.again(file):
                self.logs.append(file)
        elif b"\0" in start:
            self._aside(file, "neither JSON Lines nor gzip")
        elif not self.again(file):
            self.logs.append(file)

    def _aside(self, file: Path, reason: str, *, lacks: bool = False) -> int:
        self._quarantine.add("file", reason, examples=[str(file)], lacks=lacks)
        return 0

    def again(self, file: Path) -> bool:
        """Return whether a file with the same content was taken before; reads only files of the same size."""
        alike = self._of_size.setdefault(file.stat().st_size, [])
        same = next((each for each in alike if each == file or _digest(each) == _digest(file)), None) if alike else None
        if same is None:
            alike.append(file)
            return False
        self._aside(file, f"the same content as another file, {same.name}")
        return True


def _digest(file: Path) -> bytes:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def _wrong_columns(schema: pa.Schema, table: str) -> list[str]:
    """Return the required columns that are missing, and those of another type."""
    import pyarrow as pa

    wrong = []
    for column in TABLE_OF[table].arrow_schema():
        place = schema.get_field_index(column.name)
        nullable = next(each.nullable for each in TABLE_OF[table].columns if each.name == column.name)
        if place < 0:
            if not nullable:
                wrong.append(column.name)
        elif not (pa.types.is_nested(column.type) or schema.field(place).type == column.type):
            wrong.append(column.name)
    return wrong


def _unzips(file: Path) -> bool:
    try:
        with gzip.open(file) as stream:
            while stream.read(CHUNK_BYTES):
                pass
    except (EOFError, OSError, zlib.error):
        return False
    return True

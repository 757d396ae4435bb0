"""Read the rows of a session as a stream, without Spark; files that do not belong to it are ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from analytics.session.finding import finished_files
from analytics.session.manifest import Session, read_session
from analytics.session.runs import spread_arrow, stored_names
from analytics.session.schema import FILE_SCHEMA, FILE_SESSION, READABLE, READABLE_VERSIONS, Table
from analytics.session.storage import Stored, stored

BATCH_ROWS = 16_384
BATCH_RUNS = 256
"""The batch size for rows that are many events each."""


@dataclass(slots=True)
class SessionReader:
    """Reads one session; ``quarantined``: file → why it was ignored: what is no regular file, and unreadable files of
    the tables that were read."""

    directory: Path
    session: Session
    quarantined: dict[str, str] = field(default_factory=dict)
    _files: Mapping[str, Sequence[Stored]] = field(default_factory=dict)
    """By table, as they were found when the session was opened."""

    @classmethod
    def open(cls, directory: Path) -> SessionReader:
        """Open a session; raises `InvalidInput` if the directory is not one."""
        session = read_session(directory)
        files, left_out = finished_files(stored(directory))
        return cls(directory, session, dict(left_out), files)

    @property
    def files(self) -> Iterator[Stored]:
        """The finished files."""
        return chain.from_iterable(self._files.values())

    def rows(self, table: Table, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield a table's rows in batches, in no order; the events of a table of runs. A column that an older file
        lacks is null."""
        names = stored_names(table, tuple(columns or table.event_names))
        schema = table.arrow_schema()
        for file in self._files.get(table.name, ()):
            try:
                with pq.ParquetFile(file.place) as opened:
                    self._require_ours(opened)
                    known = [name for name in names if name in opened.schema_arrow.names]
                    for batch in opened.iter_batches(BATCH_ROWS if table.runs is None else BATCH_RUNS, columns=known):
                        arrays = [
                            batch.column(name).cast(schema.field(name).type)
                            if name in known
                            else pa.nulls(batch.num_rows, schema.field(name).type)
                            for name in names
                        ]
                        yield spread_arrow(pa.table(arrays, names), table)
            except (OSError, pa.ArrowException, ValueError) as error:
                self.quarantined[file.name] = str(error).splitlines()[0] if str(error) else type(error).__name__

    def _require_ours(self, opened: pq.ParquetFile) -> None:
        metadata: dict[bytes, Any] = opened.metadata.metadata or {}
        version = metadata.get(FILE_SCHEMA.encode())
        if version is None:
            raise ValueError("not a file of a recorded session: it names no schema")
        if version.decode(errors="replace") not in map(str, READABLE_VERSIONS):
            raise ValueError(f"of schema version {version.decode(errors='replace')}, and this reads {READABLE}")
        if metadata.get(FILE_SESSION.encode()) != self.session.session.encode():
            raise ValueError("a file of another session")

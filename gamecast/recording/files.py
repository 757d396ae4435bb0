"""The Parquet files of one recorder: rows are gathered, written in row groups, and all files are rolled together.

A file is written under a name that readers ignore, synced to disk and renamed when it is rolled; then its directory is
synced, too. So the files that `SessionFiles.roll` returned survive a kill -9 and a power cut. All tables are rolled
together: the visible part of a session covers the same time in each.

Rows that the disk does not take are dropped and counted, with all that was written to the same file since the last
roll.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analytics.session.listing import look
from analytics.session.manifest import sync_directory
from analytics.session.runs import events_of
from analytics.session.schema import (
    FILE_EVENTS,
    FILE_RECORDER,
    FILE_SCHEMA,
    FILE_SESSION,
    FILE_SUFFIX,
    PARTITION,
    SCHEMA_VERSION,
    Table,
    hour_of,
)

ROW_GROUP_ROWS = 131_072
"""This many rows are gathered in memory at most. Readers take a row group at a time."""

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""The same in bytes, as Arrow counts them."""

SEARCHED = ("index", "sequence")
"""Columns, beside the time, of whose row groups readers learn the ranges; for all numbers, these statistics took a
tenth of the writing's time."""

ENCODING = "DELTA_BINARY_PACKED"
_PATH = {"int64": "%s", "int64s": "%s.list.element"}
"""Kinds of columns that are numbers → the name of such a column in Parquet."""

HOUR_NS = 3_600_000_000_000


@dataclass(slots=True, eq=False)
class _Open:
    """A file that is being written."""

    draft: Path
    file: Path
    stream: pa.OSFile
    writer: pq.ParquetWriter
    table: Table
    events: int = 0
    """Rows; in a table of runs, events."""


@dataclass(slots=True)
class _Gathered:
    """Rows of one partition that are not written yet."""

    table: Table
    chunks: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0


class SessionFiles:
    """Writes for one recorder. Blocks; for one thread."""

    def __init__(self, directory: Path, *, session: str, recorder: str) -> None:
        """``recorder``: part of the files' names, different for each recorder of a session."""
        self.directory = directory
        self.recorder = recorder
        self.lost: Counter[tuple[str, str]] = Counter()
        """(table, ``disk``) → rows that could not be written; in tables of runs, events, as in `rolled_rows`."""
        self.trouble: OSError | None = None
        self.rolled_rows: Counter[str] = Counter()
        self.rolled_files = 0
        self._metadata = {FILE_SCHEMA: str(SCHEMA_VERSION), FILE_SESSION: session, FILE_RECORDER: recorder}
        self._gathered: dict[tuple[str, str], _Gathered] = {}
        self._open: dict[tuple[str, str], _Open] = {}
        self._number = 0

    @property
    def open_bytes(self) -> int:
        """The size on disk of the open files."""
        return sum(each.stream.tell() for each in self._open.values())

    def add(self, table: Table, rows: pa.Table) -> None:
        """Take rows in the form of `writable_schema`; writes when there are enough for a row group."""
        for hour, part in _by_hour(table, rows):
            key = table.name, hour
            gathered = self._gathered.setdefault(key, _Gathered(table))
            gathered.chunks.append(part)
            gathered.rows += part.num_rows
            gathered.bytes += part.nbytes
            if gathered.rows >= ROW_GROUP_ROWS or gathered.bytes >= ROW_GROUP_BYTES:
                self._write(key)

    def roll(self) -> list[Path]:
        """Finish all files, and return those that are now visible and durable."""
        for key in list(self._gathered):
            self._write(key)
        finished: list[tuple[_Open, Path]] = []
        for key in list(self._open):
            done = self._open.pop(key)
            try:
                if done.table.runs is not None:
                    done.writer.add_key_value_metadata({FILE_EVENTS: str(done.events)})
                done.writer.close()
                done.stream.close()
                _sync(done.draft)
                done.draft.rename(done.file)
                finished.append((done, done.file))
            except OSError as error:
                self._give_up(done, error)
        for directory in {file.parent for _, file in finished}:
            for above in (directory, directory.parent, directory.parent.parent):
                sync_directory(above)
        for done, _ in finished:
            self.rolled_rows[done.table.name] += done.events
        self.rolled_files += len(finished)
        return [file for _, file in finished]

    def _write(self, key: tuple[str, str]) -> None:
        gathered = self._gathered.pop(key)
        rows = pa.concat_tables(gathered.chunks).unify_dictionaries()
        events = events_of(rows, gathered.table)
        try:
            opened = self._open.get(key) or self._begin(key, gathered.table)
        except OSError as error:
            self.trouble = error
            self.lost[key[0], "disk"] += events
            return
        opened.events += events
        try:
            opened.writer.write_table(rows)
        except OSError as error:
            self._open.pop(key, None)
            self._give_up(opened, error)

    def _begin(self, key: tuple[str, str], table: Table) -> _Open:
        name, hour = key
        directory = self.directory / name / f"{PARTITION}={hour}"
        directory.mkdir(parents=True, exist_ok=True)
        if look(self.directory, name, directory.name) is None:
            raise OSError(f"{directory} is, or is in, a symbolic link, which readers do not follow")
        self._number += 1
        file = directory / f"{self.recorder}-{self._number:06}{FILE_SUFFIX}"
        draft = directory / f".{file.name}.partial"
        stream = pa.OSFile(str(draft), "wb")
        numbers = {_PATH[column.kind] % column.name: ENCODING for column in table.columns if column.kind in _PATH}
        writer = pq.ParquetWriter(
            stream,
            writable_schema(table),
            compression="snappy",  # zstd saves 5% of the bytes for a fifth of the writing's time
            use_dictionary=[column.name for column in table.columns if column.kind == "string"],
            column_encoding=numbers,
            write_statistics=[table.time, *(name for name in SEARCHED if name in numbers and name != table.time)],
            store_schema=False,  # strings are strings to readers, however they were gathered
        )
        writer.add_key_value_metadata(self._metadata)
        opened = self._open[key] = _Open(draft, file, stream, writer, table)
        return opened

    def _give_up(self, opened: _Open, error: OSError) -> None:
        self.trouble = error
        self.lost[opened.table.name, "disk"] += opened.events
        for end in (opened.writer.close, opened.stream.close, opened.draft.unlink):
            try:
                end()
            except OSError:
                continue  # it is already lost


def writable_schema(table: Table) -> pa.Schema:
    """Return the table's Arrow schema with strings as dictionaries: names are repeated often."""
    schema = table.arrow_schema()
    for place, column in enumerate(table.columns):
        if column.kind == "string":
            schema = schema.set(place, schema.field(place).with_type(pa.dictionary(pa.int32(), pa.string())))
    return schema


def _by_hour(table: Table, rows: pa.Table) -> Iterable[tuple[str, pa.Table]]:
    times = rows.column(table.time)
    if times.null_count:
        without = pc.is_null(times)
        yield hour_of(None), rows.filter(without)
        rows = rows.filter(pc.invert(without))
        times = rows.column(table.time)
    if not rows.num_rows:
        return
    at_ns = times.to_numpy()
    if at_ns.min() // HOUR_NS == at_ns.max() // HOUR_NS:
        yield hour_of(int(at_ns[0])), rows
        return
    hours = at_ns // HOUR_NS
    for hour in np.unique(hours).tolist():
        yield hour_of(hour * HOUR_NS), rows.filter(pa.array(hours == hour))


def _sync(file: Path) -> None:
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

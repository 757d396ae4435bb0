"""Many small files of one table as few large ones.

A recorder finishes its files every few seconds, so a night of eight servers has a hundred thousand. Every reader takes
a millisecond or two for each, however little is in it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from analytics.session.allowance import PARQUET_TIMES, Allowance
from analytics.session.finding import Finding, Usable
from analytics.session.manifest import sync_directory
from analytics.session.quarantine import Quarantine
from analytics.session.runs import events_of
from analytics.session.schema import (
    COMPACTED,
    FILE_EVENTS,
    FILE_RECORDER,
    FILE_SCHEMA,
    FILE_SESSION,
    FILE_SUFFIX,
    PARTITION,
    SCHEMA_VERSION,
    SESSION_FILE,
    TABLE_OF,
    UNKNOWN_HOUR,
    Table,
)
from analytics.session.storage import Stored, side_by_side, stored
from sequencing.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_ROWS = 262_144
FILE_ROWS = 4_000_000
"""Rows of a large file: some 100 MB."""
SLICE_BYTES = 256 * 1024 * 1024
"""Rows that are written at once take less than this in memory: an ordinary row group some 40 MB."""
AT_ONCE = 512
"""Files whose rows are in memory at a time."""

OnProgress = Callable[[int, int], None]
"""Is told how many files are done, and of how many."""


@dataclass(slots=True)
class Compaction:
    """What was made of a session. ``copied``: files that cannot be used, which were copied as they are."""

    session: str
    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    copied: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    """File → why it is not there."""


def compact_session(source: Stored, out: Path, *, on_progress: OnProgress = lambda *_: None) -> Compaction:
    """Write a session with the same rows into a new directory, in a few files for each table and hour.

    The source is only read. Files that cannot be used, and unfinished ones, are copied, so that an analysis still
    says what is missing. Copies of files are left out. The directory is there when all is written.

    Only regular files below the source are read. Raises `InvalidInput` if the source is no session, if its rows take
    far more room than its files, or if the directory exists and is not empty, or is in the source; `OSError`.
    """
    if not source.is_folder or not source.within(SESSION_FILE).is_file:
        raise InvalidInput(f"{source} is not a recorded session: it has no {SESSION_FILE} that is a regular file")
    if source.is_local and out.resolve().is_relative_to(Path(source.place).resolve()):
        raise InvalidInput(f"{out} is in the session: name a directory outside of it")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"{out} is not empty: name a new directory")
    finding = Finding(Quarantine())
    finding.take(source)
    finding.check_whole()
    if not finding.usable:
        reasons = "; ".join(each.reason for each in finding.quarantine.entries)
        raise InvalidInput(f"{source} cannot be compacted: {reasons or 'it has no rows'}")
    draft = out.with_name(f".{out.name}.partial")
    if draft.exists():  # what a killed compaction left
        shutil.rmtree(draft)
    draft.mkdir(parents=True)
    try:
        done = _write(source, finding, draft, on_progress)
    except BaseException:
        shutil.rmtree(draft)
        raise
    if out.exists():
        out.rmdir()
    draft.rename(out)
    sync_directory(out.parent)
    return done


def _write(source: Stored, finding: Finding, draft: Path, on_progress: OnProgress) -> Compaction:
    usable = finding.usable
    session = usable[0].session
    done = Compaction(session)
    inputs, left_out = source.listing(everywhere=True)
    done.left_out.update(left_out)
    allowance = Allowance(source, inputs, times=PARQUET_TIMES)
    taken = {each.file.name for each in usable}
    groups: dict[tuple[str, str], list[Stored]] = {}
    for each in usable:
        groups.setdefault((each.table, _hour_of(each, source)), []).append(each.file)
    for (table, hour), files in groups.items():
        folder = draft / table / f"{PARTITION}={hour}"
        gathered = gather(files, TABLE_OF[table], folder, session=session, allowance=allowance)
        taken -= {file.name for file in gathered.damaged}
        done.files_before += len(files)
        done.files_after += len(gathered.files)
        done.rows += gathered.rows
        on_progress(done.files_before, len(usable))
    for file in inputs:
        if file.name in finding.copies:
            done.left_out[file.name] = finding.copies[file.name]
        elif file.parts_in(source) == (SESSION_FILE,):
            described = {**orjson.loads(file.read_bytes()), "schema": SCHEMA_VERSION}
            (draft / SESSION_FILE).write_bytes(orjson.dumps(described))
        elif file.name not in taken:
            allowance.take(file.size)
            try:
                file.fetch(draft.joinpath(*file.parts_in(source)))
            except FileNotFoundError:
                # A recorder has finished it meanwhile, under another name.
                done.left_out[file.name] = "gone: is it still being recorded?"
                continue
            done.copied += 1
    return done


@dataclass(slots=True)
class Gathered:
    """The large files, the rows in them, and the small files that could not be read: their rows are left out."""

    files: list[Stored] = field(default_factory=list)
    rows: int = 0
    damaged: list[Stored] = field(default_factory=list)


def gather(files: Sequence[Stored], table: Table, folder: Path, *, session: str, allowance: Allowance) -> Gathered:
    """Write the rows of files into as few files in a folder, which is made."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = {FILE_SCHEMA: str(SCHEMA_VERSION), FILE_SESSION: session, FILE_RECORDER: COMPACTED}
    schema = table.arrow_schema(metadata)
    gathered = Gathered()
    groups = _row_groups(files, table, gathered.damaged)
    group = next(groups, None)
    while group is not None:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{COMPACTED}-{len(gathered.files):06}{FILE_SUFFIX}"
        rows = events = 0
        written = 0
        with (
            pa.OSFile(str(file), "wb") as stream,
            pq.ParquetWriter(stream, schema, compression="zstd") as writer,
        ):
            while group is not None and rows < FILE_ROWS:
                for some in _slices(group):
                    writer.write_table(some)
                    allowance.take(stream.tell() - written)
                    written = stream.tell()
                rows += group.num_rows
                events += events_of(group, table)
                group = next(groups, None)
            if table.runs is not None:
                writer.add_key_value_metadata({FILE_EVENTS: str(events)})
        gathered.files.append(stored(file))
        gathered.rows += rows
    return gathered


def _slices(group: pa.Table) -> Iterator[pa.Table]:
    """Yield parts of some rows, each small enough to be written before what is written is counted."""
    rows = max(1, group.num_rows * SLICE_BYTES // max(group.nbytes, 1))
    for begin in range(0, group.num_rows, rows):
        yield group.slice(begin, rows)


def _row_groups(files: Sequence[Stored], table: Table, damaged: list[Stored]) -> Iterator[pa.Table]:
    import pyarrow as pa

    schema = table.arrow_schema()
    far = not all(each.is_local for each in files)
    waiting: list[pa.Table] = []
    rows = 0
    for begin in range(0, len(files), AT_ONCE):
        some = files[begin : begin + AT_ONCE]
        for file, part in zip(some, side_by_side(lambda each: _rows_of(each, schema), some, far=far), strict=True):
            if part is None:
                damaged.append(file)
                continue
            waiting.append(part)
            rows += part.num_rows
            if rows >= ROW_GROUP_ROWS:
                yield pa.concat_tables(waiting)
                waiting, rows = [], 0
    if rows:
        yield pa.concat_tables(waiting)


def _rows_of(file: Stored, schema: pa.Schema) -> pa.Table | None:
    """Return the rows in the form of the schema, whose columns are null where the file has none; None if damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with file.open() as stream:
            rows = pq.ParquetFile(stream).read()
        columns = [
            rows[column.name].cast(column.type)
            if column.name in rows.column_names
            else pa.nulls(rows.num_rows, column.type)
            for column in schema
        ]
        return pa.table(columns, schema=schema)
    except (pa.ArrowException, OSError):
        return None


def _hour_of(each: Usable, source: Stored) -> str:
    """Return the hour in the names of the file's folders."""
    for part in each.file.parts_in(source):
        name, _, value = part.partition("=")
        if name == PARTITION and value:
            return value
    return UNKNOWN_HOUR

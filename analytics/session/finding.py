"""Which files of sessions can be used: found by their footers and first bytes, and put aside with a reason.

A file is put aside if it is truncated, of another kind, of another version of the schema or of another session, or if
it is a copy of another file. Footers are read side by side. Copies are found by what footers say: only files whose
footers are equal are read whole and compared, each once.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from analytics.session.quarantine import Quarantine
from analytics.session.runs import events_in
from analytics.session.schema import (
    COMPACTED,
    DELIVERIES,
    FILE_RECORDER,
    FILE_SCHEMA,
    FILE_SESSION,
    FILE_SUFFIX,
    LOG_SUFFIXES,
    READABLE,
    READABLE_VERSIONS,
    SESSION_FILE,
    TABLE_OF,
)
from analytics.session.storage import Stored, side_by_side, stored
from sequencing.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

CHUNK_BYTES = 1 << 20
_NUMBERED = re.compile(rf"\.?(?P<recorder>.+)-(?P<number>\d{{6}}){re.escape(FILE_SUFFIX)}(\.partial)?")
"""The names of a recorder's files. It counts them from 1, over all tables."""


@dataclass(frozen=True, slots=True)
class Footer:
    """What a file says of itself: how many events it has, and why it cannot be used, if so.

    ``lacks``: whether the session may lack what is in it; ``alike``: equal in all copies of the file, and in few other
    files.
    """

    events: int = 0
    wrong: str = ""
    lacks: bool = False
    alike: tuple[Any, ...] = ()
    recorder: str = ""


@dataclass(frozen=True, slots=True)
class Usable:
    """A file that can be used. ``folder``: its session's."""

    session: str
    table: str
    folder: Stored
    file: Stored
    events: int
    recorder: str


class Finding:
    """The usable files of sessions, and logs; ``quarantine`` counts all others."""

    def __init__(self, quarantine: Quarantine) -> None:
        self.quarantine = quarantine
        self.usable: list[Usable] = []
        self.sessions: dict[str, Mapping[str, Any]] = {}
        """Those with deliveries, by their ids: what their descriptions say."""
        self.logs: list[Stored] = []
        self.unfinished = 0
        self._recorders: set[tuple[str, str]] = set()
        """By session: those that files name."""
        self._numbers: dict[tuple[str, str], set[int]] = {}
        """By session and recorder: the numbers of the files that are there, whatever is in them."""
        self.copies: dict[str, str] = {}
        """File → why it is taken for a copy of another one."""
        self._alike: dict[tuple[Any, ...], list[Stored]] = {}
        self._digests: dict[str, bytes] = {}

    def take(self, source: Stored) -> None:
        """Check a session, a log, or a directory of these. Raises `InvalidInput`, and `StorageUnavailable`."""
        if not source.exists:
            raise InvalidInput(f"{source} does not exist")
        if source.is_file:
            self._log(source)
            return
        here, left_out = source.listing()
        names = {each.last for each in here}
        if SESSION_FILE in names or any(each.is_folder and each.last in TABLE_OF for each in here):
            self._session(source)
            return
        logs = [each for each in here if each.is_file and each.last.endswith(LOG_SUFFIXES)]
        inner = [each for each in here if each.is_folder and each.within(SESSION_FILE).is_file]
        self._left_out(source, left_out)
        # The demo writes both for the same run; a session has more data.
        for log in logs if not inner else ():
            self._log(log)
        for folder in inner:
            self._session(folder)
        if not logs and not inner:
            raise InvalidInput(
                f"{source} is neither a session nor a directory of {' or '.join('*' + s for s in LOG_SUFFIXES)}"
            )

    def nothing(self) -> InvalidInput:
        """Return the error of sources without any delivery."""
        said = "; ".join(f"{each.reason}: {', '.join(each.examples)}" for each in self.quarantine.entries[:3])
        return InvalidInput(f"there are no deliveries to analyse{' – ' + said if said else ''}")

    def check_whole(self) -> None:
        """Look at all sources together: put on record which files are missing by their numbers.

        Raises `InvalidInput` if a session and its compacted copy are both there.
        """
        folders: dict[tuple[str, bool], Stored] = {}
        for each in self.usable:
            folders.setdefault((each.session, each.recorder == COMPACTED), each.folder)
        for (session, is_compacted), folder in folders.items():
            other = folders.get((session, not is_compacted))
            if is_compacted and other is not None and other.name != folder.name:
                raise InvalidInput(f"{folder} is the compacted copy of {other}: analyze one of them")
        for (session, recorder), numbers in sorted(self._numbers.items()):
            if (session, recorder) not in self._recorders:
                continue  # a file that was renamed
            lacking = sorted(set(range(1, max(numbers) + 1)) - numbers)
            if lacking:
                names = [f"{recorder}-{number:06}{FILE_SUFFIX} of {session}" for number in lacking]
                reason = "a file is missing, by the numbers of the others"
                self.quarantine.add("recorder", reason, count=len(names), examples=names, lacks=True)

    def _session(self, directory: Stored) -> None:
        described = self._described(directory)
        if described is None:
            return
        session = described["session"]
        files = self._candidates(directory, session)
        footers = side_by_side(lambda each: read_footer(each[1], each[0], session), files, far=not directory.is_local)
        deliveries = 0
        for (table, file), footer in zip(files, footers, strict=True):
            events = self._judged(file, footer)
            self._recorders.add((session, footer.recorder))
            if events:
                self.usable.append(Usable(session, table, directory, file, events, footer.recorder))
                deliveries += events if table == "deliveries" else 0
        if deliveries:
            self.sessions[session] = described
        else:
            self.quarantine.add("session", "no deliveries in it", examples=[str(directory)])

    def _candidates(self, directory: Stored, session: str) -> list[tuple[str, Stored]]:
        """Return the finished files of tables, and each one's table."""
        candidates = []
        files, left_out = directory.listing(everywhere=True)
        self._left_out(directory, left_out)
        for file in files:
            place = file.parts_in(directory)
            if place == (SESSION_FILE,):
                continue
            if (named := _NUMBERED.fullmatch(place[-1])) is not None and named["recorder"] != COMPACTED:
                self._numbers.setdefault((session, named["recorder"]), set()).add(int(named["number"]))
            if any(part.startswith((".", "_")) for part in place):
                self.unfinished += place[-1].startswith(".") or place[-1].endswith(FILE_SUFFIX)
            elif not place[-1].endswith(FILE_SUFFIX) or place[0] not in TABLE_OF:
                self._aside(file, "not of a recorded session")
            else:
                candidates.append((place[0], file))
        return candidates

    def _left_out(self, folder: Stored, left_out: Mapping[str, str]) -> None:
        for name, reason in left_out.items():
            first, *_ = name[len(folder.name.rstrip("/")) + 1 :].split("/")
            self.quarantine.add(
                "file", reason, examples=[name], lacks=first in TABLE_OF or first.endswith(LOG_SUFFIXES)
            )

    def _described(self, directory: Stored) -> Mapping[str, Any] | None:
        try:
            file = directory.within(SESSION_FILE)
            if not file.is_file:
                raise FileNotFoundError(SESSION_FILE)
            described = orjson.loads(file.read_bytes())
            schema, session = described["schema"], described["session"]
        except (OSError, ValueError, KeyError, TypeError):
            self.quarantine.add(
                "session",
                f"its {SESSION_FILE} is missing, cannot be read, or is not a regular file",
                examples=[str(directory)],
            )
            return None
        if schema not in READABLE_VERSIONS or not isinstance(session, str):
            reason = f"of schema version {schema}, and this reads {READABLE}"
            self.quarantine.add("session", reason, examples=[str(directory)])
            return None
        return {**described, "directory": str(directory)}

    def check(self, file: Stored, table: str, session: str) -> int:
        """Return how many rows, or events, a Parquet file has, 0 if it is set aside."""
        return self._judged(file, read_footer(file, table, session))

    def known(self, file: Stored, table: str, session: str) -> None:
        """Note a file that was taken before, so that its copies are found."""
        footer = read_footer(file, table, session)
        if footer.alike:
            self._again(file, footer.alike)

    def _judged(self, file: Stored, footer: Footer) -> int:
        if footer.wrong:
            return self._aside(file, footer.wrong, lacks=footer.lacks)
        if not footer.events or self._again(file, footer.alike):
            return 0
        return footer.events

    def _log(self, file: Stored) -> None:
        with file.open() as stream:
            start = stream.read(4)
        if not start:
            self._aside(file, "empty")
        elif start == b"PAR1":
            self._aside(file, "a Parquet file by itself: name the session's directory")
        elif start.startswith(b"\x1f\x8b"):
            if not file.last.endswith(".gz"):
                self._aside(file, "gzip-compressed, and not named .gz")
            elif not _unzips(file):
                self._aside(file, "truncated gzip", lacks=True)
            elif not self._again(file, (file.size,)):
                self.logs.append(file)
        elif b"\0" in start:
            self._aside(file, "neither JSON Lines nor gzip")
        elif not self._again(file, (file.size,)):
            self.logs.append(file)

    def _aside(self, file: Stored, reason: str, *, lacks: bool = False) -> int:
        self.quarantine.add("file", reason, examples=[str(file)], lacks=lacks)
        return 0

    def _again(self, file: Stored, alike: tuple[Any, ...]) -> bool:
        """Return whether a file with the same content was taken before; reads only files that look alike."""
        others = self._alike.setdefault(alike, [])
        same = next((each for each in others if each.name == file.name), None)
        if same is None and others:
            digest = self._digest(file)
            same = next((each for each in others if self._digest(each) == digest), None)
        if same is None:
            others.append(file)
            return False
        self.copies[file.name] = f"the same content as another file, {same.last}"
        self._aside(file, self.copies[file.name])
        return True

    def _digest(self, file: Stored) -> bytes:
        if file.name not in self._digests:
            with file.open() as stream:
                self._digests[file.name] = hashlib.file_digest(stream, "sha256").digest()
        return self._digests[file.name]


def find(sources: Iterable[str | Path]) -> Finding:
    """Look at session directories, and delivery logs or directories of them, by path or URL; without Spark.

    Raises `InvalidInput` for missing files, and if there are no deliveries; `StorageUnavailable`.
    """
    finding = Finding(Quarantine())
    for source in dict.fromkeys(map(str, sources)):
        finding.take(stored(source))
    finding.check_whole()
    if not finding.logs and all(each.table != DELIVERIES.name for each in finding.usable):
        raise finding.nothing()
    return finding


def finished_files(session: Stored) -> tuple[Mapping[str, Sequence[Stored]], Mapping[str, str]]:
    """Return the finished files of each table, and what is not read, as `Stored.listing` does."""
    files, left_out = session.listing(everywhere=True)
    of_table: dict[str, list[Stored]] = {}
    for file in files:
        first, *others = file.parts_in(session)
        if file.last.endswith(FILE_SUFFIX) and not any(part.startswith((".", "_")) for part in (first, *others)):
            of_table.setdefault(first, []).append(file)
    return of_table, left_out


def read_footer(file: Stored, table: str, session: str) -> Footer:
    """Return what a Parquet file says of itself, and whether it is one of this table and session."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.size == 0:
        return Footer(wrong="empty", lacks=True)
    try:
        with file.open() as stream, pq.ParquetFile(stream) as opened:
            footer, schema = opened.metadata, opened.schema_arrow
    except (pa.ArrowException, OSError):
        return Footer(wrong="truncated, or not a Parquet file", lacks=True)
    notes = {
        key.decode(errors="replace"): value.decode(errors="replace") for key, value in (footer.metadata or {}).items()
    }
    if FILE_SCHEMA not in notes:
        return Footer(wrong="foreign: says nothing of a schema")
    if notes[FILE_SCHEMA] not in map(str, READABLE_VERSIONS):
        return Footer(wrong=f"of schema version {notes[FILE_SCHEMA]}, and this reads {READABLE}", lacks=True)
    if notes.get(FILE_SESSION) != session:
        return Footer(wrong="of another session")
    wrong = _wrong_columns(schema, table)
    if wrong:
        return Footer(wrong=f"columns are missing or of another type: {', '.join(wrong)}", lacks=True)
    if nulls := _nulls(footer, schema, table):
        return Footer(wrong=f"nulls where none may be, in {', '.join(nulls)}", lacks=True)
    if not footer.num_rows:
        return Footer()
    ends = tuple(_ends(footer.row_group(0).column(place)) for place in range(min(footer.num_columns, ENDS_MAX)))
    notes.pop("ARROW:schema", None)
    alike = (file.size, footer.num_rows, footer.serialized_size, *sorted(notes.items()), *ends)
    return Footer(events_in(footer), alike=alike, recorder=notes.get(FILE_RECORDER, ""))


def _nulls(footer: pq.FileMetaData, schema: pa.Schema, table: str) -> list[str]:
    """Return the columns that have nulls and may not have any. Recorders say of these that they are not nullable."""
    needed = {column.name for column in TABLE_OF[table].columns if not column.nullable}
    doubtful = {field.name for field in schema if field.nullable and field.name in needed}
    if not doubtful:
        return []
    having = set()
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            statistics = column.statistics
            if column.path_in_schema in doubtful and statistics is not None and statistics.null_count:
                having.add(column.path_in_schema)
    return sorted(having)


ENDS_MAX = 12
"""Columns whose smallest and largest values tell files apart; times are among them."""


def _ends(column: Any) -> tuple[Any, ...]:
    statistics = column.statistics
    if statistics is None or not statistics.has_min_max:
        return (column.total_compressed_size,)
    return column.total_compressed_size, statistics.min_raw, statistics.max_raw


def is_whole(file: Stored) -> bool:
    """Return whether all rows of a Parquet file can be read; reads them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with file.open() as stream, pq.ParquetFile(stream) as opened:
            for _ in opened.iter_batches():
                pass
    except (pa.ArrowException, OSError):
        return False
    return True


def damaged_among(files: Sequence[Stored]) -> list[Stored]:
    """Return the files some of whose rows cannot be read; reads all of them, side by side."""
    far = any(not each.is_local for each in files)
    return [file for file, whole in zip(files, side_by_side(is_whole, files, far=far), strict=True) if not whole]


@cache
def _columns(table: str) -> tuple[tuple[str, pa.DataType, bool], ...]:
    """Return each column's name, type, and whether it may be missing."""
    may_miss = {each.name: each.nullable for each in TABLE_OF[table].columns}
    return tuple((each.name, each.type, may_miss[each.name]) for each in TABLE_OF[table].arrow_schema())


def _wrong_columns(schema: pa.Schema, table: str) -> list[str]:
    """Return the required columns that are missing, and those of another type."""
    wrong = []
    for name, kind, may_miss in _columns(table):
        place = schema.get_field_index(name)
        if place < 0:
            if not may_miss:
                wrong.append(name)
        elif not _is_like(schema.field(place).type, kind):
            wrong.append(name)
    return wrong


def _is_like(actual: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether a type is the one wanted, whatever the items of lists are called."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        return pa.types.is_list(actual) and _is_like(actual.value_type, kind.value_type)
    if pa.types.is_struct(kind):
        if not pa.types.is_struct(actual) or {each.name for each in actual} != {each.name for each in kind}:
            return False
        return all(_is_like(actual.field(each.name).type, each.type) for each in kind)
    return bool(actual == kind)


def _unzips(file: Stored) -> bool:
    try:
        with file.open() as raw, gzip.open(raw) as stream:
            while stream.read(CHUNK_BYTES):
                pass
    except (EOFError, OSError, zlib.error):
        return False
    return True

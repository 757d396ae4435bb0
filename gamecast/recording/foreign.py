"""Other programs' logs as delivery logs: CSV, JSON Lines or Parquet, with a mapping of their fields.

A mapping says where each field of a delivery is: ``event=msg.id`` is the field ``id`` of the object ``msg``; ``@file``
is the file's name without its endings, ``=text`` the text itself. Numbers become names. Where no ``index`` is mapped, a
subscriber's deliveries are counted in the order in which they stand. Times may be seconds, milliseconds, microseconds
or nanoseconds since 1970, which their size tells, or ISO 8601.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gamecast.recording.deliverylog import read_records
from sequencing.errors import InvalidInput, UsageError

NAMES = ("subscriber", "event", "region", "sender")
TIMES = {"sent_at": "sent_at_ns", "delivered_at": "delivered_at_ns"}
FIELDS = (*NAMES, "index", *TIMES)
if TYPE_CHECKING:
    import pyarrow as pa

FILE, TEXT = "@file", "="
FORMS = (".csv", ".jsonl", ".ndjson", ".json", ".parquet")
_UNITS_NS = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000), (0.0, 1_000_000_000))
"""From this number on, a time since 1970 counts in units of so many nanoseconds: each fits 1973 to 5138."""
_CSV_FIELD_MAX = 1 << 20

Record = dict[str, object]


@dataclass(frozen=True, slots=True)
class Fields:
    """Where the fields of a delivery are in another program's records."""

    places: Mapping[str, str]

    @classmethod
    def of(cls, said: Iterable[str]) -> Fields:
        """Parse ``FIELD=PLACE`` each. Raises `UsageError`."""
        places: dict[str, str] = {}
        for each in said:
            name, _, place = each.partition("=")
            if name not in FIELDS or not place:
                raise UsageError(f"--field {each}: say FIELD=PLACE, and FIELD is one of {', '.join(FIELDS)}")
            if name in places:
                raise UsageError(f"--field {each}: {name} is {places[name]} already")
            places[name] = place
        if missing := [name for name in NAMES if name not in places]:
            raise UsageError(f"--field: nothing says what is the {missing[0]}: for example --field {missing[0]}=PLACE")
        return cls(places)

    def deliveries(self, file: Path, counted: dict[str, int]) -> Iterator[tuple[int, Record]]:
        """Yield line and delivery, as of a delivery log. ``counted``: the next index of each subscriber.

        Raises `InvalidInput`, naming file and line.
        """
        for line, record in _records(file):
            found = self._named(record, file, line, NAMES) | self._times(
                record, file, line, ("sent_at", "delivered_at")
            )
            subscriber = str(found["subscriber"])
            if "index" in self.places:
                found["index"] = _whole(self._value(record, "index", file, line), file, line)
            else:
                found["index"] = counted.get(subscriber, 0)
                counted[subscriber] = counted.get(subscriber, 0) + 1
            yield line, found

    def published(self, file: Path) -> Iterator[tuple[int, Record]]:
        """Yield line and what was published, without its position. Raises `InvalidInput`, naming file and line."""
        for line, record in _records(file):
            yield line, self._named(record, file, line, ("event", "region"))

    def _named(self, record: Mapping[str, Any], file: Path, line: int, names: Iterable[str]) -> Record:
        found: Record = {}
        for name in names:
            value = self._value(record, name, file, line)
            is_named = isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
            if isinstance(value, bool) or not is_named or value == "":
                raise InvalidInput(f"{file}, line {line}: {self.places[name]!r}, the {name}, is {_shown(value)}")
            found[name] = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        return found

    def _times(self, record: Mapping[str, Any], file: Path, line: int, names: Iterable[str]) -> Record:
        found: Record = {}
        for name in names:
            if name in self.places and (value := self._value(record, name, file, line)) not in (None, ""):
                at_ns = time_ns(value)
                if at_ns is None:
                    raise InvalidInput(f"{file}, line {line}: {self.places[name]!r} is no time: {_shown(value)}")
                found[TIMES[name]] = at_ns
        return found

    def _value(self, record: Mapping[str, Any], name: str, file: Path, line: int) -> Any:
        place = self.places[name]
        if place == FILE:
            return stem(file)
        if place.startswith(TEXT):
            return place.removeprefix(TEXT)
        if place in record:
            return record[place]
        value: Any = record
        for part in place.split("."):
            if not isinstance(value, Mapping) or part not in value:
                known = ", ".join(map(str, list(record)[:8]))
                raise InvalidInput(f"{file}, line {line}: has no {place!r}, the {name}; it has {known}")
            value = value[part]
        return value


def stem(file: Path) -> str:
    """Return a file's name without its endings."""
    name = file.name.removesuffix(".gz")
    return next((name.removesuffix(form) for form in FORMS if name.endswith(form)), name)


def find_logs(arguments: Iterable[Path]) -> list[Path]:
    """Return the files that the arguments name; a directory stands for all in it whose names have one of `FORMS`.

    Raises `InvalidInput`.
    """
    files: dict[Path, None] = {}
    for argument in arguments:
        if not argument.exists():
            raise InvalidInput(f"{argument} does not exist")
        within = sorted(argument.iterdir(), key=_in_turn) if argument.is_dir() else [argument]
        logs = [each for each in within if each.is_file() and each.name.removesuffix(".gz").endswith(FORMS)]
        if not logs:
            raise InvalidInput(f"{argument} is none of {', '.join(FORMS)}, and has none")
        files |= dict.fromkeys(logs)
    return list(files)


def _in_turn(file: Path) -> list[tuple[int, str]]:
    """Return what sorts names by the numbers in them: log.2 comes before log.10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", file.name) if part]


def time_ns(value: object) -> int | None:
    """Return a time as nanoseconds since 1970; None if it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, datetime):
        return _of_datetime(value)
    if isinstance(value, str):
        text = value.strip()
        try:
            value = int(text)
        except ValueError:
            try:
                value = float(text)
            except ValueError:
                return _of_iso(text)
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        return None
    unit = next(unit for least, unit in _UNITS_NS if value >= least)
    return value * unit if isinstance(value, int) else round(value * unit)


def _of_iso(text: str) -> int | None:
    try:
        at_ns = _of_datetime(datetime.fromisoformat(text))
    except ValueError:
        return None
    if at_ns < 0:
        return None
    finer = re.search(r"[.,]\d{6}(\d{1,3})", text)  # Python's times end with microseconds
    return at_ns + int(finer[1].ljust(3, "0")) if finer is not None else at_ns


def _of_datetime(value: datetime) -> int:
    at = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000


def _whole(value: object, file: Path, line: int) -> int:
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        number = -1
    if isinstance(value, bool) or number < 0 or (isinstance(value, float) and value != number):
        raise InvalidInput(f"{file}, line {line}: the index must be a whole number from 0, not {_shown(value)}")
    return int(number)


def _records(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    name = file.name.removesuffix(".gz")
    reader: Callable[[Path], Iterator[tuple[int, Mapping[str, Any]]]] = read_records
    if name.endswith(".csv"):
        reader = _csv_rows
    elif name.endswith(".parquet"):
        reader = _parquet_rows
    yield from reader(file)


def _csv_rows(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    csv.field_size_limit(_CSV_FIELD_MAX)
    try:
        with (
            gzip.open(file, "rt", encoding="utf-8-sig", newline="")
            if file.name.endswith(".gz")
            else file.open(encoding="utf-8-sig", newline="")
        ) as stream:
            rows = csv.DictReader(stream, strict=True)
            names = rows.fieldnames or []
            if len(set(names)) < len(names):
                raise InvalidInput(f"{file}, line 1: names a field twice: {', '.join(names)}")
            for row in rows:
                if None in row or None in row.values():
                    raise InvalidInput(f"{file}, line {rows.line_num}: has not as many fields as the first line")
                yield rows.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error, EOFError) as error:
        raise InvalidInput(f"{file} cannot be read as CSV: {error}") from error


def _parquet_rows(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    line = 0
    try:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches():
                for row in _with_whole_times(batch).to_pylist():
                    line += 1
                    yield line, row
    except (OSError, pa.ArrowException) as error:
        raise InvalidInput(f"{file} cannot be read as Parquet: {error}") from error


def _with_whole_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose times are whole nanoseconds: Python's end with microseconds."""
    import pyarrow as pa

    columns = [
        column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
        if pa.types.is_timestamp(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"

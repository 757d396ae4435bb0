"""Delivery logs: JSON Lines, one delivery in each, as `gamecast audit` reads them, from any program.

    {"subscriber": "s1", "index": 0, "event": "any unique id", "region": "forest", "sender": "s2"}

``index`` is the place in that subscriber's delivery order, so lines may be in any order and a subscriber's log may be
in several files. ``sent_at_ns`` and ``delivered_at_ns`` are optional, further fields are ignored, and so are empty
lines. Files may be gzip-compressed, under any name.

A subscriber that joins and leaves regions may report it, with a line for each stay in a region, anywhere in its log:

    {"subscriber": "s1", "stay": "forest", "from": 3, "to": 40, "asked_at_ns": 1700…, "joined_at_ns": 1700…}

``from`` and ``to`` are indices: ``from`` of the first delivery after it requested the region, ``to`` of the first after
it left. ``to`` is missing if it never left. ``joined_at_ns`` is when it was reported to be in, missing if it was not;
``asked_at_ns`` is optional. Without such lines, a subscriber has the regions of which it delivered anything.

The published events are in a file of its own, JSON Lines with ``event`` and ``region``. To judge stays, it also has
each event's ``position`` ("epoch-sequence", the order in its region) and ``published_at_ns``, when its publisher called
publish, by the clock of ``joined_at_ns``.
"""

from __future__ import annotations

import os
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import orjson

from analytics.session.listing import list_local, look, why_not
from analytics.session.manifest import is_session
from placement.textlines import foreign_encoding, read_lines
from sequencing.checkers import DeliverySequence, Published
from sequencing.checkers.stays import Placed, Position, Stay
from sequencing.errors import InvalidInput

LINES_PER_REPORT = 10_000
LOG_SUFFIXES = (".jsonl", ".jsonl.gz")
PUBLISHED = "published.ndjson"
_REQUIRED = ("subscriber", "event", "region", "sender")
_INT64_MAX = (1 << 63) - 1
_POSITION = re.compile(r"(\d{1,18})-(\d{1,18})")
IntArray = npt.NDArray[np.int64]

Progress = Callable[[int], None]
"""Called from time to time with the number of lines read since the last call."""


@dataclass(frozen=True, slots=True)
class DeliveryLogs:
    """The contents of some log files: one sequence for each subscriber, in delivery order, sorted by name."""

    sequences: tuple[DeliverySequence, ...]
    index_gaps: int
    """Indices below a subscriber's last one, or below the end of a stay, that no line has: the log omits lines, or was
    cut."""
    stays: tuple[Stay, ...] = ()
    """The stays of subscribers that join and leave; ``start`` and ``end`` are places in their sequences."""
    partial: frozenset[str] = frozenset()
    """Subscribers that such lines are missing of."""
    live: tuple[DeliverySequence, ...] = ()
    """The sequences without what came from history, late on purpose."""
    unended: frozenset[str] = frozenset()
    """Subscribers whose recording has no end: what they delivered after their last line is not known."""
    returned: frozenset[str] = frozenset()
    """Subscribers that asked for history, or went on behind a position: nothing here judges where that began."""


def read_delivery_logs(files: Iterable[Path], *, on_progress: Progress | None = None) -> DeliveryLogs:
    """Read log files as a stream; takes about 4 s and 200 MB for a million deliveries.

    Raises `InvalidInput`, naming file and line, for a line that is neither a delivery nor a stay, for an index that a
    subscriber has twice, and for files that cannot be read or hold no deliveries at all.
    """
    names = [Path(file) for file in files]
    parts: dict[str, _Part] = {}
    stays: list[Stay] = []
    unended: set[str] = set()
    returned: set[str] = set()
    for number, file in enumerate(names):
        for line, record in read_records(file, on_progress):
            if "stay" in record and "event" not in record:
                stays.append(parse_stay(record, file, line))
                if record.get("open") is True:
                    unended.add(stays[-1].subscriber)
                if record.get("since_epoch") is not None:
                    returned.add(stays[-1].subscriber)
            else:
                _add(parts, record, number, line, file)
    if not parts and not stays:
        raise InvalidInput(f"no deliveries in {', '.join(map(str, names)) or 'no files'}: there is nothing to judge")
    sequences = []
    gaps: dict[str, int] = {}
    indices: dict[str, IntArray] = {}
    for subscriber in sorted(parts):
        sequence, indices[subscriber], gaps[subscriber] = _sequence(subscriber, parts[subscriber], names)
        sequences.append(sequence)
    behind: dict[str, int] = {}
    for stay in stays:
        last = int(indices[stay.subscriber][-1]) + 1 if stay.subscriber in indices else 0
        behind[stay.subscriber] = max(behind.get(stay.subscriber, 0), (stay.end or 0) - last)
    for subscriber, missing in behind.items():
        gaps[subscriber] = gaps.get(subscriber, 0) + missing
    for stay in stays:
        # Where lines are missing, a place is less than an index.
        own = indices.get(stay.subscriber, np.empty(0, np.int64))
        stay.start = int(np.searchsorted(own, stay.start))
        stay.end = int(np.searchsorted(own, stay.end)) if stay.end is not None else None
        if stay.end is None and stay.subscriber in unended:
            stay.end = len(own)  # nothing after the last line is due
    partial = frozenset(subscriber for subscriber, missing in gaps.items() if missing)
    live = tuple(_without(each, indices[each.subscriber], parts[each.subscriber].replayed) for each in sequences)
    unknown = frozenset(unended), frozenset(returned)
    return DeliveryLogs(tuple(sequences), sum(gaps.values()), tuple(stays), partial, live, *unknown)


def read_published(file: Path, *, on_progress: Progress | None = None) -> list[Published]:
    """Read JSON Lines with ``event`` and ``region``: all published events, in any order.

    Events with ``position`` and ``published_at_ns`` are returned as `Placed`. Raises `InvalidInput`, naming file and
    line, for a line without the first two, for one of the others that is malformed or alone, and for a repeated event.
    """
    published: dict[str, Published] = {}
    for line, record in read_records(file, on_progress):
        event, region, position, published_at_ns = parse_placed(record, file, line)
        if event in published:
            raise InvalidInput(f"{file}, line {line}: event {event!r} is in this file already: ids must be unique")
        if position is not None and published_at_ns is not None:
            published[event] = Placed(event, region, position, published_at_ns)
        else:
            published[event] = Published(event, region)
    return list(published.values())


def write_published(file: Path, published: Iterable[Published]) -> None:
    """Write a file that `read_published` reads."""
    lines = []
    for each in published:
        line: dict[str, object] = {"event": each.event, "region": each.region}
        if isinstance(each, Placed):
            line |= {"position": "-".join(map(str, each.position)), "published_at_ns": each.published_at_ns}
        lines.append(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    file.write_bytes(b"".join(lines))


def published_within(directory: Path) -> Path:
    """Return the file in which a recorder of delivery logs notes the published events: in their directory.

    Its suffix is not that of a log, for which it would be taken.
    """
    return directory / PUBLISHED


def find_published(files: Sequence[Path], *, left_out: dict[str, str] | None = None) -> Path | None:
    """Return the file of `published_within` if all these logs are in one directory and it is a regular file.

    ``left_out`` gets its name and the reason if it is something else.
    """
    directories = {file.absolute().parent for file in files}
    if len(directories) == 1:
        within = published_within(directories.pop())
        entry = look(within.parent, within.name)
        if entry is not None and not entry.is_folder:
            return within
        if left_out is not None and entry is None and os.path.lexists(within):
            left_out[str(within)] = why_not(within.name, within.lstat().st_mode)
    return None


def find_delivery_logs(arguments: Iterable[Path], *, left_out: dict[str, str] | None = None) -> list[Path]:
    """Return the files that the arguments name: a directory stands for all ``*.jsonl`` and ``*.jsonl.gz`` in it.

    Links and special files in a directory are not read: ``left_out`` gets their names and the reasons. A file named
    twice is read once. A recorded session and published events among the logs, as the demo leaves them, are none.
    Raises `InvalidInput` for a path that does not exist, and for a directory without logs.
    """
    logs: dict[Path, Path] = {}
    named = list(arguments)
    for argument in named:
        if len(named) > 1 and (argument.name == PUBLISHED or is_session(argument)):
            continue
        if not argument.exists():
            raise InvalidInput(f"{argument} does not exist")
        files = [argument]
        if argument.is_dir():
            listing = list_local(argument)
            files = [
                Path(each.file) for each in listing.content if each.file.endswith(LOG_SUFFIXES) and not each.is_folder
            ]
            if left_out is not None:
                left_out.update(item for item in listing.left_out.items() if item[0].endswith(LOG_SUFFIXES))
            if not files and is_session(argument):
                raise InvalidInput(
                    f"{argument} is a recorded session: `gamecast convert {argument} OUT_DIR --to log` makes logs of "
                    "it, and `gamecast audit OUT_DIR` judges those"
                )
            if not files:
                raise InvalidInput(f"{argument} is a directory without {' or '.join('*' + s for s in LOG_SUFFIXES)}")
        for file in files:
            logs.setdefault(file.resolve(), file)
    return list(logs.values())


def log_file_name(subscriber: str) -> str:
    """Return a file name for a subscriber's log that is safe on every file system, and different for each name."""
    return re.sub(r"[^\w .@+,=~-]", lambda unsafe: quote(unsafe[0], safe=""), subscriber) + ".jsonl"


@dataclass(slots=True)
class _Part:
    """The deliveries of one subscriber as they were read, and the file and line of each."""

    index: array[int] = field(default_factory=lambda: array("q"))
    events: list[str] = field(default_factory=list)
    regions: list[str] = field(default_factory=list)
    senders: list[str] = field(default_factory=list)
    sent_at_ns: list[int | None] = field(default_factory=list)
    replayed: set[int] = field(default_factory=set)
    """The indices of deliveries from history."""
    file: array[int] = field(default_factory=lambda: array("q"))
    line: array[int] = field(default_factory=lambda: array("q"))


def _add(parts: dict[str, _Part], record: dict[str, object], number: int, line: int, file: Path) -> None:
    get = record.get
    subscriber, event, region, sender = get("subscriber"), get("event"), get("region"), get("sender")
    index, sent, delivered = get("index"), get("sent_at_ns"), get("delivered_at_ns")
    # One pass for a good line; the error of a bad one is searched afterwards.
    if not (
        type(subscriber) is str and type(event) is str and type(region) is str and type(sender) is str
        and subscriber and event and region and sender
        and type(index) is int and 0 <= index <= _INT64_MAX
        and _is_time(sent)
        and _is_time(delivered)
    ):  # fmt: skip
        raise _invalid_delivery(record, file, line)
    part = parts.get(subscriber)
    if part is None:
        part = parts[subscriber] = _Part()
    part.index.append(index)
    # The same few names come again and again, and each event once for every subscriber.
    part.events.append(sys.intern(event))
    part.regions.append(sys.intern(region))
    part.senders.append(sys.intern(sender))
    part.sent_at_ns.append(sent)
    if get("replayed"):
        part.replayed.add(index)
    part.file.append(number)
    part.line.append(line)


def check_delivery(record: dict[str, object], file: Path, line: int) -> None:
    """Raise `InvalidInput`, naming file and line, if the record is not a delivery."""
    get = record.get
    index = get("index")
    names = (get(name) for name in _REQUIRED)
    if not (
        all(type(name) is str and name for name in names)
        and type(index) is int
        and 0 <= index <= _INT64_MAX
        and _is_time(get("sent_at_ns"))
        and _is_time(get("delivered_at_ns"))
    ):
        raise _invalid_delivery(record, file, line)


def parse_placed(record: dict[str, object], file: Path, line: int) -> tuple[str, str, Position | None, int | None]:
    """Return event, region, position and published_at_ns of something that was published, as `read_published` does."""
    event, region = (_text(record, name, file, line) for name in ("event", "region"))
    if "position" in record or "published_at_ns" in record:
        return event, region, _position(record, file, line), _time(record, "published_at_ns", file, line)
    return event, region, None, None


def parse_stay(record: dict[str, object], file: Path, line: int) -> Stay:
    """Return a stay; raises `InvalidInput`, naming file and line."""
    subscriber, region = (_text(record, name, file, line) for name in ("subscriber", "stay"))
    start, end = (record.get(name) for name in ("from", "to"))
    if type(start) is not int or not 0 <= start <= _INT64_MAX:
        raise InvalidInput(f"{file}, line {line}: 'from' must be a whole number from 0, not {_shown(start)}")
    if end is not None and (type(end) is not int or not start <= end <= _INT64_MAX):
        raise InvalidInput(f"{file}, line {line}: 'to' must be a whole number from {start}, not {_shown(end)}")
    asked, joined = (
        _time(record, name, file, line) if record.get(name) is not None else None
        for name in ("asked_at_ns", "joined_at_ns")
    )
    return Stay(subscriber, region, start, end, asked, joined)


def _position(record: Mapping[str, object], file: Path, line: int) -> Position:
    text = record.get("position")
    match = _POSITION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidInput(f"{file}, line {line}: 'position' must be like \"3-17\", not {_shown(text)}")
    return int(match[1]), int(match[2])


def _time(record: Mapping[str, object], name: str, file: Path, line: int) -> int:
    value = record.get(name)
    if not _is_time(value) or value is None:
        raise InvalidInput(f"{file}, line {line}: {name!r} must be whole nanoseconds, not {_shown(value)}")
    return value


def _invalid_delivery(record: dict[str, object], file: Path, line: int) -> InvalidInput:
    for name in _REQUIRED:
        _text(record, name, file, line)
    if "index" not in record:
        return InvalidInput(f"{file}, line {line}: has no 'index', the place in the subscriber's delivery order")
    index = record["index"]
    if type(index) is not int or not 0 <= index <= _INT64_MAX:
        return InvalidInput(f"{file}, line {line}: 'index' must be a whole number from 0, not {_shown(index)}")
    name = next(name for name in ("sent_at_ns", "delivered_at_ns") if not _is_time(record.get(name)))
    return InvalidInput(f"{file}, line {line}: {name!r} must be whole nanoseconds, not {_shown(record[name])}")


def _is_time(value: object) -> TypeGuard[int | None]:
    return value is None or (type(value) is int and -_INT64_MAX <= value <= _INT64_MAX)


def _without(sequence: DeliverySequence, index: IntArray, replayed: AbstractSet[int]) -> DeliverySequence:
    """Return a sequence without the deliveries of some indices."""
    if not replayed:
        return sequence
    kept = [place for place, number in enumerate(index.tolist()) if number not in replayed]
    events, regions, senders = (
        [column[place] for place in kept] for column in (sequence.events, sequence.regions, sequence.senders)
    )
    sent = [sequence.sent_at_ns[place] for place in kept] if sequence.sent_at_ns else ()
    return DeliverySequence(sequence.subscriber, events, regions, senders, sent)


def _sequence(subscriber: str, part: _Part, names: Sequence[Path]) -> tuple[DeliverySequence, IntArray, int]:
    """Return the deliveries in order, their indices, and how many indices are missing between them."""
    index = np.frombuffer(part.index, np.int64)
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(again):
        first, second = (int(order[again[0] + step]) for step in (0, 1))
        where = [f"{names[part.file[at]]}, line {part.line[at]}" for at in (first, second)]
        raise InvalidInput(f"{where[1]}: {subscriber!r} has index {part.index[second]} already, at {where[0]}")
    gaps = int(ordered[-1]) + 1 - len(ordered)
    if not any(sent is not None for sent in part.sent_at_ns):
        part.sent_at_ns.clear()
    if not bool((order[1:] > order[:-1]).all()):
        places = order.tolist()
        for column in (part.events, part.regions, part.senders, part.sent_at_ns):
            _arrange(column, places)
    return DeliverySequence(subscriber, part.events, part.regions, part.senders, part.sent_at_ns), ordered, gaps


def _arrange(column: list[Any], places: Sequence[int]) -> None:
    if column:
        column[:] = [column[place] for place in places]


def _text(record: Mapping[str, object], name: str, file: Path, line: int) -> str:
    value = record.get(name)
    if name not in record:
        raise InvalidInput(f"{file}, line {line}: has no {name!r}")
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{file}, line {line}: {name!r} must be a string that is not empty, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def read_records(file: Path, on_progress: Progress | None = None) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield line number and object of each line that is not empty; raises `InvalidInput`, naming file and line."""
    line = 0
    for line, text in read_lines(file):
        if on_progress is not None and line % LINES_PER_REPORT == 0:
            on_progress(LINES_PER_REPORT)
        if text.isspace():
            continue
        try:
            record = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            wrong = foreign_encoding(text) or f"is not JSON: {error.msg} (column {error.colno})"
            raise InvalidInput(f"{file}, line {line}: {wrong}") from error
        if type(record) is not dict:
            raise InvalidInput(f"{file}, line {line}: is not a JSON object but {_shown(record)}")
        yield line, record
    if on_progress is not None:
        on_progress(line % LINES_PER_REPORT)

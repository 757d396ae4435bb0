"""Execution logs: JSON Lines, one event in each, as `gamecast lab classify` reads them, from any program.

    {"process": "p1", "event": "send", "message": "m1", "to": ["p2", "p3"]} {"process": "p2", "event": "receive",
    "message": "m1"} {"process": "p3", "event": "crash"} {"process": "p1", "event": "gap"} {"process": "p1", "event":
    "view", "view": 2, "members": ["p1", "p2"]}

The lines of one process are in its order; those of different processes may be mixed in any way, and be in several
files. A message is sent once, and received by any number of processes; a receive is the delivery to the application. A
gap says that messages may be missing there, a view that its members are together from there on.
Events of other kinds are ignored, and so are further fields and empty lines. Files may be gzip-compressed.

Optional: ``to`` (without it, a message is for all its receivers, so that nothing can be missed), ``group`` (without
it, messages with the same ``to`` are of one group), and the times ``at_ms``, by a clock that all processes share, and
``local_ms``, by the process' own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from classic.executions.record import Event, Kind, Record, Sent
from placement.textlines import foreign_encoding, read_lines
from sequencing.errors import InvalidInput

Line = tuple[str, dict[str, Any]]
"""The place of a line, and its content."""


def read_execution(files: Iterable[Path]) -> Record:
    """Read logs into one record; raises `InvalidInput`, naming file and line, for a malformed or impossible line."""
    lines = [line for file in files for line in _read(file)]
    events: dict[str, list[Event]] = {}
    receivers: dict[str, list[str]] = {}
    sends: dict[str, Line] = {}
    for where, line in lines:
        process, message = _text(line, "process", where), line.get("message", "")
        kind = _text(line, "event", where)
        events.setdefault(process, [])
        if kind not in (Kind.SEND, Kind.RECEIVE, Kind.CRASH, Kind.GAP, Kind.VIEW):
            continue
        if kind in (Kind.SEND, Kind.RECEIVE):
            message = _text(line, "message", where)
        if kind == Kind.SEND:
            if message in sends:
                raise InvalidInput(f"{where}: message {message} was sent before, {sends[message][0]}")
            sends[message] = (where, line)
        elif kind == Kind.RECEIVE:
            receivers.setdefault(message, []).append(process)
        times = (_number(line, "at_ms", where), _number(line, "local_ms", where))
        view, members = _view(line, where) if kind == Kind.VIEW else (0, ())
        events[process].append(Event(process, Kind(kind), message, *times, view, members))
    for where, line in lines:
        if line.get("event") == Kind.RECEIVE and line["message"] not in sends:
            raise InvalidInput(f"{where}: message {line['message']} is received, and no line says that it was sent")
    return Record.of(events, {message: _sent(*send, receivers.get(message, [])) for message, send in sends.items()})


def _sent(where: str, line: dict[str, Any], receivers: list[str]) -> Sent:
    to = line.get("to", receivers)
    if not isinstance(to, list) or not all(isinstance(process, str) for process in to):
        raise InvalidInput(f'{where}: "to" is not a list of processes')
    group = line.get("group", ",".join(sorted(to)))
    if not isinstance(group, str):
        raise InvalidInput(f'{where}: "group" is not a name')
    return Sent(line["process"], group, frozenset(to))


def _view(line: dict[str, Any], where: str) -> tuple[int, tuple[str, ...]]:
    view, members = line.get("view"), line.get("members")
    if isinstance(view, bool) or not isinstance(view, int):
        raise InvalidInput(f'{where}: "view" is not a number')
    if not isinstance(members, list) or not all(isinstance(process, str) for process in members):
        raise InvalidInput(f'{where}: "members" is not a list of processes')
    return view, tuple(members)


def _read(file: Path) -> Iterator[Line]:
    for number, text in read_lines(file):
        where = f"{file}, line {number}"
        if not text.strip():
            continue
        try:
            line = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise InvalidInput(f"{where}: {foreign_encoding(text) or f'is not JSON: {error}'}") from error
        if not isinstance(line, dict):
            raise InvalidInput(f"{where}: is not a JSON object")
        yield where, line


def _text(line: dict[str, Any], field: str, where: str) -> str:
    value = line.get(field)
    if not isinstance(value, str) or not value:
        raise InvalidInput(f'{where}: "{field}" is missing or not a text')
    return value


def _number(line: dict[str, Any], field: str, where: str) -> float | None:
    value = line.get(field)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidInput(f'{where}: "{field}" is not a number')
    return value

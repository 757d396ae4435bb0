"""Rows of two named cells, from CSV or JSON Lines of other programs.

CSV: UTF-8, comma-separated, a row a line. If the first row names both columns it is a header, and they are found by it
in any order among others; without a header each row is the two cells. JSON Lines: an object a line, with both names
among others. Blank lines count for nothing. A file named .jsonl or .ndjson is JSON Lines, one named .csv is CSV
(``.gz`` after either), and any other is JSON Lines if it begins with ``{``.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from placement.textlines import LINE_BYTES_MAX, foreign_encoding, read_lines
from sequencing.errors import InvalidInput
from sequencing.names import plain_cell

STANDARD_INPUT = Path("-")
Row = tuple[str, str]
JSON_SUFFIXES = {".jsonl", ".ndjson"}


@dataclass(slots=True)
class Skipped:
    """Rows that were skipped because they are malformed: their number, and the error in the first."""

    count: int = 0
    first: str | None = None

    def add(self, complaint: str) -> None:
        """Count one more."""
        self.count += 1
        self.first = self.first or complaint


class MalformedRow(ValueError):
    """A row, or a cell of it, is invalid; the reader knows the file and the line."""


def read_rows(file: Path, columns: Row, take: Callable[[str, str], None], *, skipped: Skipped | None = None) -> None:
    """Hand the two cells of every row to ``fetch``, which may raise `MalformedRow`; ``-`` is standard input.

    Raises `InvalidInput`, naming file and line, for a row that is malformed, unless they are to be ``skipped``; always
    for a file that cannot be read and for a header that lacks a column.
    """
    shown = "standard input" if file == STANDARD_INPUT else str(file)
    lines = _standard_input() if file == STANDARD_INPUT else read_lines(file)
    parse: Callable[[str], Row | None] | None = None
    for number, line in lines:
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
            if not text or text.isspace():
                continue
            parse = parse or _parser(file, text, columns)
            cells = parse(text)
            if cells is not None:
                take(*cells)
        except _Unusable as error:
            raise InvalidInput(f"{shown}, line {number}: {error}") from error
        except ValueError as error:
            complaint = f"{shown}, line {number}: {foreign_encoding(line) or _says(error)}"
            if skipped is None:
                raise InvalidInput(complaint) from error
            skipped.add(complaint)


class _Unusable(Exception):
    """Nothing in the file can be used."""


def _says(error: ValueError) -> str:
    if isinstance(error, orjson.JSONDecodeError):
        return f"is not JSON: {error.msg}"
    return str(error)


def _parser(file: Path, first: str, columns: Row) -> Callable[[str], Row | None]:
    """Return what turns a line into its cells, None for the header; ``first`` is the first line that is not blank."""
    suffixes = file.suffixes[-2:] if file.suffix == ".gz" else file.suffixes[-1:]
    named_json, named_csv = bool(JSON_SUFFIXES & set(suffixes)), ".csv" in suffixes
    if named_json or (first.startswith("{") and not named_csv):
        return _JsonRows(columns)
    return _CsvRows(columns, first)


class _JsonRows:
    def __init__(self, columns: Row) -> None:
        self._columns = columns

    def __call__(self, text: str) -> Row:
        document = orjson.loads(text)
        if not isinstance(document, dict):
            raise MalformedRow(f"is not an object with {' and '.join(self._columns)}")
        one, other = self._columns
        return self._cell(document, one), self._cell(document, other)

    @staticmethod
    def _cell(document: dict[str, object], name: str) -> str:
        if name not in document:
            raise MalformedRow(f"has no {name}")
        value = document[name]
        if isinstance(value, str):
            return value
        if value is None:
            return ""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
        raise MalformedRow(f"{name} is neither a text nor a number: {value!r}")


class _CsvRows:
    def __init__(self, columns: Row, first: str) -> None:
        header = [cell.strip().lower() for cell in self._cells(first)]
        counts = [header.count(name) for name in columns]
        self._has_header = any(counts)
        if self._has_header and counts != [1, 1]:
            raise _Unusable(f"the header needs the columns {' and '.join(columns)} once, and has {', '.join(header)}")
        self._one, self._other = map(header.index, columns) if self._has_header else (0, 1)
        self._count = len(header) if self._has_header else 2
        self._header_seen = not self._has_header

    def __call__(self, text: str) -> Row | None:
        if not self._header_seen:
            self._header_seen = True
            return None
        cells = self._cells(text)
        if len(cells) != self._count:
            expected = f"the header has {self._count}" if self._has_header else "a row without a header has 2"
            raise MalformedRow(f"{len(cells)} {'cell' if len(cells) == 1 else 'cells'}, but {expected}")
        return plain_cell(cells[self._one].strip(" ")), plain_cell(cells[self._other].strip(" "))

    @staticmethod
    def _cells(text: str) -> Sequence[str]:
        if '"' not in text:
            return text.split(",")
        try:
            return next(csv.reader([text], strict=True, skipinitialspace=True))
        except csv.Error as error:
            raise MalformedRow(f"the quotes do not match: {error}") from error


def _standard_input() -> Iterator[tuple[int, bytes]]:
    stream = sys.stdin.buffer
    number = 0
    while line := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise InvalidInput(f"standard input, line {number}: is longer than {LINE_BYTES_MAX} bytes")
        if number == 1 and line.startswith(b"\x1f\x8b"):
            raise InvalidInput("standard input is gzip data: pipe it through `gunzip`, or name the file")
        yield number, line

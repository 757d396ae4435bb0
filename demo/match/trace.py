"""A recorded match: its players, their positions and its events, read from three CSV files.

``PREFIX_players.csv``, ``PREFIX_positions.csv`` and ``PREFIX_events.csv``, each of them plain or as ``….csv.gz``;
UTF-8, comma-separated, one header row. Required columns: ``player``; ``t_s, player, x_m, z_m``; ``t_s, kind``. All
others are optional, and unknown columns are kept.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from placement.textlines import foreign_encoding, read_lines
from sequencing.errors import InvalidInput

FloatArray = npt.NDArray[np.float64]
ROWS_PER_PIECE = 4096
"""Rows that are kept as lists at a time: hundreds of thousands of lists would keep the garbage collector busy."""


@dataclass(frozen=True, slots=True)
class Player:
    """A participant; ``extra`` holds the other columns that are not empty, as text."""

    name: str
    extra: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Positions:
    """Where the players were, as columns of equal length, by time; a row holds until the player's next one.

    Times in seconds since the start of the recording, coordinates in metres. ``extra`` holds the other columns as text.
    """

    t_s: FloatArray
    player: Sequence[str]
    x_m: FloatArray
    z_m: FloatArray
    extra: Mapping[str, Sequence[str]]

    def __len__(self) -> int:
        return len(self.player)


@dataclass(frozen=True, slots=True)
class MatchEvent:
    """Something that happened: to whom and where is empty or None if the recording does not say.

    ``detail`` depends on the kind; ``extra`` holds the other columns that are not empty, as text.
    """

    t_s: float
    kind: str
    actor: str
    target: str
    x_m: float | None
    z_m: float | None
    detail: str
    extra: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Match:
    """A whole match; events are in the order recorded, which is by time."""

    name: str
    players: tuple[Player, ...]
    positions: Positions
    events: tuple[MatchEvent, ...]


def read_match(prefix: str | Path) -> Match:
    """Read the match whose files begin with ``prefix``; takes about half a second for 140,000 positions.

    Raises `InvalidInput` where a file is missing or cannot be read, and, naming file and line, for a row that is
    malformed: a cell too many or too few, what is no number, half a position.
    """
    prefix = Path(prefix)
    files = {part: _find(prefix, part) for part in ("players", "positions", "events")}
    missing = [part for part, file in files.items() if file is None]
    if missing:
        looked_for = ", ".join(f"{prefix}_{part}.csv (or .csv.gz)" for part in missing)
        raise InvalidInput(f"no trace {prefix}: looked for {looked_for}")
    players, positions, events = (file for file in files.values() if file is not None)
    return Match(
        name=prefix.name,
        players=_players(_Table.read(players, required=("player",))),
        positions=_positions(_Table.read(positions, required=("t_s", "player", "x_m", "z_m"))),
        events=_events(_Table.read(events, required=("t_s", "kind"))),
    )


def _find(prefix: Path, part: str) -> Path | None:
    candidates = (prefix.with_name(f"{prefix.name}_{part}.csv{suffix}") for suffix in ("", ".gz"))
    return next((file for file in candidates if file.exists()), None)


def _players(table: _Table) -> tuple[Player, ...]:
    names = table.names("player")
    seen: set[str] = set()
    for row, name in enumerate(names):
        if name in seen:
            raise table.error(row, f"player {name!r} is there already")
        seen.add(name)
    extras = table.extras({"player"})
    return tuple(Player(name, extra) for name, extra in zip(names, extras, strict=True))


def _positions(table: _Table) -> Positions:
    t_s = table.numbers("t_s")
    known = ("t_s", "player", "x_m", "z_m")
    # Recordings are by time; a stable sort leaves one that is as it was.
    order = np.argsort(t_s, kind="stable")
    arranged = table if bool((np.diff(t_s) >= 0).all()) else table.arranged(order.tolist())
    return Positions(
        t_s=arranged.numbers("t_s"),
        player=arranged.names("player"),
        x_m=arranged.numbers("x_m"),
        z_m=arranged.numbers("z_m"),
        extra={name: column for name, column in arranged.columns.items() if name not in known},
    )


def _events(table: _Table) -> tuple[MatchEvent, ...]:
    t_s, x_m, z_m = table.numbers("t_s"), table.numbers("x_m", optional=True), table.numbers("z_m", optional=True)
    placed, half_placed = ~np.isnan(x_m) & ~np.isnan(z_m), np.isnan(x_m) != np.isnan(z_m)
    if half_placed.any():
        raise table.error(int(np.flatnonzero(half_placed)[0]), "one of x_m and z_m is there without the other")
    kinds = table.names("kind")
    actors, targets, details = table.texts("actor"), table.texts("target"), table.texts("detail")
    extras = table.extras({"seq", "t_s", "kind", "actor", "target", "x_m", "z_m", "detail"})
    # Rows of one tick share a time, and seq is the only order among them; without it, the order of rows is.
    recorded = np.lexsort((table.numbers("seq"), t_s)) if "seq" in table.columns else np.argsort(t_s, kind="stable")
    return tuple(
        MatchEvent(
            t_s=float(t_s[row]),
            kind=kinds[row],
            actor=actors[row],
            target=targets[row],
            x_m=float(x_m[row]) if placed[row] else None,
            z_m=float(z_m[row]) if placed[row] else None,
            detail=details[row],
            extra=extras[row],
        )
        for row in recorded.tolist()
    )


@dataclass(frozen=True, slots=True)
class _Table:
    """The columns of a CSV file as text; rows are counted from 0, and know the line that they are on."""

    file: Path
    columns: Mapping[str, Sequence[str]]
    lines: Sequence[int]

    @classmethod
    def read(cls, file: Path, *, required: Sequence[str]) -> _Table:
        """Read the whole file and check its shape."""
        reader = csv.reader(_text_lines(file), strict=True)
        lines: list[int] = []
        piece: list[list[str]] = []
        try:
            header = next(reader, [])
            _check_header(file, header, required)
            columns: list[list[str]] = [[] for _ in header]
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    wrong = f"{len(row)} cells, but the header has {len(header)}"
                    raise InvalidInput(f"{file}, line {reader.line_num}: {wrong}")
                piece.append(row)
                lines.append(reader.line_num)
                if len(piece) == ROWS_PER_PIECE:
                    _move(piece, columns)
        except csv.Error as error:
            raise InvalidInput(f"{file}, line {reader.line_num}: {error}") from error
        _move(piece, columns)
        return cls(file, dict(zip(header, columns, strict=True)), lines)

    def __len__(self) -> int:
        return len(self.lines)

    def texts(self, name: str) -> Sequence[str]:
        """Return a column that may be missing: all empty then."""
        return self.columns.get(name) or [""] * len(self)

    def names(self, name: str) -> Sequence[str]:
        """Return a column that must not be empty anywhere."""
        column = self.columns[name]
        if not all(column):
            raise self.error(column.index(""), f"{name} is empty")
        return column

    def numbers(self, name: str, *, optional: bool = False) -> FloatArray:
        """Return a column of finite numbers; ``optional`` ones are NaN where they are missing."""
        column = self.texts(name)
        if optional and not all(column):
            column = [text or "nan" for text in column]
        try:
            numbers = np.array(column, dtype=np.float64) if column else np.empty(0)
        except ValueError:
            numbers = np.array([_number(text) for text in column])
        missing = (
            np.array([text == "nan" for text in column], np.bool_) if optional else np.zeros(len(column), np.bool_)
        )
        wrong = np.flatnonzero(~np.isfinite(numbers) & ~missing)
        if len(wrong):
            row = int(wrong[0])
            raise self.error(row, f"{name} must be a number, not {self.columns[name][row]!r}")
        return numbers

    def extras(self, known: set[str]) -> list[dict[str, str]]:
        """Return, for each row, the columns that are not known, without empty cells."""
        others = {name: column for name, column in self.columns.items() if name not in known}
        return [{name: column[row] for name, column in others.items() if column[row]} for row in range(len(self))]

    def arranged(self, order: Sequence[int]) -> _Table:
        """Return the table with its rows in another order."""
        columns = {name: [column[row] for row in order] for name, column in self.columns.items()}
        return _Table(self.file, columns, [self.lines[row] for row in order])

    def error(self, row: int, wrong: str) -> InvalidInput:
        """Return the error that names the row's line."""
        return InvalidInput(f"{self.file}, line {self.lines[row]}: {wrong}")


def _check_header(file: Path, header: Sequence[str], required: Sequence[str]) -> None:
    absent = [name for name in required if name not in header]
    if absent:
        present = ", ".join(header) or "nothing"
        raise InvalidInput(f"{file}, line 1: the header needs the columns {', '.join(absent)}, and has {present}")
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        raise InvalidInput(f"{file}, line 1: the header has the columns {', '.join(sorted(twice))} twice")


def _move(piece: list[list[str]], columns: list[list[str]]) -> None:
    """Turn rows into columns; the rows are emptied."""
    for column, cells in zip(columns, zip(*piece, strict=True), strict=bool(piece)):
        column.extend(cells)
    piece.clear()


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("inf")


def _text_lines(file: Path) -> Iterator[str]:
    for number, line in read_lines(file):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{file}, line {number}: {foreign_encoding(line)}") from error

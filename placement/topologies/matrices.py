"""Square CSV matrices of delays between hosts: first row and first column name them."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

from placement.textlines import read_lines
from placement.topology import Matrix, matrix
from sequencing.errors import InvalidInput, UsageError


def read_matrix(file: Path, part: float = 1.0) -> Matrix:
    """Read a matrix; cells are multiplied by ``part``. Row a, column b is from a to b.

    Rows and columns may stand in different orders; hosts are in the order of the rows. Raises `InvalidInput` naming
    the file, the line, and row and column of a cell that is missing, negative or not a number.
    """
    columns: list[str] = []
    rows: dict[str, list[float]] = {}
    for number, line in read_lines(file):
        cells = _cells(file, number, line)
        if not any(cells):
            continue
        if not columns:
            columns = cells[1:]
            if len(set(columns)) != len(columns) or not all(columns):
                raise InvalidInput(f"{file}, line {number}: the first row must name each host once")
            continue
        name, values = cells[0], cells[1:]
        if name in rows:
            raise InvalidInput(f"{file}, line {number}: the row {name!r} is there twice")
        if len(values) != len(columns):
            raise InvalidInput(f"{file}, line {number}: row {name!r} has {len(values)} cells of {len(columns)}")
        rows[name] = [_delay(file, number, name, column, cell) for column, cell in zip(columns, values, strict=True)]
    if not rows:
        raise InvalidInput(f"{file}: holds no matrix: a first row that names the hosts, and a row for each")
    if set(rows) != set(columns):
        lone = min(set(rows) ^ set(columns))
        where = "column" if lone in rows else "row"
        raise InvalidInput(f"{file}: the matrix is not square: {lone!r} has no {where}")
    names = list(rows)
    place_of = {column: place for place, column in enumerate(columns)}
    ms = np.array([rows[name] for name in names])[:, [place_of[name] for name in names]] * part
    notes = []
    if not np.allclose(ms, ms.T):
        notes.append("the matrix is asymmetric, and is used as it is: row a, column b from a to b")
    if (ms.diagonal() > 0).all():
        notes.append("its diagonal is taken for the delay between two machines at one place")
    try:
        return matrix(names, ms, what=str(file), notes=notes)
    except UsageError as error:
        raise InvalidInput(str(error)) from error


def _cells(file: Path, number: int, line: bytes) -> list[str]:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file}, line {number}: is not UTF-8: {error.reason}") from error
    return [cell.strip() for cell in next(csv.reader([text]), [])]


def _delay(file: Path, number: int, row: str, column: str, cell: str) -> float:
    try:
        ms = float(cell)
    except ValueError:
        ms = math.nan
    if not 0 <= ms < math.inf:
        shown = "is missing" if not cell else f"is {cell!r}, not a delay of 0 ms or more"
        raise InvalidInput(f"{file}, line {number}: row {row!r}, column {column!r} {shown}")
    return ms

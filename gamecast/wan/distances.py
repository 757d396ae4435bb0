"""Which host is how far from which, and who stands where."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gamecast.textlines import read_lines
from sequencing.errors import UsageError

CELL_MS_MAX = 60_000.0
"""Nothing on earth is a minute away; such a cell is in another unit."""

NAMES_SHOWN = 8


@dataclass(frozen=True)
class Distances:
    """One-way delays in milliseconds between hosts, ``one_way_ms[from, to]``.

    They are taken as they are: those of the two directions may differ, a detour may be shorter than the direct way, and
    the diagonal is the way between two machines at one host (in one cloud region, say), be it zero or not.
    """

    hosts: tuple[str, ...]
    one_way_ms: npt.NDArray[np.float64]
    _place: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.one_way_ms.shape != (len(self.hosts), len(self.hosts)):
            raise UsageError(f"{len(self.hosts)} hosts need a square matrix, not one of {self.one_way_ms.shape}")
        object.__setattr__(self, "_place", {host: place for place, host in enumerate(self.hosts)})

    def ms(self, source: str, target: str) -> float:
        """Return the delay from one host to another."""
        return float(self.one_way_ms[self._place[source], self._place[target]])


@dataclass(frozen=True)
class Standing:
    """Who stands where: ``host_of`` names a host for each game server and each node. A relay runs beside its source."""

    distances: Distances
    host_of: Mapping[str, str]

    def ms(self, source: str, target: str) -> float:
        """Return the delay between two machines, which are two even at one host."""
        return self.distances.ms(self.host_of[source], self.host_of[target])


def stand(
    distances: Distances, *, servers: Sequence[str], nodes: Sequence[str], hosts: str | None, node_hosts: str | None
) -> Standing:
    """Let servers stand at hosts in turn, and nodes at theirs.

    ``hosts``, ``node_hosts``: names with commas between, as the options say; all hosts, and the servers', when None.
    Raises `UsageError` for those that the matrix does not have.
    """
    for_servers = _named(distances, hosts, "--hosts") or list(distances.hosts)
    for_nodes = _named(distances, node_hosts, "--node-hosts") or for_servers
    places = dict(zip(servers, cycle(for_servers), strict=False))
    return Standing(distances, places | dict(zip(nodes, cycle(for_nodes), strict=False)))


def read_distances(file: Path, *, rtt: bool = False) -> Distances:
    """Read a square CSV of delays in milliseconds: hosts name the rows and the columns, from row to column.

    ``rtt``: the cells are round trips, and one way is half of one. Raises `UsageError` and `InvalidInput`, naming the
    row and the column, for what is no such matrix, for cells that are missing, negative or no numbers.
    """
    lines = [
        (number, line.decode("utf-8-sig" if number == 1 else "utf-8", "replace")) for number, line in read_lines(file)
    ]
    rows = [(number, cells) for (number, _), cells in zip(lines, csv.reader(text for _, text in lines), strict=False)]
    rows = [(number, [cell.strip() for cell in cells]) for number, cells in rows if any(map(str.strip, cells))]
    if len(rows) < 2:
        raise UsageError(f"{file}: is no latency matrix: it needs a row of host names, and a row for each host")
    columns = rows[0][1][1:]
    names = [cells[0] for _, cells in rows[1:]]
    for name, where in ((n, where) for listed, where in ((columns, "column"), (names, "row")) for n in listed):
        listed = columns if where == "column" else names
        if not name:
            raise UsageError(f"{file}: a {where} has no host name")
        if listed.count(name) > 1:
            raise UsageError(f"{file}: the {where} of {name!r} is there twice")
    if set(columns) != set(names):
        odd = min(set(columns) ^ set(names))
        raise UsageError(
            f"{file}: the matrix is not square: {odd!r} has no {'row' if odd in columns else 'column'} "
            f"({len(names)} rows, {len(columns)} columns)"
        )
    place = {name: number for number, name in enumerate(columns)}
    found = np.zeros((len(columns), len(columns)))
    for number, cells in rows[1:]:
        where = f"{file}, line {number}: from {cells[0]!r}"
        if len(cells) > len(columns) + 1:
            raise UsageError(f"{where} there are {len(cells) - 1} cells, for {len(columns)} hosts")
        for column, cell in zip(columns, [*cells[1:], *[""] * len(columns)], strict=False):
            found[place[cells[0]], place[column]] = _cell(cell, f"{where} to {column!r}")
    return Distances(tuple(columns), found / 2 if rtt else found)


def _named(distances: Distances, text: str | None, option: str) -> list[str]:
    named = [host.strip() for host in text.split(",")] if text is not None else []
    for host in named:
        if host not in distances.hosts:
            known = ", ".join(distances.hosts[:NAMES_SHOWN]) + (", …" if len(distances.hosts) > NAMES_SHOWN else "")
            raise UsageError(f"{option}: the matrix has no host {host!r}; it has {known}")
    return named


def _cell(cell: str, where: str) -> float:
    if not cell:
        raise UsageError(f"{where} the delay is missing: fill it in, or leave the host out of rows and columns")
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not 0 <= number <= CELL_MS_MAX:
        raise UsageError(
            f"{where} the delay is {cell!r}: it must be a number of milliseconds from 0 to {CELL_MS_MAX:g}"
        )
    return number

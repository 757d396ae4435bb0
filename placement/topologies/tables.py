"""A network as two CSV tables: ``NAME_edges.csv`` (``a``, ``b``, a delay) and perhaps ``NAME_nodes.csv``."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from placement.textlines import read_lines
from placement.topology import Network, network
from sequencing.errors import InvalidInput, UsageError

EDGES, NODES = "_edges.csv", "_nodes.csv"


def read_tables(file: Path, weight: str, part: float = 1.0, blank_ms: float | None = None) -> Network:
    """Read ``…_edges.csv`` and, if it exists, the table of nodes beside it.

    Hosts are named by the nodes' ``label``, with the node's id behind it where two have one label; without a table of
    nodes by what the edges call them. A blank delay becomes ``blank_ms``, or the median of the others. Raises
    `InvalidInput` naming file and line for a malformed row, `UsageError` for a network that is disconnected.
    """
    labels = _labels(_beside(file))
    ids = list(labels)
    number_of = {node: place for place, node in enumerate(ids)}
    ends: list[tuple[int, int]] = []
    delays: list[float] = []
    for number, row in _rows(file, ("a", "b", weight)):
        pair = []
        for end in ("a", "b"):
            node = row[end]
            if node not in number_of:
                if labels:
                    raise InvalidInput(f"{file}, line {number}: node {node!r} is not in {_beside(file)}")
                number_of[node] = len(ids)
                ids.append(node)
            pair.append(number_of[node])
        ends.append((pair[0], pair[1]))
        delays.append(_delay(file, number, row, weight))
    if not ends:
        raise InvalidInput(f"{file}: has no edge")
    ms = np.array(delays)
    blank = np.isnan(ms)
    notes = []
    if blank.any():
        stand_in = blank_ms if blank_ms is not None else float(np.median(ms[~blank])) if not blank.all() else math.nan
        if math.isnan(stand_in):
            raise InvalidInput(f"{file}: no edge has a {weight}: give --blank MS")
        ms[blank] = stand_in
        how = "as given" if blank_ms is not None else "the median of the others"
        notes.append(f"{int(blank.sum())} of {len(ms)} links have no {weight}; they get {stand_in:g} ms, {how}")
    names = [labels.get(node, node) for node in ids]
    try:
        return network(names, np.array(ends), ms * part, what=str(file), notes=notes)
    except UsageError as error:
        raise InvalidInput(str(error)) from error


def _beside(file: Path) -> Path:
    """The table of nodes that belongs to a table of edges; either may be compressed."""
    stem, zipped = (file.name.removesuffix(".gz").removesuffix(EDGES), file.name.endswith(".gz"))
    named = [file.with_name(stem + NODES), file.with_name(f"{stem}{NODES}.gz")]
    return next((candidate for candidate in named if candidate.exists()), named[zipped])


def _labels(file: Path) -> dict[str, str]:
    """Node → a name that no other has; empty without a table of nodes."""
    if not file.exists():
        return {}
    labels: dict[str, str] = {}
    for number, row in _rows(file, ("node",)):
        if row["node"] in labels:
            raise InvalidInput(f"{file}, line {number}: node {row['node']!r} is there twice")
        labels[row["node"]] = row.get("label") or row["node"]
    counts: dict[str, int] = {}
    for label in labels.values():
        counts[label] = counts.get(label, 0) + 1
    return {node: label if counts[label] == 1 else f"{label} ({node})" for node, label in labels.items()}


def _delay(file: Path, number: int, row: Mapping[str, str], weight: str) -> float:
    """nan where the cell is blank."""
    cell = row[weight]
    if not cell:
        return math.nan
    try:
        ms = float(cell)
    except ValueError:
        ms = math.nan
    if not 0 <= ms < math.inf:
        raise InvalidInput(
            f"{file}, line {number}: {weight} of {row['a']} – {row['b']} is {cell!r}, not a delay of 0 ms or more"
        )
    return ms


def _rows(file: Path, required: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    header: list[str] = []
    for number, line in read_lines(file):
        try:
            cells = [cell.strip() for cell in next(csv.reader([line.decode("utf-8-sig")]), [])]
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{file}, line {number}: is not UTF-8: {error.reason}") from error
        if not any(cells):
            continue
        if not header:
            header = cells
            for column in required:
                if column not in header:
                    raise InvalidInput(f"{file}, line {number}: there is no column {column!r} in the header")
            continue
        if len(cells) != len(header):
            raise InvalidInput(f"{file}, line {number}: has {len(cells)} cells of {len(header)}")
        yield number, dict(zip(header, cells, strict=True))

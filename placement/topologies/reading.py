"""Read a topology from any supported file.

=====================  ========================================================================================
``NAME.graphml``       an edge attribute holds each link's one-way delay: ``latency_ms``, or another by ``weight``
``NAME.gml``           the same ``NAME_edges.csv``     a row for each link: ``a,b,delay_ms`` among others (another
column by ``weight``), and beside it, if there is one, ``NAME_nodes.csv`` with ``node`` and ``label`` any other ``.csv``
a square matrix, first row and first column naming the hosts
=====================  ========================================================================================

Delays are one way; ``rtt`` halves what is read. All may be gzip-compressed (``.gz``).

Missing or odd data: a link without a delay is an error in a graph file, which names its ends. In an edge table it
gets the *median of the table's other delays* (tables that compute delays from coordinates leave a link blank where one
end has none; zero would make such links the shortest of all), or ``blank_ms``; the topology's notes say how many. In a
matrix a missing or negative cell is an error that names row and column. Matrices may be asymmetric. Their diagonal is
the distance of two machines at one place.
"""

from __future__ import annotations

from pathlib import Path

from placement.topologies.graphs import read_graph
from placement.topologies.matrices import read_matrix
from placement.topologies.tables import read_tables
from placement.topology import Topology
from sequencing.errors import UsageError

GRAPH_SUFFIXES = (".graphml", ".gml")
EDGES = "_edges.csv"
WEIGHT_OF_GRAPHS, WEIGHT_OF_TABLES = "latency_ms", "delay_ms"


def read_topology(
    file: Path, *, rtt: bool = False, weight: str | None = None, blank_ms: float | None = None
) -> Topology:
    """Read a topology; see the module for the kinds of files, which are recognised by their names.

    Raises `InvalidInput`, naming the file and the line, or the row and the column, for invalid contents, and
    `UsageError` for options that the kind of file does not have and for hosts that cannot reach each other.
    """
    plain = file.name.removesuffix(".gz")
    part = 0.5 if rtt else 1.0
    if plain.endswith(GRAPH_SUFFIXES):
        _refuse(file, blank_ms is not None, "--blank", "tables of edges")
        return read_graph(file, weight or WEIGHT_OF_GRAPHS, part)
    if plain.endswith(EDGES):
        return read_tables(file, weight or WEIGHT_OF_TABLES, part, blank_ms)
    if not plain.endswith(".csv"):
        raise UsageError(
            f"{file}: is no topology by its name: .graphml, .gml, {EDGES} (node and edge tables) or .csv (a matrix)"
        )
    _refuse(file, weight is not None, "weight", "graphs and tables of edges")
    _refuse(file, blank_ms is not None, "--blank", "tables of edges")
    return read_matrix(file, part)


def _refuse(file: Path, given: bool, option: str, kinds: str) -> None:
    if given:
        raise UsageError(f"{file}: {option} is for {kinds}")

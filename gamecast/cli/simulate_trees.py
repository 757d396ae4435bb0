"""``gamecast simulate trees``: ways from a region's last node to its subscribers, side by side."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import click
import networkx as nx
import orjson
from rich.console import Console
from rich.table import Table

from gamecast.errors import UsageError
from placement.distribution.bounded import cst_c, cst_cd
from placement.distribution.shared import core_based, reverse_paths, steiner, unicast
from placement.distribution.tree import DELAY, Distribution, Graph, require_multicast

BOUND_FACTOR = 1.25
"""Without ``--bound-ms``, the last destination may wait so many times as long as by the fastest way."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--source", help="The region's last node.  [default: drawn by --seed]")
@click.option("--destinations", help="Its subscribers' hosts, with commas between.  [default: drawn by --seed]")
@click.option("--count", type=click.IntRange(1), default=16, show_default=True, help="How many destinations to draw.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the drawing.")
@click.option("--core", help="Of the core-based tree.  [default: the destinations' 1-median]")
@click.option(
    "--bound-ms",
    type=click.FloatRange(min=0, min_open=True),
    help=f"No destination waits so long, on CST trees.  [default: {BOUND_FACTOR:g} × the slowest by unicast]",
)
@click.option("--weight", default=DELAY, show_default=True, help="The edges' column or attribute with the delay.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def trees(
    file: Path,
    source: str | None,
    destinations: str | None,
    *,
    count: int,
    seed: int,
    core: str | None,
    bound_ms: float | None,
    weight: str,
    as_json: bool,
) -> None:
    """Compare unicast with shared trees over the graph in FILE.

    FILE is GML, GraphML, or a CSV of links: a header, the two ends in its first two columns, and the delay in one of
    the others; links without a delay are left out, and counted. A column or attribute "cost" counts as what a link
    costs, else that is its delay. Network cost counts each link as often as the multicast crosses it, destination
    cost is the mean over destinations (seed 001 §6.11.3).
    """
    graph, skipped = read_graph(file, weight)
    root, wanted = _members(graph, source, destinations, count, seed)
    require_multicast(graph, root, wanted)
    direct = unicast(graph, root, wanted)
    bound = direct.delay_max_ms * BOUND_FACTOR if bound_ms is None else bound_ms
    ways = [
        direct,
        reverse_paths(graph, root, wanted),
        reverse_paths(graph, root, wanted, prune=False),
        core_based(graph, root, wanted, core=core),
        steiner(graph, root, wanted),
        cst_cd(graph, root, wanted, bound_ms=bound),
        cst_c(graph, root, wanted, bound_ms=bound),
    ]
    if as_json:
        document = {
            "nodes": len(graph),
            "links": graph.number_of_edges(),
            "skipped_links": skipped,
            "source": root,
            "destinations": list(wanted),
            "bound_ms": bound,
            "trees": [_figures(way) for way in ways],
        }
        click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        return
    _tell(graph, skipped, root, wanted, bound, ways)


def read_graph(file: Path, weight: str) -> tuple[Graph, int]:
    """Return an undirected graph whose edges have a delay, and how many edges were left out because they have none.

    Raises `UsageError`, naming the file and the row, for what is no graph and for delays that are no numbers from 0 on.
    """
    readers: dict[str, Callable[[Path], nx.Graph[str]]] = {
        ".csv": _read_links,
        ".gml": _read_gml,
        ".graphml": nx.read_graphml,
    }
    if file.suffix.lower() not in readers:
        raise UsageError(f"{file}: its name must end in {', '.join(readers)}: that tells how to read it")
    try:
        found = readers[file.suffix.lower()](file)
    except (OSError, ValueError, nx.NetworkXException, SyntaxError) as error:
        raise UsageError(f"{file}: cannot be read as a graph: {error}") from error
    graph: Graph = nx.Graph()
    skipped = 0
    for u, v, edge in found.edges(data=True):
        value = edge.get(weight)
        if value is None or value == "":
            skipped += 1
            continue
        row = f", row {edge['row']}" if "row" in edge else ""
        where = f"{file}{row}: the link between {u!r} and {v!r}"
        delay_ms = _number(value, f"{where} has the {weight}")
        cost = _number(edge["cost"], f"{where} has the cost") if edge.get("cost") not in (None, "") else delay_ms
        known = graph.edges.get((str(u), str(v)))
        if known is None or delay_ms < known[DELAY]:  # of parallel links the fastest
            graph.add_edge(str(u), str(v), **{DELAY: delay_ms, "cost": cost})
    if not graph:
        raise UsageError(f"{file}: no link has a {weight!r}: name another column or attribute with --weight")
    return graph, skipped


def _number(value: object, what: str) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise UsageError(f"{what} {value!r}, which is no number from 0 on")
    return number


def _read_gml(file: Path) -> nx.Graph[str]:
    graph: nx.Graph[str] = nx.read_gml(str(file), label="id")  # labels need not be unique
    return graph


def _read_links(file: Path) -> nx.Graph[str]:
    graph: nx.Graph[str] = nx.MultiGraph()
    with file.open(encoding="utf-8", newline="") as text:
        rows = csv.DictReader(text, strict=True)
        names = list(rows.fieldnames or ())
        if len(names) < 3:
            raise ValueError("a header with two ends and a delay is missing")
        for number, row in enumerate(rows, start=2):
            if None in row or None in row.values():
                raise ValueError(f"row {number} has not {len(names)} cells")
            graph.add_edge(row[names[0]], row[names[1]], row=number, **{name: row[name] for name in names[2:]})
    return graph


def _members(
    graph: Graph, source: str | None, destinations: str | None, count: int, seed: int
) -> tuple[str, tuple[str, ...]]:
    """Return the source and the destinations: those that are named, and what is drawn for those that are not."""
    part = max(map(sorted, nx.connected_components(graph)), key=len)
    if destinations is not None:
        wanted = tuple(dict.fromkeys(destinations.split(",")))
        if source is None:
            raise UsageError("--destinations needs --source: from where they are to be reached")
        return source, wanted
    random = Random(seed)
    root = random.choice(part) if source is None else source
    others = [node for node in part if node != root]
    return root, tuple(sorted(random.sample(others, min(count, len(others)))))


def _figures(way: Distribution) -> dict[str, object]:
    return {
        "kind": way.kind,
        "network_cost": way.network_cost,
        "destination_cost": way.destination_cost,
        "delay_mean_ms": sum(way.delays_ms.values()) / len(way.delays_ms),
        "delay_max_ms": way.delay_max_ms,
        "messages": way.messages,
        "edges": [list(edge) for edge in way.edges],
    }


def _tell(
    graph: Graph, skipped: int, source: str, wanted: Sequence[str], bound: float, ways: list[Distribution]
) -> None:
    console = Console(highlight=False)
    left_out = f" ({skipped:,} without a delay are left out)" if skipped else ""
    console.print(
        f"{len(graph):,} nodes, {graph.number_of_edges():,} links{left_out}; from {source} to {len(wanted):,} "
        f"destinations, CST trees within {bound:.3f} ms"
    )
    table = Table("tree", "network cost", "destination cost", "mean delay ms", "last ms", "messages")
    for column in table.columns[1:]:
        column.justify = "right"
    for way in ways:
        figures = _figures(way)
        cells = [
            f"{figures[name]:.3f}" for name in ("network_cost", "destination_cost", "delay_mean_ms", "delay_max_ms")
        ]
        table.add_row(way.kind, *cells, f"{way.messages:,}")
    console.print(table)

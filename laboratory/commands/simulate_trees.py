"""``gamecast lab simulate trees``: compare distribution trees from a region's last node to its subscribers."""

from __future__ import annotations

from collections.abc import Sequence
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
from placement.topologies.reading import read_topology
from placement.topology import Network, Topology

BOUND_FACTOR = 1.25
"""Default bound of the delay to any destination, as a multiple of the slowest unicast delay."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--source", help="The region's last node.  [default: drawn by --seed]")
@click.option("--destinations", help="Hosts of its subscribers, comma-separated.  [default: drawn by --seed]")
@click.option("--count", type=click.IntRange(1), default=16, show_default=True, help="How many destinations to draw.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed for drawing hosts.")
@click.option("--core", help="Core of the core-based tree.  [default: the destinations' 1-median]")
@click.option(
    "--bound-ms",
    type=click.FloatRange(min=0, min_open=True),
    help=f"Bound of the delay to any destination, on CST trees.  [default: {BOUND_FACTOR:g} × the slowest by unicast]",
)
@click.option(
    "--weight",
    metavar="NAME",
    help="Attribute or column of the links' delays.  [default: latency_ms in graphs, delay_ms in tables]",
)
@click.option(
    "--blank",
    "blank_ms",
    type=click.FloatRange(min=0),
    metavar="MS",
    help="Delay of links that have none, in tables.  [default: the median of the others]",
)
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
    weight: str | None,
    blank_ms: float | None,
    as_json: bool,
) -> None:
    """Compare unicast with shared trees over the graph in FILE.

    FILE is GraphML (.graphml), GML (.gml), or a table of links (NAME_edges.csv, with NAME_nodes.csv beside it). The
    cost of a link is its delay. Network cost counts each link as often as the multicast crosses it. Destination cost is
    the mean over destinations (Kshemkalyani 2008, §6.11.3).

    Exit status: 0, or 2 for wrong use.
    """
    topology = read_topology(file, weight=weight, blank_ms=blank_ms)
    graph = _links(topology, file)
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
            "notes": list(topology.notes),
            "source": root,
            "destinations": list(wanted),
            "bound_ms": bound,
            "trees": [_figures(way) for way in ways],
        }
        click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        return
    _tell(graph, topology.notes, root, wanted, bound, ways)


def _links(topology: Topology, file: Path) -> Graph:
    """Return the graph of a topology's links. The cost of a link is its delay."""
    if not isinstance(topology, Network):
        raise UsageError(f"{file}: trees need links, and a matrix has none: name a graph or a table of links")
    graph: Graph = nx.Graph()
    graph.add_nodes_from(topology.names)
    ends = topology.links.tocoo()
    for a, b, delay_ms in zip(ends.coords[0].tolist(), ends.coords[1].tolist(), ends.data.tolist(), strict=True):
        graph.add_edge(topology.names[a], topology.names[b], **{DELAY: delay_ms, "cost": delay_ms})
    return graph


def _members(
    graph: Graph, source: str | None, destinations: str | None, count: int, seed: int
) -> tuple[str, tuple[str, ...]]:
    """Return the source and the destinations, as named or else drawn."""
    part = max(map(sorted, nx.connected_components(graph)), key=len)
    if destinations is not None:
        wanted = tuple(dict.fromkeys(destinations.split(",")))
        if source is None:
            raise UsageError("--destinations needs --source: also name the region's last node")
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
    graph: Graph, notes: Sequence[str], source: str, wanted: Sequence[str], bound: float, ways: list[Distribution]
) -> None:
    console = Console(highlight=False)
    for note in notes:
        console.print(note)
    console.print(
        f"{len(graph):,} nodes, {graph.number_of_edges():,} links; from {source} to {len(wanted):,} "
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

"""Networks in GraphML and GML, read by networkx."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import networkx as nx
import numpy as np

from placement.textlines import read_lines
from placement.topology import Network, network
from sequencing.errors import InvalidInput, UsageError


def read_graph(file: Path, weight: str, part: float = 1.0) -> Network:
    """Read a graph whose edges have the attribute ``weight``, one-way ms; they are taken for undirected.

    Hosts are named by the nodes' ``label``, or ids where labels are missing or not unique. Raises `InvalidInput` naming
    the ends of an edge without a delay, or with one that is negative or not a number.
    """
    text = b"".join(line for _, line in read_lines(file))
    try:
        graph: Any = (
            nx.read_graphml(io.BytesIO(text))
            if file.name.removesuffix(".gz").endswith(".graphml")
            else _parse_gml(text.decode("utf-8"))
        )
    except (nx.NetworkXException, ParseError, UnicodeDecodeError, KeyError, ValueError) as error:
        raise InvalidInput(f"{file}: cannot be read as a graph: {error}") from error
    nodes = list(graph.nodes)
    labels = [str(graph.nodes[node].get("label", node)) for node in nodes]
    names = labels if len(set(labels)) == len(labels) else [str(node) for node in nodes]
    place_of = {node: place for place, node in enumerate(nodes)}
    ends, delays = [], []
    for a, b, attributes in graph.edges(data=True):
        ends.append((place_of[a], place_of[b]))
        delays.append(_delay(file, names[place_of[a]], names[place_of[b]], weight, attributes.get(weight)))
    notes = ["its edges have directions, which are left aside"] if graph.is_directed() else []
    try:
        return network(
            names, np.array(ends, np.int64).reshape(-1, 2), np.array(delays) * part, what=str(file), notes=notes
        )
    except UsageError as error:
        raise InvalidInput(str(error)) from error


def _delay(file: Path, a: str, b: str, weight: str, value: object) -> float:
    if value is None or value == "":
        raise InvalidInput(f"{file}: the edge {a} – {b} has no {weight}; another attribute may be given as weight")
    try:
        ms = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        ms = math.nan
    if not 0 <= ms < math.inf:
        raise InvalidInput(f"{file}: {weight} of the edge {a} – {b} is {value!r}, not a delay of 0 ms or more")
    return ms


def _parse_gml(text: str) -> Any:
    # By their ids, for labels need not be unique.
    parse: Any = nx.parse_gml
    return parse(text, label=None)

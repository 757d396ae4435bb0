"""Transit-stub networks, after GT-ITM (Zegura, Calvert, Bhattacharjee, *How to model an internetwork*, 1996).

Two levels of domains. *Transit domains* are the backbones; a random connected graph says which of them are linked,
and each is itself a random connected graph of transit nodes. To each transit node hang some *stub domains*, random
connected graphs too, each by one link between a random node of it and its transit node. *Extra* links join random
stubs to a second transit node, or two stubs to each other. The parameters are those of GT-ITM's ``ts`` files:

====================================  ====================================================== ``stubs`` a transit node
``extra_transit_stub``, ``extra_stub_stub`` links ``top`` (transit domains)             their number, ``alpha``,
``beta``, the edge method ``transit`` (nodes of each)           the same for the nodes of a transit domain ``stub``
(nodes of each)              the same for the nodes of a stub domain
====================================  ======================================================

*Edge methods*: ``pure`` joins any two nodes with the probability alpha (GT-ITM's method 3, that of its examples);
``waxman`` with alpha · exp(−d / (beta · L)), d being their distance and L the largest one possible (method 1). As in
GT-ITM, graphs are drawn until one is connected.

*Delays.* All nodes lie in one plane, one unit being one millisecond: domains in a square of ``top.scale_ms``, transit
nodes in a square of ``transit.scale_ms`` around their domain's centre, stubs in a square of ``stub_reach_ms`` around
their transit node, stub nodes in one of ``stub.scale_ms`` around their stub's. A link's delay is its length, and at
least ``hop_ms``. GT-ITM's own edge weights also encode routing policy; here none is needed, because without extra links
the shortest way between two nodes of a stub cannot profit from leaving it: there is one way out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.topology import FloatArray, IntArray, Network, network
from sequencing.errors import UsageError

DRAWS_MAX = 2_000
"""A random graph that is never connected in this many draws has useless parameters."""
DRAWS_AT_ONCE = 64
TRANSIT = -1
UNEVEN_PRICE = 0.01
"""Of e times as many transit nodes as stubs, in parts of the wanted size."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of GT-ITM's hierarchy: how many nodes, over how many ms, joined how."""

    nodes: int
    scale_ms: float
    alpha: float
    beta: float = 0.3
    method: Literal["pure", "waxman"] = "pure"


@dataclass(frozen=True, slots=True)
class TransitStub:
    """The parameters; the defaults give 10,000 nodes: 10 transit domains × 10 nodes × (1 + 9 stubs × 11 nodes)."""

    top: Level = Level(10, 100.0, 0.5)
    transit: Level = Level(10, 20.0, 0.5)
    stub: Level = Level(11, 3.0, 0.4)
    stubs: int = 9
    extra_transit_stub: int = 0
    extra_stub_stub: int = 0
    stub_reach_ms: float = 10.0
    hop_ms: float = 0.1

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self.top.nodes * self.transit.nodes * (1 + self.stubs * self.stub.nodes)

    def resized(self, nodes: int) -> TransitStub:
        """Return parameters for ``nodes`` nodes, as nearly as transit nodes a domain and stubs a transit node allow.

        Domains and stubs keep their sizes; there are about as many transit nodes a domain as stubs to each of them.
        """

        def misfit(shape: tuple[int, int]) -> float:
            each, stubs = shape
            size = self.top.nodes * each * (1 + stubs * self.stub.nodes)
            return abs(size - nodes) / nodes + UNEVEN_PRICE * abs(math.log(each / stubs))

        most = max(1, nodes // (self.top.nodes * (1 + self.stub.nodes)))
        each, stubs = min(product(range(1, most + 1), range(1, most + 1)), key=misfit)
        return replace(self, transit=replace(self.transit, nodes=each), stubs=stubs)


@dataclass(frozen=True)
class Internetwork:
    """A transit-stub network, and the role of each of its nodes.

    ``domain``: of every node the number of its transit domain; ``stub``: the number of its stub, -1 for transit nodes.
    ``place_ms``: nodes × 2, where they lie in the plane.
    """

    network: Network
    parameters: TransitStub
    domain: IntArray
    stub: IntArray
    place_ms: FloatArray

    @cached_property
    def stub_nodes(self) -> IntArray:
        """The numbers of the nodes that are not transit nodes."""
        return np.flatnonzero(self.stub != TRANSIT)


def transit_stub(parameters: TransitStub, random: np.random.Generator) -> Internetwork:
    """Draw a network; the same random state gives the same one. 10,000 nodes take about half a second.

    Raises `UsageError` for parameters whose graphs are hardly ever connected.
    """
    return _Drawing(parameters, random).finish()


class _Drawing:
    """Nodes are numbered: all transit nodes by domain, then all stub nodes by stub."""

    def __init__(self, parameters: TransitStub, random: np.random.Generator) -> None:
        for what, level in (("top", parameters.top), ("transit", parameters.transit), ("stub", parameters.stub)):
            if level.nodes < 1 or not 0 < level.alpha <= 1 or level.beta <= 0 or level.scale_ms < 0:
                raise UsageError(f"transit-stub: the {what} level has impossible parameters: {level}")
        self.parameters, self.random = parameters, random
        self.ends: list[IntArray] = []

    def finish(self) -> Internetwork:
        parameters, random = self.parameters, self.random
        domains, each, stubs, size = (
            parameters.top.nodes,
            parameters.transit.nodes,
            parameters.stubs,
            parameters.stub.nodes,
        )
        transit_nodes = domains * each
        places = np.empty((parameters.size, 2))
        top, top_links = next(self._graphs(parameters.top, 1))
        for domain, (offsets, links) in enumerate(self._graphs(parameters.transit, domains)):
            own = slice(domain * each, (domain + 1) * each)
            places[own] = top[domain] + offsets - parameters.transit.scale_ms / 2
            self.ends.append(links + domain * each)
        # Between linked domains, a random node of each.
        self.ends.append(top_links * each + random.integers(each, size=top_links.shape))
        gateways = np.repeat(np.arange(transit_nodes), stubs)
        reach = parameters.stub_reach_ms
        centres = places[gateways] + random.uniform(-reach / 2, reach / 2, (len(gateways), 2))
        for stub, (offsets, links) in enumerate(self._graphs(parameters.stub, len(gateways))):
            first = transit_nodes + stub * size
            places[first : first + size] = centres[stub] + offsets - parameters.stub.scale_ms / 2
            self.ends.append(links + first)
        self.ends.append(np.stack([gateways, self._any_of_stub(np.arange(len(gateways)))], axis=1))
        self._extra(len(gateways))
        ends = np.concatenate(self.ends)
        lengths = np.hypot(*(places[ends[:, 0]] - places[ends[:, 1]]).T)
        names = [f"t{node // each}.{node % each}" for node in range(transit_nodes)]
        names += [f"s{stub}.{node}" for stub in range(len(gateways)) for node in range(size)]
        return Internetwork(
            network(names, ends, np.maximum(lengths, parameters.hop_ms), what="transit-stub"),
            parameters,
            np.concatenate([np.arange(transit_nodes) // each, np.repeat(gateways // each, size)]),
            np.concatenate([np.full(transit_nodes, TRANSIT), np.repeat(np.arange(len(gateways)), size)]),
            places,
        )

    def _any_of_stub(self, stubs: IntArray) -> IntArray:
        parameters = self.parameters
        first = parameters.top.nodes * parameters.transit.nodes
        chosen: IntArray = (
            first + stubs * parameters.stub.nodes + self.random.integers(parameters.stub.nodes, size=len(stubs))
        )
        return chosen

    def _extra(self, stubs: int) -> None:
        if not stubs:
            return
        transit_nodes = self.parameters.top.nodes * self.parameters.transit.nodes
        chosen = self.random.integers(stubs, size=self.parameters.extra_transit_stub)
        transit = self.random.integers(transit_nodes, size=len(chosen))
        self.ends.append(np.stack([transit, self._any_of_stub(chosen)], axis=1))
        if stubs > 1:
            one = self.random.integers(stubs, size=self.parameters.extra_stub_stub)
            other = (one + self.random.integers(1, stubs, size=len(one))) % stubs
            self.ends.append(np.stack([self._any_of_stub(one), self._any_of_stub(other)], axis=1))

    def _graphs(self, level: Level, count: int) -> Iterator[tuple[FloatArray, IntArray]]:
        """Yield places (nodes × 2, in [0, scale]²) and links (× 2) of connected random graphs."""
        left, right = np.triu_indices(level.nodes, k=1)
        made = in_vain = 0
        while made < count:
            places = self.random.uniform(0.0, level.scale_ms, (DRAWS_AT_ONCE, level.nodes, 2))
            chance = np.full((DRAWS_AT_ONCE, len(left)), level.alpha)
            if level.method == "waxman" and level.scale_ms:
                distance = np.hypot(*np.moveaxis(places[:, left] - places[:, right], -1, 0))
                chance *= np.exp(-distance / (level.beta * math.sqrt(2) * level.scale_ms))
            drawn = self.random.random(chance.shape) < chance
            for place, joined in zip(places, drawn, strict=True):
                in_vain += 1
                if made < count and _connected(level.nodes, left[joined], right[joined]):
                    made, in_vain = made + 1, 0
                    yield place, np.stack([left[joined], right[joined]], axis=1)
            if made < count and in_vain > DRAWS_MAX:
                raise UsageError(f"transit-stub: graphs of {level} are hardly ever connected: raise alpha or beta")


def _connected(nodes: int, left: IntArray, right: IntArray) -> bool:
    if len(left) < nodes - 1:
        return False
    graph = sparse.csr_array((np.ones(len(left), np.int8), (left, right)), shape=(nodes, nodes))
    parts, _ = csgraph.connected_components(graph, directed=False)
    return bool(parts == 1)

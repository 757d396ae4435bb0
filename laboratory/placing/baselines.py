"""The networks that a placed network is compared with.

- `central`: one sequencer for all, at the 1-median. Short ways, and one node that handles everything.
- `scattered`: a given network on hosts drawn uniformly (Lumezanu 2006, §3.3: "would lead to poor performance").
- `paper`: the heuristic of Lumezanu 2006, as far as it is specified (below); `well_placed`: the same nodes in a better
  chain, on better hosts.
- `vector_bytes`: what vector timestamps would add to each event instead of `stamp_bytes`.

**The paper's heuristic** (§3.2, §3.3, §4.3) in our reading. *Which atoms share a node*: those of related overlaps,
"identical to, subsets of, or supersets of existing overlaps", such that "no sequencing machine sees more messages than
receivers". So an overlap, in the order in which groups are added, goes to the first node that it leaves a witness: a
receiver that is in all groups ordered there. Read as subsets of members instead, nodes would not decrease beyond an
occupancy of 0.15, as the paper's Figure 4 has it; read so, they do, and one node is left above 0.9. *The graph*: C1 and
C2 are met by a chain of the nodes in the order in which they were created; a group's path is its part of the chain.
*Where*: "on nearby nodes": the first on a random subscriber's host, each next on the nearest host that is still free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from placement.central import central, region_sums
from placement.costs import SHORTLIST_OF_ALL, Costs
from placement.placed import Placed, PlacedAtom
from placement.siting import site
from placement.stretch import Distances
from placement.topology import FloatArray, IntArray
from placement.workloads import BoolArray
from sequencing.errors import UsageError

__all__ = ["central", "hops", "paper", "scattered", "sequencing_nodes", "stamp_bytes", "vector_bytes", "well_placed"]

NUMBER_BYTES = 4
"""Of a sequence number, of an atom's id, and of one entry of a vector."""
OVERLAP_MIN = 2


def scattered(network: Placed, hosts: int, random: np.random.Generator) -> Placed:
    """Return the same network on hosts drawn uniformly, no two the same unless there are fewer hosts than nodes."""
    nodes = len(network.hosts)
    return replace(network, hosts=tuple(random.choice(hosts, nodes, replace=nodes > hosts).tolist()))


def sequencing_nodes(members: BoolArray, order: IntArray) -> list[dict[tuple[int, int], None]]:
    """Return the overlaps (pairs of groups) of each of the paper's sequencing nodes; ``order``: that of adding
    groups."""
    witnesses: list[BoolArray] = []
    overlaps: list[dict[tuple[int, int], None]] = []
    for place, group in enumerate(order.tolist()):
        for other in order[:place].tolist():
            common = members[:, group] & members[:, other]
            if common.sum() < OVERLAP_MIN:
                continue
            pair = (min(group, other), max(group, other))
            node = next((n for n, witness in enumerate(witnesses) if (witness & common).any()), len(witnesses))
            if node == len(witnesses):
                witnesses.append(common)
                overlaps.append({})
            witnesses[node] = witnesses[node] & common
            overlaps[node][pair] = None
    return overlaps


def paper(distances: Distances, random: np.random.Generator) -> Placed:
    """Return the network that the paper's heuristic makes if groups are added in random order.

    Groups without an overlap get an ingress-only node each, on the host of a random member. Raises `UsageError` if
    there are more nodes than hosts.
    """
    work = distances.workload
    overlaps = sequencing_nodes(work.members, random.permutation(len(work.regions)))
    chain = _nearby(distances, len(overlaps), int(random.choice(work.hosts)))
    return _chained(distances, overlaps, chain, random)


def well_placed(distances: Distances, random: np.random.Generator) -> Placed:
    """Return the same nodes in the best chain and on the best hosts that we find: the paper fixes neither.

    The chain is that on which groups pass few nodes, found by exchanging nodes; the hosts are chosen as for our own
    networks. It is a chain because a group's nodes have to be on one path (C1), and in a tree most are not. With the
    same random state, the nodes are those of `paper`. Raises `UsageError` if there are more nodes than hosts.
    """
    work, topology = distances.workload, distances.topology
    overlaps = sequencing_nodes(work.members, random.permutation(len(work.regions)))
    _require_hosts(distances, len(overlaps))
    if not overlaps:
        return _chained(distances, overlaps, [], random)
    overlaps = [overlaps[node] for node in _short_order(overlaps, work.region_rates)]
    up, down, weight = region_sums(distances)
    total = float(weight.sum()) or 1.0
    none = np.empty(0, np.int64)
    single = tuple(np.array([region]) for region in range(len(work.regions)))
    costs = Costs(up / total, down / total, weight / total, work.region_rates, none, none, single, frozenset())
    listed = costs.shortlist(of_all=max(SHORTLIST_OF_ALL, 2 * len(overlaps)))
    near, between = costs.on(listed), topology.ms_from(listed)[:, listed]
    first, last = _ends(overlaps)
    ways = [tuple(range(first[group], last[group] + 1)) for group in sorted(first)]
    chain = tuple(range(-1, len(overlaps) - 1))
    hosts = site(chain, ways, near.of_items(np.array(sorted(first))), between, roomy=topology.roomy)
    return _chained(distances, overlaps, listed[list(hosts)].tolist(), random)


def _short_order(overlaps: Sequence[Mapping[tuple[int, int], None]], rates: FloatArray) -> list[int]:
    """Return the nodes in an order in which groups pass few nodes, weighted by their events/s: by exchanging two, or
    moving one, until neither helps."""
    nodes = len(overlaps)
    inside = np.zeros((nodes, len(rates)), np.bool_)
    for node, pairs in enumerate(overlaps):
        inside[node, [group for pair in pairs for group in pair]] = True
    used = inside.any(axis=0)
    inside, rates = inside[:, used], rates[used]

    def length(order: Sequence[int]) -> float:
        along = inside[order]
        spans = nodes - along.argmax(axis=0) - along[::-1].argmax(axis=0)
        return float(spans @ rates)

    order = list(range(nodes))
    best, improved = length(order), True
    while improved:
        improved = False
        for here, there in permutations(range(nodes), 2):
            exchanged = order.copy()
            exchanged[here], exchanged[there] = order[there], order[here]
            moved = order.copy()
            moved.insert(there, moved.pop(here))
            for tried in (exchanged, moved):
                if (found := length(tried)) < best:
                    order, best, improved = tried, found, True
    return order


def _ends(overlaps: Sequence[Mapping[tuple[int, int], None]]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the first and the last node of a chain at which each group is ordered."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for node, pairs in enumerate(overlaps):
        for group in {group for pair in pairs for group in pair}:
            first.setdefault(group, node)
            last[group] = node
    return first, last


def _chained(
    distances: Distances,
    overlaps: Sequence[Mapping[tuple[int, int], None]],
    chain: Sequence[int],
    random: np.random.Generator,
) -> Placed:
    """Return a chain of nodes on these hosts, and an ingress-only node for each group without an overlap."""
    work, topology = distances.workload, distances.topology
    hosts, paths = list(chain), []
    first, last = _ends(overlaps)
    for group in range(len(work.regions)):
        if group in first:
            paths.append(tuple(range(first[group], last[group] + 1)))
        else:
            there = np.flatnonzero(work.members[:, group])
            host = int(work.hosts[random.choice(there)]) if len(there) else int(random.integers(len(topology.names)))
            paths.append((len(hosts),))
            hosts.append(host)
    atoms = tuple(PlacedAtom(pair, node) for node, pairs in enumerate(overlaps) for pair in pairs)
    return Placed(tuple(hosts), tuple(paths), atoms)


def _require_hosts(distances: Distances, nodes: int) -> None:
    topology = distances.topology
    if nodes > len(topology.names) and not topology.roomy:
        raise UsageError(f"{nodes} sequencing nodes cannot stand on {len(topology.names)} hosts, each on its own")


def _nearby(distances: Distances, nodes: int, start: int) -> list[int]:
    """Return a chain of hosts, each the nearest to the one before that is still free."""
    _require_hosts(distances, nodes)
    topology = distances.topology
    chain: list[int] = []
    at = start
    while len(chain) < nodes:
        away = topology.ms_from(np.array([at]))[0].copy()
        if chain and not topology.roomy:
            away[chain] = np.inf
        at = int(away.argmin()) if chain else at
        chain.append(at)
    return chain


def stamp_bytes(network: Placed, regions: int) -> FloatArray:
    """Return the stamp bytes of each region's events, as the paper counts them: epoch, region sequence, atoms and
    numbers.

    Ours leave out the atoms of regions that end at one node, and carry that node's number instead.
    """
    numbers: FloatArray = 2.0 + 2.0 * network.atoms_of(regions).astype(np.float64)
    return NUMBER_BYTES * numbers


def vector_bytes(subscribers: int) -> float:
    """Return the size of a vector timestamp: a number for each of the system's publishers, and the sender's."""
    return NUMBER_BYTES * (1.0 + subscribers)


def hops(network: Placed) -> IntArray:
    """Return the number of nodes that each region's events pass."""
    return np.array([len(path) for path in network.paths], np.int64)

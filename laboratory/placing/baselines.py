"""The networks that a placed network is compared with.

- `central`: one sequencer for all, at the 1-median. Short ways, and one node that handles everything.
- `scattered`: a given network on hosts drawn uniformly (Lumezanu 2006, §3.3: "would lead to poor performance").
- `paper`: the heuristic of Lumezanu 2006, as far as it is specified (below).
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

from dataclasses import replace

import numpy as np

from placement.central import central
from placement.placed import Placed, PlacedAtom
from placement.stretch import Distances
from placement.topology import FloatArray, IntArray
from placement.workloads import BoolArray
from sequencing.errors import UsageError

__all__ = ["central", "hops", "paper", "scattered", "sequencing_nodes", "stamp_bytes", "vector_bytes"]

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
    work, topology = distances.workload, distances.topology
    overlaps = sequencing_nodes(work.members, random.permutation(len(work.regions)))
    chain = _nearby(distances, len(overlaps), int(random.choice(work.hosts)))
    hosts, paths = list(chain), []
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for node, pairs in enumerate(overlaps):
        for group in {group for pair in pairs for group in pair}:
            first.setdefault(group, node)
            last[group] = node
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


def _nearby(distances: Distances, nodes: int, start: int) -> list[int]:
    """Return a chain of hosts, each the nearest to the one before that is still free."""
    topology = distances.topology
    if nodes > len(topology.names) and not topology.roomy:
        raise UsageError(f"{nodes} sequencing nodes cannot stand on {len(topology.names)} hosts, each on its own")
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

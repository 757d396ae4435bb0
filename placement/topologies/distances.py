"""Which host is how far from which, and who stands where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import numpy as np
import numpy.typing as npt

from placement.topologies.reading import read_topology
from sequencing.errors import UsageError

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
    """The hosts of a network: ``host_of`` names a host for each game server and each node. A relay runs beside its
    source."""

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
    """Read the delays between all hosts of a matrix, or of any other topology that can be read.

    ``rtt``: the file has round trips, and one way is half of one. Raises what `read_topology` raises.
    """
    topology = read_topology(file, rtt=rtt)
    return Distances(topology.names, topology.ms_from(np.arange(len(topology.names))))


def _named(distances: Distances, text: str | None, option: str) -> list[str]:
    named = [host.strip() for host in text.split(",")] if text is not None else []
    for host in named:
        if host not in distances.hosts:
            known = ", ".join(distances.hosts[:NAMES_SHOWN]) + (", …" if len(distances.hosts) > NAMES_SHOWN else "")
            raise UsageError(f"{option}: the matrix has no host {host!r}; it has {known}")
    return named

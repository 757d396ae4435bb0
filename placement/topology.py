"""Hosts and the one-way delays between them, whether known as links or as a full matrix.

Delays are milliseconds, one way. A `Network` has links and finds shortest paths (scipy's Dijkstra) for the rows that
are asked for, so that 10,000 hosts do not cost a matrix of 10⁸; a `Matrix` has been measured between all hosts, and is
taken as it is: packets took the way they took, so it may be asymmetric and break the triangle inequality.

The diagonal of a matrix is the distance of two machines *at one place* (a cloud region's machines are some milliseconds
from each other). So a place with a diagonal above 0 has room for several sequencing nodes, and a subscriber there is as
far from a node there. Networks have no such distance: a host of theirs is one machine, 0 ms from itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from sequencing.errors import UsageError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

NAMES_MAX = 3


class Topology(Protocol):
    """The data of hosts that placement needs: their names, and delays in ms of the rows that it asks for."""

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts; everywhere else they are numbered in this order."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes, for people, on delays that were missing or odd, and on their replacement."""

    def ms_from(self, hosts: IntArray) -> FloatArray:
        """Return len(hosts) × all: delays from each of these hosts to a machine at every host."""

    def ms_to(self, hosts: IntArray) -> FloatArray:
        """Return len(hosts) × all: delays from a machine at every host to each of these."""

    @property
    def roomy(self) -> bool:
        """Whether one host (place) has room for several sequencing nodes."""

    @property
    def is_metric(self) -> bool:
        """Whether it is certain that no way over another host is shorter than the delay between two."""


@dataclass(frozen=True)
class Network:
    """Hosts joined by links: ``links[a, b]`` is the one-way delay of the link from a to b.

    Use `network` to make one from undirected links; that checks what this takes for granted.
    """

    names: tuple[str, ...]
    links: sparse.csr_array
    notes: tuple[str, ...] = ()

    def ms_from(self, hosts: IntArray) -> FloatArray:
        """See `Topology`."""
        return _shortest(self.links, hosts)

    def ms_to(self, hosts: IntArray) -> FloatArray:
        """See `Topology`."""
        return _shortest(self._reversed, hosts)

    @property
    def roomy(self) -> bool:
        """See `Topology`."""
        return False

    @property
    def is_metric(self) -> bool:
        """See `Topology`: delays are those of shortest ways."""
        return True

    @cached_property
    def _reversed(self) -> sparse.csr_array:
        return self.links.T.tocsr()


@dataclass(frozen=True)
class Matrix:
    """Hosts with a measured delay for each ordered pair: ``ms[a, b]`` from a to b; see `matrix`, which checks it."""

    names: tuple[str, ...]
    ms: FloatArray
    notes: tuple[str, ...] = ()

    def ms_from(self, hosts: IntArray) -> FloatArray:
        """See `Topology`."""
        return self.ms[hosts]

    def ms_to(self, hosts: IntArray) -> FloatArray:
        """See `Topology`."""
        return self.ms.T[hosts]

    @property
    def roomy(self) -> bool:
        """See `Topology`; a diagonal with zeros says nothing of machines at one place."""
        return bool((self.ms.diagonal() > 0).all())

    @property
    def is_metric(self) -> bool:
        """See `Topology`: packets took the way they took."""
        return False


def network(
    names: Sequence[str], ends: IntArray, ms: FloatArray, *, what: str = "topology", notes: Sequence[str] = ()
) -> Network:
    """Return a network of undirected links: ``ends`` is links × 2 host numbers, ``ms`` each link's delay, one way.

    Of parallel links the fastest is taken. Raises `UsageError`, naming hosts, for a repeated name, a delay
    that is negative or not finite, and hosts that cannot be reached from the others.
    """
    _require_distinct(names, what)
    ends = np.asarray(ends, np.int64).reshape(-1, 2)
    wrong = np.flatnonzero(~np.isfinite(ms) | (ms < 0))
    if len(wrong):
        a, b = (names[host] for host in ends[wrong[0]].tolist())
        raise UsageError(f"{what}: the link {a} – {b} has a delay of {ms[wrong[0]]} ms; it must be 0 or more")
    tails, heads = np.concatenate([ends[:, 0], ends[:, 1]]), np.concatenate([ends[:, 1], ends[:, 0]])
    delays = np.concatenate([ms, ms])
    # Of parallel links the last one would be summed with the others, so only the fastest is kept.
    order = np.lexsort((delays, heads, tails))
    tails, heads, delays = tails[order], heads[order], delays[order]
    first = np.r_[True, (np.diff(tails) != 0) | (np.diff(heads) != 0)] if len(tails) else np.zeros(0, bool)
    shape = (len(names), len(names))
    links = sparse.csr_array((delays[first].astype(float), (tails[first], heads[first])), shape=shape)
    _require_connected(names, links, what)
    return Network(tuple(names), links, tuple(notes))


def matrix(names: Sequence[str], ms: FloatArray, *, what: str = "matrix", notes: Sequence[str] = ()) -> Matrix:
    """Return a matrix of one-way delays; row a, column b is from a to b.

    Raises `UsageError`, naming row and column, for a cell that is negative or not finite, and for a repeated name.
    """
    _require_distinct(names, what)
    wrong = np.argwhere(~np.isfinite(ms) | (ms < 0))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise UsageError(
            f"{what}: row {names[row]}, column {names[column]} is {ms[row, column]} ms; it must be 0 or more"
        )
    return Matrix(tuple(names), np.asarray(ms, float), tuple(notes))


def _shortest(links: sparse.csr_array, hosts: IntArray) -> FloatArray:
    if not len(hosts):
        return np.empty((0, links.shape[0]))
    ms: FloatArray = csgraph.dijkstra(links, directed=True, indices=hosts)
    return ms


def _require_distinct(names: Sequence[str], what: str) -> None:
    if not names:
        raise UsageError(f"{what}: has no host")
    for before, after in pairwise(sorted(names)):
        if before == after:
            raise UsageError(f"{what}: the host {before!r} is there twice")


def _require_connected(names: Sequence[str], links: sparse.csr_array, what: str) -> None:
    parts, part_of = csgraph.connected_components(links, directed=False)
    if parts == 1:
        return
    largest = np.bincount(part_of).argmax()
    lost = [names[host] for host in np.flatnonzero(part_of != largest).tolist()]
    listed = ", ".join(lost[:NAMES_MAX]) + (f" and {len(lost) - NAMES_MAX} more" if len(lost) > NAMES_MAX else "")
    raise UsageError(
        f"{what}: is disconnected, in {parts} parts; no link leads from {names[int(np.argmax(part_of == largest))]} to "
        f"{listed}: add links, or leave these hosts out"
    )

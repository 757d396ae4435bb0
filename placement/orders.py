"""Orders of the classes along a line, from which arrangements start.

All keep components together, for between two of them a line can be cut for nothing; they differ in how they go
through one.

- *Reverse Cuthill–McKee*: breadth first from the rim, so that neighbours are few levels apart. Quick on worlds of any
  size.
- *Spectral*: by the entries of the Fiedler vector, the second eigenvector of the Laplacian, which relaxes the problem
  of placing neighbours close to each other. Sees the shape of the whole component, which a breadth-first search from
  one end does not.
- *Least cut*: next comes the class after which the least rate is still waiting for a neighbour; what waits is what
  crosses a cut. Greedy, and the only one that looks at the rates.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import ArpackError, eigsh

from sequencing.arrangement import Meetings
from sequencing.overlaps import IntArray

DENSE_CLASSES_MAX = 32
"""Up to so many classes in a component, a dense eigensolver is as quick and has nothing to converge. For some hundreds
it takes milliseconds on idle cores, and seconds where its threads have to share them."""
SPECTRAL_CLASSES_MAX = 5_000
"""A component's Fiedler vector takes a factorisation: half a second for so many classes of a grid world."""
LEAST_CUT_PAIRS_MAX = 20_000
"""The least cut is found by an interpreted loop over the pairs: some 50 ms for so many."""
SHIFT = 1e-6
"""In mean degrees: so far beside zero the Laplacian is not singular, and its eigenvalues near zero come first."""
VECTOR_DECIMALS = 9
"""Entries of an eigenvector that differ by less are equal, so that rounding does not decide an order."""

FloatArray = npt.NDArray[np.float64]


def orders(wanted: Meetings, rates: FloatArray) -> Iterator[tuple[str, IntArray]]:
    """Yield orders of the classes that need one, with names, those that this many classes and pairs have time for.

    ``rates``: events/s of each class. The first is reverse Cuthill–McKee, which is always there.
    """
    if not wanted.ordered.any():
        yield "cuthill-mckee", np.empty(0, np.int64)
        return
    graph = meeting_graph(wanted)
    _, component_of = csgraph.connected_components(graph, directed=False)
    base = np.asarray(csgraph.reverse_cuthill_mckee(graph, symmetric_mode=True), np.int64)
    base = base[wanted.ordered[base]]
    base = base[np.argsort(component_of[base], kind="stable")]
    yield "cuthill-mckee", base
    components = np.split(base, np.flatnonzero(np.diff(component_of[base])) + 1)
    if max(map(len, components)) <= SPECTRAL_CLASSES_MAX and len(base) <= 4 * SPECTRAL_CLASSES_MAX:
        yield "spectral", np.concatenate([_spectral(graph, component) for component in components])
    if len(wanted.left) <= LEAST_CUT_PAIRS_MAX:
        yield "least-cut", np.concatenate([_least_cut(graph, rates, component) for component in components])


def meeting_graph(wanted: Meetings) -> sparse.csr_array:
    """Return the symmetric classes × classes matrix that has 1 for each pair that must meet."""
    count = len(wanted.classes.members)
    graph = sparse.csr_array((np.ones(len(wanted.left), np.int8), (wanted.left, wanted.right)), shape=(count, count))
    both: sparse.csr_array = (graph + graph.T).tocsr()
    return both


def _spectral(graph: sparse.csr_array, component: IntArray) -> IntArray:
    """Return a component by its Fiedler vector, ties as they were; as it was if no vector is found."""
    if len(component) < 3:
        return component
    inside = graph[component][:, component].astype(float)
    laplacian = sparse.csc_array(sparse.diags_array(np.asarray(inside.sum(axis=1))) - inside)
    if len(component) <= DENSE_CLASSES_MAX:
        vector = np.linalg.eigh(laplacian.toarray())[1][:, 1]
    else:
        shift = -SHIFT * inside.nnz / len(component)
        start = np.cos(np.arange(len(component), dtype=float))
        try:
            vector = eigsh(laplacian, k=2, sigma=shift, v0=start, tol=1e-6)[1][:, 1]
        except (ArpackError, RuntimeError):
            return component
    vector = np.round(vector, VECTOR_DECIMALS)
    first = np.flatnonzero(vector)[:1]
    order = np.argsort(vector * np.sign(vector[first].sum() or 1.0), kind="stable")
    by_vector: IntArray = component[order]
    return by_vector


def _least_cut(graph: sparse.csr_array, rates: FloatArray, component: IntArray) -> IntArray:
    """Return a component in the order that greedily keeps low the rate of the placed classes that wait for neighbours.

    An entry of the heap may be out of date; the class's cost when it is taken decides.
    """
    neighbours = {int(c): graph.indices[graph.indptr[c] : graph.indptr[c + 1]].tolist() for c in component}
    waiting_for = {c: len(others) for c, others in neighbours.items()}
    place_of = {c: place for place, c in enumerate(component.tolist())}
    placed: list[int] = []
    done: set[int] = set()
    weight = dict(zip(component.tolist(), rates[component].tolist(), strict=True))

    def cost(c: int) -> tuple[float, int]:
        waits = weight[c] if waiting_for[c] else 0.0
        relieved = sum(weight[other] for other in neighbours[c] if other in done and waiting_for[other] == 1)
        return waits - relieved, place_of[c]

    heap = [(*cost(place), place) for place in component[:1].tolist()]
    while heap:
        value, place, c = heapq.heappop(heap)
        if c in done:
            continue
        if (value, place) != cost(c):
            heapq.heappush(heap, (*cost(c), c))
            continue
        done.add(c)
        placed.append(c)
        for other in neighbours[c]:
            waiting_for[other] -= 1
        for other in neighbours[c]:
            if other not in done:
                heapq.heappush(heap, (*cost(other), other))
            elif waiting_for[other] == 1:
                for last in neighbours[other]:
                    if last not in done:
                        heapq.heappush(heap, (*cost(last), last))
    return np.array(placed, np.int64)

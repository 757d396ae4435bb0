"""From a membership to a plan: overlaps, arrangement, nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from placement.cutting import cut
from sequencing.arrangement import Arrangement, arrange
from sequencing.errors import PlanError
from sequencing.membership import Membership
from sequencing.names import check_node_name
from sequencing.plan import Atom, AtomId, Ordering, Plan


def make_plan(
    membership: Membership,
    nodes: Mapping[str, str],
    *,
    epoch: int = 1,
    first_atom: int = 1,
    ordering: Ordering = "acyclic",
    rates: Mapping[str, float] | None = None,
) -> Plan:
    """Plan a sequencing network.

    ``nodes``: name → url, in the order in which the line of nodes is laid; ``first_atom``: the first atom's id, for ids
    are never used again in a later epoch; ``rates``: events/s a region, 1 where not
    given. Regions that need no order against others go to the least loaded nodes. Deterministic. Raises `PlanError`
    without nodes.
    """
    if not nodes:
        raise PlanError("there is no sequencing node to plan with: register one (`gamecast node --name n1 …`)")
    names = [check_node_name(name) for name in nodes]
    arrangement = arrange(membership, ordering)
    class_rates = _class_rates(membership, arrangement, rates or {})
    node_of_slot = cut(class_rates[arrangement.line], arrangement.last_slot, len(names))
    paths = _paths_on_line(membership, arrangement, node_of_slot, names)
    load = np.zeros(len(names))
    for slot, (first, last) in enumerate(zip(node_of_slot, node_of_slot[arrangement.last_slot], strict=True)):
        load[first : last + 1] += class_rates[arrangement.line[slot]]
    for c in arrangement.unordered:
        for region in arrangement.classes.members[c]:
            lightest = int(np.argmin(load))
            paths[membership.regions[region]] = (names[lightest],)
            load[lightest] += (rates or {}).get(membership.regions[region], 1.0)
    atoms = tuple(
        Atom(AtomId(number), _region_names(membership, arrangement, atom.classes), names[node_of_slot[atom.slot]])
        for number, atom in enumerate(arrangement.atoms, start=first_atom)
    )
    return Plan(epoch, 1, ordering, dict(nodes), dict(sorted(paths.items())), atoms)


def _class_rates(membership: Membership, arrangement: Arrangement, rates: Mapping[str, float]) -> np.ndarray:
    names = membership.regions
    members = arrangement.classes.members
    return np.array([sum(rates.get(names[region], 1.0) for region in member) for member in members], float)


def _paths_on_line(
    membership: Membership, arrangement: Arrangement, node_of_slot: np.ndarray, names: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    paths: dict[str, tuple[str, ...]] = {}
    for slot, c in enumerate(arrangement.line):
        path = tuple(names[node_of_slot[slot] : node_of_slot[arrangement.last_slot[slot]] + 1])
        for region in arrangement.classes.members[c]:
            paths[membership.regions[region]] = path
    return paths


def _region_names(membership: Membership, arrangement: Arrangement, classes: Iterable[int]) -> tuple[str, ...]:
    return tuple(membership.regions[region] for c in classes for region in arrangement.classes.members[c])

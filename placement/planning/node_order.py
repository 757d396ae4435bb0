"""Where the nodes of a plan stand in a picture: every link leads to the right."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from sequencing.plan import Plan


def left_to_right(plan: Plan) -> tuple[str, ...]:
    """Return the nodes in an order that the paths follow, those of one component next to each other."""
    place = {node: number for number, node in enumerate(plan.nodes)}
    before: dict[str, set[str]] = {node: set() for node in plan.nodes}
    for here, there in plan.links:
        before[there].add(here)
    component = _components(plan)
    sorter = TopologicalSorter(before)
    try:
        sorter.prepare()
    except CycleError:
        return tuple(plan.nodes)
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=place.__getitem__)
        order += ready
        sorter.done(*ready)
    first: dict[str, int] = {}
    for node in plan.nodes:
        first.setdefault(component[node], place[node])
    return tuple(sorted(order, key=lambda node: first[component[node]]))


def _components(plan: Plan) -> dict[str, str]:
    """Return for each node the first node that links tie it to."""
    leader = {node: node for node in plan.nodes}

    def find(node: str) -> str:
        while leader[node] != node:
            node = leader[node]
        return node

    for here, there in sorted(plan.links):
        leader[find(there)] = find(here)
    return {node: find(node) for node in plan.nodes}

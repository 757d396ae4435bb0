"""The manager: from what subscribers want to the next plan, and step by step from one plan to the next.

*What changes.* Within an epoch the membership that a plan reckons with only grows: who leaves a region just stops to
read it, and may come back. A subscriber that wants more is granted it in place when the atoms that exist order all that
must be ordered then. If not, the regions around it begin a new epoch: the components, by the atoms of before and after,
of the regions that are joined; and only there membership is taken afresh. Other components stay as they are. (An atom
cannot simply be added to an epoch that runs. Unless every frame that passed its node before it began is delivered
everywhere, those frames are free, and three subscribers around a new ring can close a cycle with them: see
docs/counterexamples.md.)

*How.* A `Transition` goes through five phases, each finished at all nodes before the next begins:

1. prepare: the nodes have the new steps beside the old; then the plan is announced;
2. close: each region that moves ends its old epoch with a TICK at its old ingress, which takes no more;
3. open: where the new ingress is at another node, it learns what the old one had accepted, and opens;
4. drain: the TICKs have reached the ends of the old paths, so nothing of the old epoch is under way any more;
5. forget: the nodes drop the old steps and counters.

Every step may be repeated at any time, by any manager: the transition under way is part of the `Record`, so that
whoever leads next begins it again from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx

from sequencing.conditions import require_sound, violations
from sequencing.membership import Membership
from sequencing.node import Accepted, Node
from sequencing.overlaps import class_pairs_to_order, twin_classes
from sequencing.plan import Plan, Step
from sequencing.record import Members, Record, Wish

Planner = Callable[[Membership, int, int], Plan]
"""Makes a plan of a membership, for an epoch, with atoms from an id on."""


_NO_WISH = Wish(0, 0)


def next_record(
    record: Record, wishes: Mapping[str, Wish], published: Iterable[str], planner: Planner
) -> Record | None:
    """Return what to go to from a settled record, None when nothing changes.

    ``wishes``: of each subscriber, as of now; ``published``: regions that events are to be published to. What begins
    anew satisfies C1–C4 by itself; nothing that is to be ordered leads out of it. Raises `PlanError`.
    """
    joining = {name: wish.after(record.heard.get(name)) for name, wish in wishes.items()}
    joining = {name: regions for name, regions in joining.items() if regions}
    missing = frozenset(published).union(*joining.values()) - record.plan.paths.keys()
    if not joining and not missing:
        return None
    grown = _union(record.members, joining)
    plan = record.plan.with_regions(sorted(missing))
    membership = Membership.of(grown, plan.paths)
    if "C4" not in violations(plan, membership):
        return replace(record, plan=plan, members=grown, heard=dict(wishes), before=record.plan)
    affected = _affected(plan, membership, frozenset[str]().union(*joining.values()))
    members = {
        name: affected.intersection(wishes.get(name, _NO_WISH).since) | (regions - affected)
        for name, regions in grown.items()
    }
    inside = {name: regions & affected for name, regions in members.items() if regions & affected}
    fresh_membership = Membership.of(inside, affected)
    fresh = planner(fresh_membership, plan.epoch + 1, record.next_atom)
    require_sound(fresh, fresh_membership)
    merged = Plan(
        plan.epoch + 1,
        1,
        plan.ordering,
        {**plan.nodes, **fresh.nodes},
        {**plan.paths, **fresh.paths},
        (*(atom for atom in plan.atoms if affected.isdisjoint(atom.regions)), *fresh.atoms),
        {region: plan.epoch_of(region) for region in plan.paths if region not in affected},
    )
    next_atom = max((atom.id + 1 for atom in fresh.atoms), default=record.next_atom)
    members = {name: regions for name, regions in members.items() if regions}
    return Record(merged, members, dict(wishes), record.plan, next_atom)


def _union(members: Members, joining: Members) -> dict[str, frozenset[str]]:
    nothing: frozenset[str] = frozenset()
    return {name: members.get(name, nothing) | joining.get(name, nothing) for name in [*members, *joining]}


def _affected(plan: Plan, membership: Membership, joined: frozenset[str]) -> frozenset[str]:
    """Return the components that hold a joined region, by the plan's atoms and what is to be ordered now together."""
    classes = twin_classes(membership)
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(plan.paths)
    for atom in plan.atoms:
        nx.add_path(graph, atom.regions)
    for members in classes.members:
        nx.add_path(graph, [membership.regions[region] for region in members])
    names = [membership.regions[region] for region in classes.representatives]
    for left, right in zip(*class_pairs_to_order(membership, classes, plan.ordering), strict=True):
        graph.add_edge(names[left], names[right])
    parts = nx.connected_components(graph)
    return frozenset[str]().union(*(part for part in parts if not joined.isdisjoint(part)))


@dataclass(frozen=True, slots=True)
class Prepare:
    """Have a node know its steps of the new plan. The answer is whether no later plan is there."""

    node: str
    plan: Plan
    steps: tuple[Step, ...]
    closing: tuple[tuple[str, int], ...]

    def perform(self, node: Node) -> bool:
        """Do it at a node in memory."""
        return node.prepare(self.plan.epoch, self.plan.version, self.steps, dict(self.closing))


@dataclass(frozen=True, slots=True)
class Close:
    """Close ingresses; (region, epoch, the one that follows) each. The answer: what was accepted last of whom."""

    node: str
    regions: tuple[tuple[str, int, int], ...]

    def perform(self, node: Node) -> dict[str, dict[str, Accepted]]:
        """Do it at a node in memory."""
        for region, epoch, following in self.regions:
            node.close(region, epoch, following)
        return {region: node.accepted(region) for region, *_ in self.regions}


@dataclass(frozen=True, slots=True)
class Open:
    """Open ingresses of the new epoch; (region, epoch, accepted of each publisher) each."""

    node: str
    regions: tuple[tuple[str, int, tuple[tuple[str, Accepted], ...]], ...]

    def perform(self, node: Node) -> bool:
        """Do it at a node in memory."""
        for region, epoch, accepted in self.regions:
            node.open(region, epoch, dict(accepted))
        return True


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask whether old epochs have come to their ends in the egress streams; ask again while the answer is False."""

    node: str
    regions: tuple[tuple[str, int], ...]

    def perform(self, node: Node) -> bool:
        """Do it at a node in memory."""
        return all(node.ended(region, epoch) for region, epoch in self.regions)


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop the steps of old epochs; (epoch, region) each."""

    node: str
    steps: tuple[tuple[int, str], ...]

    def perform(self, node: Node) -> bool:
        """Do it at a node in memory."""
        node.forget(self.steps)
        return True


Task = Prepare | Close | Open | Drain | Forget


class Transition:
    """From one plan to the next: which tasks are to be done now, and what follows from their answers."""

    def __init__(self, before: Plan, plan: Plan) -> None:
        """Begin at the beginning, whatever an earlier manager had done already."""
        self.before = before
        self.plan = plan
        self.prepared = False
        """Whether the plan may be announced: all nodes know it."""
        self._moving = [r for r in before.paths if plan.epoch_of(r) != before.epoch_of(r)]
        self._accepted: dict[str, dict[str, Accepted]] = {}
        self._phases = [self._prepare, self._close, self._open, self._drain, self._forget]
        self._tasks: list[Task] = []
        self._next_phase()

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return not self._tasks and not self._phases

    def tasks(self) -> list[Task]:
        """Return what is to be done now, in any order; the same again until it is `done`."""
        return list(self._tasks)

    def done(self, task: Task, answer: Any) -> None:
        """Take the answer to a task. One that comes twice is ignored."""
        if task not in self._tasks or answer is False:
            return
        if isinstance(task, Close):
            self._accepted |= answer
        self._tasks.remove(task)
        if not self._tasks:
            self._next_phase()

    def _next_phase(self) -> None:
        while not self._tasks and self._phases:
            phase = self._phases.pop(0)
            self.prepared = self.prepared or phase != self._prepare
            self._tasks = phase()

    def _prepare(self) -> list[Task]:
        new = {r for r in self.plan.paths if r not in self.before.paths} | set(self._moving)
        tasks: list[Task] = []
        for node in self.plan.nodes:
            steps = tuple(step for step in self.plan.steps(node) if step.region in new)
            closing = []
            for region in self._moving:
                here = self.before.paths[region][0] == node
                closing.append((region, self.before.epoch_of(region) if here else 0))
            tasks.append(Prepare(node, self.plan, steps, tuple(closing)))
        return tasks

    def _close(self) -> list[Task]:
        return [
            Close(node, tuple((region, epoch, self.plan.epoch_of(region)) for region, epoch in regions))
            for node, regions in self._at(0).items()
        ]

    def _open(self) -> list[Task]:
        opening: dict[str, list[tuple[str, int, tuple[tuple[str, Accepted], ...]]]] = {}
        for region in self._moving:
            ingress = self.plan.paths[region][0]
            if ingress != self.before.paths[region][0]:
                accepted = tuple(sorted(self._accepted[region].items()))
                opening.setdefault(ingress, []).append((region, self.plan.epoch_of(region), accepted))
        return [Open(node, tuple(regions)) for node, regions in opening.items()]

    def _drain(self) -> list[Task]:
        return [Drain(node, regions) for node, regions in self._at(-1).items()]

    def _forget(self) -> list[Task]:
        steps: dict[str, list[tuple[int, str]]] = {}
        for region in self._moving:
            for node in self.before.paths[region]:
                steps.setdefault(node, []).append((self.before.epoch_of(region), region))
        return [Forget(node, tuple(old)) for node, old in steps.items()]

    def _at(self, place: int) -> dict[str, tuple[tuple[str, int], ...]]:
        """The regions that move, with their old epochs, by the node at a place of their old paths."""
        found: dict[str, list[tuple[str, int]]] = {}
        for region in self._moving:
            found.setdefault(self.before.paths[region][place], []).append((region, self.before.epoch_of(region)))
        return {node: tuple(regions) for node, regions in found.items()}

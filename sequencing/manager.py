"""The manager: from what subscribers want to the next plan, and step by step from one plan to the next.

*What changes.* Within an epoch the membership that a plan reckons with only grows (but see `sequencing.expected`): who
leaves a region just stops to read it, and may come back. A subscriber that wants more is granted it in place when the
atoms that exist order all that must be ordered then. If not, the regions around it begin a new epoch: the components,
by the atoms of before and after, of the regions that are joined; and only there membership is taken afresh. Other
components stay as they are. (An atom cannot simply be added to an epoch that runs. Unless every frame that passed its
node before it began is delivered everywhere, those frames are free, and three subscribers around a new ring can close a
cycle with them: see docs/counterexamples.md.)

*How.* A `Transition` goes through five phases, each finished at all nodes before the next begins:

1. prepare: the nodes have the new steps beside the old; then, if somebody is let go of, the sweep of
   `sequencing.expected`; then the plan is announced;
2. close: each region that moves ends its old epoch with a TICK at its old ingress, which takes no more;
3. open: where the new ingress is at another node, it learns what the old one had accepted, and opens;
4. end: the TICKs have reached the ends of the old paths, so nothing of the old epoch is under way any more;
5. forget: the nodes drop the old steps and counters.

Every step may be repeated at any time, by any manager: the transition under way is part of the `Record`, so that
whoever leads next begins it again from the start.

*Nodes that lose something.* A node that was restarted may be back with an older state than it had. Its server is in
another run then than the plan names, and nobody speaks to it. The manager notices, and all regions whose path visits
the node begin a new epoch, with the components around them, in the way above; with these differences. The node begins
anew when it is asked to prepare. A path that is broken by the loss is not drained: its egress is *sealed*, with the
TICK that its ingress gave; where the ingress is what was lost, with one of an unknown number. So each subscriber is
told what it misses, at the place where the epoch ends. And it may happen while another transition is under way: then
regions may have more than one old epoch behind them, which end together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import networkx as nx

from sequencing.conditions import can_follow_all, require_sound, violations
from sequencing.expected import Emptied, Tails, links_to_sweep, observers
from sequencing.membership import Membership
from sequencing.node import Accepted, Answer, Node, Verdict
from sequencing.overlaps import class_pairs_to_order, twin_classes
from sequencing.plan import Plan, Step
from sequencing.record import Members, OldEpoch, Pair, Record, Wish

Planner = Callable[[Membership, int, int], Plan]
"""Makes a plan of a membership, for an epoch, with atoms from an id on."""


_NO_WISH = Wish(0, 0)


def next_record(
    record: Record,
    wishes: Mapping[str, Wish],
    published: Iterable[str],
    planner: Planner,
    *,
    nodes: Mapping[str, str] | None = None,
    runs: Mapping[str, str] | None = None,
    announced: bool = True,
    expected: Iterable[Pair] = (),
) -> Record | None:
    """Return what to go to from a record, None when nothing changes. One in transition is left for a lost node only.

    ``wishes``: of each subscriber, as of now; ``published``: regions that events are to be published to; ``nodes``:
    name → url of those that something new may go to, all of the plan when None; ``runs``: of the nodes that may lose
    something and can be reached, the run that they are in; ``announced``: whether the record's plan is; ``expected``:
    overlaps that are declared, besides those that the record knows. What begins anew satisfies C1–C4 by itself; nothing
    that is to be ordered leads out of it. Raises `PlanError`.
    """
    found = {**record.plan.runs, **(runs or {})}
    lost = {node for node, run in found.items() if record.plan.runs.get(node) != run}
    if record.behind and not lost:
        return None
    joining = {name: wish.after(record.heard.get(name)) for name, wish in wishes.items()}
    joining = {name: regions for name, regions in joining.items() if regions}
    new_pairs = frozenset(expected) - record.expected if expected is not record.expected else frozenset[Pair]()
    pairs = record.expected | new_pairs if new_pairs else record.expected
    declared = frozenset(chain.from_iterable(new_pairs))
    missing = declared.union(published, *joining.values()) - record.plan.paths.keys()
    if not joining and not missing and not lost and not declared:
        return None
    plans = behind = (*record.behind, record.plan)
    abandoned, moving = record.abandoned, set(joining)
    if not announced:
        behind, abandoned = record.behind, (*abandoned, record.plan)
        record, moving = replace(record, members=_union(record.members, record.leaving)), moving.union(record.leaving)
    broken = {region for plan in plans for region, path in plan.paths.items() if not lost.isdisjoint(path)}
    grown = _union(record.members, joining)
    plan = replace(record.plan.with_regions(sorted(missing), nodes), runs=found)
    record = replace(record, heard=dict(wishes), behind=behind, abandoned=abandoned, expected=pairs, leaving={})
    if not broken and not declared:
        # Who comes back finds everything in place.
        is_known = announced and all(grown[name] == record.members.get(name) for name in moving)
        if is_known or _are_ordered(plan, grown, moving, pairs):
            return replace(record, plan=plan, members=grown)
        leaving = {name: grown[name] - wishes.get(name, _NO_WISH).since.keys() for name in moving} if pairs else {}
        staying = {name: regions - leaving.get(name, frozenset()) for name, regions in grown.items()}
        if any(leaving.values()) and _are_ordered(plan, staying, moving, pairs):
            return replace(record, plan=plan, members=staying, leaving=leaving)
    membership = Membership.of(observers(grown, pairs) if pairs else grown, plan.paths)
    affected = _affected(plan, membership, declared.union(broken, *joining.values()))
    members = {
        name: affected.intersection(wishes.get(name, _NO_WISH).since) | (regions - affected)
        for name, regions in grown.items()
    }
    inside = {name: regions & affected for name, regions in members.items() if regions & affected}
    pairs_inside = [pair for pair in pairs if affected.issuperset(pair)]
    fresh_membership = Membership.of(observers(inside, pairs_inside) if pairs else inside, affected)
    fresh = planner(fresh_membership, plan.epoch + 1, record.next_atom)
    require_sound(fresh, fresh_membership)
    merged = replace(
        plan,
        epoch=plan.epoch + 1,
        version=1,
        nodes={**plan.nodes, **fresh.nodes},
        paths={**plan.paths, **fresh.paths},
        atoms=(*(atom for atom in plan.atoms if affected.isdisjoint(atom.regions)), *fresh.atoms),
        epochs={region: plan.epoch_of(region) for region in plan.paths if region not in affected},
    )
    next_atom = max((atom.id + 1 for atom in fresh.atoms), default=record.next_atom)
    members = {name: regions for name, regions in members.items() if regions}
    return replace(record, plan=merged, members=members, next_atom=next_atom)


def _are_ordered(plan: Plan, members: Members, moving: Iterable[str], expected: Collection[Pair]) -> bool:
    """Return whether the plan's atoms order all that is to be ordered, now that some subscribers have other regions."""
    if expected:  # every pair that somebody has is ordered already, but for what they have now
        return all(can_follow_all(plan, members[name]) for name in moving)
    return "C4" not in violations(plan, Membership.of(members, plan.paths))


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
    for members, subscribers in zip(classes.members, classes.subscribers, strict=True):
        if subscribers < 2:
            continue  # nobody else can see an order of them
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
        node.admit(self.plan.runs.get(self.node, ""))
        return node.prepare(self.plan.epoch, self.plan.version, self.steps, dict(self.closing))


@dataclass(frozen=True, slots=True)
class Closed:
    """The number of a TICK, 0 when it is not known any more, and what was accepted last of whom in its region."""

    tick: int
    accepted: Mapping[str, Accepted]

    @classmethod
    def by(cls, answer: Answer, accepted: Mapping[str, Accepted]) -> Closed:
        """Read what a node answered to `Node.close`."""
        return cls(0 if answer.verdict is Verdict.STALE else answer.numbers[1], accepted)


@dataclass(frozen=True, slots=True)
class Close:
    """Close ingresses; (region, epoch, the one that follows) each. The answer: (region, epoch) → `Closed`."""

    node: str
    regions: tuple[tuple[str, int, int], ...]

    def perform(self, node: Node) -> dict[tuple[str, int], Closed]:
        """Do it at a node in memory."""
        return {
            (region, epoch): Closed.by(node.close(region, epoch, following), node.accepted(region))
            for region, epoch, following in self.regions
        }


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
class Seal:
    """End old epochs in the egress streams, whatever is missing; (region, epoch, number of the TICK or 0) each."""

    node: str
    regions: tuple[tuple[str, int, int], ...]

    def perform(self, node: Node) -> bool:
        """Do it at a node in memory."""
        for region, epoch, tick in self.regions:
            node.seal(region, epoch, tick)
        return True


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop the steps of old epochs, (epoch, region) each, and the links to and from lost nodes."""

    node: str
    steps: tuple[tuple[int, str], ...]
    link_ends: tuple[str, ...] = ()

    def perform(self, node: Node) -> bool:
        """Do it at a node in memory."""
        node.forget(self.steps, self.link_ends)
        return True


Task = Prepare | Tails | Emptied | Close | Open | Drain | Seal | Forget


class Transition:
    """From the plans behind to the next: which tasks are to be done now, and what follows from their answers."""

    def __init__(self, record: Record) -> None:
        """Begin at the beginning, whatever an earlier manager had done already."""
        self.plan = record.plan
        self.prepared = False
        """Whether the plan may be announced: all nodes know it."""
        self._record = record
        self._settled = record.behind[0]
        self._old: dict[str, list[OldEpoch]] = {}
        for old in record.old_epochs():
            self._old.setdefault(old.region, []).append(old)
        self._closed: dict[tuple[str, int], Closed] = {}
        self._tails: dict[str, dict[str, int]] = {}
        left = chain.from_iterable(record.leaving.values())
        self._links, rounds = links_to_sweep(self._settled, left) if record.leaving else ({}, 0)
        sweep = [
            phase for number in range(rounds) for phase in (partial(self._look, number), partial(self._empty, number))
        ]
        self._phases: list[Callable[[], list[Task]]] = [self._prepare, *sweep]
        self._phases += [self._close, self._open, self._end, self._forget]
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
            self._closed |= answer
        elif isinstance(task, Tails):
            self._tails[task.node] = answer
        self._tasks.remove(task)
        if not self._tasks:
            self._next_phase()

    def _next_phase(self) -> None:
        while not self._tasks and self._phases:
            phase = self._phases.pop(0)
            self.prepared = self.prepared or phase == self._close
            self._tasks = phase()

    def _lost(self, node: str) -> list[str]:
        """The ends that links had at a node in the runs before, in which it may have had what it has no more."""
        ends = {plan.link_end(node): None for plan in self._record.behind if node in plan.nodes}
        return [end for end in ends if end != self.plan.link_end(node)]

    def _follows_here(self, region: str) -> int:
        """The old epoch of a region whose ingress opens that of the new one in the step that closes it; 0 if none."""
        [old, *more] = self._old[region]
        same = old.path[0] == self.plan.paths[region][0] and old.path[0] not in old.lost
        return old.epoch if same and not more else 0

    def _prepare(self) -> list[Task]:
        plan, settled = self.plan, self._settled
        if plan.is_laid_out_as(settled) and plan.runs == settled.runs:
            return []
        new = {r for r in plan.paths if r not in settled.paths or plan.epoch_of(r) != settled.epoch_of(r)}
        tasks: list[Task] = []
        for node in plan.nodes:
            steps = tuple(step for step in plan.steps(node) if step.region in new)
            if not steps and settled.runs.get(node) == plan.runs.get(node):
                continue  # a node that is away holds up nothing that does not need it
            closing = tuple(
                (region, self._follows_here(region) if plan.paths[region][0] == node else 0) for region in self._old
            )
            tasks.append(Prepare(node, plan, steps, closing))
        return tasks

    def _look(self, number: int) -> list[Task]:
        return [Tails(node, targets, number) for node, targets in self._links.items()]

    def _empty(self, number: int) -> list[Task]:
        return [Emptied(node, tuple(tails.items()), number) for node, tails in self._tails.items() if tails]

    def _close(self) -> list[Task]:
        closing: dict[str, list[tuple[str, int, int]]] = {}
        for region, olds in self._old.items():
            epochs = [*(old.epoch for old in olds), self.plan.epoch_of(region)]
            for old, following in zip(olds, epochs[1:], strict=True):
                if old.path[0] not in old.lost:
                    closing.setdefault(old.path[0], []).append((region, old.epoch, following))
        return [Close(node, tuple(regions)) for node, regions in closing.items()]

    def _open(self) -> list[Task]:
        opening: dict[str, list[tuple[str, int, tuple[tuple[str, Accepted], ...]]]] = {}
        for region, olds in self._old.items():
            if not self._follows_here(region):
                accepted: dict[str, Accepted] = {}
                for old in olds:
                    closed = self._closed.get((region, old.epoch))
                    for publisher, seen in closed.accepted.items() if closed is not None else ():
                        accepted[publisher] = max(seen, accepted.get(publisher, seen), key=Accepted.age)
                entry = region, self.plan.epoch_of(region), tuple(sorted(accepted.items()))
                opening.setdefault(self.plan.paths[region][0], []).append(entry)
        return [Open(node, tuple(regions)) for node, regions in opening.items()]

    def _end(self) -> list[Task]:
        draining: dict[str, list[tuple[str, int]]] = {}
        sealing: dict[str, list[tuple[str, int, int]]] = {}
        for old in chain.from_iterable(self._old.values()):
            egress = old.path[-1]
            if old.lost:
                closed = self._closed.get((old.region, old.epoch))
                sealing.setdefault(egress, []).append((old.region, old.epoch, closed.tick if closed else 0))
            else:
                draining.setdefault(egress, []).append((old.region, old.epoch))
        for node, streams in self._record.ended.items():
            if self._lost(node):
                sealing.setdefault(node, []).extend((*stream, 0) for stream in streams)
        drains = [Drain(node, tuple(regions)) for node, regions in draining.items()]
        return [*drains, *(Seal(node, tuple(regions)) for node, regions in sealing.items())]

    def _forget(self) -> list[Task]:
        steps: dict[str, list[tuple[int, str]]] = {}
        for old in chain.from_iterable(self._old.values()):
            for node in old.path:
                steps.setdefault(node, []).append((old.epoch, old.region))
        abandoned = self._record.abandoned
        plans = (self._settled, self.plan) if abandoned else ()
        kept = {(each.epoch_of(region), region) for each in plans for region in each.paths}
        for plan in abandoned:
            for region, path in plan.paths.items():
                if (key := (plan.epoch_of(region), region)) not in kept:
                    for node in path:
                        steps.setdefault(node, []).append(key)
        dead = tuple(end for node in self.plan.nodes for end in self._lost(node))
        nodes = self.plan.nodes if dead else steps
        return [Forget(node, tuple(steps.get(node, ())), dead) for node in nodes]

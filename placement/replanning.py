"""Better places for the regions of a running network, found with what a leader does not know: loads, or delays.

A leader plans one component at a time, while clients wait, and takes all regions for equally busy. So the load of the
nodes drifts away from even. Here each component, the busiest first, may move as a whole, as it has to in any case
(`sequencing.manager.components`): onto one node, or along paths that the planner finds for it beside all others. It
moves only if that is worth more than the move.

**What counts** is what the planner counts (`placement.objective`): how many nodes an average event passes, and the load
above the fair share or the capacity; but summed over all nodes and not of the busiest one alone, so that it is worth
something to relieve the first of two busy nodes.

**Moves.** C1–C3 are conditions of the regions that begin an epoch together, so several components share a transition
for as long as their paths together keep to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from placement.objective import PlanObjective, objective_for, path_weights, region_rates
from placement.planner import make_plan
from sequencing.conditions import violations
from sequencing.joint import regions_in
from sequencing.manager import components
from sequencing.membership import Membership
from sequencing.plan import Atom, AtomId, Plan

MOVE_PRICE = 0.1
"""The price of moving everything, in hops: a move has to save so many nodes for each event that it moves."""

SAME = 1e-9
PASSES_MAX = 3
QUIET_NODES_TRIED = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """``hops``: nodes that an average event passes; ``loads``: node → events/s through it."""

    hops: float
    loads: Mapping[str, float]

    @property
    def peak(self) -> float:
        """Events/s through the busiest node."""
        return max(self.loads.values(), default=0.0)


@dataclass(frozen=True, slots=True)
class Part:
    """Regions that move together, their events/s, and who has them. ``weights``: see `path_weights`."""

    membership: Membership
    rates: Mapping[str, float]
    weights: Mapping[str, float]

    @property
    def regions(self) -> tuple[str, ...]:
        """All of them, sorted."""
        return self.membership.regions

    @property
    def rate(self) -> float:
        """Events/s of all of them."""
        return sum(self.rates.values())


@dataclass(frozen=True)
class Replanned:
    """The moves that make a network better, each a transition: the regions that move, with their paths and atoms."""

    before: Plan
    after: Plan
    moves: tuple[Plan, ...]
    rates: Mapping[str, float]
    """Events/s of each region."""
    standing: tuple[Standing, Standing]
    """How the network stands before and after the moves."""
    parts: int
    """How many sets of regions move together."""


class Replanning:
    """A running network's regions, by parts that move as a whole, and what their places are worth."""

    def __init__(
        self,
        plan: Plan,
        membership: Membership,
        *,
        rates: Mapping[str, float] | None = None,
        nodes: Sequence[str] | None = None,
        there: Iterable[str] = (),
        capacity: float | Literal["receiver"] | None = None,
    ) -> None:
        """``membership``: whatever the plan has to order, the plan's regions among it; ``rates``: events/s of each
        region, 1 where not given; ``nodes``: those that regions may move to, all of the plan if None; ``there``: others
        that answer, so that regions may leave them; ``capacity``: see `make_plan`.

        Raises `UsageError` for invalid rates and capacities.
        """
        self.plan = plan
        by_region = region_rates(membership, rates or {})
        self.rates = dict(zip(membership.regions, by_region.tolist(), strict=True))
        self.weights = dict(zip(membership.regions, path_weights(by_region).tolist(), strict=True))
        self.nodes = list(plan.nodes if nodes is None else nodes)
        self._may_stay = frozenset(self.nodes)
        self._there = self._may_stay.union(there)
        self.capacity: float | Literal["receiver"] | None = capacity
        self.objective: PlanObjective = objective_for(membership, by_region, len(self.nodes), capacity)
        self.parts = sorted(self._parts(membership), key=lambda part: (-part.rate, part.regions))
        self._total = sum(self.weights.values()) or 1.0

    def _parts(self, membership: Membership) -> Iterator[Part]:
        groups = components(self.plan, membership)
        part_of = {region: number for number, regions in enumerate(groups) for region in regions}
        members: list[dict[str, set[str]]] = [{} for _ in groups]
        for name, has in membership.regions_of.items():
            for region in has:
                members[part_of[region]].setdefault(name, set()).add(region)
        joint: list[set[str]] = [set() for _ in groups]
        for name in membership.joint:
            joint[part_of[regions_in(name)[0]]].add(name)
        for regions, who, sets in zip(groups, members, joint, strict=True):
            yield Part(
                Membership.of(who, regions, frozenset(sets)),
                {region: self.rates[region] for region in regions},
                {region: self.weights[region] for region in regions},
            )

    def standing(self, plan: Plan) -> Standing:
        """Return how the network stands with a plan."""
        hops = sum(weight * len(plan.paths[region]) for region, weight in self.weights.items()) / self._total
        return Standing(hops, dict.fromkeys(self.nodes, 0.0) | _loads(plan, self.rates))

    @property
    def move_price(self) -> float:
        """The default price of moving everything, in the unit of `worth`."""
        return MOVE_PRICE

    def share(self, part: Part) -> float:
        """Return a part's share of all events."""
        return sum(part.weights.values()) / self._total

    def may_move(self, part: Part) -> bool:
        """Return whether all nodes of a part are there: where it is, its epoch has to be ended."""
        return self._there.issuperset(chain.from_iterable(self.plan.paths[region] for region in part.regions))

    def has_to_leave(self, part: Part) -> bool:
        """Return whether some of a part is on a node that regions can only leave."""
        return not self._may_stay.issuperset(chain.from_iterable(self.plan.paths[region] for region in part.regions))

    def is_well_off(self, part: Part, paths: Mapping[str, tuple[str, ...]], loads: Mapping[str, float]) -> bool:
        """Return whether no place could be better for a part than the one that it has."""
        limits = [limit for limit, _ in self.objective.aims]
        return all(
            len(paths[region]) == 1 and all(loads[paths[region][0]] <= limit for limit in limits)
            for region in part.regions
        )

    def worth(self, part: Part, paths: Mapping[str, tuple[str, ...]], others: Mapping[str, float]) -> float:
        """Return the value of a part's paths beside the loads of all others, in hops: less is better."""
        loads = with_part(others, part, paths)
        hops = sum(part.weights[region] * len(paths[region]) for region in part.regions)
        aims, above = self.objective.aims, 0.0
        for limit, price in aims:
            above += price * sum(max(0.0, load - limit) for load in loads.values())
        return hops / self._total + above

    def candidates(self, part: Part, others: Mapping[str, float]) -> Iterator[Plan]:
        """Yield plans for a part: all on one of the quietest nodes, and as the planner has it beside the others."""
        quiet_first = sorted(self.nodes, key=lambda name: (others.get(name, 0.0), name))
        for node in quiet_first[:QUIET_NODES_TRIED]:
            yield self.plan_of(dict.fromkeys(part.regions, (node,)), ())
        if len(part.regions) > 1 and len(quiet_first) > 1:
            nodes = dict.fromkeys(quiet_first, "")
            ordering = self.plan.ordering
            made = make_plan(part.membership, nodes, ordering=ordering, rates=part.rates, capacity=self.capacity)
            yield self.plan_of(made.paths, made.atoms)

    def plan_of(self, paths: Mapping[str, tuple[str, ...]], atoms: tuple[Atom, ...]) -> Plan:
        """Return a plan of the network with these paths and atoms alone."""
        used = set(chain.from_iterable(paths.values()))
        # A node that is not in the plan yet gets its url there from the leader.
        nodes = {name: self.plan.nodes.get(name, "") for name in sorted(used)}
        runs = {name: run for name, run in self.plan.runs.items() if name in used}
        return replace(self.plan, nodes=nodes, runs=runs, paths=paths, atoms=atoms, epochs={}, joint=frozenset())


def replanned(network: Replanning, *, price: float | None = None) -> Replanned:
    """Return the moves that are worth it. Deterministic.

    ``price``: of moving everything, in the unit of `Replanning.worth`; None for the network's own.
    """
    plan = network.plan
    if price is None:
        price = network.move_price
    loads = dict.fromkeys(network.nodes, 0.0) | _loads(plan, network.rates)
    chosen: dict[int, Plan] = {}
    for _ in range(PASSES_MAX):
        has_moved = False
        for number, part in enumerate(network.parts):
            now = chosen.get(number)
            paths = (now or plan).paths
            has_to_leave = network.has_to_leave(part)
            if not network.may_move(part) or (network.is_well_off(part, paths, loads) and not has_to_leave):
                continue
            others = with_part(loads, part, paths, sign=-1.0)
            cost = 0.0 if has_to_leave else price * network.share(part)
            best, least = None, math.inf if has_to_leave else network.worth(part, plan.paths, others)
            for trial in chain(() if now is None else (now,), network.candidates(part, others)):
                value = cost + network.worth(part, trial.paths, others)
                if value < least - SAME:
                    best, least = trial, value
            if best is not now:
                has_moved = True
                if best is None:
                    del chosen[number]
                else:
                    chosen[number] = best
            loads = with_part(others, part, (best or plan).paths)
        if not has_moved:
            break
    moves = _together(network, [(network.parts[number], trial) for number, trial in chosen.items()])
    after = _after(plan, moves)
    standing = network.standing(plan), network.standing(after)
    return Replanned(plan, after, moves, network.rates, standing, len(network.parts))


def _together(network: Replanning, chosen: Sequence[tuple[Part, Plan]]) -> tuple[Plan, ...]:
    """Return the moves, those of parts that may begin an epoch together in one, the busiest first."""
    moves: list[Plan] = []
    for _, plan in sorted(chosen, key=lambda each: -each[0].rate):
        for place, move in enumerate(moves):
            paths = {**move.paths, **plan.paths}
            joined = network.plan_of(paths, _numbered((*move.atoms, *plan.atoms)))
            if not violations(joined):
                moves[place] = joined
                break
        else:
            moves.append(plan)
    return tuple(moves)


def _after(plan: Plan, moves: Iterable[Plan]) -> Plan:
    paths, atoms, nodes = dict(plan.paths), list(plan.atoms), dict(plan.nodes)
    for move in moves:
        paths |= move.paths
        nodes = {**move.nodes, **nodes}
        atoms = [atom for atom in atoms if move.paths.keys().isdisjoint(atom.regions)]
        atoms += move.atoms
    return replace(plan, nodes=nodes, paths=paths, atoms=_numbered(atoms))


def _numbered(atoms: Iterable[Atom]) -> tuple[Atom, ...]:
    return tuple(replace(atom, id=AtomId(number)) for number, atom in enumerate(atoms, start=1))


def _loads(plan: Plan, rates: Mapping[str, float]) -> dict[str, float]:
    loads: dict[str, float] = {}
    for region, rate in rates.items():
        for node in plan.paths[region]:
            loads[node] = loads.get(node, 0.0) + rate
    return loads


def with_part(
    others: Mapping[str, float], part: Part, paths: Mapping[str, tuple[str, ...]], *, sign: float = 1.0
) -> dict[str, float]:
    """Return the loads of nodes with a part on these paths; ``sign``: -1 for the loads without it."""
    loads = dict(others)
    for region in part.regions:
        for node in paths[region]:
            loads[node] = loads.get(node, 0.0) + sign * part.rates[region]
    return loads

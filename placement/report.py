"""Why a plan was chosen: the alternatives, the figures, and the reasons against a better one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from placement.candidates import Candidate
from placement.objective import TOLERANCE, PlanObjective, Rule
from placement.world import World

NAMES_MAX = 3
UNEVEN = 1.5
"""How many times the mean of all nodes the busiest one carries when the report says why."""
RELIEF_MIN = 0.02
"""By what part another arrangement relieves the busiest node at least, to be worth telling."""


@dataclass(frozen=True, slots=True)
class Tried:
    """An arrangement that was tried: mean path length in nodes, events/s on the busiest node, value."""

    name: str
    length: float
    peak: float
    value: float


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The chosen plan and its figures.

    ``optimal``: whether it is known that no plan that satisfies C1–C4 on these nodes is better, by the objective.
    ``value`` is the objective's (`placement.objective`), ``length`` the mean path length in distinct nodes, weighted
    by events/s. ``capacity``, ``fair_share`` (None where there is none) and ``overload``, by which the busiest node
    exceeds the capacity, are events/s a node, as are ``loads``. ``why``: sentences for a person.
    """

    rule: Rule
    capacity: float | None
    fair_share: float | None
    arrangement: str
    optimal: bool
    value: float
    length: float
    peak: float
    overload: float
    loads: Mapping[str, float]
    nodes_used: int
    tried: tuple[Tried, ...]
    why: tuple[str, ...]


def report(
    world: World, regions: Sequence[str], tried: Sequence[Candidate], best: Candidate, loads: Mapping[str, float]
) -> PlanReport:
    """Return the report on the best of what was tried; ``regions``: their names; ``loads``: events/s of the nodes."""
    objective = world.objective
    return PlanReport(
        rule=objective.rule,
        capacity=objective.capacity if objective.capacity < math.inf else None,
        fair_share=objective.fair_share if objective.fair_share < math.inf else None,
        arrangement=best.name,
        optimal=best.optimal,
        value=best.value,
        length=best.length,
        peak=best.peak,
        overload=objective.overload(best.peak),
        loads=dict(loads),
        nodes_used=len(_visited(best) | set(best.loose_vertex.tolist())),
        tried=tuple(Tried(candidate.name, candidate.length, candidate.peak, candidate.value) for candidate in tried),
        why=tuple(_why(world, regions, tried, best)),
    )


def _why(world: World, regions: Sequence[str], tried: Sequence[Candidate], best: Candidate) -> Iterator[str]:
    objective = world.objective
    meeting, meeting_rate = world.clique
    if overload := objective.overload(best.peak):
        yield (
            f"The busiest node carries {best.peak:,.6g} events/s, {overload / objective.capacity:.1%} more than "
            f"{_allower(objective)}: nothing better {'exists' if best.optimal else 'was found'} for {world.nodes} "
            f"node{'s' if world.nodes > 1 else ''}."
        )
        if objective.overload(meeting_rate):
            names = [regions[world.wanted.classes.members[c][0]] for c in meeting]
            listed = ", ".join(names[:NAMES_MAX]) + (", …" if len(names) > NAMES_MAX else "")
            yield (
                f"Regions that must all be ordered against each other ({listed}) have {meeting_rate:,.6g} events/s, "
                "and what meets pairwise in a forest meets on one node: more nodes do not relieve that one."
            )
    if world.nodes > 1 and len(world.rates) == 1:
        yield "One node is best: there is nothing to share out."
    elif world.nodes > 1 and len(_visited(best)) == 1:
        yield _why_one(world, tried, best)
    elif objective.rule == "spread":
        yield from _why_uneven(world, tried, best)


def _why_one(world: World, tried: Sequence[Candidate], best: Candidate) -> str:
    """Return why everything that needs order is on one node."""
    objective, total = world.objective, float(world.class_rates[world.wanted.ordered].sum())
    one = "One node is best"
    if len(world.loose):
        one += " for the regions that need order"
    if world.clique[1] >= total * (1 - TOLERANCE):
        return f"{one}: each must be ordered against every other, so some node carries all their events anyway."
    if objective.rule != "spread" and not objective.overload(total):
        return (
            f"{one}: their {total:,.6g} events/s are no more than {_allower(objective)} ({objective.capacity:,.6g}), "
            "and a second node would only lengthen paths."
        )
    others = [candidate for candidate in tried if len(_visited(candidate)) > 1]
    if not others:
        return f"{one}: no arrangement on more nodes was found."
    other = min(others, key=lambda candidate: candidate.value)
    return (
        f"{one}: over {len(_visited(other))} nodes, an event would visit {other.length:.2f} nodes on average, and the "
        f"busiest node would still carry {other.peak / best.peak:.0%} of what it carries now."
    )


def _why_uneven(world: World, tried: Sequence[Candidate], best: Candidate) -> Iterator[str]:
    """Say what it would take to relieve the busiest node, where it carries far more than the mean of all."""
    mean = float(best.loads.sum()) / world.nodes
    if not mean or best.peak < UNEVEN * mean * (1 - TOLERANCE):
        return
    busy = f"The busiest node carries {best.peak:,.6g} events/s, {best.peak / mean:,.1f} times the mean of all nodes"
    other = min(tried, key=lambda candidate: (candidate.peak, candidate.value))
    if other.peak > best.peak * (1 - RELIEF_MIN):
        yield f"{busy}: no arrangement that was tried relieves it."
        return
    yield (
        f"{busy}: `--capacity {math.ceil(other.peak):d}` relieves it, and an event would visit {other.length:.2f} "
        f"nodes on average instead of {best.length:.2f}."
    )


def _allower(objective: PlanObjective) -> str:
    return "the operator allows" if objective.rule == "capacity" else "the busiest subscriber receives"


def _visited(candidate: Candidate) -> set[int]:
    """The vertices that paths of classes which need order visit."""
    arrangement = candidate.arrangement
    inside = arrangement.meetings.ordered
    kinds = set(zip(arrangement.ingress[inside].tolist(), arrangement.egress[inside].tolist(), strict=True))
    return {vertex for kind in kinds for vertex in arrangement.tree.walk(*kind)}

"""The counterexamples, found by search: the failures in the smallest worlds where one of our rules is left out.

`docs/counterexamples.md` explains them; `tests/scenarios/` keeps the scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from laboratory.exploration.actors import Cast, Say
from laboratory.exploration.explorer import Exploration, explore
from laboratory.exploration.script import written
from laboratory.exploration.worlds import World
from laboratory.exploration.worlds_enumerated import (
    Members,
    one_each,
    one_way_or_not,
    planned,
    sound_plans,
    together,
)
from sequencing.conditions import violations
from sequencing.plan import Plan

BOTH: Members = {"s1": ("a", "b"), "s2": ("a", "b")}
ALL_THREE: Members = {"s1": ("a", "b", "c"), "s2": ("a", "b", "c")}
RING: Members = {"s1": ("a", "b"), "s2": ("b", "c"), "s3": ("c", "a")}
SENDERS: Members = {"P": ("G1", "G2"), "Q": ("G2", "G3"), "R": ("G1", "G3")}
ONE_EACH: Members = {"s1": ("a",), "s2": ("b",)}
COMMON: Members = {"s1": ("a", "c"), "s2": ("b", "c")}
TWO_PAIRS: Members = {"s1": ("a", "c"), "s2": ("b", "d")}
AB = "ab"
_JOINT, _ONE = Say("x", "p", "a", also=("b",)), (Say("y", "q", "c"),)


def _twice(event: str) -> tuple[Say, ...]:
    """Return an event that is published to a and b by itself, in requests that do not wait for each other."""
    return tuple(Say(event, f"{event}{region}", region) for region in AB)


@dataclass(frozen=True, slots=True)
class Counterexample:
    """The result of a search. ``worlds``: how many it went through, ``states``: in all of them."""

    name: str
    cast: Cast
    script: str
    worlds: int
    states: int
    seconds: float


def without_c3() -> Counterexample:
    """Three regions, pairwise overlapped: of all plans on two nodes with C1, C2 and C4, the smallest that deadlocks."""
    casts = (Cast(plan, ALL_THREE, one_each(ALL_THREE)) for plan in one_way_or_not(ALL_THREE, "overlap", 2))
    return _smallest("without-c3", "Without C3, two nodes and three events deadlock.", casts)


def ring_by_overlaps() -> Counterexample:
    """A ring of single overlaps, of which ``ordering="overlap"`` orders none."""
    casts = (Cast(plan, RING, one_each(RING)) for plan in planned(RING, "overlap", 1))
    return _smallest("ring", "Ordering double overlaps alone lets three subscribers on a ring close a cycle.", casts)


def causes_by_overlaps() -> Counterexample:
    """The paper's claim that order by overlaps is causal when senders subscribe to the regions that they publish to."""
    says = (
        Say("m1", "P", "G1"),
        Say("m2", "P", "G2", ("m1",)),
        Say("m3", "Q", "G3", ("m2",)),
    )
    casts = (Cast(plan, SENDERS, says) for plan in planned(SENDERS, "overlap", 1))
    return _smallest("causality", "Ordering double overlaps alone is not causal, though all senders subscribe.", casts)


def atom_in_place() -> Counterexample:
    """An atom that begins in a running epoch, by markers in its regions, before a ring closes over it.

    Two of the ring's atoms exist from the beginning. The third begins at a node beyond which both of its regions
    continue, to where a is. The plan was chosen for this, because all plans in all interleavings take too long. s3,
    which has c, marks a when both START markers have passed that node.
    """

    def casts() -> Iterator[Cast]:
        for plan in sorted(sound_plans(RING, "acyclic", 2), key=_hops):
            for atom in plan.atoms:
                beyond = all(plan.paths[region][-1] != atom.node for region in atom.regions)
                if beyond and "a" not in atom.regions and plan.paths["a"] == ("n2",):
                    starts = (Say(f"start-{r}", f"m{r}", r, kind="start", atom=atom.id) for r in atom.regions)
                    says = (*one_each(RING), *starts, Say("join-a", "s3", "a", kind="join"))
                    yield Cast(plan, RING, says, beginning=frozenset({atom.id}), joiner=("s3", "a"))

    what = "An atom that begins in place: a cycle, though both START markers passed before the JOIN was published."
    return _smallest("atom-in-place", what, casts(), first=True)


def half_a_look() -> Counterexample:
    """The frames that woke a reader, taken for a complete read, as if the node had nothing else before them."""
    casts = (
        Cast(plan, BOTH, one_each(BOTH), lanes=True, without="cut")
        for nodes in (1, 2)
        for plan in planned(BOTH, "acyclic", nodes)
    )
    return _smallest("half-a-look", "Half a look at a node is no cut of its order.", casts)


def two_counters() -> Counterexample:
    """Two nodes' numbers in one lane, as if they were one node's, and no atom."""
    paths = {"a": ("n1",), "b": ("n2",)}
    plan = Plan(1, 1, "acyclic", {"n1": "", "n2": ""}, paths, ())
    cast = Cast(plan, BOTH, one_each(BOTH), lanes=True, without="place")
    return _smallest("two-counters", "The numbers of two nodes tell nothing about each other.", iter([cast]))


def joint_in_two_requests() -> Counterexample:
    """Two events to a and b, each in two requests, the second copy dropped by those who have had the first."""
    casts = (
        Cast(plan, ONE_EACH, (*_twice("x"), *_twice("y")), lanes=True) for plan in planned(ONE_EACH, "acyclic", 2, [AB])
    )
    return _smallest("joint-in-two-requests", "An event to two regions in two requests is two events.", casts)


def joint_from_two_ingresses() -> Counterexample:
    """An event to a and b whose copies enter where each region does, with no other event of two regions."""
    plans = (plan for plan in sound_plans(COMMON, "acyclic", 2) if plan.paths["a"][0] != plan.paths["b"][0])
    casts = (Cast(plan, COMMON, (*_twice("x"), *_ONE), lanes=True) for plan in plans)
    return _smallest("joint-from-two-ingresses", "Copies that enter at two nodes have two places in the order.", casts)


def joint_apart_on_links() -> Counterexample:
    """The copies enter at one node, in one step, and pass the next link one by one."""
    plans = together(sound_plans(COMMON, "acyclic", 2), AB)
    casts = (Cast(plan, COMMON, (_JOINT, *_ONE), lanes=True, without="bundle") for plan in plans)
    return _smallest("joint-apart-on-links", "Copies that pass a link one by one let others between them.", casts)


def joint_by_overlap() -> Counterexample:
    """All as designed, where only double overlaps are ordered."""
    plans = together(sound_plans(COMMON, "overlap", 2), AB)
    casts = (Cast(plan, COMMON, (_JOINT, *_ONE), lanes=True) for plan in plans)
    return _smallest("joint-by-overlap", "Ordering double overlaps alone leaves two copies to chance.", casts)


def joint_between_components() -> Counterexample:
    """All as designed, but the sets tie components that use an edge in both directions, as nothing else ties them."""

    def plans() -> Iterator[Plan]:
        for plan in together(one_way_or_not(TWO_PAIRS, "acyclic", 2), AB, "cd"):
            if all(not violations(plan.only(frozenset(regions))) for regions in TWO_PAIRS.values()):
                yield plan

    says = _JOINT, Say("y", "q", "c", also=("d",))
    casts = (Cast(plan, TWO_PAIRS, says, lanes=True) for plan in plans())
    return _smallest("joint-between-components", "Sets that no plan knows tie what was planned apart.", casts)


SEARCHES: dict[str, Callable[[], Counterexample]] = {
    "without-c3": without_c3,
    "causality": causes_by_overlaps,
    "ring": ring_by_overlaps,
    "atom-in-place": atom_in_place,
    "half-a-look": half_a_look,
    "two-counters": two_counters,
    "joint-in-two-requests": joint_in_two_requests,
    "joint-from-two-ingresses": joint_from_two_ingresses,
    "joint-apart-on-links": joint_apart_on_links,
    "joint-by-overlap": joint_by_overlap,
    "joint-between-components": joint_between_components,
}


def _smallest(name: str, about: str, casts: Iterator[Cast], *, first: bool = False) -> Counterexample:
    """Return the world with the shortest paths in which something goes wrong, and of these the shortest way there."""
    best: tuple[tuple[int, int], Cast, Exploration] | None = None
    worlds = states = 0
    seconds = 0.0
    for cast in casts:
        found = explore(World(cast))
        worlds, states, seconds = worlds + 1, states + found.states, seconds + found.seconds
        if found.offenders:
            size = _hops(cast.plan), len(found.offenders[0].trace)
            if best is None or size < best[0]:
                best = size, cast, found
            if first:
                break
    if best is None:
        raise LookupError(f"{name}: nothing goes wrong in {worlds} worlds")
    _, cast, found = best
    return Counterexample(name, cast, written(about, cast, found.offenders[0].trace), worlds, states, seconds)


def _hops(plan: Plan) -> int:
    return sum(map(len, plan.paths.values()))

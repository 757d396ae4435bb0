"""Families of small worlds, and a survey of them: each world explored to its ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product

from laboratory.exploration.actors import Cast, Say
from laboratory.exploration.explorer import STATES_MAX, Explorable, Label, explore
from laboratory.exploration.worlds import World
from laboratory.exploration.worlds_changing import Change, ChangingWorld
from laboratory.exploration.worlds_enumerated import (
    Members,
    chains,
    memberships,
    one_each,
    planned,
    sound_plans,
    without_needless,
)
from sequencing.conditions import violations
from sequencing.joint import set_name
from sequencing.membership import Membership
from sequencing.plan import Ordering


@dataclass(frozen=True, slots=True)
class Bounds:
    """The sizes of the worlds. ``every``: take only every n-th world, for a quick check."""

    subscribers: int = 3
    regions: int = 3
    nodes: int = 3
    every: int = 1
    states_max: int = STATES_MAX


@dataclass(slots=True)
class Survey:
    """The results for the worlds of a family. ``unfinished``: worlds that had more states than allowed."""

    family: str
    worlds: int = 0
    states: int = 0
    transitions: int = 0
    ends: int = 0
    seconds: float = 0.0
    largest: int = 0
    unfinished: int = 0
    violations: int = 0
    first: tuple[str, tuple[str, ...], tuple[Label, ...]] | None = None
    """The first violation: the world, the violation, and the moves that led there."""


Family = Callable[[Bounds], Iterator[tuple[str, Explorable]]]


def survey(name: str, bounds: Bounds) -> Survey:
    """Explore the worlds of a family."""
    found = Survey(name)
    for title, world in islice(FAMILIES[name](bounds), 0, None, bounds.every):
        explored = explore(world, states_max=bounds.states_max)
        found.worlds += 1
        found.states += explored.states
        found.transitions += explored.transitions
        found.ends += explored.ends
        found.seconds += explored.seconds
        found.largest = max(found.largest, explored.states)
        found.unfinished += not explored.complete and not explored.offenders
        found.violations += len(explored.offenders)
        if explored.offenders and found.first is None:
            found.first = title, explored.offenders[0].what, explored.offenders[0].trace
    return found


def _all_members(bounds: Bounds) -> Iterator[Members]:
    for subscribers, regions in product(range(1, bounds.subscribers + 1), range(1, bounds.regions + 1)):
        yield from memberships(subscribers, regions)


def _planned(bounds: Bounds) -> Iterator[tuple[str, Explorable]]:
    """The planner's plans on 1 to ``nodes`` nodes; a publisher an event, two events in the first region."""
    for members in _all_members(bounds):
        for plan in planned(members, "acyclic", bounds.nodes):
            cast = Cast(plan, members, one_each(members, 1), lanes=True)
            yield f"{members} on {plan.paths}", World(cast)


def _batched(bounds: Bounds) -> Iterator[tuple[str, Explorable]]:
    """The same plans; two publishers, each with an event to every region, which may share a request."""
    for members in _all_members(bounds):
        regions = sorted({region for mine in members.values() for region in mine})
        for plan in planned(members, "acyclic", bounds.nodes):
            says = tuple(
                Say(f"{name}{region}", name, region)
                for name, mine in (("p", regions), ("q", regions[:1]))
                for region in mine
            )
            yield f"{members} on {plan.paths}", World(Cast(plan, members, says, lanes=True))


def _plans(bounds: Bounds) -> Iterator[tuple[str, Explorable]]:
    """Yield every plan on a line of 1 to ``nodes`` nodes that satisfies C1–C4, whether the planner makes it or not."""
    for members in _all_members(bounds):
        for nodes in range(1, bounds.nodes + 1):
            for plan in sound_plans(members, "acyclic", nodes):
                cast = Cast(without_needless(plan), members, one_each(members), lanes=True)
                yield f"{members} on {plan.paths}, {plan.atoms}", World(cast)


def _faults(bounds: Bounds) -> Iterator[tuple[str, Explorable]]:
    """The planner's plans; one answer is lost, or one request comes once more, whenever that may be."""
    for members in _all_members(bounds):
        for plan in planned(members, "acyclic", bounds.nodes):
            says = tuple(replace(say, sender="p" if place else "q") for place, say in enumerate(one_each(members)))
            yield f"{members} on {plan.paths}", World(Cast(plan, members, says, faults=1, lanes=True))


def _chains(bounds: Bounds) -> Iterator[tuple[str, Explorable]]:
    """Chains of two and three causes, by publishers that subscribe and wait, with causal ordering."""
    for members in _all_members(bounds):
        for plan in planned(members, "causal", bounds.nodes):
            for length in (2, 3):
                for says in chains(members, length):
                    yield (
                        f"{members} on {plan.paths}: {says}",
                        World(Cast(plan, members, says, causal=True, lanes=True)),
                    )


def _joint(bounds: Bounds) -> Iterator[tuple[str, Explorable]]:
    """The planner's plans; an event to every region, one to a and b at once, and, of three regions, one to b and c."""
    for members in _all_members(bounds):
        regions = sorted({region for mine in members.values() for region in mine})
        for sets in (["ab"], ["ab", "bc"])[: len(regions) - 1]:
            for plan in planned(members, "acyclic", bounds.nodes, sets):
                joint = (Say(f"j{place}", f"p{place}", both[0], also=(both[1],)) for place, both in enumerate(sets))
                cast = Cast(plan, members, (*one_each(members), *joint), lanes=True)
                yield f"{members} and {sets} on {plan.paths}", World(cast)


def _borders(bounds: Bounds) -> Iterator[tuple[str, Explorable]]:
    """Every plan on a line in which a and b enter at two nodes; an event of both, and others before and behind it."""
    for members in _all_members(bounds):
        regions = sorted({region for mine in members.values() for region in mine})
        if len(regions) < 2:
            continue
        together = Membership.of(members, (), frozenset({set_name("ab")}))
        for nodes in range(2, bounds.nodes + 1):
            for found in sound_plans(members, "acyclic", nodes):
                plan = replace(without_needless(found), joint=together.joint)
                if plan.paths["a"][0] != plan.paths["b"][0] and not violations(plan, together):
                    says = Say("j", "p", "a", also=("b",)), Say("k", "p", "b"), Say("l", "q", "b", also=("a",))
                    cast = Cast(plan, members, (*one_each(members)[: len(regions) - 1], *says), lanes=True)
                    yield f"{members} on {plan.paths}, {plan.atoms}", World(cast)


def _changes(bounds: Bounds) -> Iterator[tuple[str, Explorable]]:
    """Joins in place and new epochs, with traffic: with `Subscriber`, `Publisher` and the manager's `Transition`."""
    for title, change in CHANGES:
        yield title, ChangingWorld(change)


FAMILIES: dict[str, Family] = {
    "planned": _planned,
    "batched": _batched,
    "plans": _plans,
    "faults": _faults,
    "chains": _chains,
    "joint": _joint,
    "borders": _borders,
    "changes": _changes,
}


def about(family: str) -> str:
    """Say in a line what a family is."""
    return (FAMILIES[family].__doc__ or "").strip()


def _say(regions: str) -> tuple[tuple[str, str], ...]:
    return tuple(("say", region) for region in regions)


def _join(
    listeners: dict[str, str],
    joiner: str,
    regions: str,
    *speaking: str,
    nodes: int = 1,
    failovers: int = 0,
    apart: bool = False,
    ordering: Ordering = "acyclic",
) -> Change:
    acts = {joiner: tuple(("join", region) for region in regions)}
    acts |= {f"p{i}": _say(said) for i, said in enumerate(speaking, start=1)}
    return Change(ordering, nodes, listeners, acts, failovers, apart=apart)


_epoch = partial(_join, ordering="overlap", nodes=2)
"""With fewer regions than it would take where what s1 has alone were ordered before."""


_SHARED = {"s1": "ab", "s2": "ab", "s3": "a"}
_PAIR = {"s1": "ab", "s2": "a"}
_RING = {"s1": "ab", "s2": "bc", "s3": "c"}
_BACK = (("leave", "b"), ("join", "b"))
_JOINT = (("say", "a+b"),)
_LINE = frozenset({("a", "b"), ("b", "c")})
_LONGER_LINE = frozenset({("a", "b"), ("b", "d"), ("c", "d")})

CHANGES: tuple[tuple[str, Change], ...] = (
    ("s3 joins what s1 and s2 share: in place", _join(_SHARED, "s3", "b", "a", "b")),
    ("s3 joins in place, two nodes", _join(_SHARED, "s3", "b", "a", "b", nodes=2, apart=True)),
    ("s3 joins in place, four events", _join(_SHARED, "s3", "b", "ab", "ba")),
    ("s4 joins both at once: in place", _join({"s1": "ab", "s2": "ab"}, "s4", "ab", "a", "b")),
    (
        "s3 joins in place and leaves",
        Change("acyclic", 1, _SHARED, {"s3": (("join", "b"), ("leave", "b")), "p": _say("ab")}),
    ),
    (
        "s2 leaves and comes back",
        Change("acyclic", 2, {"s1": "ab", "s2": "ab"}, {"s2": _BACK, "p": _say("a"), "q": _say("b")}, apart=True),
    ),
    ("s2 joins what s1 has: in place", _join(_PAIR, "s2", "b", "a", "b")),
    ("an epoch, one publisher", _epoch(_PAIR, "s2", "b", "aba", apart=True)),
    ("an epoch, two nodes", _epoch(_PAIR, "s2", "b", "a", "b")),
    ("an epoch, three regions", _join({"s1": "ab", "s2": "ac"}, "s2", "b", "b", nodes=3, apart=True)),
    ("an epoch, and another manager", _epoch(_PAIR, "s2", "b", "ab", failovers=1, apart=True)),
    ("an epoch, two nodes, and another manager", _epoch(_PAIR, "s2", "b", "a", failovers=1)),
    (
        "s2 joins with an epoch and leaves",
        Change("overlap", 2, _PAIR, {"s2": (("join", "b"), ("leave", "b")), "p": _say("ab")}, apart=True),
    ),
    ("s3 closes a ring: in place", _join(_RING, "s3", "a", "a", "b")),
    ("s3 closes a ring, two nodes", _join(_RING, "s3", "a", "a", "b", nodes=2)),
    ("s3 closes a ring, three events", _join(_RING, "s3", "a", "a", "b", "c")),
    (
        "x walks from a to c, and what came before waits on a link",
        Change(
            "acyclic",
            2,
            {"x": "a", "y": "bc", "z": "ab"},
            {"x": (("answer", "a.q.1"), ("leave", "a"), ("join", "c")), "p": _say("b"), "q": _say("a"), "r": _say("c")},
            expected=_LINE,
        ),
    ),
    (
        "x walks from a to c, and what came before waits on two links, one behind the other",
        Change(
            "acyclic",
            3,
            {"x": "a", "w": "cd", "y": "bd", "z": "ab"},
            {
                "x": (("answer", "a.q.1"), ("leave", "a"), ("join", "c")),
                "p": _say("b"),
                "q": _say("a"),
                "r": _say("c"),
                "s": _say("d"),
            },
            expected=_LONGER_LINE,
        ),
    ),
    (
        "x walks from a to c, and y alone has c and d",
        Change(
            "acyclic",
            3,
            {"x": "a", "y": "cd", "z": "ad"},
            {"x": (("answer", "a.q.1"), ("leave", "a"), ("join", "c")), "p": _say("d"), "q": _say("a"), "r": _say("c")},
            expected=frozenset({("a", "d")}),
            apart=True,
        ),
    ),
    (
        "an event of a and b, for which both begin an epoch",
        Change("acyclic", 2, {"s1": "a", "s2": "b"}, {"p": _JOINT, "q": _say("b")}, apart=True),
    ),
    (
        "s1 joins b while an event of a and b waits for a plan",
        Change("acyclic", 2, {"s1": "a", "s2": "b"}, {"p": _JOINT, "s1": (("join", "b"),)}, apart=True),
    ),
    (
        "x walks from a to c, and another copy of what came before waits on a link",
        Change(
            "acyclic",
            2,
            {"x": "a", "y": "bc"},
            {"x": (("answer", "a+b.q.1"), ("leave", "a"), ("join", "c")), "q": _JOINT, "r": _say("c")},
            expected=_LINE,
        ),
    ),
    (
        "x walks from a to c, and another copy of what came before waits on two links, one behind the other",
        Change(
            "acyclic",
            3,
            {"x": "a", "w": "cd", "y": "bd"},
            {
                "x": (("answer", "a+b.q.1"), ("leave", "a"), ("join", "c")),
                "q": _JOINT,
                "r": _say("c"),
                "s": _say("d"),
            },
            expected=_LONGER_LINE,
        ),
    ),
    (
        "events of a and b, which begin at two nodes",
        Change("acyclic", 3, {"s1": "ab"}, {"p": (*_JOINT, *_say("b")), "q": _JOINT}, crossing=True),
    ),
    (
        "an event of a and b, which begin at two nodes in an epoch that ends",
        Change("acyclic", 3, {"s1": "ab", "s2": "c"}, {"p": _JOINT, "s2": (("join", "b"),)}, crossing=True),
    ),
    (
        "an event of a and b, which begin at two nodes in an epoch that ends, and another manager",
        Change("acyclic", 3, {"s1": "ab", "s2": "c"}, {"p": _JOINT, "s2": (("join", "b"),)}, 1, crossing=True),
    ),
    (
        "a causal publisher across an epoch",
        Change("causal", 3, {"p": "ab", "s2": "c"}, {"s2": (("join", "b"),), "p": _say("ab")}, causal=True, apart=True),
    ),
    (
        "an answer across an epoch",
        Change(
            "causal",
            2,
            {"p": "a", "q": "a", "s2": "b"},
            {"q": (("join", "b"), ("answer", "a.p.1"), *_say("b")), "p": _say("a")},
            causal=True,
            apart=True,
        ),
    ),
)

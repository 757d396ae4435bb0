"""Small worlds, all of them: memberships up to renaming, plans on small forests, and traffic."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, permutations, product

from laboratory.exploration.actors import Say
from laboratory.simulation.lines import plan_along
from placement.planner import make_plan
from sequencing.conditions import violations
from sequencing.joint import set_name
from sequencing.membership import Membership
from sequencing.plan import Atom, AtomId, Ordering, Plan

Members = Mapping[str, tuple[str, ...]]
Walk = tuple[str, ...]

EVENTS = "xyzuvw"


def memberships(subscribers: int, regions: int) -> Iterator[Members]:
    """Yield every way to give each of ``subscribers`` one or more of ``regions``, once up to renaming."""
    letters = "abcdef"[:regions]
    choices = [subset for size in range(1, regions + 1) for subset in combinations(range(regions), size)]
    seen: set[tuple[tuple[int, ...], ...]] = set()
    for rows in product(choices, repeat=subscribers):
        if len(set().union(*rows)) < regions:
            continue
        names = min(
            tuple(sorted(tuple(sorted(order[region] for region in row)) for row in rows))
            for order in permutations(range(regions))
        )
        if names not in seen:
            seen.add(names)
            yield {f"s{i}": tuple(letters[region] for region in row) for i, row in enumerate(names, start=1)}


def planned(members: Members, ordering: Ordering, nodes_max: int, sets: Sequence[str] = ()) -> Iterator[Plan]:
    """Yield the different plans that the planner makes on one to ``nodes_max`` nodes.

    ``sets``: those that events are in at once, each a text of one-letter regions.
    """
    seen: set[bytes] = set()
    joint = frozenset(map(set_name, sets))
    membership = Membership.of(members, (), joint)
    for nodes in range(1, nodes_max + 1):
        plan = replace(make_plan(membership, _nodes(nodes), ordering=ordering), joint=joint)
        shape = Plan(1, 1, ordering, {}, plan.paths, plan.atoms).to_json()
        if shape not in seen:
            seen.add(shape)
            yield plan


def together(plans: Iterable[Plan], *sets: str) -> Iterator[Plan]:
    """Yield the plans in which the regions of each set enter at one node; they have the sets then."""
    for plan in plans:
        if all(len({plan.paths[region][0] for region in regions}) == 1 for regions in sets):
            yield replace(plan, joint=frozenset(map(set_name, sets)))


def sound_plans(members: Members, ordering: Ordering, nodes: int) -> Iterator[Plan]:
    """Yield every plan that satisfies C1–C4 on a line of exactly ``nodes`` nodes, for every direction of its edges.

    Atoms are for pairs of regions and lie wherever the two meet. Plans that differ only by names of nodes are one.
    """
    for arrows in product((True, False), repeat=nodes - 1):
        walks = _walks(nodes, lambda here, there, arrows=arrows: arrows[min(here, there)] == (here < there))
        yield from _plans(members, ordering, nodes, walks)


def one_way_or_not(members: Members, ordering: Ordering, nodes: int) -> Iterator[Plan]:
    """Yield every plan on a line of exactly ``nodes`` nodes that satisfies C1, C2 and C4, and breaks C3."""
    membership = Membership.of(members)
    for plan in _plans(members, ordering, nodes, _walks(nodes, lambda here, there: True)):
        if violations(plan, membership).keys() == {"C3"}:
            yield plan


def _plans(members: Members, ordering: Ordering, nodes: int, walks: Sequence[Walk]) -> Iterator[Plan]:
    membership = Membership.of(members)
    drawn = plan_along(
        ["n1"], membership, ordering, epoch=1, first_atom=1, place=lambda _: 0, keeps_needless=lambda: True
    )
    pairs = sorted({pair for atom in drawn.atoms for pair in combinations(sorted(atom.regions), 2)})
    seen: set[Hashable] = set()
    for chosen in product(walks, repeat=len(membership.regions)):
        paths = dict(zip(membership.regions, chosen, strict=True))
        if len(set().union(*chosen)) < nodes:
            continue
        places = [[node for node in paths[a] if node in paths[b]] for a, b in pairs]
        for homes in product(*places):
            shape = _shape(chosen, homes)
            if shape not in seen:
                seen.add(shape)
                atoms = tuple(
                    Atom(AtomId(number), pair, home)
                    for number, (pair, home) in enumerate(zip(pairs, homes, strict=True), start=1)
                )
                yield Plan(1, 1, ordering, _nodes(nodes), paths, atoms)


def without_needless(plan: Plan) -> Plan:
    """Return a plan without the atoms of regions that end at one node."""
    needed = (atom for atom in plan.atoms if len({plan.egresses[region] for region in atom.regions}) > 1)
    return replace(plan, atoms=tuple(needed))


def _shape(walks: Sequence[Walk], homes: Sequence[str]) -> Hashable:
    """The nodes numbered as they come, so that mirror images are equal."""
    numbers: dict[str, int] = {}
    for name in [*(name for walk in walks for name in walk), *homes]:
        numbers.setdefault(name, len(numbers))
    return tuple(tuple(numbers[name] for name in walk) for walk in walks), tuple(numbers[home] for home in homes)


def _walks(nodes: int, leads: object) -> list[Walk]:
    """The paths on a line along edges that lead that way."""
    assert callable(leads)
    stretches = [range(start, end + 1) for start in range(nodes) for end in range(start, nodes)]
    turned = [list(stretch)[::-1] for stretch in stretches if len(stretch) > 1]
    return [
        tuple(f"n{place + 1}" for place in stretch)
        for stretch in [*map(list, stretches), *turned]
        if all(leads(here, there) for here, there in pairwise(stretch))
    ]


def _nodes(count: int) -> dict[str, str]:
    return {f"n{number}": "" for number in range(1, count + 1)}


def one_each(members: Members, again: int = 0) -> tuple[Say, ...]:
    """An event to each region, by a publisher of its own each, and a second one to the first ``again`` regions."""
    regions = sorted({region for mine in members.values() for region in mine})
    said = [*regions, *regions[:again]]
    return tuple(Say(event, f"p{event}", region) for event, region in zip(EVENTS, said, strict=False))


def chains(members: Members, length: int) -> Iterator[tuple[Say, ...]]:
    """Yield every chain of causes: the publisher of each event has delivered, or published, the one before.

    As causal order requires, publishers subscribe to the regions that they publish to. Only chains that come back are
    yielded, to a subscriber that has both their first and their last region: otherwise no subscriber could see them
    broken.
    """
    for senders in product(members, repeat=length):
        for regions in product(*(members[sender] for sender in senders)):
            both = any({regions[0], regions[-1]} <= set(mine) for mine in members.values())
            heard = all(
                sender == before or region in members[sender]
                for (before, region), sender in zip(zip(senders, regions, strict=True), senders[1:], strict=False)
            )
            if both and heard and (len(set(regions)) > 1):
                yield tuple(
                    Say(
                        EVENTS[place],
                        senders[place],
                        regions[place],
                        (EVENTS[place - 1],) if place and senders[place - 1] != senders[place] else (),
                    )
                    for place in range(length)
                )

"""Which regions are followed in the shadow, of random plans, as the pairs of regions tell that need an order."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from itertools import combinations
from random import Random

from sequencing.delivery import Delivery
from sequencing.plan import Atom, AtomId, Plan
from sequencing.shadows import shadows, staying, unordered_by

REGIONS = "abcdef"
WORLDS = 300


def planned(*atoms: Iterable[str]) -> Plan:
    made = tuple(Atom(AtomId(number), tuple(sorted(regions)), "n1") for number, regions in enumerate(atoms, start=1))
    return Plan(1, 1, "acyclic", {"n1": ""}, dict.fromkeys(REGIONS, ("n1",)), made)


def some(random: Random, regions: Iterable[str] = REGIONS, *, least: int = 0) -> set[str]:
    there = sorted(regions)
    return set(random.sample(there, random.randint(min(least, len(there)), len(there))))


def random_plan(random: Random) -> Plan:
    return planned(*(random.sample(REGIONS, random.choice((2, 2, 3, 3, 4))) for _ in range(random.randint(1, 6))))


def orders(atoms: Iterable[Atom], pair: tuple[str, str], within: AbstractSet[str]) -> bool:
    """Whether an atom orders a pair for who follows these regions."""
    return any(within >= set(atom.regions) >= set(pair) for atom in atoms)


def test_shadows_order_each_pair_of_mine_that_can_be_ordered_and_are_only_what_is_granted() -> None:
    for seed in range(WORLDS):
        random = Random(seed)
        plan = random_plan(random)
        granted = some(random, least=3)
        mine, now = some(random, granted, least=2), some(random, granted)
        found = shadows(plan, mine, granted - mine, now)
        assert found <= granted - mine
        pairs = [pair for pair in combinations(sorted(mine), 2) if orders(plan.atoms, pair, granted)]
        assert all(orders(plan.atoms, pair, mine | found) for pair in pairs)
        if all(orders(plan.atoms, pair, mine) for pair in pairs):
            assert not found, "mine are ordered among themselves"
        if all(orders(plan.atoms, pair, mine) or orders(plan.atoms, pair, now) for pair in pairs):
            assert found <= now, "what is followed is preferred"
        needed = (
            atom for atom in plan.atoms if mine | found >= set(atom.regions) and len(mine & set(atom.regions)) > 1
        )
        assert found <= {region for atom in needed for region in atom.regions}


def test_of_two_atoms_that_order_the_same_regions_one_is_followed() -> None:
    plan = planned("abc", "abd")
    assert shadows(plan, set("ab"), set("cd"), now=set("ab")) in ({"c"}, {"d"})
    assert shadows(plan, set("ab"), set("cd"), now=set("abd")) == {"d"}
    assert shadows(plan, set("ab"), set("cde"), now=set("abde")) == {"d"}, "whatever else is followed"
    assert shadows(plan, set("ab"), set("cd"), now=set("abc")) == {"c"}
    assert shadows(plan, set("ab"), set("d"), now=set("abc")) == {"d"}, "c is granted no more"


def test_what_alone_orders_two_stays_until_an_atom_that_binds_does() -> None:
    for seed in range(WORLDS):
        random = Random(seed)
        plan = random_plan(random)
        now = some(random, least=3)
        followed = some(random, least=2)
        first, joining = some(random, now, least=1), some(random, now)
        delivery = Delivery(1, first - joining, plan.atoms)
        delivery.join(dict.fromkeys(sorted(joining), b"mark"))
        mine = some(random, followed)
        found = staying(plan, now - followed, mine, followed - mine, {1: delivery}.get)
        if followed >= now:
            assert not found, "nothing is left"
            continue
        binding = [atom for atom in plan.atoms if delivery.binds(atom)]
        holding = [atom for atom in plan.atoms if delivery.may_hold(atom)]
        free = [pair for pair in combinations(sorted(followed), 2) if not orders(binding, pair, followed)]
        beyond = [set(atom.regions) for atom in holding if not followed >= set(atom.regions)]
        needed = [regions for regions in beyond if any(regions >= set(pair) for pair in free)]
        assert found == set[str]().union(*needed) - followed


def test_a_region_is_ordered_when_atoms_that_bind_have_all_others_that_its_atoms_have() -> None:
    atoms = planned("ab", "abc", "ad").atoms
    for binding, free in (({1, 2}, "d"), ({2}, "d"), ({1}, "cd"), ({3}, "bc"), ({1, 2, 3}, ""), ((), "abcd")):
        assert unordered_by(atoms, lambda atom: atom.id in binding) == set(free)  # noqa: B023


def test_two_regions_are_one_pair_in_whatever_order_sets_have_them() -> None:
    for number in range(300):
        one, other, third, *more = (f"{letter}{number}" for letter in "abcde")
        atoms = Atom(AtomId(1), (one, other), "n1"), Atom(AtomId(2), (third, other, one), "n1")
        regions = {one, other, third, *more}
        plan = Plan(1, 1, "acyclic", {"n1": ""}, dict.fromkeys(regions, ("n1",)), atoms)
        assert shadows(plan, regions - {third}, {third}, regions - {third}) == set()

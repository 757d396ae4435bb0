"""Shadows: regions that are followed besides the wanted ones, and are not delivered.

An atom binds subscribers that have all of its regions, and twins share atoms. So a region that is granted and not (or
no longer) wanted may have to be followed, for an atom that alone orders two wanted regions. The same holds for a region
that is no longer granted, until the atom that replaces its atom binds. Its events are not delivered.

A region that is wanted again while it is followed needs no marker: its frames are in order among those of the other
regions followed. It is delivered once atoms that bind order it with all other delivered regions, and begins there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from itertools import chain, combinations

from sequencing.delivery import Delivery
from sequencing.plan import Atom, Plan


def shadows(plan: Plan, mine: AbstractSet[str], unwanted: AbstractSet[str], now: AbstractSet[str]) -> set[str]:
    """Return the regions to follow besides mine, so that each pair of mine that has an atom has one that binds.

    ``unwanted``: the other regions that the plan counts; ``now``: the regions followed, which are preferred.
    Takes time in proportion to the atoms of the unwanted regions.
    """
    if not unwanted or not plan.atoms:
        return set()
    atoms = {atom.id: atom for region in unwanted for atom in plan.atoms_of.get(region, ())}.values()
    partial = [
        (any(region not in now for region in atom.regions), atom.id, atom)
        for atom in atoms
        if all(region in mine or region in unwanted for region in atom.regions)
    ]
    followed: set[str] = set()
    chosen: set[int] = set()
    binds = _Known(lambda atom: atom.id in chosen or mine >= set(atom.regions))
    for _, number, atom in sorted(partial, key=lambda entry: entry[:2]):
        if not _are_ordered(plan, [region for region in atom.regions if region in mine], binds):
            followed.update(atom.regions)
            chosen.add(number)
            binds.known[number] = True
    return followed - mine


def staying(
    plan: Plan,
    leaving: AbstractSet[str],
    mine: AbstractSet[str],
    shadow: AbstractSet[str],
    delivery_of: Callable[[int], Delivery | None],
) -> set[str]:
    """Return the regions to follow for now, because only an atom that includes them orders two followed regions.

    Other atoms will order the two, but their views have not begun. Until then, held frames would be free.
    ``leaving``: regions that are followed so far, and are to be left, because they are neither mine nor in the shadow;
    ``delivery_of``: returns the delivery of an epoch. Takes time in proportion to the atoms of the leaving regions.
    """
    if not leaving or not plan.atoms:
        return set()

    def delivery(atom: Atom) -> Delivery | None:
        return delivery_of(plan.epoch_of(atom.regions[0]))

    def binds_within(atom: Atom) -> bool:
        known = delivery(atom)
        return known is not None and known.binds(atom) and all(map(is_followed, atom.regions))

    def is_followed(region: str) -> bool:
        return region in mine or region in shadow

    atoms = {atom.id: atom for region in leaving for atom in plan.atoms_of.get(region, ())}.values()
    beyond = [atom for atom in atoms if (known := delivery(atom)) is not None and known.may_hold(atom)]
    binds = _Known(binds_within)
    needed = [atom.regions for atom in beyond if not _are_ordered(plan, list(filter(is_followed, atom.regions)), binds)]
    return {region for region in chain.from_iterable(needed) if not is_followed(region)}


def unordered_by(atoms: Collection[Atom], binds: Callable[[Atom], bool]) -> set[str]:
    """Return the regions of some atoms that are in none that binds."""
    ordered = {region for atom in atoms if binds(atom) for region in atom.regions}
    return {region for atom in atoms for region in atom.regions} - ordered


class _Known:
    """A question about atoms, asked once for each."""

    def __init__(self, ask: Callable[[Atom], bool]) -> None:
        self.known: dict[int, bool] = {}
        self._ask = ask

    def __call__(self, atom: Atom) -> bool:
        answer = self.known.get(atom.id)
        if answer is None:
            answer = self.known[atom.id] = self._ask(atom)
        return answer


def _are_ordered(plan: Plan, regions: Iterable[str], binds: Callable[[Atom], bool]) -> bool:
    """Return whether atoms that bind order each pair of some regions. Regions in the same atoms count as one."""
    alike = Counter(frozenset(atom.id for atom in plan.atoms_of[region] if binds(atom)) for region in regions)
    if any(count > 1 and not atoms for atoms, count in alike.items()):
        return False
    return all(one & other for one, other in combinations(alike, 2))

"""Shadows: regions that are followed besides the wanted ones, and are not delivered.

An atom binds subscribers that have all of its regions, and twins share atoms. So a region that is granted and not (or
no longer) wanted may have to be followed, for an atom that alone orders two wanted regions. The same holds for a region
that is no longer granted, until the atom that replaces its atom binds. Its events are not delivered.

A region that is wanted again while it is followed needs no marker: its frames are in order among those of the other
regions followed. It is delivered once atoms that bind order it with all other delivered regions, and begins there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations

from sequencing.delivery import Delivery
from sequencing.frames import UNKNOWN_END
from sequencing.plan import Atom, Plan


def shadows(plan: Plan, mine: AbstractSet[str], *, granted: AbstractSet[str], now: AbstractSet[str]) -> set[str]:
    """Return the regions to follow besides mine, so that each pair of mine that has an atom has one that binds.

    ``granted``: all regions that the plan counts; ``now``: the regions followed, which are preferred.
    """
    atoms = {atom.id: atom for region in mine for atom in plan.atoms_of.get(region, ())}.values()
    # Usually none is needed. An atom of many regions has very many pairs, and this is called for each region's turn.
    needed = [
        (not now >= set(atom.regions), atom)
        for atom in atoms
        if not mine >= set(atom.regions) and granted >= set(atom.regions)
    ]
    if not needed:
        return set()
    followed = set(mine)
    ordered = {pair for atom in atoms if mine >= set(atom.regions) for pair in _pairs(mine, atom)}
    for _, atom in sorted(needed, key=lambda entry: entry[:1]):
        pairs = _pairs(mine, atom)
        if not ordered.issuperset(pairs):
            followed.update(atom.regions)
            ordered.update(pairs)
    return followed - mine


def staying(
    plan: Plan, followed: AbstractSet[str], *, now: AbstractSet[str], deliveries: Iterable[Delivery]
) -> set[str]:
    """Return the regions to follow for now, because only an atom that includes them orders two followed regions.

    Other atoms will order the two, but their views have not begun. Until then, held frames would be free.
    ``now``: the regions followed so far; ``deliveries``: those of all epochs.
    """
    if followed >= now:
        return set()
    binding: set[int] = set()
    holding: set[int] = set()
    for delivery in deliveries:
        binding |= delivery.binding
        holding |= delivery.holding
    atoms = {atom.id: atom for region in followed for atom in plan.atoms_of.get(region, ())}
    within = (atoms[number] for number in atoms.keys() & binding if followed >= set(atoms[number].regions))
    ordered = {pair for atom in within for pair in _pairs(followed, atom)}
    beyond = (atoms[number] for number in atoms.keys() & holding if not followed >= set(atoms[number].regions))
    needed = [atom.regions for atom in beyond if not ordered.issuperset(_pairs(followed, atom))]
    return set[str]().union(*needed) - followed


def is_ordered(others: AbstractSet[str], atoms: Sequence[Atom], binding: AbstractSet[int]) -> bool:
    """Return whether those of a region's atoms that bind order it with all other regions of its atoms."""
    ordered = {other for atom in atoms if atom.id in binding for other in atom.regions}
    return not any(others & set(atom.regions) - ordered for atom in atoms)


class Silence:
    """The regions that were followed before they were wanted."""

    def __init__(self) -> None:
        self.regions: set[str] = set()
        """The regions that are not delivered yet."""
        self._begun: dict[str, tuple[int, int]] = {}

    def end(self, region: str, epoch: int, after: int) -> None:
        """Deliver a region from behind a region sequence on."""
        self.regions.discard(region)
        self._begun[region] = epoch, after

    def forget(self, region: str) -> None:
        """Forget a region that is no longer wanted, or no longer followed."""
        self.regions.discard(region)
        self._begun.pop(region, None)

    def begin(self, region: str) -> tuple[int, int] | None:
        """Return (epoch, region sequence) after which a region is delivered, None if it was wanted all along."""
        return self._begun.get(region)

    def covers(self, region: str, epoch: int, last: int) -> bool:
        """Return whether an item of a region must not be delivered; ``last`` is 0 if the end is unknown."""
        if region in self.regions:
            return True
        return region in self._begun and (epoch, last or UNKNOWN_END) <= self._begun[region]


def _pairs(mine: AbstractSet[str], atom: Atom) -> list[tuple[str, str]]:
    return list(combinations(sorted(mine & set(atom.regions)), 2))

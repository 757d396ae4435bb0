"""Shadows: what is followed besides what is wanted, and is not handed out.

An atom binds who has all of its regions, and twins share atoms. So a region that is granted and not wanted (any more)
may have to be followed all the same, for an atom that alone orders two regions that are wanted; so may one that is
granted no more, until the atom that takes over binds. Nothing of it is handed out.

One that is wanted again while it is followed needs no marker: its frames are in order among what is followed. It is
handed out once atoms that bind order it with all others that are handed out, and begins there.
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

    ``granted``: all that the plan counts; ``now``: what is followed, which is preferred.
    """
    atoms = {atom.id: atom for region in mine for atom in plan.atoms_of.get(region, ())}.values()
    # As a rule none is needed; an atom of many regions has very many pairs, and each region's turn asks for this.
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
    """Return the regions to follow for now, because only an atom that includes them orders two that are followed.

    Others are there to order the two, but their views have not begun. What is held would be free until then.
    ``now``: what is followed as yet; ``deliveries``: those of all epochs.
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
    """Return whether those of a region's atoms that bind order it with all others that its atoms are to order."""
    ordered = {other for atom in atoms if atom.id in binding for other in atom.regions}
    return not any(others & set(atom.regions) - ordered for atom in atoms)


class Silence:
    """The regions that were followed before they were wanted."""

    def __init__(self) -> None:
        self.regions: set[str] = set()
        """Those that are not handed out yet."""
        self._begun: dict[str, tuple[int, int]] = {}

    def end(self, region: str, epoch: int, after: int) -> None:
        """Hand a region out from behind a region sequence on."""
        self.regions.discard(region)
        self._begun[region] = epoch, after

    def forget(self, region: str) -> None:
        """Forget a region that is wanted, or followed, no more."""
        self.regions.discard(region)
        self._begun.pop(region, None)

    def begin(self, region: str) -> tuple[int, int] | None:
        """Return (epoch, region sequence) after which a region is handed out, None if it was wanted all along."""
        return self._begun.get(region)

    def covers(self, region: str, epoch: int, last: int) -> bool:
        """Return whether an item of a region is not to be handed out; ``last`` is 0 where the end is unknown."""
        if region in self.regions:
            return True
        return region in self._begun and (epoch, last or UNKNOWN_END) <= self._begun[region]


def _pairs(mine: AbstractSet[str], atom: Atom) -> list[tuple[str, str]]:
    return list(combinations(sorted(mine & set(atom.regions)), 2))

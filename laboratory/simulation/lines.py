"""Plans that are sound but bad: regions to be ordered meet anywhere on a line of nodes, and paths are long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sequencing.arrangement import meetings
from sequencing.membership import Membership
from sequencing.plan import Atom, AtomId, Ordering, Plan


def plan_along(
    line: Sequence[str],
    membership: Membership,
    ordering: Ordering,
    *,
    epoch: int,
    first_atom: int,
    place: Callable[[int], int],
    others: Callable[[], Iterable[int]] = tuple,
    keeps_needless: Callable[[], bool] = lambda: False,
) -> Plan:
    """Return a plan in which the number-th pair of classes (or of twins) meets at ``place(number)`` of the line.

    ``others``: further places that a region passes, at least one for a region that meets no other; ``keeps_needless``:
    whether to keep an atom whose regions end at one node, or that no subscriber follows. Each path is an interval, so
    C1–C4 hold, and C5: of two regions that meet, the path of the one that begins earlier passes where the other begins.
    """
    wanted, names = meetings(membership, ordering), membership.regions
    regions_of = [tuple(names[region] for region in member.tolist()) for member in wanted.classes.members]
    pairs = zip(wanted.left.tolist(), wanted.right.tolist(), strict=True)
    met = sorted([regions_of[c] for c in wanted.twins.tolist()] + [regions_of[a] + regions_of[b] for a, b in pairs])
    place_of = [place(number) for number in range(len(met))]
    passed: dict[str, list[int]] = {region: [*others()] for region in names}
    for regions, at in zip(met, place_of, strict=True):
        for region in regions:
            passed[region].append(at)
    paths = {
        region: tuple(line[min(places, default=0) : max(places, default=0) + 1]) for region, places in passed.items()
    }
    has: dict[str, set[str]] = {region: set() for region in names}
    for name, regions_of_it in membership.regions_of.items() if membership.joint else ():
        for region in regions_of_it:
            has[region].add(name)
    atoms = [
        (regions, line[at])
        for regions, at in zip(met, place_of, strict=True)
        if (
            len({paths[region][-1] for region in regions}) > 1
            and not (membership.joint and has[regions[0]].isdisjoint(has[regions[-1]]))
        )
        or keeps_needless()
    ]
    numbered = tuple(Atom(AtomId(number), *atom) for number, atom in enumerate(atoms, start=first_atom))
    return Plan(epoch, 1, ordering, dict.fromkeys(sorted(line), ""), paths, numbered)

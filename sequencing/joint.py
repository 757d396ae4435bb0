"""Sets of regions that events can be in at once, over several nodes.

Such a set is wished for like the place of a region: publishers wait for it, and a plan has it from then on. It is named
by its regions, sorted, with a newline between them: no region's name can hold one. A network of one node needs none.

C5: of each set, one region has a path that visits the ingresses of all the others, the *lead*; any two regions meet at
a node; all are in one epoch. An event enters where the lead does, and passes the ingresses of the
others on its way (`sequencing.landing`). Why that is enough: the event visits a connected part of the forest, and its
copies pass next to each other at each node. So if they are taken as one, neighbouring nodes agree on the order of what
passes both, and the orders of all nodes merge into one without a cycle, as in `sequencing.conditions`. Each
subscriber's order is a part of it: it delivers the event at the first copy that comes. That takes no atom beside those
of the pairs that a subscriber has. But a set that is planned in two parts would tie them where they use an edge in
opposite directions.

Why any two meet: there is one way from the entry to where they do, which both paths take. So it passes both ingresses,
and no copy ends before the last ingress of its set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from sequencing.errors import InvalidName
from sequencing.names import check_region

SET_REGIONS_MAX = 64
"""The most regions that an event may have."""

_BETWEEN = "\n"


def set_name(regions: Iterable[str]) -> str:
    """Return the name of a set of regions."""
    return _BETWEEN.join(sorted(regions))


def is_set(name: str) -> bool:
    """Return whether this names a set, and not a region."""
    return _BETWEEN in name


def regions_in(name: str) -> tuple[str, ...]:
    """Return the regions of a set, sorted; of a region, itself."""
    return tuple(name.split(_BETWEEN))


def check_wish(name: object) -> str:
    """Return what names a region, or a set as `set_name` does; raises `InvalidName`."""
    if not isinstance(name, str) or not is_set(name):
        return check_region(name)
    regions = [check_region(region) for region in regions_in(name)]
    if len(set(regions)) < len(regions) or set_name(regions) != name or len(regions) > SET_REGIONS_MAX:
        raise InvalidName(f"a set of regions has up to {SET_REGIONS_MAX} names, sorted and each once, not {name!r}")
    return name


def label(name: str) -> str:
    """Return the name of a set as a person reads it; of a region, itself."""
    return " + ".join(regions_in(name))


def wished(names: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the regions that wishes name, alone or in sets, and the sets."""
    every = frozenset(names)
    sets = frozenset(filter(is_set, every))
    return (every - sets).union(*map(regions_in, sets)) if sets else every, sets


def way_of(paths: Mapping[str, Sequence[str]], regions: Collection[str]) -> tuple[str, ...]:
    """Return the nodes that an event of several regions visits until all of them have numbered it.

    ``paths``: of all of them. Empty if none of them can lead.
    """
    ingresses = {paths[region][0] for region in regions}
    for region in regions:
        path = paths[region]
        if ingresses.issubset(path):
            return tuple(path[: max(map(path.index, ingresses)) + 1])
    return ()

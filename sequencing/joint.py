"""Sets of regions that events can be in at once, over several nodes.

Such a set is wished for like the place of a region: publishers wait for it, and a plan has it from then on. It is named
by its regions, sorted, with a newline between them: no region's name can hold one. A network of one node needs none.

C5: the regions of a set enter the network at one node, in one epoch, and are ordered as if a subscriber had all of
them. Why that is enough: the copies of an event pass a connected part of the forest, next to each other at each node.
So if they are taken as one, neighbouring nodes agree on the order of what passes both, and the orders of all nodes
merge into one without a cycle, as in `sequencing.conditions`. Each subscriber's order is a part of it: it delivers the
event at the first copy that comes. Without the made-up subscriber, a set that spans two components would tie them where
they use an edge in opposite directions.
"""

from __future__ import annotations

from collections.abc import Iterable

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

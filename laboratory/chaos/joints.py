"""Events of several regions: which regions they are in, and how often they came about.

The judges of the simulation judge them: in all of their regions or in none, given once, and in one order with all else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from laboratory.chaos.items import is_own
from laboratory.simulation.server import regions_of

APART = 3
"""Between the sets: most regions are in none, and enter the network where they did."""


def joint_sets(regions: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the sets of neighbouring regions that events are published to at once."""
    found = [tuple(regions[begin : begin + 2]) for begin in range(0, len(regions), APART)]
    return tuple(each for each in found if len(each) > 1)


def joint_events(drawn: Mapping[str, Iterable[str]]) -> int:
    """Return how many of the game's events were accepted in several regions. ``drawn``: region → what it accepted."""
    accepted = {event for events in drawn.values() for event in events}
    return sum(bool(regions_of(event)) and not is_own(event) for event in accepted)

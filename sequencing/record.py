"""What managers and subscribers tell each other: wishes, and the record of what is so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sequencing.plan import Plan

Members = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a subscriber wants: of two wishes of a name, that of the later ``(incarnation, said)`` counts.

    ``since``: region → the ``said`` from which on it is wanted without a break.
    """

    incarnation: int
    said: int
    since: Mapping[str, int] = field(default_factory=dict)

    def after(self, heard: Wish | None) -> frozenset[str]:
        """Return the regions that a plan which took ``heard`` into account did not know of."""
        known = heard.said if heard is not None and heard.incarnation == self.incarnation else 0
        return frozenset(region for region, since in self.since.items() if since > known)


@dataclass(frozen=True, slots=True)
class Record:
    """What is kept of a network: whoever leads goes on from here. ``before``: the plan of before, during a transition.

    ``members``: subscriber → the regions that the plan reckons with for it; ``heard``: the wishes that it knew of;
    ``next_atom``: ids are never used again.
    """

    plan: Plan
    members: Members = field(default_factory=dict)
    heard: Mapping[str, Wish] = field(default_factory=dict)
    before: Plan | None = None
    next_atom: int = 1

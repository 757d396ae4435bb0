"""A view: what a subscriber knows of an atom that becomes relevant with a join, until the atom's numbers bind.

`sequencing.delivery` says what for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SHOWN_MAX = 256
"""How many numbers a view notes while it waits for markers. With more, some regions are marked in vain."""


@dataclass(slots=True)
class View:
    """An atom whose numbers do not bind yet."""

    waiting: set[str]
    """Regions whose marker has not come."""
    begin: int = 0
    unsettled: set[str] = field(default_factory=set)
    """Regions that may still bring a number up to ``begin``; of use once nothing is waited for."""
    nudged: set[str] = field(default_factory=set)
    along: dict[str, bytes | None] = field(default_factory=dict)
    """Region that was marked along with the new ones → its marker, None when that has come, or may be lost."""
    last: dict[str, int] = field(default_factory=dict)
    """Region → the last number that it showed while markers were waited for."""
    shown: set[int] = field(default_factory=set)
    """These numbers, and those before them."""
    only: set[str] | None = None
    """The regions that are being joined, when another of the atom's was left meanwhile: only they are held back."""

    def show(self, region: str, number: int) -> None:
        """Take a number of a marker, or of what was delivered while one is waited for."""
        self.begin = max(self.begin, number)
        if len(self.shown) < SHOWN_MAX:
            self.last[region] = number
            self.shown.add(number)

    def is_through(self, region: str) -> bool:
        """Return whether all numbers up to ``begin`` that a region has not shown are those of others."""
        last = self.last.get(region)
        if last is None or self.begin - last > len(self.shown):
            return False
        return self.shown.issuperset(range(last + 1, self.begin + 1))

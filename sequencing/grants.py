"""Grants: what a subscriber wants, and from which epoch on it has it.

What is wanted is told to the manager as a `Interest`, and granted when a plan counts it, and knew of the wish: a
grant that is left over from before, of a name that left or was another connection's, may end with any epoch, and what
came in between would be lost without a word. What is granted stays so for as long as it is wanted. If a plan reckons
with it no more, the subscriber was taken for gone: what it would deliver from there on is ordered for nobody.
"""

from __future__ import annotations

from collections.abc import Iterable

from sequencing.errors import SessionExpired, Superseded, session_expired_message, superseded_message
from sequencing.record import Interest, Record


class Grants:
    """What one connection wants, and what of that it is granted."""

    def __init__(self, name: str, incarnation: int) -> None:
        """``name`` and ``incarnation``: of the connection."""
        self.name = name
        self.incarnation = incarnation
        self.wanted: set[str] = set()
        self.mine: dict[str, int] = {}
        """Region → the epoch from which on it is granted for as long as it is wanted."""
        self.granted: frozenset[str] = frozenset()
        """All that the plan counts for the name, wanted or not."""
        self._said = self._heard = self._newest = 0
        self._floor = self._told_floor = 0
        self._since: dict[str, int] = {}

    def want(self, regions: Iterable[str], floor: int = 0) -> bool:
        """Want regions; return whether any was not wanted before.

        ``floor``: the last epoch that an earlier connection of the name had anything of.
        """
        new = set(regions) - self.wanted
        if new:
            self._say(floor)
            self.wanted |= new
            self._since |= dict.fromkeys(new, self._said)
        return bool(new)

    def release(self, regions: Iterable[str]) -> set[str]:
        """Want regions no more; return those that were wanted before."""
        gone = self.wanted.intersection(regions)
        if gone:
            self._say()
            self.wanted -= gone
            for region in gone:
                del self._since[region]
                self.mine.pop(region, None)
        return gone

    def interest(self) -> Interest:
        """Return what to tell the manager."""
        return Interest(self.incarnation, self._said, dict(self._since), self._told_floor)

    def are_told_by(self, record: Record) -> bool:
        """Return whether a record tells nothing new of this connection."""
        return self._told(record) == (self._heard, self.granted)

    def take(self, record: Record) -> list[str]:
        """Follow the next record; return the regions that it grants."""
        self._heard, self.granted = self._told(record)
        self._newest = record.heard[self.name].incarnation if self.name in record.heard else 0
        plan = record.plan
        fresh = [region for region, since in self._since.items() if since <= self._heard and region in plan.paths]
        fresh = [region for region in fresh if region not in self.mine]
        self.mine |= {region: plan.epoch_of(region) for region in fresh}
        self._floor = max(self._floor, *map(plan.epoch_of, self.mine), 0)
        return fresh

    def require_kept(self, epoch: int) -> None:
        """Raise `SessionExpired`, or `Superseded`, unless the plan, which begins with an epoch, counts all that
        was granted.
        """
        if not self.mine.keys() <= self.granted:
            if self._newest > self.incarnation:
                raise Superseded(superseded_message(self.name))
            raise SessionExpired(session_expired_message(f"{self.name!r} (epoch {epoch})"))

    def _say(self, floor: int = 0) -> None:
        self._said += 1
        self._told_floor = max(self._floor, floor)

    def _told(self, record: Record) -> tuple[int, frozenset[str]]:
        heard = record.heard.get(self.name)
        said = heard.said if heard is not None and heard.incarnation == self.incarnation else 0
        return said, record.members.get(self.name, frozenset())

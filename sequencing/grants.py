"""Grants: the regions that a subscriber wants, and the epoch from which on it has each.

A subscriber reports what it wants to the manager as an `Interest`. A region is granted when a plan counts it that knew
of the interest. A grant left over from before, of a name that left or belonged to another connection, may end with any
epoch, and the events between would be lost silently. A granted region stays granted for as long as it is wanted. If a
plan no longer counts it, the network took the subscriber for disconnected and removed it: its order with others is no
longer kept from there on.
"""

from __future__ import annotations

from collections.abc import Iterable

from sequencing.errors import SessionExpired, Superseded, session_expired_message, superseded_message
from sequencing.record import Interest, Record, Request


class Grants:
    """The regions that one connection wants, and which of them it is granted."""

    def __init__(self, name: str, incarnation: int) -> None:
        """``name`` and ``incarnation``: of the connection."""
        self.name = name
        self.incarnation = incarnation
        self.wanted: set[str] = set()
        self.returning: set[str] = set()
        """Those that are marked in any case: behind the marker, an ingress takes nothing of an earlier connection."""
        self.mine: dict[str, int] = {}
        """Region → the epoch from which on it is granted, for as long as it is wanted."""
        self.granted: frozenset[str] = frozenset()
        """All that the plan counts for the name, wanted or not."""
        self.unwanted: set[str] = set()
        """Those of them that are not in `mine`."""
        self._said = self._heard = self._newest = 0
        self._floor = self._told_floor = 0
        self._since: dict[str, int] = {}
        self._asked: dict[str, int] = {}
        """Those that are not granted yet."""
        self._epoch = 0
        self._unsaid: dict[str, int] = {}
        """The changes of the next `request`."""

    def want(self, regions: Iterable[str], floor: int = 0, *, returns: bool = False) -> bool:
        """Add regions to those wanted; return whether any is new.

        ``floor``: the last epoch of which an earlier connection of the name had anything. ``returns``: whether they
        become `returning`.
        """
        regions = set(regions)
        if returns:
            self.returning |= regions
        new = regions - self.wanted
        if new:
            self._say(floor)
            self.wanted |= new
            self._since |= dict.fromkeys(new, self._said)
            self._asked |= dict.fromkeys(new, self._said)
            self._unsaid |= dict.fromkeys(new, self._said)
        return bool(new)

    def release(self, regions: Iterable[str]) -> set[str]:
        """Remove regions from those wanted; return those that were wanted before."""
        gone = self.wanted.intersection(regions)
        if gone:
            self._say()
            self.wanted -= gone
            self.returning -= gone
            self._unsaid |= dict.fromkeys(gone, 0)
            for region in gone:
                del self._since[region]
                self._asked.pop(region, None)
                if self.mine.pop(region, None) is not None and region in self.granted:
                    self.unwanted.add(region)
        return gone

    def interest(self) -> Interest:
        """Return the interest to report to the manager."""
        return Interest(self.incarnation, self._said, dict(self._since), self._told_floor)

    def request(self, *, whole: bool = False) -> Request | None:
        """Return what to ask the network for; None if nothing has changed. ``whole``: see `Request`."""
        changes, floor = self._unsaid, self._told_floor
        if whole and self._said:
            return Request(self.incarnation, self._said, dict(self._since), whole=True, floor=floor)
        return Request(self.incarnation, self._said, dict(changes), floor=floor) if changes else None

    def noted(self, request: Request) -> None:
        """Take that the network knows a request."""
        for region, since in request.changes.items():
            if self._unsaid.get(region) == since:
                del self._unsaid[region]

    def take_in_place(self, request: Request, epoch: int) -> list[str]:
        """Take that a request was granted, in the network's only epoch; return the regions that it grants."""
        self.noted(request)
        fresh: list[str] = []
        for region, since in request.changes.items():
            if since and self._asked.get(region) == since:
                del self._asked[region]
                fresh.append(region)
        self.mine |= dict.fromkeys(fresh, epoch)
        if fresh:
            self._floor = max(self._floor, epoch)
        return fresh

    def are_told_by(self, record: Record) -> bool:
        """Return whether a record has no news for this connection."""
        return self._told(record) == (self._heard, self.granted)

    def take(self, record: Record) -> list[str]:
        """Follow the next record; return the regions that it grants."""
        self._heard, self.granted = self._told(record)
        self._newest = record.heard[self.name].incarnation if self.name in record.heard else 0
        plan = record.plan
        fresh = [region for region, since in self._asked.items() if since <= self._heard and region in plan.paths]
        for region in fresh:
            del self._asked[region]
        self.mine |= {region: plan.epoch_of(region) for region in fresh}
        self.unwanted = set(self.granted - self.mine.keys())
        moved = plan.begun_after(self._epoch, self.mine.keys())
        self._floor = max(self._floor, *map(plan.epoch_of, moved), *map(plan.epoch_of, fresh), 0)
        self._epoch = plan.epoch
        return fresh

    def require_kept(self, epoch: int) -> None:
        """Raise `SessionExpired`, or `Superseded`, unless the plan that begins with an epoch counts all granted
        regions.
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

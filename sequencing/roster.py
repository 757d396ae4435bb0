"""The roster: who is there and subscribed to what, and whether that is settled.

Membership is open until traffic begins: subscriptions may come in any order and from any process. The first publish
settles it for the epoch. When every connection that took part is gone, the next subscription opens a new epoch, so that
a network outlives the servers that use it. A connection is known by its name and incarnation: what an earlier
connection of the name still says is ignored. ``adapters/roster.lua`` is the twin for Redis.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sequencing.errors import MembershipSettled, Superseded


@dataclass(slots=True)
class Roster:
    """The control state of one network. Times are milliseconds of any clock that all callers share."""

    ttl_ms: int
    epoch: int = 1
    settled: bool = False
    members: dict[str, frozenset[str]] = field(default_factory=dict)
    alive_until_ms: dict[str, int] = field(default_factory=dict)
    incarnations: dict[str, int] = field(default_factory=dict)
    participants: set[str] = field(default_factory=set)

    def introduce(self, name: str, now_ms: int) -> int:
        """Note a new connection of a name; return its incarnation, larger than all before.

        What an earlier connection of the name subscribed to is forgotten while membership is open.
        """
        self.participants.discard(name)
        if not self.settled:
            self.members.pop(name, None)
        return self._next_incarnation(name, now_ms)

    def renew(self, name: str, incarnation: int, now_ms: int) -> int:
        """Give the connection a new incarnation, and change nothing else; raises `Superseded`."""
        self._require_current(name, incarnation)
        return self._next_incarnation(name, now_ms)

    def beat(self, name: str, incarnation: int, now_ms: int) -> None:
        """Note that a connection lives; a superseded one does not count."""
        if self.incarnations.get(name) == incarnation:
            self.alive_until_ms[name] = now_ms + self.ttl_ms

    def subscribe(self, name: str, incarnation: int, regions: Iterable[str], now_ms: int) -> int:
        """Add regions to a subscriber and return the epoch; raises `MembershipSettled`, `Superseded`."""
        self._require_current(name, incarnation)
        if self.settled:
            if self._someone_took_part(now_ms):
                raise MembershipSettled(settled_message(name, regions))
            self.settled = False
            self.epoch += 1
            self.members.clear()
            self.participants.clear()
        self.members[name] = self.members.get(name, frozenset()).union(regions)
        self.participants.add(name)
        self.beat(name, incarnation, now_ms)
        return self.epoch

    def unsubscribe(self, name: str, incarnation: int, regions: Iterable[str]) -> bool:
        """Take regions from a subscriber; False (and nothing done) when membership is settled, or it is superseded."""
        if self.settled or self.incarnations.get(name) != incarnation:
            return False
        self.members[name] = self.members.get(name, frozenset()).difference(regions)
        return True

    def subscribed(self, name: str, incarnation: int) -> frozenset[str]:
        """Return what the roster has of this connection: nothing, if it was taken for gone or superseded."""
        return self.members.get(name, frozenset()) if self.incarnations.get(name) == incarnation else frozenset()

    def leave(self, name: str, incarnation: int) -> None:
        """Note that a connection is gone; while membership is open, so are its subscriptions."""
        if self.incarnations.get(name) != incarnation:
            return
        self.alive_until_ms.pop(name, None)
        self.participants.discard(name)
        if not self.settled:
            self.members.pop(name, None)

    def publishing(self, name: str, incarnation: int) -> int:
        """Note that a connection takes part as a publisher; return the epoch, negative while it is not settled."""
        self._require_current(name, incarnation)
        self.participants.add(name)
        return self.epoch if self.settled else -self.epoch

    def settle(self, now_ms: int) -> tuple[int, dict[str, frozenset[str]]]:
        """Close the membership; return the epoch and the members, those who live."""
        if not self.settled:
            self.members = {m: r for m, r in self.members.items() if self.alive_until_ms.get(m, 0) > now_ms}
            self.settled = True
        return self.epoch, dict(self.members)

    def reopen(self) -> None:
        """Undo `settle`, when no plan came of it."""
        self.settled = False

    def _next_incarnation(self, name: str, now_ms: int) -> int:
        self.incarnations[name] = self.incarnations.get(name, 0) + 1
        self.beat(name, self.incarnations[name], now_ms)
        return self.incarnations[name]

    def _require_current(self, name: str, incarnation: int) -> None:
        if self.incarnations.get(name) != incarnation:
            raise Superseded(superseded_message(name))

    def _someone_took_part(self, now_ms: int) -> bool:
        return any(self.alive_until_ms.get(name, 0) > now_ms for name in self.participants)


def settled_message(name: str, regions: Iterable[str]) -> str:
    """Say that a subscription came too late."""
    return (
        f"{name!r} cannot subscribe to {', '.join(map(repr, sorted(regions)))} any more: the network carries traffic "
        "and its membership is settled; subscribe before the first publish, or when all who took part have left"
    )


def superseded_message(name: str) -> str:
    """Say that a newer connection has the name."""
    return f"another connection has taken the name {name!r} over: give each game server a name of its own"

"""The roster: who is there and subscribed to what, and whether that is settled.

Membership is open until traffic begins: subscriptions may come in any order and from any process. The first publish
settles it for the epoch. When every connection that took part is gone, the next subscription opens a new epoch, so that
a network outlives the servers that use it. ``adapters/roster.lua`` is the twin for Redis.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sequencing.errors import MembershipSettled


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

    def incarnate(self, name: str, now_ms: int) -> int:
        """Note a new connection of a name; return its incarnation, larger than all before."""
        self.participants.discard(name)
        self.incarnations[name] = self.incarnations.get(name, 0) + 1
        self.beat(name, now_ms)
        return self.incarnations[name]

    def beat(self, name: str, now_ms: int) -> None:
        """Note that a connection lives."""
        self.alive_until_ms[name] = now_ms + self.ttl_ms

    def subscribe(self, name: str, regions: Iterable[str], now_ms: int) -> int:
        """Add regions to a subscriber and return the epoch; raises `MembershipSettled`."""
        if self.settled:
            if self._someone_took_part(now_ms):
                raise MembershipSettled(settled_message(name, regions))
            self.settled = False
            self.epoch += 1
            self.members.clear()
            self.participants.clear()
        self.members[name] = self.members.get(name, frozenset()).union(regions)
        self.participants.add(name)
        self.beat(name, now_ms)
        return self.epoch

    def unsubscribe(self, name: str, regions: Iterable[str]) -> None:
        """Take regions from a subscriber while membership is open."""
        if not self.settled and name in self.members:
            self.members[name] = self.members[name].difference(regions)

    def leave(self, name: str) -> None:
        """Note that a connection is gone; while membership is open, so are its subscriptions."""
        self.alive_until_ms.pop(name, None)
        self.participants.discard(name)
        if not self.settled:
            self.members.pop(name, None)

    def settle(self, name: str, now_ms: int) -> tuple[int, dict[str, frozenset[str]]]:
        """Close the membership on behalf of a publisher; return the epoch and the members, the living ones."""
        if not self.settled:
            self.members = {m: r for m, r in self.members.items() if self.alive_until_ms.get(m, 0) > now_ms}
            self.settled = True
        self.participants.add(name)
        return self.epoch, dict(self.members)

    def reopen(self) -> None:
        """Undo `settle`, when no plan came of it."""
        self.settled = False

    def _someone_took_part(self, now_ms: int) -> bool:
        return any(self.alive_until_ms.get(name, 0) > now_ms for name in self.participants)


def settled_message(name: str, regions: Iterable[str]) -> str:
    """Say that a subscription came too late."""
    return (
        f"{name!r} cannot subscribe to {', '.join(map(repr, sorted(regions)))} any more: the network carries traffic "
        "and its membership is settled; subscribe before the first publish, or when all who took part have left"
    )

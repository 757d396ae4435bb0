"""Who is present in which regions, as the network knows it: what a connection needs of that, and it within a process.

A connection registers before it publishes that it arrives, and is heard of from then on. Who finds one that was not
heard of for `PRESENT_MS` publishes that it left, see `gamecast.client.presence`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

PRESENT_MS = 10_000
"""A connection that was not heard of for so long has left."""
DUE_MAX = 32
"""How many of them are looked after at once."""


class Absent(NamedTuple):
    """A connection that has not said that it leaves: its name and incarnation; the last one that its events had.

    ``regions``: where it is present → the position of its arrival there, empty if that is not known.
    """

    name: str
    incarnation: int
    last_incarnation: int
    regions: Mapping[str, str]


class Presence(Protocol):
    """The register, as one connection uses it. Raises `NetworkError` and `OtherSideError`."""

    async def be(self, regions: Mapping[str, str], last_incarnation: int, *, is_known: bool) -> bool:
        """Note that the connection is present in regions; see `Absent`. Returns whether it may: False after others
        have found it absent. ``is_known``: it has registered before, so if it is not there, they have ended it."""

    async def beat(self) -> bool:
        """Note that the connection lives; returns as `be`."""

    async def left(self, regions: Iterable[str]) -> None:
        """Note that it has published that it left regions."""

    async def end(self) -> None:
        """Note that it is heard of no more: others are to publish what it has not."""

    async def due(self) -> list[Absent]:
        """Return connections that were not heard of for too long; they are absent from now on.

        Who is returned is not returned again for a quarter of `PRESENT_MS`, and then after others. Where no call came
        for half of it, the register was away: for as long again there are none, and those that live are heard of first.
        """

    async def ended(self, absent: Absent) -> None:
        """Note that it is published of one that it left all of its regions."""


@dataclass(slots=True)
class _Present:
    until_s: float
    last_incarnation: int
    regions: dict[str, str] = field(default_factory=dict)
    is_gone: bool = False


class PresentInMemory:
    """The register of a network within a process. Its clock is an argument of each call."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, int], _Present] = {}
        self._looked_s = self._since_s = float("-inf")

    def be(
        self,
        who: tuple[str, int],
        regions: Mapping[str, str],
        last_incarnation: int,
        now_s: float,
        *,
        is_known: bool,
    ) -> bool:
        """See `Presence.be`."""
        if is_known and who not in self._all:
            return False
        known = self._all.setdefault(who, _Present(now_s, last_incarnation))
        if known.is_gone:
            return False
        known.regions |= regions
        known.last_incarnation, known.until_s = last_incarnation, now_s + PRESENT_MS / 1000
        return True

    def beat(self, who: tuple[str, int], now_s: float) -> bool:
        """See `Presence.beat`."""
        known = self._all.get(who)
        if known is None or known.is_gone:
            return False
        known.until_s = now_s + PRESENT_MS / 1000
        return True

    def left(self, who: tuple[str, int], regions: Iterable[str]) -> None:
        """See `Presence.left`."""
        if (known := self._all.get(who)) is not None:
            known.regions = {region: at for region, at in known.regions.items() if region not in set(regions)}
            if not known.regions and not known.is_gone:
                del self._all[who]

    def end(self, who: tuple[str, int]) -> None:
        """See `Presence.end`."""
        if (known := self._all.get(who)) is not None:
            known.until_s = 0.0

    def due(self, now_s: float) -> list[Absent]:
        """See `Presence.due`."""
        if self._all and now_s - self._looked_s > PRESENT_MS / 2000:
            self._since_s = now_s
        self._looked_s = now_s
        if now_s - self._since_s < PRESENT_MS / 2000:
            return []
        due = sorted((known.until_s, who) for who, known in self._all.items() if known.until_s < now_s)
        absent = []
        for _, who in due[:DUE_MAX]:
            known = self._all[who]
            known.is_gone, known.until_s = True, now_s + PRESENT_MS / 4000
            absent.append(Absent(*who, known.last_incarnation, dict(known.regions)))
        return absent

    def ended(self, absent: Absent) -> None:
        """See `Presence.ended`."""
        self._all.pop((absent.name, absent.incarnation), None)

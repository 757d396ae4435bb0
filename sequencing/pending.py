"""Keys that events name which are not decided yet: those of several regions, that a later node may still refuse.

Where such an event has its number, and a later node decides it, its writes are *pending*. A condition on a key with a
pending write cannot be decided, and is tried again later; the state of a region waits. The decider's verdict comes back
link by link, carried by the relays: each node keeps it until the node before has applied it. No clock decides; where a
node on the way has lost what it knew, the leader has the heads count as lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from sequencing.keyed import Heads, Named, Position, value_text

KEYED = b"+"
"""Begins why a frame is refused that names keys: the nodes before wait for that."""


class Judgement(StrEnum):
    """What became of a frame that names keys."""

    OK = "ok"
    NO = "no"


class Write(NamedTuple):
    """What a frame makes of a key once it is accepted: its head and value. ``value``: None if the key ends."""

    of: str
    position: Position
    value: bytes | None

    def encode(self) -> bytes:
        """Write it as it is stored."""
        of, (epoch, number) = self.of.encode(), self.position
        return b"%d %d %d %d\n%b%b" % (
            len(of),
            -1 if self.value is None else len(self.value),
            epoch,
            number,
            of,
            self.value or b"",
        )


class Passing(NamedTuple):
    """A frame with keys that has passed here undecided.

    ``source``, ``target``: the ends of the links that it came by (empty if it entered here) and went by; ``way``: the
    nodes that it visits until it is decided; ``regions``: those in which writes are pending here.
    """

    source: str
    target: str
    epoch: int
    way: tuple[str, ...]
    regions: tuple[str, ...]

    def encode(self) -> bytes:
        """Write it as it is stored."""
        return "\n".join([self.source, self.target, " ".join([str(self.epoch), *self.way]), *self.regions]).encode()

    @classmethod
    def decode(cls, text: bytes) -> Passing:
        """Read what `encode` wrote."""
        source, target, where, *regions = text.decode().split("\n")
        epoch, *way = where.split(" ")
        return cls(source, target, int(epoch), tuple(way), tuple(regions))


def lost_by(passing: Mapping[str, Passing], nodes: Iterable[str], epoch: int) -> list[str]:
    """Return the frames of epochs before one that pass a node which has lost something."""
    lost = frozenset(nodes)
    return [of for of, each in passing.items() if each.epoch < epoch and not lost.isdisjoint(each.way)]


def are_awaited(passing: Mapping[str, Passing], regions: Iterable[tuple[str, int, int]]) -> bool:
    """Return whether writes of some regions, up to an epoch each, wait for a verdict; (region, epoch, another) each."""
    epochs: dict[str, int] = {}
    for region, epoch, _ in regions:
        epochs[region] = max(epoch, epochs.get(region, 0))
    return any(each.epoch <= epochs.get(region, 0) for each in passing.values() for region in each.regions)


class PendingWrites:
    """The pending writes of a node, and the verdicts that it has for others."""

    def __init__(self) -> None:
        self.writes: dict[tuple[str, str], list[Write]] = {}
        """(region, key) → its pending writes, in order."""
        self.passing: dict[str, Passing] = {}
        """Frame → where it went."""
        self.verdicts: dict[str, tuple[str, Judgement]] = {}
        """Frame that came undecided → the link that it came by, and what became of it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingWrites) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def is_pending(self, region: str, key: str) -> bool:
        """Return whether a write of a key waits to be decided."""
        return (region, key) in self.writes

    def are_pending(self, regions: Iterable[str]) -> bool:
        """Return whether some writes of some regions wait to be decided."""
        return not {region for region, _ in self.writes}.isdisjoint(regions)

    def add(self, region: str, of: str, names: Iterable[Named], first: Position, publisher: str, body: bytes) -> None:
        """Add the writes of a frame; ``first``: the position of its first event."""
        last = {named.key: named for named in names}
        epoch, number = first
        for key, named in last.items():
            text = value_text(named.sent, publisher, body[named.start : named.end])
            write = Write(of, (epoch, number + named.place), None if named.deletes else text)
            self.writes.setdefault((region, key), []).append(write)

    def overwritten(self, region: str, names: Iterable[Named]) -> None:
        """Drop the pending writes of keys that a decided event has named since."""
        for named in names:
            self.writes.pop((region, named.key), None)

    def resolve(self, of: str, judgement: Judgement | int, heads: dict[str, Heads]) -> None:
        """Apply or drop the writes of a frame; what is not known, or was decided before, changes nothing.

        ``judgement``: an epoch if a node on the way has lost what became of it, and that epoch began with the loss.
        """
        passing = self.passing.pop(of, None)
        if passing is None:
            return
        for region in passing.regions:
            for region_key in [each for each in self.writes if each[0] == region]:
                self._resolve(region_key, of, judgement, heads)
        if passing.source and isinstance(judgement, Judgement):
            self.verdicts[of] = passing.source, judgement

    def _resolve(self, where: tuple[str, str], of: str, judgement: Judgement | int, heads: dict[str, Heads]) -> None:
        writes, (region, key) = self.writes[where], where
        places = [place for place, write in enumerate(writes) if write.of == of]
        if not places:
            return
        write = writes[places[0]]
        if judgement is Judgement.NO:
            del writes[places[0]]
        else:
            del writes[: places[0] + 1]
            of_region = heads.setdefault(region, Heads(began=write.position[0]))
            of_region.known.pop(key, None)
            of_region.values.pop(key, None)
            if not isinstance(judgement, Judgement):
                of_region.known[key] = judgement, 0
            elif write.value is not None:
                of_region.known[key], of_region.values[key] = write.position, write.value
        if not writes:
            del self.writes[where]

    def forget(self, region: str) -> None:
        """Forget the pending writes of a region: another node has its keys."""
        for where in [each for each in self.writes if each[0] == region]:
            del self.writes[where]

    def clear(self) -> None:
        """Forget everything."""
        self.writes.clear()
        self.passing.clear()
        self.verdicts.clear()

    def by_region(self) -> Mapping[str, Mapping[str, bytes]]:
        """Return region → key → its pending writes, as they are stored."""
        stored: dict[str, dict[str, bytes]] = {}
        for (region, key), writes in self.writes.items():
            stored.setdefault(region, {})[key] = b"".join(write.encode() for write in writes)
        return stored

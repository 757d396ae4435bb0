"""How far the readers of a gateway are behind: its own sessions, parked sessions and event streams.

What game servers say of themselves is in their heartbeats: `sequencing.doing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from adapters.redis.networkstate import RegionState
from adapters.wording import natural
from gateway.gateway import Gateway
from gateway.messages import Position

LAG_EVENTS_MIN = 100
"""A reader with fewer events in the gateway is not behind: they are on their way to its socket."""


@dataclass(frozen=True, slots=True)
class Lag:
    """One reader that is behind.

    ``behind``: events, at least, between what it was sent and the end of its regions. ``inbox`` and ``held``: of those,
    the events that the gateway has for it, and the frames that wait for other frames. ``regions``: those that it reads.
    """

    name: str
    behind: int
    inbox: int
    held: int
    regions: tuple[str, ...]


def lags(gateway: Gateway, regions: Iterable[RegionState]) -> list[Lag]:
    """Return the readers that are behind, worst first. ``regions``: as the last survey saw them."""
    ends = {region.name: region for region in regions}
    positions = {name: dict(place.sent.now) for name, place in gateway.places()}
    readers = []
    for name, counters in gateway.connections.named_statistics():
        here = counters.inbox_events + counters.held_frames
        if here >= LAG_EVENTS_MIN:
            at = positions.get(name, {})
            # Markers move a region's end, but not a position: alone they do not make a reader late.
            behind = max(here, _unsent(at, ends))
            readers.append(
                Lag(name, behind, counters.inbox_events, counters.held_frames, tuple(sorted(at, key=natural)))
            )
    return sorted(readers, key=lambda lag: (-lag.behind, natural(lag.name)))


def _unsent(at: Mapping[str, Position], ends: Mapping[str, RegionState]) -> int:
    unsent = 0
    for region, (epoch, sequence) in at.items():
        end = ends.get(region)
        if end is not None and end.last is not None and end.epoch >= epoch:
            unsent += max(0, end.last - (sequence if end.epoch == epoch else 0))
    return unsent

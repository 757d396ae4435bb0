"""The items that a connection returns, as notes; and the names of the events that gamecast itself publishes.

The game's own events have `bytes` payloads, which are their names. An event of several regions begins with these, as
the judges of the simulation read it: see `regions_of`. Events of ownership have JSON payloads, and are named by their
places.
"""

from __future__ import annotations

from collections.abc import Sequence

import gamecast
from gamecast.event import Event, JointEvent, Presence, State

OWN = "!"
"""Marks the name of an event that gamecast itself published."""


def joint_name(regions: Sequence[str], event: str) -> str:
    """Return the name of an event of several regions."""
    return f"{'+'.join(regions)}.{event}"


def own_name(everywhere: Sequence[tuple[str, int]], epoch: int) -> str:
    """Return the name of an event that gamecast itself published. ``everywhere``: its regions and sequences there."""
    return joint_name([region for region, _ in everywhere], f"{OWN}{epoch}-{everywhere[0][1]}")


def is_own(event: str) -> bool:
    """Return whether gamecast itself published an event."""
    return event.partition(".")[2].startswith(OWN)


def noted(item: gamecast.Item) -> dict[str, object]:
    """Return the note of an item."""
    match item:
        case State():
            return {
                "did": "state",
                "as_of": item.positions,
                "heads": {
                    region: {key: event.position for key, event in values.items()}
                    for region, values in item.values.items()
                },
                "incomplete": sorted(item.incomplete),
                "present": {region: sorted(roster) for region, roster in item.present.items()},
            }
        case Presence():
            where = {"region": item.region, "epoch": item.epoch, "sequence": item.sequence}
            return {"did": "presence", **where, "name": item.name, "here": item.is_here}
        case Event():
            everywhere = item.everywhere if isinstance(item, JointEvent) else ((item.region, item.sequence),)
            payload = item.payload
            name = payload.decode().rstrip() if isinstance(payload, bytes) else own_name(everywhere, item.epoch)
            where = {"region": item.region, "epoch": item.epoch, "sequence": item.sequence}
            also = {region: sequence for region, sequence in _parts(item) if region != item.region}
            how = ({"also": also} if also else {}) | ({"replayed": True} if item.replayed else {})
            return {"did": "deliver", "event": name, "sender": item.sender, **where, **how}
    region, epoch, first, last, reason = item
    return {"did": "gap", "region": region, "epoch": epoch, "first": first, "last": last, "reason": reason}


def _parts(event: Event) -> Sequence[tuple[str, int]]:
    return event.parts if isinstance(event, JointEvent) else ()

"""Updates: none comes before an event that its sender had seen or published, or after a newer one of its key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from laboratory.chaos.notes import PRESENCE, Life, Notes
from sequencing.keyed import Position


def early_updates(notes: Notes, places: Mapping[tuple[str, str], Position]) -> Iterator[str]:
    """Yield updates that came before what they are to follow. ``places``: (region, event) → where it is."""
    unknown = {event for life in notes.lives for event in life.session.uncertain}
    for life in notes.lives:
        if life.updates:
            yield from _early(life, places, unknown)
            yield from _backwards(life)


def _early(life: Life, places: Mapping[tuple[str, str], Position], unknown: set[str]) -> Iterator[str]:
    name, deliveries = life.session.name, life.session.deliveries
    later: dict[str, tuple[Position, str]] = {}
    """Region → the first position of what is delivered later, and what that is."""
    behind: set[tuple[str, str]] = set()
    place = len(deliveries)
    for update in reversed(life.updates):
        while place > update.place:
            place -= 1
            each = deliveries[place]
            if each.event:
                region = each.region.removesuffix(PRESENCE)
                behind.add((region, each.event))
                found = places[region, each.event], each.event
                later[region] = min(later.get(region, found), found)
        who = f"updates: {name} got an update of {update.key} in {update.region} by {update.sender} at {update.seen}"
        if (first := later.get(update.region)) is not None and first[0] <= update.seen:
            yield f"{who} before {first[1]}, which its sender had seen"
        if (update.region, update.behind) in behind and update.behind not in unknown:
            yield f"{who} before {update.behind}, which its sender had published"


def _backwards(life: Life) -> Iterator[str]:
    last: dict[tuple[str, str, str], tuple[int, int]] = {}
    for update in life.updates:
        whose = update.region, update.key, update.sender
        if update.number < last.get(whose, update.number):
            yield f"updates: {life.session.name} got {update} after {last[whose]}"
        last[whose] = update.number

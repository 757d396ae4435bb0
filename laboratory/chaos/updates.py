"""Updates: none comes before an event that its sender had seen or published, or after a newer one of its key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from laboratory.chaos.notes import PRESENCE, Life, Notes
from laboratory.simulation.server import Delivered
from sequencing.keyed import Position


def early_updates(notes: Notes, places: Mapping[tuple[str, str], Position]) -> Iterator[str]:
    """Yield updates that came before what they are to follow. ``places``: (region, event) → where it is."""
    unknown = {event for life in notes.lives for event in life.session.uncertain}
    had = {
        life.session.name: {(_region(each), each.event) for each in life.session.deliveries if each.event}
        for life in notes.lives
    }
    for life in notes.lives:
        if life.updates:
            yield from _early(life, places, unknown, had)
            yield from _backwards(life)


def _early(
    life: Life,
    places: Mapping[tuple[str, str], Position],
    unknown: set[str],
    had: Mapping[str, set[tuple[str, str]]],
) -> Iterator[str]:
    """``had``: session → the events that it was given, (region, event) each."""
    name, deliveries = life.session.name, life.session.deliveries
    later: dict[str, list[tuple[Position, str]]] = {}
    """Region → what is delivered later, and where it is."""
    behind: set[tuple[str, str]] = set()
    place = len(deliveries)
    for update in reversed(life.updates):
        while place > update.place:
            place -= 1
            each = deliveries[place]
            if each.event:
                region = _region(each)
                behind.add((region, each.event))
                later.setdefault(region, []).append((places[region, each.event], each.event))
        who = f"updates: {name} got an update of {update.key} in {update.region} by {update.sender} at {update.seen}"
        sender = had.get(f"{update.sender}#{update.number[0]}", set())
        for at, event in reversed(later.get(update.region, ())):  # the next ones first, which come in order
            if at > update.seen:
                break
            if (update.region, event) in sender:  # it may have begun behind others
                yield f"{who} before {event}, which its sender had seen"
                break
        if (update.region, update.behind) in behind and update.behind not in unknown:
            yield f"{who} before {update.behind}, which its sender had published"


def _backwards(life: Life) -> Iterator[str]:
    last: dict[tuple[str, str, str], tuple[int, int]] = {}
    for update in life.updates:
        whose = update.region, update.key, update.sender
        if update.number < last.get(whose, update.number):
            yield f"updates: {life.session.name} got {update} after {last[whose]}"
        last[whose] = update.number


def _region(each: Delivered) -> str:
    return each.region.removesuffix(PRESENCE)
